import assert from "node:assert/strict";
import { test } from "node:test";

import { choose, Network, softmax } from "../src/network.js";

const close = (actual, expected, tolerance = 1e-12) =>
  expected.forEach((value, i) => assert.ok(Math.abs(actual[i] - value) <= tolerance, `${i}: ${actual[i]}, ${value}`));

function numbers(length, seed) {
  return Float32Array.from({ length }, (_, i) => Math.sin(37 * i + seed));
}

/** h·W + b, and between layers the activation, written as one writes it down. */
function naive(layers, activation, x) {
  return layers.reduce((hidden, { weight, bias }, i) => {
    const input = i === 0 ? hidden : hidden.map(activation);
    return Array.from(bias, (b, j) => input.reduce((sum, value, k) => sum + value * weight[k * bias.length + j], b));
  }, Array.from(x));
}

test("two by two, by hand", () => {
  const layers = [
    { weight: Float32Array.of(1, 2, 3, 4), bias: Float32Array.of(0.5, -20) },
    { weight: Float32Array.of(1, 0, 10, 1), bias: Float32Array.of(0, 0.25) },
  ];
  // [1, 2] → relu [7.5, -10] → [7.5, 0.25]
  close(new Network(layers, "relu", 2).logits(Float32Array.of(1, 2)), [7.5, 0.25]);
});

for (const sizes of [[5, 3], [1, 1, 2], [7, 8, 9], [16, 17, 15, 8], [38, 100, 100, 7], [0, 4, 2], [3, 0, 2]]) {
  test(`a network of ${sizes.join(" × ")}, against the plain sums`, () => {
    const layers = sizes.slice(1).map((outputs, i) => ({
      weight: numbers(sizes[i] * outputs, i),
      bias: numbers(outputs, 10 + i),
    }));
    for (const [name, activation] of [["tanh", Math.tanh], ["relu", (v) => Math.max(v, 0)]]) {
      const network = new Network(layers, name, sizes[0]);
      for (const seed of [1, 2]) {
        // Every third column is zero, as with one-hot features; twice, so that nothing is left over from before.
        const x = numbers(sizes[0], seed).map((value, i) => (i % 3 === seed ? 0 : value));
        close(network.logits(x), naive(layers, activation, x));
      }
    }
  });
}

test("tanh holds at both ends", () => {
  const layers = [
    { weight: Float32Array.of(1), bias: Float32Array.of(0) },
    { weight: Float32Array.of(1), bias: Float32Array.of(0) },
  ];
  const network = new Network(layers, "tanh", 1);
  for (const x of [-3e38, -800, -20, -1, -1e-30, 0, 1e-5, 0.5, 30, 3e38]) {
    close(network.logits(Float32Array.of(x)), [Math.tanh(Math.fround(x))], 1e-15);
  }
});

function probabilities(scores, mask, floor) {
  const p = new Float32Array(scores.length);
  softmax(Float64Array.from(scores), mask && Uint8Array.from(mask), floor, p);
  return p;
}

test("softmax over the eligible, then the floor", () => {
  const logs = [Math.log(1), Math.log(2), Math.log(5)];
  close(probabilities(logs, null, 0), [0.125, 0.25, 0.625], 1e-7);
  close(probabilities(logs, [1, 0, 1], 0), [1 / 6, 0, 5 / 6], 1e-7);
  close(probabilities(logs, null, 0.1), [0.7 * 0.125 + 0.1, 0.7 * 0.25 + 0.1, 0.7 * 0.625 + 0.1], 1e-7);
  close(probabilities(logs, [1, 0, 1], 0.1), [0.8 / 6 + 0.1, 0, 4 / 6 + 0.1], 1e-7);
  close(probabilities([1e4, -1e4, 0], null, 0), [1, 0, 0]);
  close(probabilities([1e4, -1e4, -2e4], [0, 1, 1], 0), [0, 1, 0]);
  close(probabilities([1e4, -1e4, 0], null, 1 / 3), [1 / 3, 1 / 3, 1 / 3], 1e-7);
});

test("no eligible action is below the floor", () => {
  for (const floor of [1e-9, 0.001, 0.1, 1 / 7]) {
    const p = probabilities([90, -90, 0, 1, 2, 3, 4], null, floor);
    assert.ok(p.every((value) => value >= Math.fround(floor)), `${floor}: ${p}`);
  }
});

test("the action is the first whose cumulative probability exceeds u of the total", () => {
  const p = Float32Array.of(0, 0.25, 0, 0.5, 0.25, 0);
  assert.deepEqual([0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2 ** -53].map((u) => choose(p, u)), [1, 1, 3, 3, 4, 4]);
});

test("u is scaled by the total, and rounding up to it leaves the last possible action", () => {
  const half = Float32Array.of(0.25, 0.25, 0); // not a distribution, but what rounding does in the small
  assert.deepEqual([0, 0.49, 0.5, 0.99].map((u) => choose(half, u)), [0, 0, 1, 1]);
  const total = Float32Array.of(0.1, 0.7, 0.1, 0);
  assert.equal(choose(total, 1), 2);
});
