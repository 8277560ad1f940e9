import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidPolicy, Policy } from "../potstill.js";
import { assemble, container, network, policyFile, PROBLEM, seal, tensor } from "../testing/craft.js";

function assertRefused(file, reason, what) {
  assert.throws(
    () => Policy.load(file),
    (error) => {
      assert.ok(error instanceof InvalidPolicy && error.name === "InvalidPolicy", `${what}: ${error.stack}`);
      assert.match(error.message, reason, what);
      return true;
    },
  );
}

test("a sound file is not refused", () => {
  Policy.load(policyFile());
});

test("every truncation", () => {
  const file = policyFile();
  const header = 8 + Number(new DataView(file.buffer).getBigUint64(0, true));
  for (let length = 0; length < file.length; length++) {
    const reason =
      length < header ? /^truncated, or no policy file: a header of \d+ bytes in a file of/ : /^truncated or altered/;
    assertRefused(file.subarray(0, length), reason, `${length} of ${file.length} bytes`);
  }
});

test("every flipped bit", () => {
  const file = policyFile();
  for (let bit = 0; bit < 8 * file.length; bit++) {
    const altered = file.slice();
    altered[bit >> 3] ^= 1 << (bit & 7);
    assertRefused(altered, /./, `bit ${bit}`);
  }
});

test("something appended, doubled or put in front", () => {
  const file = policyFile();
  assertRefused(new Uint8Array([...file, 0]), /^truncated or altered/);
  assertRefused(new Uint8Array([...file, ...file]), /^truncated or altered/);
  assertRefused(new Uint8Array([0, ...file]), /./);
});

test("files of another kind", () => {
  assertRefused(new TextEncoder().encode("<!doctype html><title>404</title>"), /^truncated, or no policy file/);
  assertRefused(assemble("{"), /^its header cannot be read: /);
  assertRefused(assemble("[]"), /^its header cannot be read: Expected `object`, got \[\] \(array\)/);
  assertRefused(assemble("\ufeff{}"), /^its header cannot be read: /);
  assertRefused(assemble('{"__metadata__": {"potstill": 1}}'), /^its header cannot be read: /);
  assertRefused(new Uint8Array([2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]), /^its header cannot be read: /);
  assertRefused(container({}, network(2, 2)), /^a safetensors file, but not a policy: it has no potstill metadata/);
  assertRefused(container({ __metadata__: { format: "pt" } }), /^a safetensors file, but not a policy/);
});

test("other format versions", () => {
  for (const format of [0, 5, -1]) {
    const reason = new RegExp(`^format version ${format}; this version of Potstill reads 1 to 4$`);
    assertRefused(policyFile({ metadata: { format } }), reason);
  }
  // Of a later format nothing else is known, so that nothing else is complained about.
  assertRefused(policyFile({ text: '{"format": 5}' }), /^format version 5;/);
});

test("masked policies that are none", () => {
  assertRefused(policyFile({ metadata: { masked: true } }), /^format version 1, but a masked policy is of format 3$/);
  assertRefused(policyFile({ metadata: { format: 3 } }), /^format version 3, but its problem is of format 1$/);
  const shape = /^tensor layers\.0\.weight must be float32\[9, 4\], got float32\[6, 4\]$/;
  assertRefused(policyFile({ metadata: { format: 3, masked: true } }), shape);
});

test("a checksum that is not the file's", () => {
  assertRefused(
    policyFile({ metadata: { sha256: "1".repeat(64) } }),
    /^truncated or altered: its SHA-256 is [0-9a-f]{64}, but it says 1{64}$/,
  );
  assertRefused(policyFile({ metadata: { sha256: "abc" } }), /^its checksum must be 64 hex digits, got 'abc'$/);
});

const MISFITS = [
  [{ format: "1" }, /Expected `int`, got '1' \(string\) - at `\$\.format`$/],
  [{ version: 1.5 }, /Expected `int`, got 1.5 \(number\) - at `\$\.version`$/],
  [{ version: null }, /Expected `int`, got null \(null\) - at `\$\.version`$/],
  [{ problem: [] }, /Expected `object`, got \[\] \(array\) - at `\$\.problem`$/],
  [{ problem_hash: 7 }, /at `\$\.problem_hash`$/],
  [{ activation: "gelu" }, /expected "tanh" or "relu", got 'gelu' \(string\) - at `\$\.activation`$/],
  [{ activation: "constructor" }, /at `\$\.activation`$/],
  [{ floor: "0" }, /at `\$\.floor`$/],
  [{ masked: 1 }, /Expected `bool`, got 1 \(number\) - at `\$\.masked`$/],
];

for (const [metadata, reason] of MISFITS) {
  test(`metadata with ${JSON.stringify(metadata)}`, () => {
    assertRefused(policyFile({ metadata }), /^its metadata does not fit: /);
    assertRefused(policyFile({ metadata }), reason);
  });
}

