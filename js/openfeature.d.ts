import type { Client } from "./client.js";

interface Context {
  readonly targetingKey?: string;
  readonly [attribute: string]: unknown;
}

interface Details<T> {
  value: T;
  variant: string;
  reason: string;
  /** Id, propensity, version and mode of the decision. */
  flagMetadata: Record<string, string | number | boolean>;
}

/**
 * A provider for the server SDK of OpenFeature.
 *
 * The targeting key is the decision's unit; attributes that are features of the problem are its context, and others are
 * left out. Actions are strings; `on` and `off`, or `true` and `false`, are booleans; numbers are numbers.
 */
export class PotstillProvider {
  /**
   * @param flags A client for each flag.
   * @param options `rewards`: the flag whose decision a tracking event rewards, by the event's name. The event's value
   *   is the reward, 1 if it has none. `decision_id` names the decision; without it, it is the latest one of this
   *   provider for the targeting key.
   */
  constructor(flags: Record<string, Client>, options?: { rewards?: Record<string, string> });
  readonly metadata: { readonly name: string };
  readonly runsOn: "server";
  initialize(): Promise<void>;
  onClose(): Promise<void>;
  resolveStringEvaluation(flag: string, defaultValue: string, context: Context): Promise<Details<string>>;
  resolveBooleanEvaluation(flag: string, defaultValue: boolean, context: Context): Promise<Details<boolean>>;
  resolveNumberEvaluation(flag: string, defaultValue: number, context: Context): Promise<Details<number>>;
  resolveObjectEvaluation(flag: string, defaultValue: object, context: Context): Promise<never>;
  track(event: string, context?: Context, details?: { value?: number; [attribute: string]: unknown }): void;
}
