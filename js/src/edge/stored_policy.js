/** The policy of a device, in memory and in a store; the stored bytes are valid or absent. */

import { InvalidPolicy, quoted } from "../errors.js";
import { Policy } from "../policy.js";
import { etagOf } from "./service.js";

export class StoredPolicy {
  #store;
  #name;
  #hash;

  /** For the problem with this name and, if given, this hash. */
  constructor(store, name, hash) {
    this.#store = store;
    this.#name = name;
    this.#hash = hash ?? null;
    this.current = null;
    this.etag = null;
    this.reason = "none is stored";
  }

  /** Load the stored policy, if it is valid. */
  async start() {
    const bytes = await this.#store.readPolicy();
    if (bytes === null) return;
    try {
      this.#use(this.#checked(bytes), bytes);
    } catch (error) {
      if (!(error instanceof InvalidPolicy)) throw error;
      this.reason = `the stored one is not sound: ${error.message}`;
    }
  }

  /** Switch to a downloaded policy; an invalid one, or one for another problem, changes nothing. */
  async replace(bytes) {
    const policy = this.#checked(bytes);
    await this.#store.writePolicy(bytes);
    this.#use(policy, bytes);
  }

  #use(policy, bytes) {
    this.current = policy;
    this.etag = etagOf(bytes);
  }

  /** Whether a problem that was not stated differs in which actions are retired alone: all of them are known. */
  #follows(problem) {
    const known = this.current?.problem;
    if (this.#hash !== null || !known || !namesOf(known) || !namesOf(problem)) return false;
    const names = (one) => JSON.stringify([...namesOf(one)].sort());
    const retired = (one) => JSON.stringify(one.actions.retired ?? []);
    if (retired(known) === retired(problem)) return false;
    return JSON.stringify(known.context) === JSON.stringify(problem.context) && names(known) === names(problem);
  }

  #checked(bytes) {
    const policy = Policy.load(bytes);
    const { problem, problem_hash: found } = policy.metadata;
    const wanted = this.#hash ?? this.current?.metadata.problem_hash ?? found;
    if (problem.name !== this.#name) {
      throw new InvalidPolicy(`a policy for problem ${quoted(problem.name)}, not for ${quoted(this.#name)}`);
    }
    if (found !== wanted && !this.#follows(problem)) {
      throw new InvalidPolicy(
        `a policy for problem ${quoted(problem.name)} as it is now (${found}), not as this device knows it ` +
          `(${wanted}); to go over to it, open with problemHash as it is now`,
      );
    }
    return policy;
  }
}

/** The names of a problem's actions; undefined if the action is a number. */
function namesOf({ actions }) {
  return actions.names ?? actions.items?.map((item) => item.id);
}
