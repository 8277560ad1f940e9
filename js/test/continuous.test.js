import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Policy } from "../potstill.js";

const file = new URL("../../conformance/vectors/price.policy", import.meta.url);
const policy = Policy.load(readFileSync(file));
const context = { speed: 1 };

test("a number is chosen within the bounds, the same for the same id", () => {
  const decision = policy.decide(context, { id: "a" });
  assert.equal(typeof decision.action, "number");
  assert.ok(decision.action >= 0.5 && decision.action < 20 && decision.propensity > 0);
  assert.deepEqual(policy.decide(context, { id: "a" }), decision);
  assert.deepEqual(policy.actions, []);
});

test("an interval and a floor are kept, and stated", () => {
  for (let i = 0; i < 200; i++) {
    const decision = policy.decide(context, { id: `${i}`, eligible: [2, 2.5], floor: 1 });
    assert.ok(decision.action >= 2 && decision.action <= 2.5);
    assert.ok(Math.abs(decision.propensity - 2) < 1e-9);
    assert.deepEqual([decision.eligible, decision.floor], [[2, 2.5], 1]);
  }
});

test("what is no interval or no share is refused", () => {
  const refuse = (options, reason) => assert.throws(() => policy.decide(context, options), reason);
  refuse({ eligible: [3, 2] }, /from below to/);
  refuse({ eligible: [0, 2] }, /amount must be a number from 0.5 to 20, got 0/);
  refuse({ eligible: [2, NaN] }, /amount must be a number/);
  refuse({ eligible: ["2", 3] }, /amount must be a number/);
  refuse({ eligible: [2] }, /must be an interval \[from, to\] of amount/);
  refuse({ floor: 1.1 }, /floor must be a number from 0 to 1, the share of uniform decisions/);
  assert.throws(() => policy.probabilities(context), /needs a list of actions/);
});
