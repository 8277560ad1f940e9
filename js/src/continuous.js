/** A number from an interval, by a histogram: the first draw selects a bin, the second the place within it. */

import { InvalidContext, shown } from "./errors.js";
import { checkName, choice, field, misfit } from "./fields.js";

const MOST_BINS = 4096;

export class Continuous {
  /** From the `actions` of a policy file's problem. */
  constructor(described, path) {
    this.name = checkName(field(described, "name", ["str"], path), `${path}.name`);
    this.low = field(described, "low", ["float"], path);
    this.high = field(described, "high", ["float"], path);
    this.scale = choice(described, "scale", ["linear", "log"], path, "linear");
    this.outputs = field(described, "bins", ["int"], path, 128);
    if (!(this.low < this.high)) throw misfit("low must be below high", path);
    if (this.scale === "log" && !(this.low > 0)) throw misfit("a log scale needs low above 0", `${path}.low`);
    if (this.outputs < 2 || this.outputs > MOST_BINS) {
      throw misfit(`bins must be a whole number from 2 to ${MOST_BINS}`, `${path}.bins`);
    }
    this.edges = edgesOf(this);
    for (let k = 0; k < this.outputs; k++) {
      if (!(this.edges[k] < this.edges[k + 1])) throw misfit("the bins do not differ", `${path}.bins`);
    }
  }

  /** An allowed interval [from, to]; null allows everything. */
  interval(eligible) {
    if (eligible === null || eligible === undefined) return null;
    if (!Array.isArray(eligible) || eligible.length !== 2) {
      throw new InvalidContext(`eligible must be an interval [from, to] of ${this.name}, got ${shown(eligible)}`);
    }
    for (const end of eligible) {
      if (typeof end === "number" && end >= this.low && end <= this.high) continue;
      throw new InvalidContext(`${this.name} must be a number from ${this.low} to ${this.high}, got ${shown(end)}`);
    }
    if (!(eligible[0] < eligible[1])) {
      throw new InvalidContext(`eligible must be an interval [from, to] with from below to, got ${shown(eligible)}`);
    }
    return [eligible[0], eligible[1]];
  }

  /** The bins that an interval allows at least in part, as Uint8Array[bins] of 0 and 1; null if all are. */
  mask(interval) {
    if (interval === null) return null;
    const mask = new Uint8Array(this.outputs);
    for (let k = 0; k < mask.length; k++) {
      mask[k] = this.edges[k + 1] > interval[0] && this.edges[k] < interval[1] ? 1 : 0;
    }
    return mask;
  }

  /** Reject a floor that is not a share. */
  checkFloor(floor, Refusal) {
    if (typeof floor === "number" && floor >= 0 && floor <= 1) return;
    throw new Refusal(`floor must be a number from 0 to 1, the share of uniform decisions, got ${shown(floor)}`);
  }

  /** The number and its density for the probabilities `p` of bins, without a floor, at draws u and v. */
  choose(p, interval, floor, u, v) {
    const probabilities = this.mixed(p, interval, floor);
    const bin = chosen(probabilities, u);
    const [lower, upper] = this.#span(bin, interval);
    const place = lower + v * (upper - lower);
    // Rounding may reach the upper end, which is the next bin's.
    return { value: place < upper ? place : lower, density: probabilities[bin] / (upper - lower) };
  }

  /** Probabilities of bins: each keeps the part of its probability that is allowed, then the floor is mixed in. */
  mixed(p, interval, floor) {
    const parts = Float64Array.from(p, (_, k) => this.#part(k, interval));
    let weights = 0;
    let total = 0;
    for (let k = 0; k < p.length; k++) {
      weights += p[k] * parts[k];
      total += parts[k];
    }
    return parts.map((part, k) => part * ((p[k] * (1 - floor)) / weights + floor / total));
  }

  #part(bin, interval) {
    if (interval === null) return 1;
    const [lower, upper] = this.#span(bin, interval);
    return Math.max(upper - lower, 0) / (this.edges[bin + 1] - this.edges[bin]);
  }

  #span(bin, interval) {
    const lower = this.edges[bin];
    const upper = this.edges[bin + 1];
    return interval === null ? [lower, upper] : [Math.max(lower, interval[0]), Math.min(upper, interval[1])];
  }
}

/** Inner edges on a log scale are rounded to float32, where Math.exp may differ in the last bit. */
function edgesOf({ low, high, scale, outputs }) {
  const start = Math.log(low);
  const end = Math.log(high);
  const edges = Float64Array.from({ length: outputs + 1 }, (_, k) => {
    const share = k / outputs;
    return scale === "log" ? Math.fround(Math.exp(start + (end - start) * share)) : low + (high - low) * share;
  });
  edges[0] = low;
  edges[outputs] = high;
  return edges;
}

/** The first bin whose cumulative probability exceeds u of the total; the last possible one if rounding leaves none. */
function chosen(p, u) {
  let total = 0;
  for (const each of p) total += each;
  let last = 0;
  let cumulative = 0;
  for (let k = 0; k < p.length; k++) {
    cumulative += p[k];
    if (p[k] > 0) last = k;
    if (cumulative > u * total) break;
  }
  return last;
}
