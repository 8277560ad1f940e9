import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { EdgeClient, MemoryStore, NoPolicy, QueueFull, Refused, Unreachable } from "../edge.js";
import { Policy } from "../potstill.js";
import { DeviceClock, elapsed } from "../src/edge/device_clock.js";
import { policyFile, PROBLEM } from "../testing/craft.js";
import { FakeService } from "../testing/service.js";

const CONTEXT = { bandwidth: 30, connection: "4g", hd: true };
const policy = Policy.load(policyFile());
const newer = (version, metadata = {}) => policyFile({ metadata: { version, ...metadata } });

let service;
let store;
let opened;

beforeEach(async () => {
  service = await new FakeService().start();
  store = new MemoryStore();
  opened = [];
});
afterEach(async () => {
  for (const client of opened) await client.close();
  await service.stop();
});

/** A start of the device; what it kept is in the store. */
async function device(options = {}) {
  const quick = { timeout: 5000, random: () => 0, sleep: async () => {} };
  const client = await EdgeClient.open(service.url, { store, ...quick, ...options });
  opened.push(client);
  return client;
}

test("decisions are the policy's own, and arrive exactly, with the time of the decision", async () => {
  const client = await device();
  const before = Date.now();
  const options = [{}, { eligible: ["low", "best"] }, { floor: 0.1 }];
  const made = [];
  for (const [i, one] of options.entries()) made.push(await client.decide(CONTEXT, { id: `d${i}`, unit: "u", ...one }));
  const after = Date.now();
  assert.deepEqual(
    made,
    options.map((one, i) => policy.decide(CONTEXT, { id: `d${i}`, ...one })),
  );
  await client.sync();
  for (const decision of made) {
    const [{ time, ...told }] = service.observations.get(decision.id);
    assert.deepEqual(told, { ...decision, context: CONTEXT, unit: "u" });
    assert.ok(before <= Date.parse(time) && Date.parse(time) <= after);
  }
});

test("weeks without a network: restarts, failed attempts, then everything is there once", async () => {
  await device();
  await service.stop();
  let client;
  for (let day = 0; day < 5; day++) {
    client = await device();
    for (let i = 0; i < 4; i++) {
      await client.decide(CONTEXT, { id: `${day}-${i}` });
      await client.reward(`${day}-${i}`, i, { metrics: { watched: i } });
    }
    await assert.rejects(client.sync(), Unreachable);
  }
  await service.start();
  assert.deepEqual(await client.sync(), { decisions: 20, rewards: 20, refused: 0, policy: 3, policyError: null });
  assert.deepEqual(await client.counts(), { queued: 0, refused: 0 });
  for (const kept of [service.observations, service.rewards]) {
    assert.equal(kept.size, 20);
    for (const told of kept.values()) assert.equal(told.length, 1);
  }
  for (const [{ reward, metrics }] of service.rewards.values()) assert.deepEqual(metrics, { watched: reward });
});

for (const fault of ["cut", "lost", 503, [429, { "retry-after": "0.1" }], 502]) {
  test(`a failure on the way (${fault}) counts once`, async () => {
    const client = await device();
    for (let i = 0; i < 3; i++) {
      await client.decide(CONTEXT, { id: `d${i}` });
      await client.reward(`d${i}`, 1);
    }
    service.faults = [fault, fault];
    await client.sync();
    for (const kept of [service.observations, service.rewards]) {
      assert.equal(kept.size, 3);
      for (const [first, ...others] of kept.values()) for (const other of others) assert.deepEqual(other, first);
    }
    assert.equal((await client.counts()).queued, 0);
  });
}

test("rows stay if the answer is not the service's, or if the client is refused", async () => {
  const client = await device();
  await client.decide(CONTEXT);
  for (const fault of [[200, {}], [202, {}], [302, { location: "/login" }], 500]) {
    service.faults = [fault, fault, fault, fault];
    await assert.rejects(client.sync(), Unreachable);
    service.faults = [];
  }
  for (const status of [401, 403, 404]) {
    service.faults = [status];
    await assert.rejects(client.sync(), (error) => error instanceof Refused && error.status === status);
  }
  assert.equal((await client.counts()).queued, 1);
  assert.equal(service.observations.size, 0);
});

test("bad rows are set aside, and can be sent again", async () => {
  const client = await device();
  for (let i = 0; i < 20; i++) {
    await client.decide(CONTEXT, { id: `d${i}` });
    await client.reward(`d${i}`, 1);
  }
  service.badIds = new Set(["d3", "d11"]);
  const { decisions, rewards, refused } = await client.sync();
  assert.deepEqual([decisions, rewards, refused], [18, 18, 4]);
  const aside = await client.refused();
  assert.deepEqual(
    aside.map(({ kind, id }) => `${kind} ${id}`),
    ["reward d3", "reward d11", "decision d3", "decision d11"],
  );
  assert.match(aside[0].reason, /does not fit/);
  service.badIds.delete("d3");
  await client.requeueRefused();
  assert.equal((await client.sync()).refused, 2);
  await client.discardRefused();
  assert.deepEqual(await client.counts(), { queued: 0, refused: 0 });
});

