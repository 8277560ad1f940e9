/** A store in memory: for tests, and for environments without storage. */

/** Holds rows and the policy file in memory; `IndexedDBStore` is the persistent store. */
export class MemoryStore {
  #rows = new Map();
  #decided = new Map();
  #refused = [];
  #policy = null;
  #last = 0;

  /** Write a row. Resolves to null, or to the body of an earlier decision with this id, which is kept. */
  async add(row) {
    if (row.kind === "decision") {
      if (this.#decided.has(row.id)) return this.#decided.get(row.id);
      this.#decided.set(row.id, row.body);
    }
    this.#rows.set(++this.#last, { ...row, number: this.#last });
    return null;
  }

  async counts() {
    return { queued: this.#rows.size, refused: this.#refused.length };
  }

  /** Number of the last row; 0 if there is none. */
  async newest() {
    return this.#rows.size ? this.#last : 0;
  }

  /** Up to `count` of the oldest rows, with numbers above `after` and up to `until`. */
  async oldest(count, until, after = 0) {
    const found = [];
    for (const row of this.#rows.values()) {
      if (row.number <= after) continue;
      if (found.length === count || row.number > until) break;
      found.push(row);
    }
    return found;
  }

  async remove(rows) {
    for (const row of rows) this.#delete(row);
  }

  async setAside(row, reason) {
    this.#delete(row);
    this.#refused.push({ kind: row.kind, id: row.id, body: row.body, reason });
  }

  async refused() {
    return [...this.#refused];
  }

  async requeueRefused() {
    for (const { kind, id, body } of this.#refused.splice(0)) await this.add({ kind, id, body });
  }

  async discardRefused() {
    this.#refused.length = 0;
  }

  async readPolicy() {
    return this.#policy;
  }

  async writePolicy(bytes) {
    this.#policy = bytes;
  }

  close() {}

  #delete(row) {
    this.#rows.delete(row.number);
    if (row.kind === "decision") this.#decided.delete(row.id);
  }
}
