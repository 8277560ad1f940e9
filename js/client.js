/** A client of the decision service, over fetch: one request per decision. */

import { InvalidContext, quoted, shown } from "./src/errors.js";
import { freshId } from "./src/ids.js";
import { Policy } from "./src/policy.js";
import { QueueFull, Unreachable } from "./src/edge/errors.js";
import { rewardRow } from "./src/edge/rows.js";
import { Service } from "./src/edge/service.js";
import { upload } from "./src/edge/upload.js";

export { QueueFull, Refused, Unreachable } from "./src/edge/errors.js";

const DECIDE_OPTIONS = new Set(["id", "eligible", "unit", "action", "propensity"]);
/** Number of fallback decisions whose ids are remembered. */
const REMEMBERED = 100_000;

/** Decides over HTTP. Rewards are batched and sent in the background. */
export class Client {
  #service;
  #fallback;
  #rewardEvery;
  #rewardBatch;
  #maxPending;
  #onRefused;
  #pending = new Map();
  #fallen = new Set();
  #timer = null;
  #flushing = Promise.resolve();
  // The last event in which a page can send its rewards.
  #leaving = () => void this.#drain({ keepalive: true }).catch(() => {});

  constructor(url, options = {}) {
    const { token, fallback, rewardEvery = 500, rewardBatch = 500, maxPending = 100_000, onRefused, ...rest } = options;
    this.#service = new Service(url, token, { timeout: 2000, ...rest });
    this.#fallback = fallback ?? null;
    if (typeof fallback === "number" && !Number.isFinite(fallback)) {
      throw new TypeError(`fallback must be an action, such as a finite number, got ${shown(fallback)}`);
    }
    this.#rewardEvery = rewardEvery;
    this.#rewardBatch = rewardBatch;
    this.#maxPending = maxPending;
    this.#onRefused = onRefused ?? warn;
    globalThis.addEventListener?.("pagehide", this.#leaving);
  }

  /** Request a decision; always with an id, so that a retry gives the same decision. */
  async decide(context, options = {}) {
    const asked = requestOf(context, options);
    try {
      return await this.#service.post("decide", json(asked), 200);
    } catch (error) {
      return this.#fallBack(asked, error);
    }
  }

  /** Request up to 1,000 decisions at once; each request is `{context, …}` with the options of `decide`. */
  async decideBatch(requests) {
    const asked = requests.map(({ context, ...options }) => requestOf(context, options));
    try {
      const { decisions } = await this.#service.post("decide/batch", json({ requests: asked }), 200);
      return decisions;
    } catch (error) {
      return asked.map((one) => this.#fallBack(one, error));
    }
  }

  /** Report a reward; it is sent in the next batch. */
  reward(id, reward, options) {
    const row = rewardRow(id, reward, options);
    if (this.#fallen.has(id)) return;
    if (this.#pending.size >= this.#maxPending) {
      throw new QueueFull(`${this.#maxPending} rewards wait for a service that does not take them; nothing was added`);
    }
    const name = JSON.stringify([id, JSON.parse(row.body).key]);
    if (!this.#pending.has(name)) this.#pending.set(name, { ...row, name });
    if (this.#pending.size >= this.#rewardBatch) this.#flushSoon(0);
    else this.#flushSoon(this.#rewardEvery);
  }

  /** Send pending rewards; they are kept if that fails. */
  flush() {
    const before = this.#flushing.catch(() => {}); // a failed earlier flush does not fail this one
    this.#flushing = before.then(() => this.#drain());
    return this.#flushing;
  }

  /** Send decisions that were taken elsewhere. */
  async observe(observations) {
    const bodies = observations.map(json);
    if (bodies.length) await this.#service.postRows("observe", "observations", bodies);
    return bodies.length;
  }

  /** Download the currently served policy. */
  async policy() {
    return Policy.load(await this.#service.policyFile(null));
  }

  /** Status of the problem in the service. */
  status() {
    return this.#service.status();
  }

  /** Send pending rewards and close. */
  async close() {
    globalThis.removeEventListener?.("pagehide", this.#leaving);
    await this.flush();
  }

  #flushSoon(milliseconds) {
    if (this.#timer !== null && milliseconds > 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#flushInBackground(), milliseconds);
  }

  async #flushInBackground() {
    this.#timer = null;
    try {
      await this.flush();
    } catch {
      if (this.#pending.size) this.#flushSoon(this.#rewardEvery);
    }
  }

  async #drain(options) {
    while (this.#pending.size) {
      const rows = [...this.#pending.values()].slice(0, this.#rewardBatch);
      const post = (part) => this.#service.postRows("reward", "rewards", part.map((row) => row.body), options);
      await upload(rows, post, (sent) => this.#forget(sent), (row, reason) => this.#refuse(row, reason));
    }
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  #forget(rows) {
    for (const row of rows) this.#pending.delete(row.name);
  }

  #refuse(row, reason) {
    this.#forget([row]);
    this.#onRefused(row, reason);
  }

  #fallBack(asked, error) {
    const action = asked.action ?? this.#fallback;
    if (!(error instanceof Unreachable) || action === null || !permits(asked.eligible, action)) throw error;
    // The service may have logged another action under this id; a reward must not be credited to it.
    this.#fallen.add(asked.id);
    if (this.#fallen.size > REMEMBERED) this.#fallen.delete(this.#fallen.values().next().value);
    return { id: asked.id, action, propensity: 1, policy: null, mode: "fallback" };
  }
}

/** Whether a restriction permits an action: a list of names, or an interval of numbers. */
function permits(eligible, action) {
  if (eligible === null || eligible === undefined) return true;
  if (typeof action !== "number") return Array.isArray(eligible) && eligible.includes(action);
  const interval = Array.isArray(eligible) && eligible.length === 2 && eligible.every(Number.isFinite);
  return interval && eligible[0] <= action && action <= eligible[1];
}

/** A value as JSON. NaN and infinity would become null, which would pass for a missing value. */
function json(value) {
  return JSON.stringify(value, (name, item) => {
    if (typeof item !== "number" || Number.isFinite(item)) return item;
    throw new InvalidContext(
      `${quoted(name)}: expected a finite number, got ${shown(item)}; send null if the feature may be missing`,
    );
  });
}

function warn(row, reason) {
  console.warn(`a reward for ${shown(row.id)} was refused and is dropped: ${reason}`);
}

function requestOf(context, options) {
  for (const name in options) {
    if (DECIDE_OPTIONS.has(name)) continue;
    throw new TypeError(`unknown option ${shown(name)}; the options are ${[...DECIDE_OPTIONS].join(", ")}`);
  }
  const numbers = [options.action, ...(Array.isArray(options.eligible) ? options.eligible : [])];
  const bad = numbers.find((each) => typeof each === "number" && !Number.isFinite(each));
  if (bad !== undefined) {
    const name = options.action === undefined ? "eligible" : "action or eligible";
    throw new InvalidContext(`${name}: expected a finite number, got ${shown(bad)}`);
  }
  return { context, ...options, id: options.id ?? freshId() };
}
