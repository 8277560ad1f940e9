/**
 * The student network, as defined: float64 on float32 weights, with probabilities rounded to float32 at the end. Values
 * beyond the range of float32 are an overflow, as in runtimes that compute in float32.
 */

import { InvalidPolicy, shown } from "./errors.js";

/** Outputs are computed eight at a time, in eight local variables: the fastest variant measured in V8. */
const BLOCK = 8;

/** The largest float32. */
const LARGEST = (2 - 2 ** -23) * 2 ** 127;

const ACTIVATIONS = { tanh, relu };

export const ACTIVATION_NAMES = Object.keys(ACTIVATIONS);

export class Network {
  /**
   * From layers of `{weight: Float32Array[inputs · outputs], bias: Float32Array[outputs]}`. The first has `width` inputs,
   * and `masks` more: 1 for each action that is not eligible.
   */
  constructor(layers, activation, width, masks = 0) {
    this.#activate = ACTIVATIONS[activation];
    this.#present = new Float64Array(width + masks);
    this.#places = new Int32Array(width + masks);
    this.#masks = masks;
    let inputs = width + masks;
    this.#layers = layers.map(({ weight, bias }) => {
      const layer = new Packed(weight, bias, inputs);
      inputs = bias.length;
      return layer;
    });
  }

  #activate;
  #masks;
  #layers;
  #present;
  #places;

  /**
   * One score per action for an encoded context and the eligible actions (null: all). The array is longer than K, and
   * overwritten by the next call.
   */
  logits(encoded, mask = null) {
    let layer = this.#layers[0];
    layer.addRows(this.#present, this.#places, this.#gather(encoded, mask));
    for (let i = 1; i < this.#layers.length; i++) {
      const hidden = layer.output;
      this.#activate(hidden, layer.size);
      layer = this.#layers[i];
      layer.multiply(hidden);
    }
    return layer.output;
  }

  /** Collect the nonzero columns: a one-hot feature has one, so only its row of weights is added. */
  #gather(encoded, mask) {
    let count = 0;
    for (let i = 0; i < encoded.length; i++) {
      if (encoded[i] !== 0) {
        this.#present[count] = encoded[i];
        this.#places[count++] = i * BLOCK;
      }
    }
    for (let k = 0; mask !== null && k < this.#masks; k++) {
      if (mask[k] === 0) {
        this.#present[count] = 1;
        this.#places[count++] = (encoded.length + k) * BLOCK;
      }
    }
    return count;
  }
}

/** A layer with its weights in the order of access: by block of outputs, then by input. */
class Packed {
  constructor(weight, bias, inputs) {
    this.inputs = inputs;
    this.size = bias.length;
    const padded = Math.ceil(this.size / BLOCK) * BLOCK;
    this.output = new Float64Array(padded);
    this.bias = new Float64Array(padded);
    this.bias.set(bias);
    this.weight = new Float64Array(inputs * padded);
    for (let at = 0; at < weight.length; at++) {
      const column = at % this.size;
      const block = column - (column % BLOCK);
      this.weight[block * inputs + ((at - column) / this.size) * BLOCK + (column % BLOCK)] = weight[at];
    }
  }

  /** output ← input · weight + bias. */
  multiply(input) {
    const { inputs, weight: w, bias, output } = this;
    let at = 0;
    for (let block = 0; block < output.length; block += BLOCK) {
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
      for (let i = 0; i < inputs; i++) {
        const x = input[i];
        s0 += x * w[at];
        s1 += x * w[at + 1];
        s2 += x * w[at + 2];
        s3 += x * w[at + 3];
        s4 += x * w[at + 4];
        s5 += x * w[at + 5];
        s6 += x * w[at + 6];
        s7 += x * w[at + 7];
        at += BLOCK;
      }
      store(output, bias, block, s0, s1, s2, s3, s4, s5, s6, s7);
    }
  }

  /** The same for `count` nonzero inputs, with the offsets of their weights in each block. */
  addRows(present, places, count) {
    const { inputs, weight: w, bias, output } = this;
    for (let block = 0; block < output.length; block += BLOCK) {
      const start = block * inputs;
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
      for (let i = 0; i < count; i++) {
        const x = present[i];
        const at = start + places[i];
        s0 += x * w[at];
        s1 += x * w[at + 1];
        s2 += x * w[at + 2];
        s3 += x * w[at + 3];
        s4 += x * w[at + 4];
        s5 += x * w[at + 5];
        s6 += x * w[at + 6];
        s7 += x * w[at + 7];
      }
      store(output, bias, block, s0, s1, s2, s3, s4, s5, s6, s7);
    }
  }
}

function store(output, bias, at, s0, s1, s2, s3, s4, s5, s6, s7) {
  output[at] = s0 + bias[at];
  output[at + 1] = s1 + bias[at + 1];
  output[at + 2] = s2 + bias[at + 2];
  output[at + 3] = s3 + bias[at + 3];
  output[at + 4] = s4 + bias[at + 4];
  output[at + 5] = s5 + bias[at + 5];
  output[at + 6] = s6 + bias[at + 6];
  output[at + 7] = s7 + bias[at + 7];
}

/** 1 − 2 / (1 + e²ˣ): an absolute error of about 2⁻⁵², which is enough here, and faster than Math.tanh. */
function tanh(values, size) {
  for (let i = 0; i < size; i++) {
    checkRange(values[i]);
    values[i] = 1 - 2 / (1 + Math.exp(2 * values[i]));
  }
}

function relu(values, size) {
  for (let i = 0; i < size; i++) {
    checkRange(values[i]);
    values[i] = Math.max(values[i], 0);
  }
}

/** Reject what float32 cannot hold: finite weights can sum up to it. */
function checkRange(value) {
  if (Math.abs(value) <= LARGEST) return;
  throw new InvalidPolicy("its weights are so large that its scores are not finite in this context");
}

/** Reject a floor above one over the number of actions, or below 0. */
export function checkFloor(floor, actions, Refusal) {
  if (typeof floor === "number" && floor >= 0 && floor <= 1 / actions) return;
  throw new Refusal(
    `floor must be a number from 0 to 1/${actions}, one over the number of actions, got ${shown(floor)}`,
  );
}

/** Softmax over the eligible actions (`mask` null: all), then a floor, into `p`, Float32Array[K]. */
export function softmax(scores, mask, floor, p) {
  let best = -Infinity;
  let allowed = 0;
  for (let k = 0; k < p.length; k++) {
    if (mask !== null && mask[k] === 0) continue;
    allowed++;
    checkRange(scores[k]);
    if (scores[k] > best) best = scores[k];
  }
  let total = 0;
  for (let k = 0; k < p.length; k++) {
    scores[k] = mask !== null && mask[k] === 0 ? 0 : Math.exp(scores[k] - best);
    total += scores[k];
  }
  const share = Math.max(0, 1 - allowed * floor) / total;
  for (let k = 0; k < p.length; k++) {
    p[k] = mask !== null && mask[k] === 0 ? 0 : share * scores[k] + floor;
  }
}

/** The first action whose cumulative probability, summed in float64, exceeds u of the total. */
export function choose(p, u) {
  let total = 0;
  for (let k = 0; k < p.length; k++) total += p[k];
  let last = 0;
  let cumulative = 0;
  for (let k = 0; k < p.length; k++) {
    cumulative += p[k];
    if (cumulative > u * total) return k;
    if (p[k] > 0) last = k;
  }
  // u < 1, but u·total may round up to the total: then take the last possible action.
  return last;
}
