/**
 * Times of a device's rows, corrected by the service's clock when they are sent. A device's clock may be wrong when a
 * decision is taken, and right when its reward comes: rows keep the time since the page was opened beside it.
 */

/** Clocks that differ by more than this are not both right: milliseconds. */
const TOLERANCE = 60_000;

/** Time since this page or program was started, which cannot be set, and which start that was. */
export function elapsed() {
  return { origin: performance.timeOrigin, milliseconds: performance.now() };
}

/** The service's clock, as far as the device has heard of it. */
export class DeviceClock {
  #offset = null;

  /** Whether the service has told its time. */
  get isKnown() {
    return this.#offset !== null;
  }

  /** Note the service's time from the header `X-Potstill-Time` of a reply: seconds since 1970. */
  hear(stated) {
    const time = Number.parseFloat(stated ?? "") * 1000;
    if (Number.isFinite(time)) this.#offset = time - performance.now();
  }

  /** A row's JSON with its time by the service's clock, if the two differ by more than a minute. */
  corrected({ body, taken }) {
    if (!taken) return body; // its time was stated by the caller
    const row = JSON.parse(body);
    const stated = Date.parse(row.time);
    const { origin, milliseconds } = elapsed();
    const present = this.#offset === null ? Date.now() : this.#offset + milliseconds;
    // After a restart, assume that the clock was as wrong then as it is now.
    const right = origin === taken.origin ? present - (milliseconds - taken.milliseconds) : stated + present - Date.now();
    if (Math.abs(right - stated) <= TOLERANCE) return body;
    return JSON.stringify({ ...row, time: new Date(right).toISOString() });
  }
}
