import assert from "node:assert/strict";
import { test } from "node:test";

import { keyOf, siphash, uniform } from "../src/draw.js";

const SALT = "000102030405060708090a0b0c0d0e0f";
const KEY = keyOf(SALT);

/** Of the messages "", 00, 00 01, … under the key above, as the authors of SipHash publish them. */
const REFERENCE = [
  0x726fdb47dd0e0e31n, 0x74f839c593dc67fdn, 0x0d6c8009d9a94f5an, 0x85676696d7fb7e2dn, 0xcf2794e0277187b7n,
  0x18765564cd99a68dn, 0xcbc9466e58fee3cen, 0xab0200f58b01d137n, 0x93f5f5799a932462n, 0x9e0082df0ba9e4b0n,
  0x7a5dbbc594ddb9f3n, 0xf4b32f46226bada7n, 0x751e8fbc860ee5fbn, 0x14ea5627c0843d90n, 0xf723ca908e7af2een,
  0xa129ca6149be45e5n,
];

const MASK = (1n << 64n) - 1n;
const rotate = (word, bits) => ((word << bits) | (word >> (64n - bits))) & MASK;

/** SipHash-2-4 as its paper writes it, in 64-bit words. */
function siphash64(salt, message) {
  const words = (bytes) => new BigUint64Array(Uint8Array.from(bytes).buffer);
  const [k0, k1] = words(Buffer.from(salt, "hex"));
  let [v0, v1, v2, v3] = [
    k0 ^ 0x736f6d6570736575n,
    k1 ^ 0x646f72616e646f6dn,
    k0 ^ 0x6c7967656e657261n,
    k1 ^ 0x7465646279746573n,
  ];
  const rounds = (count) => {
    for (let i = 0; i < count; i++) {
      v0 = (v0 + v1) & MASK;
      v2 = (v2 + v3) & MASK;
      v1 = rotate(v1, 13n) ^ v0;
      v3 = rotate(v3, 16n) ^ v2;
      v0 = rotate(v0, 32n);
      v2 = (v2 + v1) & MASK;
      v0 = (v0 + v3) & MASK;
      v1 = rotate(v1, 17n) ^ v2;
      v3 = rotate(v3, 21n) ^ v0;
      v2 = rotate(v2, 32n);
    }
  };
  const padding = new Array(7 - (message.length % 8)).fill(0);
  for (const word of words([...message, ...padding, message.length & 0xff])) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  v2 ^= 0xffn;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

function siphash32(key, message) {
  const [low, high] = siphash(key, message, message.length);
  return (BigInt(high) << 32n) | BigInt(low);
}

test("the reference vectors of SipHash-2-4", () => {
  REFERENCE.forEach((expected, length) => {
    const message = Uint8Array.from({ length }, (_, i) => i);
    assert.equal(siphash32(KEY, message), expected, `length ${length}`);
    assert.equal(siphash64(SALT, message), expected, `length ${length}, in the test's own 64 bits`);
  });
});

test("messages and keys of all bits and lengths, against 64-bit arithmetic", () => {
  let seed = 1;
  const next = () => (seed = (seed * 48271) % 0x7fffffff) & 0xff;
  for (let length = 0; length < 300; length++) {
    const message = Uint8Array.from({ length }, next);
    const salt = Buffer.from(Uint8Array.from({ length: 16 }, next)).toString("hex");
    assert.equal(siphash32(keyOf(salt), message), siphash64(salt, message), `length ${length}`);
  }
});

test("the draw is the upper 53 bits of the hash of the id's UTF-8", () => {
  const long = "ab€𝔘".repeat(2000);
  for (const id of ["a", "upload-123", "é", "߿ࠀ", "東京", "\uffff", "\u{10000}\u{10ffff}", "mixed ☃ 𝔘 text", long]) {
    const expected = Number(siphash64(SALT, new TextEncoder().encode(id)) >> 11n) * 2 ** -53;
    assert.equal(uniform(id, KEY), expected, id.slice(0, 20));
  }
});

test("draws are spread over [0, 1)", () => {
  const draws = Array.from({ length: 10_000 }, (_, i) => uniform(`decision-${i}`, KEY));
  const counts = new Array(10).fill(0);
  for (const u of draws) counts[Math.floor(10 * u)]++;
  // 1,000 each are expected, with a standard deviation of 30.
  assert.ok(
    counts.every((count) => Math.abs(count - 1000) < 150),
    String(counts),
  );
});

test("an id that cannot be UTF-8, or is none, is refused", () => {
  for (const id of ["\ud800", "a\udc00", "\ud800a", "x\udbff\ud800\udc00", "\ud800".repeat(3)]) {
    assert.throws(() => uniform(id, KEY), { name: "RangeError", message: /must be valid Unicode, got '/ });
  }
  for (const id of ["", 7, true, {}, ["a"], Symbol("a")]) {
    assert.throws(() => uniform(id, KEY), { name: "RangeError", message: /must be a non-empty string, got / });
  }
});
