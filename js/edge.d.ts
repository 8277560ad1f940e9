import type { LoggedContext, RequestOptions, RewardOptions } from "./client.js";
import type { DecideOptions, Decision, Policy } from "./potstill.js";

export { QueueFull, Refused, Unreachable } from "./client.js";

/** No policy is available: none is stored, and none could be downloaded. */
export class NoPolicy extends Error {}

export interface Row {
  kind: "decision" | "reward";
  id: string;
  /** JSON text of the request. */
  body: string;
  /** Time since the page was opened, by which a wrong clock is corrected; missing if the caller stated the time. */
  taken?: { origin: number; milliseconds: number };
}

export interface StoredRow extends Row {
  number: number;
}

export interface RefusedRow extends Row {
  reason: string;
}

export interface Counts {
  queued: number;
  refused: number;
}

/** Storage of a device's rows and policy; each method resolves when its effect is durable. */
export interface Store {
  /** Write a row. Resolves to null, or to the body of an earlier decision with this id, which is kept. */
  add(row: Row): Promise<string | null>;
  counts(): Promise<Counts>;
  /** Number of the last row; 0 if there is none. Numbers are never reused. */
  newest(): Promise<number>;
  /** Up to `count` of the oldest rows, with numbers above `after` (default 0) and up to `until`. */
  oldest(count: number, until: number, after?: number): Promise<StoredRow[]>;
  remove(rows: readonly StoredRow[]): Promise<void>;
  setAside(row: StoredRow, reason: string): Promise<void>;
  refused(): Promise<RefusedRow[]>;
  requeueRefused(): Promise<void>;
  discardRefused(): Promise<void>;
  readPolicy(): Promise<Uint8Array | null>;
  writePolicy(bytes: Uint8Array): Promise<void>;
  close(): void;
}

/** Durability of a written row: survives a loss of power, or only the end of the browser's process (faster). */
export type Survives = "power" | "process";

/** A store in memory: for tests, and for environments without storage. */
export class MemoryStore implements Store {
  add(row: Row): Promise<string | null>;
  counts(): Promise<Counts>;
  newest(): Promise<number>;
  oldest(count: number, until: number, after?: number): Promise<StoredRow[]>;
  remove(rows: readonly StoredRow[]): Promise<void>;
  setAside(row: StoredRow, reason: string): Promise<void>;
  refused(): Promise<RefusedRow[]>;
  requeueRefused(): Promise<void>;
  discardRefused(): Promise<void>;
  readPolicy(): Promise<Uint8Array | null>;
  writePolicy(bytes: Uint8Array): Promise<void>;
  close(): void;
}

/** A store in the browser's IndexedDB. Tabs may share one. */
export class IndexedDBStore implements Store {
  private constructor();
  static open(name: string, options?: { survives?: Survives }): Promise<IndexedDBStore>;

  add(row: Row): Promise<string | null>;
  counts(): Promise<Counts>;
  newest(): Promise<number>;
  oldest(count: number, until: number, after?: number): Promise<StoredRow[]>;
  remove(rows: readonly StoredRow[]): Promise<void>;
  setAside(row: StoredRow, reason: string): Promise<void>;
  refused(): Promise<RefusedRow[]>;
  requeueRefused(): Promise<void>;
  discardRefused(): Promise<void>;
  readPolicy(): Promise<Uint8Array | null>;
  writePolicy(bytes: Uint8Array): Promise<void>;
  close(): void;
}

export interface EdgeOptions extends RequestOptions {
  /** Store of rows and policy; by default IndexedDB, in a database named after the URL. */
  store?: Store;
  /** Durability of the IndexedDB store; "power" by default. */
  survives?: Survives;
  /** Hash of the problem that policies must be for; by default, that of the first policy. */
  problemHash?: string | null;
  /** Largest number of stored rows; beyond it, `decide` and `reward` reject with `QueueFull`. */
  maxRows?: number;
}

export interface EdgeDecideOptions extends DecideOptions {
  /** Unit that the decision concerns, such as a user. */
  unit?: string | null;
}

/** Result of a `sync`. */
export interface Synced {
  decisions: number;
  rewards: number;
  /** Number of rows that the service rejected. */
  refused: number;
  /** Version of the current policy. */
  policy: number;
  /** Why a downloaded policy was rejected, in which case the old one stays; else null. */
  policyError: string | null;
}

/**
 * Decides in this page or program, online or offline, and stores decisions and rewards until the service has them.
 * There are no experiments on devices: decisions are always the policy's, without an arm.
 */
export class EdgeClient {
  private constructor();

  /**
   * Start from the stored policy, without a network; only the first start downloads one.
   * @throws {NoPolicy} if none is stored, and none could be downloaded.
   */
  static open(url: string | URL, options?: EdgeOptions): Promise<EdgeClient>;

  /** The current policy. */
  get policy(): Policy;

  /**
   * Choose an action; the decision is in the store when this resolves. An id whose decision is still in the store gives
   * that decision again, even if the policy has changed.
   * @throws {InvalidContext} if the context or the eligible actions do not fit the problem.
   * @throws {QueueFull} if the store is full.
   */
  decide(context: LoggedContext, options?: EdgeDecideOptions): Promise<Decision>;
  /** Report a reward; it is in the store when this resolves. */
  reward(id: string, reward: number, options?: RewardOptions): Promise<void>;
  /**
   * Send the stored rows and check for a new policy.
   * @throws {Unreachable} if the service cannot be reached; unacknowledged rows stay in the store.
   * @throws {Refused} if the service rejects this client, for example its token; rows stay in the store.
   */
  sync(): Promise<Synced>;
  /** Sync now and every `every` milliseconds; less often after failures, and at once when the network comes back. */
  start(options?: { every?: number }): void;
  /** Stop the periodic sync, after the current batch. */
  stop(): Promise<void>;
  /** Number of rows queued and refused. */
  counts(): Promise<Counts>;
  /** Rows that the service rejected, with its reasons. */
  refused(): Promise<RefusedRow[]>;
  /** Send rejected rows again with the next `sync`. */
  requeueRefused(): Promise<void>;
  /** Delete rejected rows. */
  discardRefused(): Promise<void>;
  /** Stop; stored rows are sent after the next start. */
  close(): Promise<void>;
}
