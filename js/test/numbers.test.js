/** Clients of a problem whose action is a number. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { Client, Unreachable } from "../client.js";
import { EdgeClient, MemoryStore } from "../edge.js";
import { Policy } from "../potstill.js";
import { network, policyFile, PROBLEM } from "../testing/craft.js";
import { FakeService } from "../testing/service.js";

const actions = { type: "continuous", name: "price", low: 0.5, high: 20, bins: 8 };
const context = [{ type: "numeric", name: "speed", low: 0, high: 2 }];
const file = policyFile({ metadata: { problem: { ...PROBLEM, context, actions } }, tensors: network(1, 8) });
const policy = Policy.load(file);
const CONTEXT = { speed: 1 };
const quick = { timeout: 5000, random: () => 0, sleep: async () => {} };

let service;

beforeEach(async () => {
  service = await new FakeService().start();
  service.file = file;
});
afterEach(() => service.stop());

const client = (options = {}) => new Client(service.url, { rewardEvery: 1e6, ...quick, ...options });

test("a decision is a number with its density, to the last bit, also on a retry", async () => {
  service.faults = ["lost"];
  const answer = await client().decide(CONTEXT, { id: "a", eligible: [2, 2.5] });
  const { action, propensity } = policy.decide(CONTEXT, { id: "a", eligible: [2, 2.5] });
  assert.deepEqual([answer.action, answer.propensity], [action, propensity]);
  assert.ok(answer.propensity > 1, "a density, not a probability");
  assert.deepEqual(service.bodies[0], { context: CONTEXT, id: "a", eligible: [2, 2.5] });
  const [same] = await client().decideBatch([{ context: CONTEXT, id: "a", eligible: [2, 2.5] }]);
  assert.equal(same.action, action);
});

test("the fallback is a number within the interval", async () => {
  await service.stop();
  const one = client({ fallback: 5 });
  assert.equal((await one.decide(CONTEXT)).action, 5);
  assert.equal((await one.decide(CONTEXT, { eligible: [4, 6] })).action, 5);
  assert.equal((await one.decide(CONTEXT, { eligible: [5, 6] })).mode, "fallback");
  for (const eligible of [[6, 7], [5], ["4", "6"], ["5"]]) {
    await assert.rejects(one.decide(CONTEXT, { eligible }), Unreachable);
  }
  assert.equal((await client({ fallback: 0 }).decide(CONTEXT)).action, 0);
  for (const fallback of [NaN, Infinity]) {
    assert.throws(() => client({ fallback }), /fallback must be an action, such as a finite number, got/);
  }
});

test("numbers that are not finite are not sent", async () => {
  for (const options of [{ eligible: [NaN, 3] }, { eligible: [2, Infinity] }, { action: NaN }]) {
    await assert.rejects(client().decide(CONTEXT, options), /(eligible|action).*: expected a finite number, got/);
    await assert.rejects(client().decideBatch([{ context: CONTEXT, ...options }]), { name: "InvalidContext" });
  }
  assert.deepEqual(service.bodies, []);
});

test("a device decides numbers, repeats them by id, and sends them exactly", async () => {
  const device = await EdgeClient.open(service.url, { store: new MemoryStore(), ...quick });
  const options = { id: "a", eligible: [2, 2.5] };
  const decision = await device.decide(CONTEXT, options);
  assert.deepEqual(decision, policy.decide(CONTEXT, options));
  assert.deepEqual(await device.decide(CONTEXT, options), decision);
  await assert.rejects(device.decide(CONTEXT, { id: "a", eligible: [2, 3] }), /taken in another context, or with other/);
  for (const eligible of [[NaN, 3], [3, 2], ["2", 3], [2]]) {
    await assert.rejects(device.decide(CONTEXT, { eligible }), /interval|number/);
  }
  await device.reward("a", 1.5);
  await device.sync();
  const [told] = service.observations.get("a");
  assert.deepEqual([told.action, told.propensity, told.eligible], [decision.action, decision.propensity, [2, 2.5]]);
  assert.equal((await device.counts()).queued, 0);
  await device.close();
});