test("metadata that is no object, or lacks a field", () => {
  assertRefused(policyFile({ text: "{" }), /^its metadata does not fit: /);
  assertRefused(policyFile({ text: "3" }), /^its metadata does not fit: Expected `object`, got 3/);
  for (const name of ["format", "sha256", "problem", "problem_hash", "version", "salt"]) {
    const reason = new RegExp(`^its metadata does not fit: Object missing required field \`${name}\``);
    assertRefused(policyFile({ metadata: { [name]: undefined } }), reason);
  }
});

test("salts and floors that are none", () => {
  assertRefused(policyFile({ metadata: { salt: "00ff" } }), /^its salt must be 32 hex digits, got '00ff'$/);
  assertRefused(policyFile({ metadata: { salt: "g".repeat(32) } }), /^its salt must be 32 hex digits/);
  assertRefused(policyFile({ metadata: { floor: 0.5 } }), /^floor must be a number from 0 to 1\/3/);
  assertRefused(policyFile({ metadata: { floor: -0.1 } }), /^floor must be a number from 0 to 1\/3/);
});

const numeric = { type: "numeric", name: "x", low: 0, high: 1 };
const categorical = { type: "categorical", name: "x", values: ["a"] };
const BAD_FEATURES = [
  [[3], /Expected `object`, got 3/],
  [[{ ...numeric, type: "sound" }], /got 'sound' \(string\) - at `\$\.problem\.context\[0\]\.type`/],
  [[{ type: "numeric", name: "x", low: 0 }], /missing required field `high` - at `\$\.problem\.context\[0\]`/],
  [[{ ...numeric, name: "" }], /must not be empty/],
  [[{ ...numeric, name: "\ud800" }], /must be valid Unicode/],
  [[{ ...numeric, low: 1 }], /feature 'x': low must be below high, got low=1, high=1/],
  [[{ ...numeric, low: -1e308, high: 1e308 }], /low must be below high/],
  [[{ ...numeric, low: true }], /Expected `float`, got true/],
  [[{ ...numeric, scale: "log" }], /feature 'x': a log scale needs low > 0, got low=0/],
  [[{ ...numeric, low: 1e15, high: 1e15 + 0.125, scale: "log" }], /low must be below high/],
  [[{ ...numeric, scale: "cubic" }], /expected "linear" or "log"/],
  [[{ ...numeric, missing: "unseen" }], /expected "error" or "flag"/],
  [[{ ...numeric, missing: null }], /Expected `float \| str`/],
  [[{ ...categorical, values: [] }], /feature 'x': values must not be empty/],
  [
    [{ ...categorical, values: ["a", 3] }],
    /Expected `str`, got 3 \(number\) - at `\$\.problem\.context\[0\]\.values\[1\]`/,
  ],
  [[{ ...categorical, values: ["a", "a"] }], /value 'a' is named twice/],
  [[{ ...categorical, missing: "flag" }], /expected "unseen" or "error"/],
  [[{ type: "boolean", name: "x", missing: 1 }], /at `\$\.problem\.context\[0\]\.missing`/],
  [[numeric, categorical], /feature 'x' is named twice; names must be distinct/],
];

for (const [context, reason] of BAD_FEATURES) {
  test(`a problem with the features ${JSON.stringify(context)}`, () => {
    assertRefused(policyFile({ metadata: { problem: { ...PROBLEM, context } } }), reason);
  });
}

test("a problem with no choice of actions", () => {
  for (const [actions, reason] of [
    [{ type: "discrete", names: ["a"] }, /at least two names/],
    [{ type: "discrete", names: ["a", "b", "c"], retired: ["d"] }, /retired: unknown action/],
    [{ type: "discrete", names: ["a", "b", "c"], retired: ["a", "b"] }, /fewer than two actions/],
    [{ type: "discrete", names: ["a", "b", "c"], retired: "a" }, /retired/],
    [{ type: "discrete", names: ["a", "a"] }, /action 'a' is named twice/],
    [{ type: "discrete", names: "ab" }, /Expected `array`/],
    [{ type: "cube", names: ["a", "b"] }, /expected "discrete" or "continuous"/],
    [{ type: "continuous", names: ["a", "b"] }, /missing required field `name`/],
    [{ type: "continuous", name: "price", low: 1, high: 1 }, /low must be below high/],
    [{ type: "continuous", name: "price", low: 0, high: 1, scale: "log" }, /a log scale needs low above 0/],
    [{ type: "continuous", name: "price", low: 0, high: 1, bins: 1 }, /bins must be a whole number from 2 to 4096/],
    [{ type: "continuous", name: "price", low: 1e15, high: 1e15 + 1 }, /the bins do not differ/],
  ]) {
    assertRefused(policyFile({ metadata: { problem: { ...PROBLEM, actions } } }), reason);
  }
});

