import type { LoggedContext, RequestOptions, RewardOptions } from "./client.js";
import type { DecideOptions, Decision, Policy } from "./potstill.js";

export { QueueFull, Refused, Unreachable } from "./client.js";

/** There is no policy to decide with: none is stored, and none could be downloaded. */
export class NoPolicy extends Error {}

export interface Row {
  kind: "decision" | "reward";
  id: string;
  /** JSON, as it is sent. */
  body: string;
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

/** Where a device keeps its rows and its policy; each method resolves when what it did is durable. */
export interface Store {
  /** Write a row. Resolves to null, or to the body of an earlier decision with this id, which stays. */
  add(row: Row): Promise<string | null>;
  counts(): Promise<Counts>;
  /** The number of the last row; 0 if there is none. Numbers are never used again. */
  newest(): Promise<number>;
  /** The first rows to send: so many, and none after a number. */
  oldest(count: number, until: number): Promise<StoredRow[]>;
  remove(rows: readonly StoredRow[]): Promise<void>;
  setAside(row: StoredRow, reason: string): Promise<void>;
  refused(): Promise<RefusedRow[]>;
  requeueRefused(): Promise<void>;
  discardRefused(): Promise<void>;
  readPolicy(): Promise<Uint8Array | null>;
  writePolicy(bytes: Uint8Array): Promise<void>;
  close(): void;
}

/** What a row survives once it was written: a loss of power, or the end of the browser's process only (faster). */
export type Survives = "power" | "process";

/** A store in memory: for tests, and for places where nothing can be kept. */
export class MemoryStore implements Store {
  add(row: Row): Promise<string | null>;
  counts(): Promise<Counts>;
  newest(): Promise<number>;
  oldest(count: number, until: number): Promise<StoredRow[]>;
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
  oldest(count: number, until: number): Promise<StoredRow[]>;
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
  /** IndexedDB, in a database named after the address, if left out. */
  store?: Store;
  /** Of the IndexedDB store; "power" if left out. */
  survives?: Survives;
  /** Policies must be for the problem of this hash. If left out, for the same one as the first policy. */
  problemHash?: string | null;
  /** That the store may hold; then `decide` and `reward` reject with `QueueFull`, and the oldest rows stay. */
  maxRows?: number;
}

export interface EdgeDecideOptions extends DecideOptions {
  /** Whom the decision is about, such as a user. */
  unit?: string | null;
}

/** What a `sync` did. */
export interface Synced {
  decisions: number;
  rewards: number;
  /** Rows that the service did not take. */
  refused: number;
  /** The version that decides from now on. */
  policy: number;
  /** Why a downloaded policy was not taken over, if so; the old one decides on. */
  policyError: string | null;
}

/**
 * Decides in this page or program, online or not, and keeps decisions and rewards until the service has them. There are
 * no experiments on devices: all that they decide is the policy's, without an arm.
 */
export class EdgeClient {
  private constructor();

  /**
   * Start from the stored policy, without a network; only the first start has to download one.
   * @throws {NoPolicy} if none is stored, and none could be downloaded.
   */
  static open(url: string | URL, options?: EdgeOptions): Promise<EdgeClient>;

  /** The policy that decides now. */
  get policy(): Policy;

  /**
   * Choose an action; the decision is in the store when this resolves. An id whose decision still waits there gives
   * that decision again, also if the policy has changed.
   * @throws {InvalidContext} if the context or the eligible actions do not fit the problem.
   * @throws {QueueFull} if the store has no room.
   */
  decide(context: LoggedContext, options?: EdgeDecideOptions): Promise<Decision>;
  /** Report a reward; it is in the store when this resolves. */
  reward(id: string, reward: number, options?: RewardOptions): Promise<void>;
  /**
   * Send what is in the store, and look for a new policy.
   * @throws {Unreachable} if the service cannot be reached; what it has not acknowledged stays in the store.
   * @throws {Refused} if the service refuses this client, such as for its token; likewise.
   */
  sync(): Promise<Synced>;
  /** Sync now and every so many milliseconds; less often while that fails, and at once when a network comes back. */
  start(options?: { every?: number }): void;
  /** End what `start` began, after the batch under way. */
  stop(): Promise<void>;
  /** How many rows wait to be sent, and how many were refused. */
  counts(): Promise<Counts>;
  /** Rows that the service did not take, with its reasons. */
  refused(): Promise<RefusedRow[]>;
  /** Send the rows that were refused again with the next `sync`. */
  requeueRefused(): Promise<void>;
  /** Delete the rows that were refused. */
  discardRefused(): Promise<void>;
  /** Stop; what waits in the store waits for the next start. */
  close(): Promise<void>;
}