test("rewards go before decisions, so that no decision is joined without them", async () => {
  const client = await device();
  for (let i = 0; i < 1500; i++) {
    await client.decide(CONTEXT, { id: `d${i}` });
    await client.reward(`d${i}`, 1);
  }
  await client.sync();
  const order = service.bodies.filter(Boolean).map((told) => Object.keys(told)[0]);
  assert.deepEqual(order, order.toSorted().reverse());
  assert.deepEqual(await client.counts(), { queued: 0, refused: 0 });
});

test("a clock that is put right between decision and reward is corrected", async (t) => {
  const client = await device();
  const right = Date.now;
  const behind = 2 * 86_400_000;
  t.mock.method(Date, "now", () => right() - behind);
  const wrong = class extends Date {
    constructor(...stated) {
      super(...(stated.length ? stated : [right() - behind]));
    }
  };
  const real = globalThis.Date;
  globalThis.Date = wrong;
  await client.decide(CONTEXT, { id: "a" });
  globalThis.Date = real;
  t.mock.restoreAll();
  await client.reward("a", 1);
  await client.reward("a", 1, { time: new Date(0) });
  await client.sync();
  const told = service.bodies.filter(Boolean);
  const observed = told.flatMap((one) => one.observations ?? [])[0];
  const [reward, stated] = told.flatMap((one) => one.rewards ?? []);
  assert.ok(Math.abs(Date.parse(reward.time) - Date.parse(observed.time)) < 10_000);
  assert.equal(Date.parse(stated.time), 0);
});

test("a clock that is wrong all the time is corrected by that of the service", () => {
  const clock = new DeviceClock();
  const row = { body: JSON.stringify({ time: new Date().toISOString() }), taken: elapsed() };
  assert.equal(clock.corrected(row), row.body);
  clock.hear(String(Date.now() / 1000 + 2 * 86_400));
  const ahead = Date.parse(JSON.parse(clock.corrected(row)).time) - Date.now();
  assert.ok(Math.abs(ahead - 2 * 86_400_000) < 5_000);
  clock.hear("yesterday");
  clock.hear(null);
  assert.ok(clock.isKnown);
});

test("a network too slow for a batch gets smaller ones", async () => {
  const client = await device({ retries: 0 });
  for (let i = 0; i < 600; i++) await client.decide(CONTEXT, { id: `d${i}` });
  for (let i = 0; i < 3; i++) {
    service.faults = [408];
    await assert.rejects(client.sync(), Unreachable);
  }
  assert.equal((await client.sync()).decisions, 600);
  const sizes = service.bodies.filter(Boolean).map((told) => told.observations.length);
  assert.deepEqual(sizes, [15, 30, 60, 120, 240, 135]);
});

test("an id that waits gives the same decision, also after a new policy", async () => {
  const client = await device();
  const first = [];
  for (let i = 0; i < 20; i++) first.push(await client.decide(CONTEXT, { id: `d${i}` }));
  await store.writePolicy(newer(4, { salt: "f".repeat(32) }));
  const again = await device();
  assert.equal(again.policy.version, 4);
  const backwards = { hd: true, connection: "4g", bandwidth: 30 };
  for (let i = 0; i < 20; i++) assert.deepEqual(await again.decide(backwards, { id: `d${i}` }), first[i]);
  await assert.rejects(again.decide({ ...CONTEXT, bandwidth: 1 }, { id: "d3" }), /taken in another context/);
  assert.equal((await again.counts()).queued, 20);
});

test("what does not fit is refused and not queued", async () => {
  const client = await device();
  for (const bad of [{ ...CONTEXT, x: 1 }, { bandwidth: NaN }, client.policy.encode(CONTEXT), new Map(), null]) {
    await assert.rejects(client.decide(bad), { name: "InvalidContext" });
  }
  await assert.rejects(client.decide(CONTEXT, { eligable: ["low"] }), /unknown option/);
  await assert.rejects(client.reward("a", NaN), /finite/);
  assert.equal((await client.counts()).queued, 0);
});

test("a context is logged as it was when it was decided, whatever its getters say later", async () => {
  const client = await device();
  let asked = 0;
  await client.decide(Object.defineProperty({ hd: true }, "bandwidth", { enumerable: true, get: () => ++asked }), {
    id: "a",
  });
  await client.sync();
  assert.equal(asked, 1);
  assert.deepEqual(service.observations.get("a")[0].context, { hd: true, bandwidth: 1 });
});

test("a full queue keeps the oldest, also when many come at once", async () => {
  const client = await device({ maxRows: 3 });
  const done = await Promise.allSettled(Array.from({ length: 5 }, (_, i) => client.decide(CONTEXT, { id: `d${i}` })));
  assert.deepEqual(
    done.map(({ status }) => status),
    ["fulfilled", "fulfilled", "fulfilled", "rejected", "rejected"],
  );
  assert.ok(done[4].reason instanceof QueueFull);
  assert.equal(client.policy.decide(CONTEXT).policy, 3);
  await client.sync();
  assert.deepEqual([...service.observations.keys()], ["d0", "d1", "d2"]);
  await client.decide(CONTEXT);
});

