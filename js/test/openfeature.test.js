import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { Client } from "../client.js";
import { PotstillProvider } from "../openfeature.js";
import { Policy } from "../potstill.js";
import { policyFile } from "../testing/craft.js";
import { FakeService } from "../testing/service.js";

const CONTEXT = { bandwidth: 30, connection: "4g", hd: true };
const policy = Policy.load(policyFile());

let service;
let provider;

beforeEach(async () => {
  service = await new FakeService().start();
  const client = new Client(service.url, { rewardEvery: 1e6, random: () => 0, sleep: async () => {} });
  provider = new PotstillProvider({ quality: client }, { rewards: { uploaded: "quality" } });
  await provider.initialize();
});
afterEach(() => service.stop());

const asked = (more = {}) => ({ targetingKey: "ann", country: "DE", ...CONTEXT, ...more });

test("a flag is a decision", async () => {
  const found = await provider.resolveStringEvaluation("quality", "low", asked({ decision_id: "a" }));
  const { action, propensity } = policy.decide(CONTEXT, { id: "a" });
  const flagMetadata = { id: "a", propensity, mode: "online", version: "3" };
  assert.deepEqual(found, { value: action, variant: action, reason: "SPLIT", flagMetadata });
  assert.deepEqual(service.bodies.at(-1), { context: CONTEXT, id: "a", unit: "ann" });
});

test("a tracking event is the reward of the latest decision", async () => {
  const first = await provider.resolveStringEvaluation("quality", "low", asked());
  const second = await provider.resolveStringEvaluation("quality", "low", asked({ targetingKey: "bob" }));
  provider.track("uploaded", { targetingKey: "ann" }, { value: 0.5 });
  provider.track("uploaded", { targetingKey: "bob" });
  provider.track("uploaded", { targetingKey: "ann" }, { value: 2, decision_id: second.flagMetadata.id });
  provider.track("uploaded", { targetingKey: "nobody" });
  provider.track("opened", { targetingKey: "ann" });
  await provider.onClose();
  const sent = service.bodies.at(-1).rewards.map(({ id, reward }) => [id, reward]);
  const [ann, bob] = [first, second].map((found) => found.flagMetadata.id);
  assert.deepEqual(sent, [[ann, 0.5], [bob, 1], [bob, 2]]);
});

test("errors have OpenFeature's codes", async () => {
  const rejects = (promise, code, words) =>
    assert.rejects(promise, (error) => error.code === code && error.message.includes(words));
  await rejects(provider.resolveStringEvaluation("colour", "red", asked()), "FLAG_NOT_FOUND", "the provider has quality");
  await rejects(provider.resolveStringEvaluation("quality", "low", asked({ bandwidth: NaN })), "INVALID_CONTEXT", "bandwidth");
  await rejects(provider.resolveBooleanEvaluation("quality", true, asked()), "TYPE_MISMATCH", "is not a boolean");
  await rejects(provider.resolveNumberEvaluation("quality", 1, asked()), "TYPE_MISMATCH", "is not a number");
  await rejects(provider.resolveObjectEvaluation("quality", {}, asked()), "TYPE_MISMATCH", "names or numbers");
  service.faults = Array(50).fill(503);
  await rejects(provider.resolveStringEvaluation("quality", "low", asked()), "GENERAL", "503");
  assert.throws(() => new PotstillProvider({}, { rewards: { uploaded: "quality" } }), /is not among/);
});
