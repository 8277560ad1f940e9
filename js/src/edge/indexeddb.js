/** A persistent store in the browser's IndexedDB; it survives page and browser restarts and weeks offline. */

const VERSION = 1;
const DURABILITY = { power: "strict", process: "relaxed" };

/** Has the methods of `MemoryStore`; each resolves when its transaction has completed. Tabs may share one. */
export class IndexedDBStore {
  #database;
  #durability;
  #gathering = null;
  #writing = Promise.resolve();

  constructor(database, durability) {
    this.#database = database;
    this.#durability = durability;
    database.onversionchange = () => database.close(); // do not block a page with a later version
  }

  /** Open a database by name. Rows survive a loss of "power", or only the end of the browser's "process". */
  static async open(name, { survives = "power" } = {}) {
    if (!Object.hasOwn(DURABILITY, survives)) throw new TypeError('survives must be "power" or "process"');
    const request = globalThis.indexedDB.open(name, VERSION);
    request.onupgradeneeded = () => create(request.result);
    return new IndexedDBStore(await result(request), DURABILITY[survives]);
  }

  /** Group commit: rows that arrive during a write share the next transaction. */
  async add(row) {
    const group = (this.#gathering ??= this.#group());
    const place = group.rows.push(row) - 1;
    return (await group.written)[place];
  }

  async counts() {
    const transaction = this.#database.transaction(["queue", "refused"]);
    const [queued, refused] = ["queue", "refused"].map((name) => result(transaction.objectStore(name).count()));
    return { queued: await queued, refused: await refused };
  }

  async newest() {
    const cursor = await result(this.#read("queue").openKeyCursor(null, "prev"));
    return cursor?.key ?? 0;
  }

  async oldest(count, until, after = 0) {
    if (after >= until) return [];
    return result(this.#read("queue").getAll(IDBKeyRange.bound(after, until, true), count));
  }

  async remove(rows) {
    const transaction = this.#write("queue");
    for (const row of rows) transaction.objectStore("queue").delete(row.number);
    return completed(transaction);
  }

  async setAside(row, reason) {
    const transaction = this.#write("queue", "refused");
    transaction.objectStore("refused").add({ kind: row.kind, id: row.id, body: row.body, reason });
    transaction.objectStore("queue").delete(row.number);
    return completed(transaction);
  }

  async refused() {
    const rows = await result(this.#read("refused").getAll());
    return rows.map(({ kind, id, body, reason }) => ({ kind, id, body, reason }));
  }

  async requeueRefused() {
    for (const { kind, id, body, number } of await result(this.#read("refused").getAll())) {
      await this.add({ kind, id, body });
      await this.#delete("refused", number);
    }
  }

  async discardRefused() {
    const transaction = this.#write("refused");
    transaction.objectStore("refused").clear();
    return completed(transaction);
  }

  async readPolicy() {
    return (await result(this.#read("kept").get("policy"))) ?? null;
  }

  async writePolicy(bytes) {
    const transaction = this.#write("kept");
    transaction.objectStore("kept").put(bytes, "policy");
    return completed(transaction);
  }

  close() {
    this.#database.close();
  }

  #group() {
    const group = { rows: [] };
    const before = this.#writing.catch(() => {}); // reported to the callers of that write
    group.written = this.#writing = before.then(() => {
      this.#gathering = null;
      return this.#addAll(group.rows);
    });
    return group;
  }

  /** For each row null, or the body of an earlier decision with its id. */
  async #addAll(rows) {
    const transaction = this.#write("queue");
    const queue = transaction.objectStore("queue");
    const earlier = rows.map(() => null);
    rows.forEach((row, i) => {
      const adding = queue.add(row.kind === "decision" ? { ...row, decided: row.id } : row);
      adding.onerror = (event) => {
        if (adding.error.name !== "ConstraintError") return;
        event.preventDefault(); // do not abort the transaction: it still has to read the existing decision
        queue.index("decided").get(row.id).onsuccess = ({ target }) => (earlier[i] = target.result.body);
      };
    });
    await completed(transaction);
    return earlier;
  }

  #read(name) {
    return this.#database.transaction(name).objectStore(name);
  }

  #write(...names) {
    return this.#database.transaction(names, "readwrite", { durability: this.#durability });
  }

  async #delete(name, number) {
    const transaction = this.#write(name);
    transaction.objectStore(name).delete(number);
    return completed(transaction);
  }
}

function create(database) {
  const queue = database.createObjectStore("queue", { keyPath: "number", autoIncrement: true });
  queue.createIndex("decided", "decided", { unique: true }); // only decisions have it
  database.createObjectStore("refused", { keyPath: "number", autoIncrement: true });
  database.createObjectStore("kept");
}

function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another page has the database open in an older version; close it"));
  });
}

function completed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
  });
}
