import type { Policy, Value } from "./potstill.js";

/** No answer came in time: no network, a service that is down or overloaded. Trying later may help. */
export class Unreachable extends Error {}

/** The service answered, and refused. Trying again with the same request does not help. */
export class Refused extends Error {
  readonly status: number;
}

/** There is no room for another row; what is in the queue is kept. */
export class QueueFull extends Error {}

/** What every request has in common; times are in milliseconds. */
export interface RequestOptions {
  /** Of the service, if it wants one. */
  token?: string | null;
  /** For a request with all its retries and pauses. */
  timeout?: number;
  /** Attempts after the first, on broken connections and on 408, 429, 502, 503 and 504. */
  retries?: number;
  /** Before the first retry; each further pause is twice as long, up to `longest`, less up to half of it. */
  pause?: number;
  longest?: number;
  fetch?: typeof globalThis.fetch;
  sleep?: (milliseconds: number) => Promise<unknown>;
  random?: () => number;
  clock?: () => number;
}

export interface ClientOptions extends RequestOptions {
  /**
   * The action that `decide` resolves to, with mode "fallback", if the service cannot be reached in time.
   * Rewards of such decisions are not sent: nothing was logged that they could belong to.
   */
  fallback?: string | null;
  /** How long a reward waits at most for others. */
  rewardEvery?: number;
  /** Rewards that are sent at once without waiting. */
  rewardBatch?: number;
  /** Rewards that may wait for a service that is away. */
  maxPending?: number;
  /** Told of rewards that the service does not take; they are dropped. */
  onRefused?: (row: { id: string; body: string }, reason: string) => void;
}

export interface AskOptions {
  /** Names the decision; asking again under the same id gives the same decision. 128 random bits if left out. */
  id?: string;
  /** The actions that are allowed now. */
  eligible?: readonly string[];
  /** Whom the decision is about, such as a user. */
  unit?: string;
  /** What the caller does in any case; wanted in mode "apprentice", and only there. */
  action?: string;
}

/** What the service decided. */
export interface Answer {
  id: string;
  action: string;
  propensity: number;
  /** Version of the policy that decided; null if none did. */
  policy: number | null;
  mode: "online" | "apprentice" | "log-only" | "fallback" | "control";
  /** In mode "apprentice", the action that the policy would have taken. */
  would?: string;
  /** Of the experiment that it was decided in, `NAME:control` or `NAME:treatment`; absent outside of any. */
  arm?: string;
}

export interface RewardOptions {
  /** Names the reward among several of one decision; a second one with the same key counts once. */
  key?: string | null;
  /** When it came; now if left out. */
  time?: Date | number | string | null;
  /** Other outcomes to watch in experiments, by name, such as `{ watched: 3.2 }`. Nothing is learnt from them. */
  metrics?: Readonly<Record<string, number>> | null;
}

export type LoggedContext = { readonly [feature: string]: Value };

/** Decides over HTTP; rewards are gathered, and sent in the background and when the page is left. */
export class Client {
  /** `url` is the problem's address, such as `https://host/v1/video-upload`. */
  constructor(url: string | URL, options?: ClientOptions);

  /**
   * Ask for a decision.
   * @throws {Refused} if the service does not take the request.
   * @throws {Unreachable} if there was no answer in time, and no fallback action is eligible.
   */
  decide(context: LoggedContext, options?: AskOptions): Promise<Answer>;
  /** Ask for up to 1,000 decisions at once. */
  decideBatch(requests: readonly ({ context: LoggedContext } & AskOptions)[]): Promise<Answer[]>;
  /**
   * Report a reward; it is sent with others, soon.
   * @throws {QueueFull} if too many wait.
   */
  reward(id: string, reward: number, options?: RewardOptions): void;
  /** Send the rewards that wait; they are kept if that fails. */
  flush(): Promise<void>;
  /** Send decisions that were taken elsewhere: all are accepted, or none. */
  observe(observations: readonly Readonly<Record<string, unknown>>[]): Promise<number>;
  /** Download the policy that is served now. */
  policy(): Promise<Policy>;
  /** What the service says of the problem. */
  status(): Promise<Record<string, unknown>>;
  /** Send what waits. */
  close(): Promise<void>;
}
