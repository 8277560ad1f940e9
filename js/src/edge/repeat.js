/** Work that is done every so often, and less often while it fails. */

const LONGEST = 3_600_000;

/** Calls `work` now and every so many milliseconds; after failures `backoff` says how much later. */
export class Repeat {
  #every;
  #work;
  #backoff;
  #timer = null;
  #failures = 0;
  #running = null;
  #stopped = false;
  // The browser's word on the network is only a hint: it hastens the next attempt, and prevents none.
  #hint = () => this.#now();

  constructor(every, work, backoff) {
    this.#every = every;
    this.#work = work;
    this.#backoff = backoff;
    globalThis.addEventListener?.("online", this.#hint);
    this.#now();
  }

  /** Resolves when the work under way has ended; no other is begun. */
  async stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    globalThis.removeEventListener?.("online", this.#hint);
    await this.#running;
  }

  #now() {
    clearTimeout(this.#timer);
    this.#running ??= this.#run().finally(() => (this.#running = null));
  }

  async #run() {
    try {
      await this.#work();
      this.#failures = 0;
    } catch {
      this.#failures++; // the rows are in the store; the next time may be better
    }
    if (this.#stopped) return;
    const limits = { pause: this.#every, longest: Math.max(this.#every, LONGEST) };
    const wait = this.#failures ? this.#backoff(this.#failures, limits) : this.#every;
    this.#timer = setTimeout(() => this.#now(), wait);
    this.#timer.unref?.(); // Node may end meanwhile
  }
}
