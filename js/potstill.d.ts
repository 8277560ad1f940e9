/** A value of a feature; null and undefined are missing values. */
export type Value = number | string | boolean | null | undefined;

/** Feature names and values, or an already encoded row of d numbers. */
export type Context = { readonly [feature: string]: Value } | Float32Array;

export interface ProbabilityOptions {
  /** The actions that are allowed now; the others get 0, and the rest is renormalised. All if left out. */
  eligible?: readonly string[] | null;
  /** The smallest propensity of an eligible action, at most 1/K; the policy's own if left out. */
  floor?: number | null;
}

export interface DecideOptions extends ProbabilityOptions {
  /** Names the decision; the same id under the same policy gives the same draw. 128 random bits if left out. */
  id?: string | null;
}

/** What was decided, and with what probability: what to log. */
export interface Decision {
  /** Names the decision; its reward is reported under the same id. */
  id: string;
  /** The chosen action. */
  action: string;
  /** The exact probability with which that action was chosen. */
  propensity: number;
  /** Version of the policy that decided. */
  policy: number;
  /** The actions that were allowed, if a list was given. */
  eligible?: string[];
  /** The floor that was asked for, if one was. */
  floor?: number;
}

export interface NumericFeature {
  readonly type: "numeric";
  readonly name: string;
  readonly low: number;
  readonly high: number;
  readonly scale?: "linear" | "log";
  readonly missing?: "error" | "flag" | number;
}

export interface CategoricalFeature {
  readonly type: "categorical";
  readonly name: string;
  readonly values: readonly string[];
  readonly missing?: "unseen" | "error";
}

export interface BooleanFeature {
  readonly type: "boolean";
  readonly name: string;
  readonly missing?: "error" | "flag" | boolean;
}

export type Feature = NumericFeature | CategoricalFeature | BooleanFeature;

/** A problem as the policy file describes it; fields at their defaults are left out. */
export interface Problem {
  readonly name: string;
  readonly context: readonly Feature[];
  readonly actions: { readonly type: "discrete"; readonly names: readonly string[] };
  readonly reward?: Readonly<Record<string, unknown>>;
}

/** What a policy file says of itself, beside its weights. */
export interface Metadata {
  readonly format: 1;
  readonly sha256: string;
  readonly problem: Problem;
  readonly problem_hash: string;
  readonly version: number;
  readonly parent: number | null;
  readonly salt: string;
  readonly floor: number;
  readonly activation: "tanh" | "relu";
  readonly lineage?: Readonly<Record<string, unknown>>;
  readonly fidelity: Readonly<Record<string, unknown>> | null;
}

/** A small softmax network over encoded contexts. Immutable. */
export class Policy {
  private constructor();

  /**
   * Read a policy from the bytes of its file, from anywhere: nothing in it is run.
   * @throws {InvalidPolicy} if the file is truncated, altered, of an unknown format or otherwise not sound.
   */
  static load(file: ArrayBuffer | ArrayBufferView): Policy;

  /** What the policy file says of itself. */
  readonly metadata: Metadata;
  /** The mean encoded context that the policy was distilled on, d numbers. */
  readonly mean: Float32Array;
  /** The problem that the policy decides. */
  get problem(): Problem;
  /** 0 before the first batch, then counting. */
  get version(): number;
  /** The smallest propensity of an eligible action. */
  get floor(): number;
  /** The names of the actions, in the order of `probabilities`. */
  get actions(): readonly string[];
  /** The name of each encoded column, such as `connection=4g`. */
  get labels(): string[];

  /**
   * A context as d numbers.
   * @throws {InvalidContext} if it does not fit the problem.
   */
  encode(context: Context): Float32Array;

  /**
   * The probability of each action in a context, K numbers.
   * @throws {InvalidContext} if the context or the eligible actions do not fit the problem.
   * @throws {RangeError} if the floor is none.
   */
  probabilities(context: Context, options?: ProbabilityOptions): Float32Array;

  /**
   * Choose an action.
   * @throws {InvalidContext} if the context or the eligible actions do not fit the problem.
   * @throws {RangeError} if the floor is none, or the id not a non-empty string of valid Unicode.
   */
  decide(context: Context, options?: DecideOptions): Decision;
}

/** A context, or the list of eligible actions, does not fit the problem. */
export class InvalidContext extends Error {}

/** A policy file cannot be trusted; the message says why. */
export class InvalidPolicy extends Error {}
