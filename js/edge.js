/** A device that decides on its own, online or not, and tells the service when it can. */

import { IndexedDBStore } from "./src/edge/indexeddb.js";
import { Repeat } from "./src/edge/repeat.js";
import { QueueFull } from "./src/edge/errors.js";
import { decisionRow, rewardRow, sameDecision, snapshot } from "./src/edge/rows.js";
import { Service } from "./src/edge/service.js";
import { StoredPolicy } from "./src/edge/stored_policy.js";
import { firstPolicy, Sync } from "./src/edge/sync.js";

export { NoPolicy, QueueFull, Refused, Unreachable } from "./src/edge/errors.js";
export { IndexedDBStore } from "./src/edge/indexeddb.js";
export { MemoryStore } from "./src/edge/memory.js";

const OPENED_BY_OPEN = Symbol("opened by EdgeClient.open");

/**
 * Decides in this page or program, in microseconds, and keeps decisions and rewards until the service has them.
 * What `decide` or `reward` resolved for is in the store, and leaves it only when the service has acknowledged it.
 */
export class EdgeClient {
  #service;
  #store;
  #stored;
  #maxRows;
  #url;
  #sync;
  #room = 0;
  #syncing = null;
  #repeat = null;

  constructor(secret, service, store, stored, maxRows, url) {
    if (secret !== OPENED_BY_OPEN) throw new TypeError("use `await EdgeClient.open(url, options)`");
    this.#service = service;
    this.#store = store;
    this.#stored = stored;
    this.#maxRows = maxRows;
    this.#url = url;
    this.#sync = new Sync(service, store, stored);
  }

  /** Start from the stored policy, without a network; only the first start has to download one. */
  static async open(url, { token, store, survives, problemHash, maxRows = 100_000, ...options } = {}) {
    const service = new Service(url, token, { timeout: 30_000, ...options });
    const kept = store ?? (await IndexedDBStore.open(`potstill ${url}`, { survives }));
    const stored = new StoredPolicy(kept, service.problem, problemHash);
    try {
      await stored.start();
      if (stored.current === null) await firstPolicy(service, stored, url);
      const client = new EdgeClient(OPENED_BY_OPEN, service, kept, stored, maxRows, url);
      await client.#count();
      return client;
    } catch (error) {
      kept.close();
      throw error;
    }
  }

  /** The policy that decides now. */
  get policy() {
    return this.#stored.current;
  }

  /** Choose an action; the decision is in the store when this resolves. */
  async decide(context, { unit, ...options } = {}) {
    const seen = snapshot(context);
    const decision = this.policy.decide(seen, options);
    const row = decisionRow(decision, seen, unit);
    const earlier = await this.#add(row);
    return earlier === null ? decision : sameDecision(earlier, row.body);
  }

  /** Report a reward; it is in the store when this resolves. */
  async reward(id, reward, options) {
    await this.#add(rewardRow(id, reward, options));
  }

  /** Send what is in the store, and look for a new policy. Calls that come meanwhile share the one under way. */
  sync() {
    this.#syncing ??= this.#alone(() => this.#sync.run())
      .finally(() => this.#count())
      .finally(() => (this.#syncing = null));
    return this.#syncing;
  }

  /** Sync now and every so many milliseconds; less often while that fails, and at once when a network comes back. */
  start({ every = 60_000 } = {}) {
    this.#repeat ??= new Repeat(every, () => this.sync(), (...failed) => this.#service.backoff(...failed));
  }

  /** End what `start` began, after the batch under way. */
  async stop() {
    if (this.#repeat === null) return;
    this.#sync.stopping = true;
    await this.#repeat.stop();
    this.#sync.stopping = false;
    this.#repeat = null;
  }

  /** How many rows wait to be sent, and how many were refused. */
  counts() {
    return this.#store.counts();
  }

  /** Rows that the service did not take, with its reasons. */
  refused() {
    return this.#store.refused();
  }

  /** Send the rows that were refused again with the next `sync`. */
  requeueRefused() {
    return this.#store.requeueRefused();
  }

  /** Delete the rows that were refused. */
  async discardRefused() {
    await this.#store.discardRefused();
    await this.#count();
  }

  /** Stop; what waits in the store waits for the next start. */
  async close() {
    await this.stop();
    await this.#syncing?.catch(() => {}); // whoever began it is told
    this.#store.close();
  }

  async #add(row) {
    if (this.#room <= 0) {
      throw new QueueFull(
        `the queue holds ${this.#maxRows} rows, as many as allowed; nothing was added. Call sync() where there is a ` +
          "network, discardRefused(), or raise maxRows; policy.decide() decides without a log",
      );
    }
    this.#room--; // taken before the wait, so that calls at the same time do not take the last place twice
    try {
      return await this.#store.add(row);
    } catch (error) {
      this.#room++;
      if (error.name !== "QuotaExceededError") throw error;
      throw new QueueFull(`the browser gives no more room, nothing was added: ${error.message}`);
    }
  }

  async #count() {
    const { queued, refused } = await this.#store.counts();
    this.#room = this.#maxRows - queued - refused;
  }

  /** Of several tabs on one store one syncs at a time; where there are no locks, what is sent twice counts once. */
  #alone(work) {
    const locks = globalThis.navigator?.locks;
    return locks ? locks.request(`potstill ${this.#url}`, work) : work();
  }
}
