/** Periodic work, with backoff after failures. */

const LONGEST = 3_600_000;

/** Calls `work` now and every `every` milliseconds; after failures, `backoff` gives the additional delay. */
export class Repeat {
  #every;
  #work;
  #backoff;
  #timer = null;
  #failures = 0;
  #running = null;
  #stopped = false;
  // The `online` event is only a hint: it triggers the next attempt early, and never prevents one.
  #hint = () => this.#now();

  constructor(every, work, backoff) {
    this.#every = every;
    this.#work = work;
    this.#backoff = backoff;
    globalThis.addEventListener?.("online", this.#hint);
    this.#now();
  }

  /** Resolves when the current work has ended; no further work starts. */
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
      this.#failures++; // the rows are still in the store; retry later
    }
    if (this.#stopped) return;
    const limits = { pause: this.#every, longest: Math.max(this.#every, LONGEST) };
    const wait = this.#failures ? this.#backoff(this.#failures, limits) : this.#every;
    this.#timer = setTimeout(() => this.#now(), wait);
    this.#timer.unref?.(); // do not keep Node running
  }
}
