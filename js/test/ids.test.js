import assert from "node:assert/strict";
import { test } from "node:test";

/** A module of its own, with none of the random words that another test fetched. */
const fresh = async (name) => (await import(`../src/ids.js?${name}`)).freshId;

/** Run with another `crypto` in the place of the runtime's. */
async function withCrypto(value, run) {
  const own = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  Object.defineProperty(globalThis, "crypto", { value, configurable: true });
  try {
    await run();
  } finally {
    delete globalThis.crypto;
    if (own) Object.defineProperty(globalThis, "crypto", own);
  }
}

test("an id has all the bits, zeros in front included, and no word serves twice", async () => {
  let next = 0;
  const counting = { getRandomValues: (words) => words.forEach((_, i) => (words[i] = next++)) };
  await withCrypto(counting, async () => {
    const freshId = await fresh("counting");
    const ids = Array.from({ length: 200 }, freshId);
    for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
    const words = ids.flatMap((id) => id.match(/.{8}/g));
    assert.equal(new Set(words).size, 800);
  });
});

test("where there is no randomness, an id is asked for", async () => {
  await withCrypto(undefined, async () => {
    const freshId = await fresh("none");
    assert.throws(freshId, /a new id needs crypto\.getRandomValues, which is not there; pass an id of your own/);
  });
});
