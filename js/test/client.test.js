import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, test } from "node:test";

import { Client, QueueFull, Refused, Unreachable } from "../client.js";
import { Policy } from "../potstill.js";
import { policyFile } from "../testing/craft.js";
import { FakeService } from "../testing/service.js";

const CONTEXT = { bandwidth: 30, connection: "4g", hd: true };
const policy = Policy.load(policyFile());

let service;
let pauses;
let quick;

beforeEach(async () => {
  service = await new FakeService().start();
  pauses = [];
  quick = { timeout: 5000, random: () => 0, sleep: async (milliseconds) => pauses.push(milliseconds) };
});
afterEach(() => service.stop());

const client = (options = {}) => new Client(service.url, { rewardEvery: 1e6, ...quick, ...options });

test("a decision is the service's, asked for under an id", async () => {
  const one = client({ token: "pst_secret" });
  const answer = await one.decide(CONTEXT, { id: "a", eligible: ["low", "best"] });
  const { action, propensity } = policy.decide(CONTEXT, { id: "a", eligible: ["low", "best"] });
  assert.deepEqual(answer, { id: "a", action, propensity, policy: 3, mode: "online" });
  assert.equal(service.requests[0].headers.authorization, "Bearer pst_secret");
  const { id } = await one.decide(CONTEXT);
  assert.match(id, /^[0-9a-f]{32}$/);
  assert.equal(service.bodies[1].id, id);
});

test("a batch keeps the order", async () => {
  const answers = await client().decideBatch([0, 1, 2].map((i) => ({ context: CONTEXT, id: `d${i}` })));
  assert.deepEqual(
    answers.map((answer) => answer.action),
    [0, 1, 2].map((i) => policy.decide(CONTEXT, { id: `d${i}` }).action),
  );
});

for (const fault of ["cut", "lost", 503, [429, { "retry-after": "0.5" }]]) {
  test(`a failure (${fault}) is tried again under the same id`, async () => {
    service.faults = [fault, fault];
    const { id } = await client().decide(CONTEXT);
    assert.deepEqual(pauses, Array.isArray(fault) ? [500, 500] : [50, 100]);
    assert.deepEqual(new Set(service.bodies.map((told) => told.id)), new Set([id]));
  });
}

test("a refusal is thrown with the service's words", async () => {
  service.faults = [422];
  await assert.rejects(client().decide(CONTEXT), (error) => {
    assert.ok(error instanceof Refused && error.status === 422);
    return /decide: the service answered 422: on demand/.test(error.message);
  });
});

test("no answer in time, no answer at all, and no answer of the service", async () => {
  service.faults = ["slow"];
  await assert.rejects(client({ timeout: 50, retries: 0 }).decide(CONTEXT), /Unreachable: .*no whole answer in \d+ ms/);
  service.faults = [[200, { "content-type": "text/html" }]];
  await assert.rejects(client().policy(), { name: "InvalidPolicy" });
  service.faults = [[302, { location: "/login" }]];
  await assert.rejects(client({ retries: 0 }).decide(CONTEXT), { name: "Unreachable" });
  await service.stop();
  await assert.rejects(client({ retries: 2 }).decide(CONTEXT), /Unreachable: POST decide: .*; 3 attempts were made/);
  assert.equal(pauses.length, 2);
});

test("a pause longer than the time left is not waited for", async () => {
  service.faults = [[503, { "retry-after": "60" }]];
  await assert.rejects(client().decide(CONTEXT), /1 attempts were made/);
  assert.deepEqual(pauses, []);
});

test("the fallback is an answer, if it is eligible; its reward is not sent", async () => {
  await service.stop();
  const one = client({ fallback: "high" });
  const answer = await one.decide(CONTEXT, { id: "a" });
  assert.deepEqual(answer, { id: "a", action: "high", propensity: 1, policy: null, mode: "fallback" });
  assert.equal((await one.decideBatch([{ context: CONTEXT }]))[0].mode, "fallback");
  assert.equal((await one.decide(CONTEXT, { action: "best" })).action, "best");
  await assert.rejects(one.decide(CONTEXT, { eligible: ["low"] }), Unreachable);
  one.reward("a", 1);
  one.reward("b", 1);
  await service.start();
  await one.flush();
  assert.deepEqual([...service.rewards.values()].map(([row]) => row.id), ["b"]);
  service.faults = [422];
  await assert.rejects(one.decide(CONTEXT), Refused);
});

