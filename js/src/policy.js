/** The policy: loads from a file and takes decisions. */

import { readArtifact } from "./artifact.js";
import { keyOf, uniform } from "./draw.js";
import { shown } from "./errors.js";
import { freshId } from "./ids.js";
import { checkFloor, choose, Network, softmax } from "./network.js";

const PROBABILITY_OPTIONS = new Set(["eligible", "floor"]);
const DECIDE_OPTIONS = new Set(["id", "eligible", "floor"]);
const UNSAID = Object.freeze({});

/** A small softmax network over encoded contexts, read by `Policy.load`. Immutable. */
export class Policy {
  #problem;
  #network;
  #key;
  // Scratch buffers, used only after a caller's code (getters of a context) has run, so that calls may nest.
  #row;
  #p;

  constructor({ metadata, problem, layers, mean }) {
    this.metadata = deepFreeze(metadata);
    this.mean = mean;
    this.#problem = problem;
    this.#network = new Network(layers, metadata.activation, problem.width, metadata.masked ? problem.outputs : 0);
    this.#key = keyOf(metadata.salt);
    this.#row = new Float32Array(problem.width);
    this.#p = new Float32Array(problem.outputs);
    Object.freeze(this);
  }

  /** Read a policy from the bytes of its file. Safe for untrusted files: an invalid one is rejected. */
  static load(file) {
    return new Policy(readArtifact(bytesOf(file)));
  }

  /** The problem that the policy decides, as the file describes it. */
  get problem() {
    return this.metadata.problem;
  }

  /** Version number: 0 before the first batch, then counting up. */
  get version() {
    return this.metadata.version;
  }

  /** Smallest propensity of an eligible action. */
  get floor() {
    return this.metadata.floor;
  }

  /** The names of the actions, in the order of `probabilities`; empty if the action is a number. */
  get actions() {
    return this.#problem.actions;
  }

  /** The name of each encoded column, such as `connection=4g`. */
  get labels() {
    return [...this.#problem.labels];
  }

  /** A context as Float32Array[d]. */
  encode(context) {
    const row = new Float32Array(this.#problem.width);
    this.#problem.encode(context, row);
    return row;
  }

  /** The probability of each action in a context, Float32Array[K], for a list of actions. */
  probabilities(context, options = UNSAID) {
    checkOptions(options, PROBABILITY_OPTIONS);
    if (this.#problem.number) throw new TypeError("probabilities needs a list of actions; this policy chooses a number");
    const p = new Float32Array(this.#p.length);
    this.#probabilities(context, options.eligible, options.floor, p);
    return p;
  }

  /** The probability of each bin in a context and the ends of the bins, float64[bins + 1], if the action is a number. */
  histogram(context, options = UNSAID) {
    checkOptions(options, PROBABILITY_OPTIONS);
    const space = this.#problem.number;
    if (!space) throw new TypeError("histogram needs a policy that chooses a number; probabilities is for a list of actions");
    const interval = space.interval(options.eligible);
    this.#problem.encode(context, this.#row);
    const floor = options.floor ?? this.floor;
    space.checkFloor(floor, RangeError);
    softmax(this.#network.logits(this.#row), space.mask(interval), 0, this.#p);
    return { edges: space.edges.slice(), probabilities: space.mixed(this.#p, interval, floor) };
  }

  /** Choose an action. The same id under the same policy gives the same draw. */
  decide(context, options = UNSAID) {
    checkOptions(options, DECIDE_OPTIONS);
    const { eligible, floor } = options;
    const id = options.id ?? freshId();
    if (this.#problem.number) return this.#number(context, id, eligible, floor);
    const p = this.#p;
    this.#probabilities(context, eligible, floor, p);
    const chosen = choose(p, uniform(id, this.#key));
    const decision = { id, action: this.actions[chosen], propensity: p[chosen], policy: this.version };
    if (eligible !== null && eligible !== undefined) decision.eligible = [...eligible];
    if (floor !== null && floor !== undefined) decision.floor = floor;
    return decision;
  }

  #number(context, id, eligible, floor) {
    const space = this.#problem.number;
    const interval = space.interval(eligible);
    this.#problem.encode(context, this.#row);
    if (floor !== null && floor !== undefined) space.checkFloor(floor, RangeError);
    softmax(this.#network.logits(this.#row), space.mask(interval), 0, this.#p);
    const draws = [uniform(id, this.#key), uniform(id, this.#key, 1)];
    const { value, density } = space.choose(this.#p, interval, floor ?? this.floor, ...draws);
    const decision = { id, action: value, propensity: density, policy: this.version };
    if (interval !== null) decision.eligible = interval;
    if (floor !== null && floor !== undefined) decision.floor = floor;
    return decision;
  }

  #probabilities(context, eligible, floor, p) {
    const mask = this.#problem.mask(eligible);
    this.#problem.encode(context, this.#row);
    if (floor !== null && floor !== undefined) checkFloor(floor, p.length, RangeError);
    softmax(this.#network.logits(this.#row, mask), mask, floor ?? this.floor, p);
  }
}

/** A copy of a file's bytes, so that they cannot change while they are read. */
function bytesOf(file) {
  if (ArrayBuffer.isView(file)) return new Uint8Array(file.buffer, file.byteOffset, file.byteLength).slice();
  if (/ (Shared)?ArrayBuffer]$/.test(Object.prototype.toString.call(file))) return new Uint8Array(file).slice();
  throw new TypeError(`Policy.load takes the bytes of a policy file, an ArrayBuffer or Uint8Array, got ${shown(file)}`);
}

/** Reject unknown options: a misspelt `eligible` would otherwise be ignored. */
function checkOptions(options, known) {
  if (typeof options !== "object" || options === null) {
    throw new TypeError(`options must be an object such as {id: "…"}, got ${shown(options)}`);
  }
  for (const name in options) {
    if (known.has(name)) continue;
    throw new TypeError(`unknown option ${shown(name)}; the options are ${[...known].join(", ")}`);
  }
}

/** Uses an explicit stack: a file may nest deeper than the call stack allows. */
function deepFreeze(root) {
  const stack = [root];
  while (stack.length) {
    const value = stack.pop();
    if (typeof value !== "object" || value === null) continue;
    Object.freeze(value);
    for (const key of Object.keys(value)) stack.push(value[key]);
  }
  return root;
}
