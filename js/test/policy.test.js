import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

import { InvalidContext, InvalidPolicy, Policy } from "../potstill.js";
import { network, policyFile, tensor } from "../testing/craft.js";

const CONTEXT = { bandwidth: 30, connection: "4g", hd: true };
const policy = Policy.load(policyFile());

test("a policy says what it is", () => {
  assert.equal(policy.version, 3);
  assert.equal(policy.floor, 0);
  assert.deepEqual(policy.actions, ["low", "high", "best"]);
  assert.equal(policy.problem.name, "upload");
  assert.equal(policy.metadata.activation, "tanh");
  assert.equal(policy.metadata.parent, null);
  assert.equal(policy.mean.length, 6);
});

test("a policy cannot be changed", () => {
  assert.throws(() => (policy.metadata = {}), TypeError);
  assert.throws(() => policy.actions.push("none"), TypeError);
  assert.throws(() => (policy.problem.context[0].low = 5), TypeError);
});

test("a policy is read from whatever holds bytes", () => {
  const file = policyFile();
  const shifted = new Uint8Array(file.length + 3);
  shifted.set(file, 3);
  const shared = new SharedArrayBuffer(file.length);
  new Uint8Array(shared).set(file);
  const sources = [file.buffer, Buffer.from(file), shifted.subarray(3), new DataView(file.buffer), shared];
  const foreign = runInNewContext("(bytes) => Uint8Array.from(bytes).buffer")(Array.from(file));
  for (const source of [...sources, foreign]) {
    assert.deepEqual(Policy.load(source).probabilities(CONTEXT), policy.probabilities(CONTEXT));
  }
  for (const other of [undefined, null, "video.policy", Promise.resolve(file), {}, [1, 2]]) {
    assert.throws(() => Policy.load(other), { name: "TypeError", message: /takes the bytes of a policy file/ });
  }
});

test("the file's bytes may change after loading", () => {
  const file = policyFile();
  const loaded = Policy.load(file);
  file.fill(0);
  assert.deepEqual(loaded.probabilities(CONTEXT), policy.probabilities(CONTEXT));
});

test("probabilities are a new array each time, and sum to 1", () => {
  const p = policy.probabilities(CONTEXT);
  assert.ok(p instanceof Float32Array && p.length === 3);
  assert.ok(Math.abs(p.reduce((sum, value) => sum + value, 0) - 1) < 1e-6);
  const copy = p.slice();
  policy.probabilities({ bandwidth: 90 });
  assert.deepEqual(p, copy);
});

test("weights that overflow float32 are refused, in a hidden layer and in the scores", () => {
  const filled = (first, second) => ({
    ...network(6, 4, 3),
    "layers.0.weight": tensor([6, 4], Array(24).fill(first)),
    "layers.1.weight": tensor([4, 3], Array(12).fill(second)),
  });
  const hidden = filled(3e38, 1e-30);
  const scores = filled(5, 3e38);
  for (const activation of ["tanh", "relu"]) {
    for (const tensors of [hidden, scores]) {
      const policy = Policy.load(policyFile({ metadata: { activation }, tensors }));
      const refusal = (error) => error instanceof InvalidPolicy && /scores are not finite/.test(error.message);
      assert.throws(() => policy.decide({ bandwidth: 90, connection: "4g", hd: true }, { id: "a" }), refusal);
      assert.throws(() => policy.probabilities({ bandwidth: 90, connection: "4g", hd: true }), refusal);
    }
  }
});

test("a decision has what has to be logged, and no more", () => {
  const p = policy.probabilities(CONTEXT);
  const decision = policy.decide(CONTEXT, { id: "upload-1" });
  const chosen = policy.actions.indexOf(decision.action);
  assert.deepEqual(decision, { id: "upload-1", action: policy.actions[chosen], propensity: p[chosen], policy: 3 });
  assert.deepEqual(policy.decide(CONTEXT, { id: "upload-1", eligible: null, floor: undefined }), decision);
  assert.deepEqual(policy.decide(policy.encode(CONTEXT), { id: "upload-1" }), decision);
});

test("eligible actions and a floor are taken into account, and logged", () => {
  const eligible = ["best", "low"];
  const p = policy.probabilities(CONTEXT, { eligible, floor: 0.2 });
  assert.equal(p[1], 0);
  assert.ok(p[0] >= Math.fround(0.2) && p[2] >= Math.fround(0.2));
  const decision = policy.decide(CONTEXT, { id: "a", eligible, floor: 0.2 });
  assert.deepEqual(decision.eligible, eligible);
  assert.notEqual(decision.eligible, eligible);
  assert.equal(decision.floor, 0.2);
  assert.equal(policy.decide(CONTEXT, { id: "a", floor: 0 }).floor, 0);
});