test("rewards go together, and a lost reply counts once", async () => {
  const one = client();
  for (let i = 0; i < 3; i++) one.reward(`d${i}`, i);
  one.reward("d0", 5, { key: "second", time: new Date(0), metrics: { watched: 3.2, clicks: 0 } });
  one.reward("d0", 6, { key: "second" });
  service.faults = ["lost"];
  await Promise.all([one.flush(), one.flush()]);
  assert.equal(service.bodies.length, 2);
  assert.deepEqual(service.bodies[0], service.bodies[1]);
  assert.equal(service.rewards.size, 4);
  assert.deepEqual(service.rewards.get("d0/second")[0], {
    id: "d0",
    reward: 5,
    key: "second",
    time: "1970-01-01T00:00:00.000Z",
    metrics: { watched: 3.2, clicks: 0 },
  });
  assert.equal("metrics" in [...service.rewards.values()][0][0], false);
});

test("a full batch is sent at once, a single reward soon, and the rest on closing", async () => {
  for (const options of [{ rewardBatch: 2 }, { rewardEvery: 5 }]) {
    const one = client(options);
    one.reward("a", 1, { key: JSON.stringify(options) });
    one.reward("b", 1, { key: JSON.stringify(options) });
    const before = service.rewards.size;
    while (service.rewards.size < before + 2) await new Promise((resolve) => setTimeout(resolve, 2));
    one.reward("c", 1);
    await one.close();
  }
  assert.equal(service.rewards.size, 6);
});

test("rewards wait for a service that is away, up to a limit", async () => {
  const one = client({ maxPending: 2 });
  await service.stop();
  one.reward("a", 1);
  one.reward("b", 1);
  assert.throws(() => one.reward("c", 1), QueueFull);
  await assert.rejects(one.flush(), Unreachable);
  await service.start();
  await one.close();
  assert.equal(service.rewards.size, 2);
});

test("a bad reward does not hold up the others", async () => {
  const refused = [];
  const one = client({ onRefused: (row) => refused.push(row.id) });
  service.badIds = new Set(["d3"]);
  for (let i = 0; i < 7; i++) one.reward(`d${i}`, 1);
  await one.close();
  assert.equal(service.rewards.size, 6);
  assert.deepEqual(refused, ["d3"]);
});

test("rewards, options and addresses that make no sense are refused", () => {
  const one = client();
  for (const reward of [NaN, Infinity, "1", null, true]) assert.throws(() => one.reward("a", reward), /finite number/);
  assert.throws(() => one.reward("", 1), /id must be a string/);
  assert.throws(() => one.reward("a", 1, { key: "" }), /key must be a string/);
  assert.throws(() => one.reward("a", 1, { time: "yesterday" }), /time must be a Date/);
  assert.throws(() => one.reward("a", 1, { metrics: { watched: NaN } }), /metric 'watched' .* must be a finite number/);
  assert.throws(() => one.reward("a", 1, { metrics: { "": 1 } }), /a metric's name must be a string/);
  assert.throws(() => one.reward("a", 1, { metrics: [1] }), /metrics must map names to numbers/);
  assert.rejects(one.decide(CONTEXT, { eligable: [] }), /unknown option 'eligable'/);
  const none = ["", "h/v1/p", "ftp://h/v1/p", "http://h", "http://h/p", "http://h/v1/p?x=1", "http://u:p@h/v1/p"];
  for (const url of none) {
    assert.throws(() => new Client(url), /url must/, url);
  }
  for (const token of ["", "pst_secret\n", "pst secret"]) {
    assert.throws(() => client({ token }), /^TypeError: token must be printable ASCII without spaces; was it read/);
  }
});

test("NaN and infinity are not sent as missing values", async () => {
  const one = client();
  const refused = { name: "InvalidContext", message: /^'bandwidth': expected a finite number, got .*; send null if the feature may/ };
  for (const value of [NaN, Infinity, -Infinity]) {
    const context = { ...CONTEXT, bandwidth: value };
    await assert.rejects(one.decide(context), refused);
    await assert.rejects(one.decideBatch([{ context }]), refused);
    await assert.rejects(one.observe([{ id: "a", context, action: "low", propensity: 0.5, policy: 1 }]), refused);
  }
  assert.deepEqual(service.bodies, []);
  await one.decide({ ...CONTEXT, hd: null });
});

test("an answer that unpacks to more than 64 MiB is refused", async () => {
  const packed = gzipSync(Buffer.alloc(65 * 2 ** 20));
  assert.ok(packed.length < 2 ** 17);
  service.faults = Array(4).fill([200, { "content-encoding": "gzip" }, packed]);
  await assert.rejects(client({ timeout: 20_000 }).policy(), /the answer is larger than 64 MiB/);
});

test("observations, policy and status", async () => {
  const one = client();
  const row = { id: "a", context: CONTEXT, action: "low", propensity: 0.5, policy: 1, time: 1 };
  assert.equal(await one.observe([row]), 1);
  assert.equal(await one.observe([]), 0);
  assert.deepEqual(service.bodies, [{ observations: [row] }]);
  assert.equal((await one.policy()).version, 3);
  service.etag = '"0123"';
  await assert.rejects(one.policy(), /SHA-256/);
  assert.deepEqual(await one.status(), { problem: "upload", ready: true });
});
