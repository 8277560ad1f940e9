/**
 * An OpenFeature provider for the server SDK: a decision is the evaluation of a flag, a tracking event is a reward.
 *
 * It is what OpenFeature calls a provider by its methods alone, so that nothing is imported from the SDK.
 */

import { Refused } from "./client.js";
import { InvalidContext, quoted, shown } from "./src/errors.js";

/** Attribute of an evaluation context or of a tracking event that names the decision. */
const DECISION_ID = "decision_id";
/** Number of latest decisions, by flag and targeting key, that rewards find without an id. */
const REMEMBERED = 100_000;
const TRUTHS = new Map([["true", true], ["false", false], ["on", true], ["off", false]]);

/** An error with OpenFeature's code. */
class FlagError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Evaluates flags by decisions of the service. */
export class PotstillProvider {
  metadata = { name: "potstill" };
  runsOn = "server";
  #flags;
  #rewards;
  #features = new Map();
  #latest = new Map();

  constructor(flags, { rewards = {} } = {}) {
    this.#flags = new Map(Object.entries(flags));
    this.#rewards = new Map(Object.entries(rewards));
    for (const [event, flag] of this.#rewards) {
      if (this.#flags.has(flag)) continue;
      throw new TypeError(`event ${quoted(event)} rewards flag ${quoted(flag)}, which is not among ${this.#names()}`);
    }
  }

  /** Ask for the features of each flag's problem; a flag whose service is away asks again later. */
  async initialize() {
    await Promise.allSettled([...this.#flags.keys()].map((flag) => this.#featuresOf(flag)));
  }

  /** Send pending rewards, and close the clients. */
  async onClose() {
    await Promise.all([...this.#flags.values()].map((client) => client.close()));
  }

  async resolveStringEvaluation(flag, _default, context) {
    const answer = await this.#decide(flag, context);
    if (typeof answer.action !== "string") throw mismatch(flag, answer, "a string");
    return details(answer, answer.action);
  }

  async resolveBooleanEvaluation(flag, _default, context) {
    const answer = await this.#decide(flag, context);
    const value = TRUTHS.get(String(answer.action).toLowerCase());
    if (value === undefined) throw mismatch(flag, answer, "a boolean: its actions are not on and off, or true and false");
    return details(answer, value);
  }

  async resolveNumberEvaluation(flag, _default, context) {
    const answer = await this.#decide(flag, context);
    const value = answer.action === "" ? NaN : Number(answer.action);
    if (!Number.isFinite(value)) throw mismatch(flag, answer, "a number");
    return details(answer, value);
  }

  async resolveObjectEvaluation(flag) {
    throw new FlagError("TYPE_MISMATCH", `flag ${quoted(flag)}: actions are names or numbers; ask for a string or a number`);
  }

  /** Report a reward, for events that `rewards` names; others are ignored, and so are those of no decision. */
  track(event, context = {}, details = {}) {
    const flag = this.#rewards.get(event);
    if (flag === undefined) return;
    const id = details[DECISION_ID] ?? this.#latest.get(latestKey(flag, context.targetingKey));
    if (id !== undefined) this.#flags.get(flag).reward(id, details.value ?? 1);
  }

  async #decide(flag, context = {}) {
    const client = this.#flags.get(flag);
    if (!client) {
      throw new FlagError("FLAG_NOT_FOUND", `there is no flag ${quoted(flag)}; the provider has ${this.#names()}`);
    }
    try {
      const features = await this.#featuresOf(flag);
      const known = Object.fromEntries(Object.entries(context).filter(([name]) => features.has(name)));
      const options = { unit: context.targetingKey || undefined, id: context[DECISION_ID] };
      const answer = await client.decide(known, options);
      this.#remember(flag, context.targetingKey, answer.id);
      return answer;
    } catch (error) {
      const isCallers = error instanceof Refused || error instanceof InvalidContext;
      throw new FlagError(isCallers ? "INVALID_CONTEXT" : "GENERAL", error.message);
    }
  }

  async #featuresOf(flag) {
    if (!this.#features.has(flag)) {
      const { problem } = await this.#flags.get(flag).policy();
      this.#features.set(flag, new Set(problem.context.map((feature) => feature.name)));
    }
    return this.#features.get(flag);
  }

  #remember(flag, targetingKey, id) {
    if (!targetingKey) return;
    const key = latestKey(flag, targetingKey);
    this.#latest.delete(key);
    this.#latest.set(key, id);
    if (this.#latest.size > REMEMBERED) this.#latest.delete(this.#latest.keys().next().value);
  }

  #names() {
    return [...this.#flags.keys()].join(", ");
  }
}

function latestKey(flag, targetingKey) {
  return JSON.stringify([flag, targetingKey]);
}

function mismatch(flag, answer, wanted) {
  return new FlagError("TYPE_MISMATCH", `flag ${quoted(flag)}: action ${shown(answer.action)} is not ${wanted}`);
}

function details({ id, action, propensity, policy, mode }, value) {
  const flagMetadata = { id, propensity, mode, ...(policy === null ? {} : { version: String(policy) }) };
  return { value, variant: String(action), reason: mode === "fallback" ? "DEFAULT" : "SPLIT", flagMetadata };
}