test("a retired action is chosen only where nothing else is eligible", () => {
  const actions = { type: "discrete", names: ["low", "high", "best"], retired: ["high"] };
  const problem = { ...policy.problem, actions };
  const retired = Policy.load(policyFile({ metadata: { format: 3, problem } }));
  const among = (eligible) => policy.probabilities(CONTEXT, { eligible, floor: 0.1 });
  const found = (eligible) => retired.probabilities(CONTEXT, { eligible, floor: 0.1 });
  assert.deepEqual(found(null), among(["low", "best"]));
  assert.deepEqual(found(["low", "high"]), among(["low"]));
  assert.deepEqual(found(["high"]), among(["high"]));
  assert.equal(retired.decide(CONTEXT, { id: "a" }).eligible, undefined);
  assert.deepEqual(retired.decide(CONTEXT, { id: "a", eligible: ["high"] }).action, "high");
});

test("the policy's own floor holds unless another is asked for", () => {
  const floored = Policy.load(policyFile({ metadata: { floor: 0.25 } }));
  assert.equal(floored.floor, 0.25);
  assert.deepEqual(floored.probabilities(CONTEXT), policy.probabilities(CONTEXT, { floor: 0.25 }));
  assert.deepEqual(floored.probabilities(CONTEXT, { floor: 0 }), policy.probabilities(CONTEXT));
});

test("actions are taken as often as their probabilities say", () => {
  const p = policy.probabilities(CONTEXT);
  const counts = [0, 0, 0];
  for (let i = 0; i < 20_000; i++) counts[policy.actions.indexOf(policy.decide(CONTEXT, { id: `d${i}` }).action)]++;
  // Four standard deviations of a share of 20,000 are 0.014 at most.
  counts.forEach((count, k) => assert.ok(Math.abs(count / 20_000 - p[k]) < 0.015, `${counts}, ${p}`));
});

const noCrypto = globalThis.crypto === undefined && "this Node has no global crypto";

test("without an id a decision gets 128 random bits", { skip: noCrypto }, () => {
  const ids = new Set(Array.from({ length: 1000 }, () => policy.decide(CONTEXT).id));
  assert.equal(ids.size, 1000);
  for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
});

test("eligible lists that make no sense are refused", () => {
  const refuse = (eligible, message) =>
    assert.throws(() => policy.decide(CONTEXT, { id: "a", eligible }), { name: "InvalidContext", message });
  refuse([], /eligible is empty; name at least one action, or leave it out to allow all/);
  refuse("low", /eligible must be a list of action names, got 'low' \(string\)/);
  refuse(["low", "worst"], /unknown action 'worst' \(string\); the actions are low, high, best/);
  refuse(["low", "toString"], /unknown action 'toString'/);
  refuse([0], /unknown action 0 \(number\)/);
  refuse([undefined], /unknown action undefined/);
  refuse(new Set(["low"]), /eligible must be a list/);
});

test("floors that make no sense are refused", () => {
  for (const floor of [-0.1, 0.34, NaN, Infinity, "0.1", true, {}]) {
    assert.throws(() => policy.probabilities(CONTEXT, { floor }), {
      name: "RangeError",
      message: /floor must be a number from 0 to 1\/3, one over the number of actions, got /,
    });
  }
});

test("a misspelt or misplaced option is refused", () => {
  assert.throws(() => policy.decide(CONTEXT, { eligable: ["low"] }), /unknown option 'eligable'/);
  assert.throws(() => policy.probabilities(CONTEXT, { id: "a" }), /unknown option 'id'/);
  for (const options of ["upload-1", null, 5]) {
    assert.throws(() => policy.decide(CONTEXT, options), /options must be an object/);
  }
});

test("a context whose getters decide is decided like any other", () => {
  const inner = { bandwidth: 90, connection: "3g", hd: false };
  const nested = {
    get bandwidth() {
      policy.decide(inner, { id: "inner" });
      return 30;
    },
    connection: "4g",
    get hd() {
      policy.probabilities(inner);
      return true;
    },
  };
  assert.deepEqual(policy.decide(nested, { id: "outer" }), policy.decide(CONTEXT, { id: "outer" }));
});

test("an error leaves nothing behind for the next decision", () => {
  const before = policy.decide(CONTEXT, { id: "a" });
  assert.throws(() => policy.decide({ bandwidth: 99, connection: "3g", hd: 7 }, { id: "a" }), InvalidContext);
  assert.deepEqual(policy.decide(CONTEXT, { id: "a" }), before);
});

test("a network without hidden layers", () => {
  const linear = Policy.load(policyFile({ tensors: network(6, 3) }));
  assert.equal(linear.probabilities(CONTEXT).length, 3);
});
