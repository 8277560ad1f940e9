/** Random ids for decisions without one. */

/** Random words, fetched a kilobyte at a time: a call for sixteen bytes costs about a third of a decision. */
const POOL = new Uint32Array(256);
let left = 0;

/** 128 random bits, as 32 hex digits. */
export function freshId() {
  if (left === 0) refill();
  let id = "";
  for (let i = 0; i < 4; i++) id += POOL[--left].toString(16).padStart(8, "0");
  return id;
}

function refill() {
  if (!globalThis.crypto?.getRandomValues) {
    throw new Error("a new id needs crypto.getRandomValues, which is not there; pass an id of your own: {id: …}");
  }
  globalThis.crypto.getRandomValues(POOL);
  left = POOL.length;
}
