import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

import { InvalidContext, Policy } from "../potstill.js";
import { fileFor } from "../testing/craft.js";

const numeric = (more) => ({ type: "numeric", name: "x", low: 10, high: 20, ...more });
const log = (more) => numeric({ low: 1, high: 100, scale: "log", ...more });
const boolean = (more) => ({ type: "boolean", name: "x", ...more });
const categorical = (more) => ({ type: "categorical", name: "x", values: ["a", "ß", "__proto__"], ...more });

const width = (feature) => (feature.type === "categorical" ? 4 : feature.missing === "flag" ? 2 : 1);
const widths = (features) => features.reduce((sum, feature) => sum + width(feature), 0);
const policyFor = (...context) => Policy.load(fileFor(context, widths(context)));
const encoded = (feature, context) => [...policyFor(feature).encode(context)];

/** Feature, value, columns. `null` stands for the three ways to be missing. */
const TABLE = [
  [numeric(), 10, [0]],
  [numeric(), 20, [1]],
  [numeric(), 12.5, [0.25]],
  [numeric(), 13, [Math.fround(0.3)]],
  [numeric(), -1e300, [0]],
  [numeric(), 20.001, [1]],
  [numeric({ low: 0, high: 1 }), -0, [-0]],
  [numeric({ missing: 15 }), null, [0.5]],
  [numeric({ missing: 99 }), null, [1]],
  [numeric({ missing: "flag" }), null, [0, 1]],
  [numeric({ missing: "flag" }), 20, [1, 0]],
  [log(), 10, [0.5]],
  [log(), 0, [0]],
  [log(), -5, [0]],
  [log(), 1e9, [1]],
  [log({ missing: 10 }), null, [0.5]],
  [categorical(), "a", [1, 0, 0, 0]],
  [categorical(), "ß", [0, 1, 0, 0]],
  [categorical(), "__proto__", [0, 0, 1, 0]],
  [categorical(), "constructor", [0, 0, 0, 1]],
  [categorical(), "", [0, 0, 0, 1]],
  [categorical(), "\ud800", [0, 0, 0, 1]],
  [categorical(), null, [0, 0, 0, 1]],
  [categorical({ missing: "error" }), "b", [0, 0, 0, 1]],
  [boolean(), true, [1]],
  [boolean(), false, [0]],
  [boolean({ missing: true }), null, [1]],
  [boolean({ missing: false }), null, [0]],
  [boolean({ missing: "flag" }), null, [0, 1]],
  [boolean({ missing: "flag" }), true, [1, 0]],
];

for (const [feature, value, columns] of TABLE) {
  test(`${feature.type} ${JSON.stringify(feature)} of ${value}`, () => {
    assert.deepEqual(encoded(feature, { x: value }), columns);
    if (value !== null) return;
    assert.deepEqual(encoded(feature, { x: undefined }), columns);
    assert.deepEqual(encoded(feature, {}), columns);
  });
}

const refusals = [
  [numeric(), "12", "feature 'x': expected a number, got '12' (string)"],
  [numeric(), true, "feature 'x': expected a number, got true (boolean)"],
  [numeric(), 12n, "feature 'x': expected a number, got 12n (bigint)"],
  [numeric(), [12], "feature 'x': expected a number, got [12] (array)"],
  [numeric(), new Date(NaN), "feature 'x': expected a number, got null (object)"],
  [numeric(), NaN, "feature 'x': expected a finite number, got NaN (number); if it may be missing, define the"],
  [log(), -Infinity, "feature 'x': expected a finite number, got -Infinity (number); if it may be missing"],
  [
    numeric({ missing: "flag" }),
    NaN,
    "feature 'x': expected a finite number, got NaN (number); send null for a missing value",
  ],
  [numeric({ missing: 3 }), NaN, "feature 'x': expected a finite number, got NaN (number); send null for a missing value"],
  [
    numeric(),
    null,
    "feature 'x' is missing; send a value, or define the feature with missing=<number> or missing='flag'",
  ],
  [categorical(), 3, "feature 'x': expected a string, got 3 (number)"],
  [categorical(), false, "feature 'x': expected a string, got false (boolean)"],
  [
    categorical({ missing: "error" }),
    null,
    "feature 'x' is missing; send a value, or define the feature with missing='unseen'",
  ],
  [boolean(), 1, "feature 'x': expected true or false, got 1 (number)"],
  [boolean(), "true", "feature 'x': expected true or false, got 'true' (string)"],
  [boolean(), null, "feature 'x' is missing; send a value, or define the feature with missing=False, missing=True"],
];

for (const [feature, value, message] of refusals) {
  test(`refused: ${message}`, () => {
    assertRefused(policyFor(feature), { x: value }, message);
  });
}