test("tensors that are missing, too many, or of another shape", () => {
  const sound = network(6, 4, 3);
  const { "layers.0.bias": bias, ...without } = sound;
  const refuse = (tensors, reason) => assertRefused(policyFile({ tensors }), reason);
  refuse({}, /^unexpected tensors: $/);
  refuse(without, /^unexpected tensors: context\.mean, layers\.0\.weight, /);
  refuse({ ...sound, other: tensor([1]) }, /^unexpected tensors: /);
  refuse({ ...without, other: bias }, /^tensor layers\.0\.weight must be float32\[6, 0\], got float32\[6, 4\]$/);
  refuse(network(5, 4, 3), /^tensor layers\.0\.weight must be float32\[6, 4\], got float32\[5, 4\]$/);
  refuse(network(6, 4, 2), /^tensor layers\.1\.weight must be float32\[4, 3\], got float32\[4, 2\]$/);
  refuse(
    { ...sound, "layers.0.weight": tensor([24]) },
    /^tensor layers\.0\.weight must be float32\[6, 4\], got float32\[24\]$/,
  );
  refuse({ ...sound, "context.mean": tensor([7]) }, /^tensor context\.mean must be float32\[6\], got float32\[7\]$/);
});

test("tensors of another type", () => {
  for (const dtype of ["F16", "I32", "float32", "constructor"]) {
    const tensors = network(6, 4, 3);
    tensors["layers.1.bias"].dtype = dtype;
    assertRefused(
      policyFile({ tensors }),
      new RegExp(`^tensor layers\\.1\\.bias must be float32\\[3\\], got ${dtype}`),
    );
  }
});

test("a number that is not finite, in any tensor", () => {
  for (const name of Object.keys(network(6, 4, 3))) {
    for (const number of [NaN, Infinity, -Infinity]) {
      const tensors = network(6, 4, 3);
      tensors[name].values[tensors[name].values.length - 1] = number;
      assertRefused(policyFile({ tensors }), new RegExp(`^tensor ${name} holds a number that is not finite$`));
    }
  }
});

/** A sealed file whose header says something else about a tensor than is true. */
function withEntry(name, change) {
  const file = policyFile();
  const end = 8 + Number(new DataView(file.buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, end)));
  header[name] = typeof change === "object" && change !== null ? { ...header[name], ...change } : change;
  const metadata = JSON.parse(header.__metadata__.potstill);
  header.__metadata__.potstill = JSON.stringify({ ...metadata, sha256: "0".repeat(64) });
  return seal(assemble(JSON.stringify(header), file.subarray(end)));
}

test("a header that does not describe the bytes after it", () => {
  Policy.load(withEntry("context.mean", {}));
  for (const change of [
    null,
    7,
    { dtype: undefined },
    { shape: [-6] },
    { shape: [2.5] },
    { shape: "6" },
    { shape: [5] },
    { shape: [1e9, 1e9] },
    { data_offsets: [0] },
    { data_offsets: [0, 4] },
    { data_offsets: [4, 28] },
    { data_offsets: [24, 0] },
    { data_offsets: [0, 2 ** 60] },
  ]) {
    assertRefused(withEntry("context.mean", change), /^not a readable safetensors file: /, JSON.stringify(change));
  }
});

test("metadata and headers nest at most 64 levels deep", () => {
  const metadata = JSON.parse(readMetadata(policyFile()));
  const text = JSON.stringify({ ...metadata, sha256: "0".repeat(64), lineage: "HERE" });
  const nested = (depth) => text.replace('"HERE"', "[".repeat(depth) + "]".repeat(depth));
  assert.equal(Policy.load(policyFile({ text: nested(63) })).version, 3);
  for (const depth of [64, 900, 200_000]) {
    assertRefused(policyFile({ text: nested(depth) }), /^its metadata nests more than 64 levels deep$/, depth);
  }
  const deep = JSON.parse("[".repeat(100) + "]".repeat(100));
  const header = { __metadata__: { potstill: text }, x: deep };
  assertRefused(container(header), /^its header nests more than 64 levels deep$/, "header");
});

test("a layer without units", () => {
  const empty = { dtype: "F32", shape: [0], values: [] };
  const tensors = { ...network(6, 4, 3), "layers.0.weight": { ...empty, shape: [6, 0] }, "layers.0.bias": empty };
  tensors["layers.1.weight"] = { ...empty, shape: [0, 3] };
  assertRefused(policyFile({ tensors }), /^tensor layers.0.bias is empty; a layer has at least one unit$/);
});

function readMetadata(file) {
  const end = 8 + Number(new DataView(file.buffer).getBigUint64(0, true));
  return JSON.parse(new TextDecoder().decode(file.subarray(8, end))).__metadata__.potstill;
}
