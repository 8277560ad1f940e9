/** A device that decides locally, online or offline, and synchronises with the service. */

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
 * Decides in this page or program, in microseconds, and stores decisions and rewards until the service has them.
 * When `decide` or `reward` resolves, the row is in the store; it leaves only when the service has acknowledged it.
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

  /** Start from the stored policy, without a network; only the first start downloads one. */
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

  /** The current policy. */
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

  /** Send the stored rows and check for a new policy. Concurrent calls share one sync. */
  sync() {
    this.#syncing ??= this.#alone(() => this.#sync.run())
      .finally(() => this.#count())
      .finally(() => (this.#syncing = null));
    return this.#syncing;
  }

  /** Sync now and every `every` milliseconds; less often after failures, and at once when the network comes back. */
  start({ every = 60_000 } = {}) {
    this.#repeat ??= new Repeat(every, () => this.sync(), (...failed) => this.#service.backoff(...failed));
  }

  /** Stop the periodic sync, after the current batch. */
  async stop() {
    if (this.#repeat === null) return;
    this.#sync.stopping = true;
    await this.#repeat.stop();
    this.#sync.stopping = false;
    this.#repeat = null;
  }

  /** Number of rows queued and refused. */
  counts() {
    return this.#store.counts();
  }

  /** Rows that the service rejected, with its reasons. */
  refused() {
    return this.#store.refused();
  }

  /** Send rejected rows again with the next `sync`. */
  requeueRefused() {
    return this.#store.requeueRefused();
  }

  /** Delete rejected rows. */
  async discardRefused() {
    await this.#store.discardRefused();
    await this.#count();
  }

  /** Stop; stored rows are sent after the next start. */
  async close() {
    await this.stop();
    await this.#syncing?.catch(() => {}); // reported to its caller
    this.#store.close();
  }

  async #add(row) {
    if (this.#room <= 0) {
      throw new QueueFull(
        `the queue holds ${this.#maxRows} rows, as many as allowed; nothing was added. Call sync() where there is a ` +
          "network, discardRefused(), or raise maxRows; policy.decide() decides without a log",
      );
    }
    this.#room--; // reserved before awaiting, so that concurrent calls do not share the last place
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

  /** Tabs with a common store sync one at a time. Without Web Locks, rows sent twice still count once. */
  #alone(work) {
    const locks = globalThis.navigator?.locks;
    return locks ? locks.request(`potstill ${this.#url}`, work) : work();
  }
}
