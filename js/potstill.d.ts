/** Value of a feature; null and undefined are missing values. */
export type Value =
  | number
  | string
  | boolean
  | readonly number[]
  | Float32Array
  | Float64Array
  | null
  | undefined;

/** Feature names and values, or an already encoded row of d numbers. */
export type Context = { readonly [feature: string]: Value } | Float32Array;

export interface ProbabilityOptions {
  /**
   * Allowed actions; others get probability 0, and the rest is renormalised. All by default. If the action is a number:
   * the allowed interval, [from, to].
   */
  eligible?: readonly string[] | readonly [number, number] | null;
  /**
   * Smallest propensity of an eligible action, at most 1/K; the policy's own by default. If the action is a number: the
   * share of decisions that are drawn uniformly.
   */
  floor?: number | null;
}

export interface DecideOptions extends ProbabilityOptions {
  /** Id of the decision; the same id under the same policy gives the same draw. 128 random bits by default. */
  id?: string | null;
}

/** A chosen action and its propensity, to be logged. */
export interface Decision {
  /** Id of the decision; its reward is reported under the same id. */
  id: string;
  /** The chosen action: a name, or a number. */
  action: string | number;
  /** Exact probability with which that action was chosen; its density if it is a number. */
  propensity: number;
  /** Version of the policy that decided. */
  policy: number;
  /** Allowed actions, or the allowed interval, if one was given. */
  eligible?: string[] | [number, number];
  /** Floor of the request, if one was given. */
  floor?: number;
}

export interface NumericFeature {
  readonly type: "numeric";
  readonly name: string;
  readonly low: number;
  readonly high: number;
  readonly scale?: "linear" | "log" | "quantile";
  readonly missing?: "error" | "flag" | number;
  readonly knots?: readonly number[];
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

export interface HashedFeature {
  readonly type: "hashed";
  readonly name: string;
  readonly size: number;
  readonly missing?: "error" | "flag";
}

export interface VectorFeature {
  readonly type: "vector";
  readonly name: string;
  readonly size: number;
  readonly low?: number;
  readonly high?: number;
  readonly norm?: "unit";
  readonly missing?: "error" | "flag";
}

export interface TextFeature {
  readonly type: "text";
  readonly name: string;
  readonly size: number;
  readonly ngrams?: number;
  readonly missing?: "error" | "flag";
}

export interface TimestampFeature {
  readonly type: "timestamp";
  readonly name: string;
  readonly parts?: readonly ("day" | "week" | "year" | "hour" | "weekday" | "monthday" | "month")[];
  readonly unit?: "s" | "ms" | "us";
  readonly offset?: string;
  readonly missing?: "error" | "flag";
}

export type Feature =
  | NumericFeature
  | CategoricalFeature
  | BooleanFeature
  | HashedFeature
  | VectorFeature
  | TextFeature
  | TimestampFeature;

/** A fixed list of actions. */
export interface DiscreteActions {
  readonly type: "discrete";
  readonly names: readonly string[];
  /** Actions that are no longer chosen, unless a request allows no other. */
  readonly retired?: readonly string[];
}

/** Items with features. */
export interface Catalog {
  readonly type: "catalog";
  readonly features: readonly Feature[];
  readonly items: readonly { readonly id: string; readonly [feature: string]: unknown }[];
  /** Items that are no longer chosen, unless a request allows no other. */
  readonly retired?: readonly string[];
}

/** A number from an interval. */
export interface ContinuousAction {
  readonly type: "continuous";
  readonly name: string;
  readonly low: number;
  readonly high: number;
  readonly scale?: "linear" | "log";
  readonly bins?: number;
}

/** A problem as the policy file describes it; fields at their defaults are left out. */
export interface Problem {
  readonly name: string;
  readonly context: readonly Feature[];
  readonly actions: DiscreteActions | Catalog | ContinuousAction;
  readonly reward?: Readonly<Record<string, unknown>>;
}

/** Metadata of a policy file: everything but its weights. */
export interface Metadata {
  readonly format: 1 | 2 | 3 | 4;
  readonly sha256: string;
  readonly problem: Problem;
  readonly problem_hash: string;
  readonly version: number;
  readonly parent: number | null;
  readonly salt: string;
  readonly floor: number;
  readonly activation: "tanh" | "relu";
  /** Whether it was trained on masks: its network also has one input per action, 1 if it is not eligible. */
  readonly masked: boolean;
  readonly lineage?: Readonly<Record<string, unknown>>;
  readonly fidelity: Readonly<Record<string, unknown>> | null;
}

/** A small softmax network over encoded contexts. Immutable. */
export class Policy {
  private constructor();

  /**
   * Read a policy from the bytes of its file. Safe for untrusted files: nothing in it is executed.
   * @throws {InvalidPolicy} if the file is truncated, altered, of an unknown format or otherwise invalid.
   */
  static load(file: ArrayBuffer | ArrayBufferView): Policy;

  /** Metadata of the policy file. */
  readonly metadata: Metadata;
  /** Mean encoded context of the training contexts, d numbers. */
  readonly mean: Float32Array;
  /** The problem that the policy decides. */
  get problem(): Problem;
  /** Version number: 0 before the first batch, then counting up. */
  get version(): number;
  /** Smallest propensity of an eligible action. */
  get floor(): number;
  /** The names of the actions, in the order of `probabilities`; empty if the action is a number. */
  get actions(): readonly string[];
  /** The name of each encoded column, such as `connection=4g`. */
  get labels(): string[];

  /**
   * A context as d numbers.
   * @throws {InvalidContext} if it does not fit the problem.
   */
  encode(context: Context): Float32Array;

  /**
   * The probability of each action in a context, K numbers, for a list of actions.
   * @throws {InvalidContext} if the context or the eligible actions do not fit the problem.
   * @throws {RangeError} if the floor is out of range.
   */
  probabilities(context: Context, options?: ProbabilityOptions): Float32Array;

  /**
   * The probability of each bin in a context, and the ends of the bins, if the action is a number.
   * @throws {InvalidContext} if the context or the allowed interval do not fit the problem.
   * @throws {RangeError} if the floor is out of range.
   * @throws {TypeError} if the action is one of a list.
   */
  histogram(
    context: Context,
    options?: ProbabilityOptions,
  ): { edges: Float64Array; probabilities: Float64Array };

  /**
   * Choose an action.
   * @throws {InvalidContext} if the context or the eligible actions do not fit the problem.
   * @throws {RangeError} if the floor is out of range, or the id is not a non-empty string of valid Unicode.
   */
  decide(context: Context, options?: DecideOptions): Decision;
}

/** A context, or the list of eligible actions, does not fit the problem. */
export class InvalidContext extends Error {}

/** A policy file is invalid; the message says why. */
export class InvalidPolicy extends Error {}