function assertRefused(policy, context, message) {
  assert.throws(
    () => policy.encode(context),
    (error) => {
      assert.ok(error instanceof InvalidContext && error.name === "InvalidContext", String(error));
      assert.ok(error.message.includes(message), error.message);
      return true;
    },
  );
}

test("long and odd values are shown short and escaped", () => {
  const policy = policyFor(numeric());
  assertRefused(policy, { x: "y".repeat(1e6) }, `got '${"y".repeat(59)}… (string)`);
  assertRefused(policy, { x: "𝔘".repeat(1e6) }, `got '${"𝔘".repeat(59)}… (string)`);
  assertRefused(policy, { x: "it's\n\ud800 \u00a0 ☃" }, `got "it's\\n\\ud800 \\xa0 ☃" (string)`);
  const cycle = {};
  cycle.self = cycle;
  assertRefused(policy, { x: cycle }, "got [object Object] (object)");
});

test("keys that are no features are errors, and features come first", () => {
  const policy = policyFor({ ...numeric(), name: "b" }, { ...boolean({ missing: true }), name: "a" });
  assertRefused(policy, { b: 1, c: 2 }, "unknown feature 'c' (string); the problem's features are a, b");
  assertRefused(policy, JSON.parse('{"b": 1, "__proto__": {"a": 1}}'), "unknown feature '__proto__'");
  assertRefused(policy, { b: 1, toString: () => "" }, "unknown feature 'toString'");
  assertRefused(policy, { c: 2 }, "feature 'b' is missing");
  assertRefused(policy, { b: 1, c: undefined }, "unknown feature 'c'");
  const many = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`extra ${i}`, i]));
  assertRefused(policy, { ...many, b: 1 }, "unknown feature 'extra 0'");
});

test("only own enumerable keys count", () => {
  const policy = policyFor(numeric({ missing: 20 }));
  assert.deepEqual([...policy.encode(Object.create({ x: 10, y: 1 }))], [1]);
  assert.deepEqual([...policy.encode(Object.defineProperty({}, "x", { value: 10 }))], [1]);
  assert.deepEqual([...policy.encode(Object.assign(Object.create(null), { x: 10 }))], [0]);
  assert.deepEqual([...policy.encode({ x: 10, [Symbol("y")]: 1 })], [0]);
  class Request {
    x = 10;
  }
  assert.deepEqual([...policy.encode(new Request())], [0]);
});

test("features may have the names of what every object inherits", () => {
  const names = ["constructor", "toString", "hasOwnProperty"];
  const policy = policyFor(...names.map((name) => boolean({ name, missing: "flag" })));
  assert.deepEqual([...policy.encode({})], [0, 1, 0, 1, 0, 1]);
  assert.deepEqual([...policy.encode({ toString: true })], [0, 1, 1, 0, 0, 1]);
  const proto = policyFor(boolean({ name: "__proto__", missing: "flag" }));
  assert.deepEqual([...proto.encode({})], [0, 1]);
  assert.deepEqual([...proto.encode(JSON.parse('{"__proto__": true}'))], [1, 0]);
});

test("what is no mapping is refused, not taken for an empty one", () => {
  const policy = policyFor(numeric({ missing: 20 }));
  const others = [undefined, null, 3, "x", [], [10], new Map([["x", 10]]), new Date(0), Promise.resolve({}), () => 1];
  for (const other of [...others, new Float64Array(1), new Uint8Array(1)]) {
    assertRefused(policy, other, "a context must be a mapping of feature names to values, got ");
  }
});

test("an encoded row is copied, and checked", () => {
  const policy = policyFor(numeric(), { ...boolean(), name: "y" });
  const row = Float32Array.of(0.3, 1);
  assert.deepEqual(policy.encode(row), row);
  assert.notEqual(policy.encode(row), row);
  assert.deepEqual([...policy.encode(runInNewContext("Float32Array.of(0.5, 0)"))], [0.5, 0]);
  assertRefused(policy, new Float32Array(3), "an array is taken as already encoded and must have 2 columns, got 3");
  assertRefused(policy, Float32Array.of(0, NaN), "encoded context has a non-finite number at 1: NaN");
  assertRefused(policy, Float32Array.of(-Infinity, 0), "encoded context has a non-finite number at 0: -Infinity");
});

test("an object of another realm is a context as well", () => {
  assert.deepEqual(encoded(numeric(), runInNewContext("({x: 12.5})")), [0.25]);
});

test("columns are named", () => {
  const policy = policyFor({ ...numeric({ missing: "flag" }), name: "n" }, categorical());
  assert.deepEqual(policy.labels, ["n", "n=<missing>", "x=a", "x=ß", "x=__proto__", "x=<unseen>"]);
});
