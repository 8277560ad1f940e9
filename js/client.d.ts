import type { Policy, Value } from "./potstill.js";

/** No reply in time: no network, or the service is down or overloaded. A later retry may succeed. */
export class Unreachable extends Error {}

/** The service rejected the request. Retrying the same request does not help. */
export class Refused extends Error {
  readonly status: number;
}

/** The queue is full; existing rows are kept. */
export class QueueFull extends Error {}

/** Options of every request; times are in milliseconds. */
export interface RequestOptions {
  /** Token of the service, if it requires one. */
  token?: string | null;
  /** Time limit of a request, including retries and pauses. */
  timeout?: number;
  /** Number of retries, on broken connections and on 408, 429, 502, 503 and 504. */
  retries?: number;
  /** Pause before the first retry. Each further pause is twice as long, up to `longest`, with jitter of up to half. */
  pause?: number;
  longest?: number;
  fetch?: typeof globalThis.fetch;
  sleep?: (milliseconds: number) => Promise<unknown>;
  random?: () => number;
  clock?: () => number;
}

export interface ClientOptions extends RequestOptions {
  /**
   * The action that `decide` resolves to, with mode "fallback", if the service cannot be reached in time and the
   * action is eligible.
   * Rewards of such decisions are not sent, because the decision was not logged.
   */
  fallback?: string | number | null;
  /** Longest time that a reward waits for others. */
  rewardEvery?: number;
  /** Number of pending rewards that are sent without waiting. */
  rewardBatch?: number;
  /** Largest number of pending rewards while the service is unreachable. */
  maxPending?: number;
  /** Called for rewards that the service rejects; they are dropped. */
  onRefused?: (row: { id: string; body: string }, reason: string) => void;
}

export interface AskOptions {
  /** Id of the decision; a repeated request with the same id gives the same decision. 128 random bits by default. */
  id?: string;
  /** Allowed actions; all by default. If the action is a number: the allowed interval, [from, to]. */
  eligible?: readonly string[] | readonly [number, number];
  /** Unit that the decision concerns, such as a user. */
  unit?: string;
  /** Action that the caller takes; required in mode "apprentice", and only there. */
  action?: string | number;
  /** Probability, or density, with which the caller chose `action`, if it is known. */
  propensity?: number;
}

/** A decision of the service. */
export interface Answer {
  id: string;
  /** The action to carry out: a name, or a number. */
  action: string | number;
  /** Exact probability with which that action was chosen; its density if it is a number. */
  propensity: number;
  /** Version of the policy that decided; null if none did. */
  policy: number | null;
  mode: "online" | "apprentice" | "log-only" | "fallback" | "control" | "design";
  /** In mode "apprentice", the action that the policy would have taken. */
  would?: string | number;
  /** Experiment arm, `NAME:control` or `NAME:treatment`; absent outside of experiments. */
  arm?: string;
}

export interface RewardOptions {
  /** Idempotency key of the reward within its decision; rewards with the same key count once. */
  key?: string | null;
  /** Time of the reward; now by default. */
  time?: Date | number | string | null;
  /** Other outcomes for experiments, by name, such as `{ watched: 3.2 }`. They are not learnt from. */
  metrics?: Readonly<Record<string, number>> | null;
}

export type LoggedContext = { readonly [feature: string]: Value };

/** Decides over HTTP. Rewards are batched and sent in the background, and when the user leaves the page. */
export class Client {
  /** `url` is the URL of the problem, such as `https://host/v1/video-upload`. */
  constructor(url: string | URL, options?: ClientOptions);

  /**
   * Request a decision.
   * @throws {Refused} if the service rejects the request.
   * @throws {Unreachable} if there is no reply in time, and no fallback action is eligible.
   */
  decide(context: LoggedContext, options?: AskOptions): Promise<Answer>;
  /** Request up to 1,000 decisions at once. */
  decideBatch(requests: readonly ({ context: LoggedContext } & AskOptions)[]): Promise<Answer[]>;
  /**
   * Report a reward; it is sent in the next batch.
   * @throws {QueueFull} if too many rewards are pending.
   */
  reward(id: string, reward: number, options?: RewardOptions): void;
  /** Send pending rewards; they are kept if that fails. */
  flush(): Promise<void>;
  /** Send decisions that were taken elsewhere; the service accepts all of them or none. */
  observe(observations: readonly Readonly<Record<string, unknown>>[]): Promise<number>;
  /** Download the currently served policy. */
  policy(): Promise<Policy>;
  /** Status of the problem in the service. */
  status(): Promise<Record<string, unknown>>;
  /** Send pending rewards and close. */
  close(): Promise<void>;
}