test("rows that come meanwhile wait for the next time, and syncs at the same time are one", async () => {
  const client = await device();
  await client.decide(CONTEXT, { id: "a" });
  const remove = store.remove.bind(store);
  store.remove = async (rows) => {
    await client.decide(CONTEXT, { id: "b" });
    return remove(rows);
  };
  const [one, other] = await Promise.all([client.sync(), client.sync()]);
  assert.equal(one, other);
  assert.equal(one.decisions, 1);
  assert.equal((await client.counts()).queued, 1);
});

test("the policy is refreshed by its tag, forwards and back", async () => {
  const client = await device();
  for (const version of [4, 2]) {
    service.file = newer(version);
    assert.equal((await client.sync()).policy, version);
  }
  assert.equal((await device()).policy.version, 2);
  service.requests.length = 0;
  await client.sync();
  assert.match(service.requests[0].headers["if-none-match"], /^"[0-9a-f]{64}"$/);
});

test("a policy that is not sound, or for another problem, never replaces a good one", async () => {
  const client = await device();
  await client.decide(CONTEXT);
  const wrong = [
    newer(4).slice(0, -3),
    new TextEncoder().encode("<html>"),
    newer(4, { problem: { ...PROBLEM, name: "other" } }),
    newer(4, { problem_hash: "f".repeat(32) }),
  ];
  for (const file of wrong) {
    service.file = file;
    const { policy: version, policyError } = await client.sync();
    assert.equal(version, 3);
    assert.ok(policyError);
  }
  assert.equal(service.observations.size, 1);
  assert.equal((await device()).policy.version, 3);
  assert.equal((await device({ problemHash: "f".repeat(32) })).policy.version, 4);
});

test("retired actions are followed, and new ones are not", async () => {
  const client = await device();
  const [first, ...others] = PROBLEM.actions.names;
  const retired = { ...PROBLEM, actions: { ...PROBLEM.actions, retired: [first] } };
  service.file = newer(4, { format: 3, problem: retired, problem_hash: "a".repeat(32) });
  assert.equal((await client.sync()).policy, 4);
  assert.equal(client.policy.probabilities(CONTEXT)[0], 0);
  const swapped = { ...PROBLEM, actions: { ...PROBLEM.actions, names: ["new", ...others] } };
  service.file = newer(5, { problem: swapped, problem_hash: "b".repeat(32) });
  const { policy: version, policyError } = await client.sync();
  assert.equal(version, 4);
  assert.match(policyError, /not as this device knows it/);
  service.file = newer(6);
  assert.equal((await client.sync()).policy, 6);
});

test("a store that fails is not taken for a bad policy", async () => {
  const client = await device();
  service.file = newer(4);
  store.writePolicy = async () => {
    throw new Error("no room");
  };
  await assert.rejects(client.sync(), /no room/);
  assert.equal(client.policy.version, 3);
});

test("the first start needs a network, or is told so; later ones do not", async () => {
  await service.stop();
  await assert.rejects(device(), NoPolicy);
  await assert.rejects(device(), /none is stored, and http/);
  await service.start();
  await device();
  await service.stop();
  assert.deepEqual(await (await device()).decide(CONTEXT, { id: "a" }), policy.decide(CONTEXT, { id: "a" }));
  await store.writePolicy(new Uint8Array(3));
  await assert.rejects(device(), /the stored one is not sound/);
});

test("the background syncs, outlives failures, and stops", async () => {
  const until = async (true_) => {
    while (!(await true_())) await new Promise((resolve) => setTimeout(resolve, 2));
  };
  const client = await device({ retries: 0 });
  await service.stop();
  await client.decide(CONTEXT, { id: "a" });
  client.start({ every: 5 });
  client.start({ every: 5 });
  await new Promise((resolve) => setTimeout(resolve, 30));
  await service.start();
  await until(() => service.observations.has("a"));
  await client.stop();
  await client.decide(CONTEXT, { id: "b" });
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal((await client.counts()).queued, 1);
});

test("stopping does not wait for all that is queued", async () => {
  const client = await device({ maxRows: 5000 });
  for (let i = 0; i < 2500; i++) await client.decide(CONTEXT, { id: `d${i}` });
  const remove = store.remove.bind(store);
  const begun = new Promise((resolve) => {
    store.remove = async (rows) => {
      resolve();
      await new Promise((later) => setTimeout(later, 20));
      return remove(rows);
    };
  });
  client.start({ every: 1e6 });
  await begun;
  await client.stop();
  assert.deepEqual(await client.counts(), { queued: 1500, refused: 0 });
  assert.equal((await client.sync()).decisions, 1500);
});

test("a client is opened, not made", () => {
  assert.throws(() => new EdgeClient(), /await EdgeClient\.open/);
});
