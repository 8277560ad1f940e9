/**
 * The draw: one uniform number per decision, a pure function of the decision's id and the policy's salt.
 * u = (SipHash-2-4(salt, id as UTF-8) ≫ 11) · 2⁻⁵³. A 64-bit word is stored as two 32-bit halves, low half first.
 */

import { shown } from "./errors.js";

/** Initial state of SipHash: "somepseudorandomlygeneratedbytes". */
const START = new Int32Array([
  0x70736575, 0x736f6d65, 0x6e646f6d, 0x646f7261, 0x6e657261, 0x6c796765, 0x79746573, 0x74656462,
]);
const V0 = 0;
const V1 = 2;
const V2 = 4;
const V3 = 6;

const LONE_SURROGATE = /\p{Cs}/u;

// Scratch buffer: no caller's code runs while it is in use. Longer ids get their own buffer.
const STATE = new Int32Array(8);
const HASH = new Uint32Array(2);
const BYTES = new Uint8Array(1024);

/** The key of SipHash, Int32Array[4], from 32 hex digits. */
export function keyOf(salt) {
  const bytes = Uint8Array.from(salt.match(/../g), (digits) => parseInt(digits, 16));
  return Int32Array.from([0, 4, 8, 12], (at) => wordAt(bytes, at));
}

/** The draw of a decision, in [0, 1). The j-th further draw hashes the id, a byte 0xff, and j in four bytes. */
export function uniform(id, key, j = 0) {
  if (typeof id !== "string" || !id) {
    throw new RangeError(`a decision's id must be a non-empty string, got ${shown(id)}`);
  }
  const most = 3 * id.length + 5;
  const bytes = most <= BYTES.length ? BYTES : new Uint8Array(most);
  let length = writeUtf8(id, bytes);
  if (j > 0) for (const byte of [0xff, j, j >> 8, j >> 16, j >> 24]) bytes[length++] = byte;
  const hash = siphash(key, bytes, length);
  return (hash[1] * 0x200000 + (hash[0] >>> 11)) * 2 ** -53;
}

/** SipHash-2-4 of a text as UTF-8, modulo `size` of at most 2^20; null if the text is not valid Unicode. */
export function hashModulo(text, key, size) {
  return isUnicode(text) ? modulo(hashOf(text, key), size) : null;
}

/** The same, and whether the highest bit of the hash is set; the text must be valid Unicode. */
export function signedHashModulo(text, key, size) {
  const hash = hashOf(text, key);
  return { column: modulo(hash, size), negative: hash[1] >= 2 ** 31 };
}

/** Whether a text has no lone surrogates, so that it can be encoded as UTF-8. */
export function isUnicode(text) {
  return !LONE_SURROGATE.test(text);
}

function hashOf(text, key) {
  const bytes = 3 * text.length <= BYTES.length ? BYTES : new Uint8Array(3 * text.length);
  return siphash(key, bytes, writeUtf8(text, bytes));
}

function modulo(hash, size) {
  return ((hash[1] % size) * 2 ** 32 + hash[0]) % size;
}

/** SipHash-2-4 of the first `length` bytes, as [low, high]; the array is overwritten by the next call. */
export function siphash(key, bytes, length) {
  for (let i = 0; i < 8; i++) STATE[i] = START[i] ^ key[i & 3];
  const whole = length - (length % 8);
  for (let at = 0; at < whole; at += 8) absorb(wordAt(bytes, at), wordAt(bytes, at + 4));
  absorbLast(bytes, whole, length);
  STATE[V2] ^= 0xff;
  for (let i = 0; i < 4; i++) round(STATE);
  HASH[0] = STATE[V0] ^ STATE[V1] ^ STATE[V2] ^ STATE[V3];
  HASH[1] = STATE[V0 + 1] ^ STATE[V1 + 1] ^ STATE[V2 + 1] ^ STATE[V3 + 1];
  return HASH;
}

function absorb(low, high) {
  STATE[V3] ^= low;
  STATE[V3 + 1] ^= high;
  round(STATE);
  round(STATE);
  STATE[V0] ^= low;
  STATE[V0 + 1] ^= high;
}

/** The last word: the remaining bytes, and the length in the top byte. */
function absorbLast(bytes, from, length) {
  let low = 0;
  let high = length << 24;
  for (let i = from; i < length; i++) {
    const place = i - from;
    if (place < 4) low |= bytes[i] << (8 * place);
    else high |= bytes[i] << (8 * (place - 4));
  }
  absorb(low, high);
}

function round(v) {
  add(v, V0, V1);
  rotate(v, V1, 13);
  xor(v, V1, V0);
  swap(v, V0);
  add(v, V2, V3);
  rotate(v, V3, 16);
  xor(v, V3, V2);
  add(v, V0, V3);
  rotate(v, V3, 21);
  xor(v, V3, V0);
  add(v, V2, V1);
  rotate(v, V1, 17);
  xor(v, V1, V2);
  swap(v, V2);
}

function add(v, a, b) {
  const low = (v[a] >>> 0) + (v[b] >>> 0);
  v[a] = low | 0;
  v[a + 1] += v[b + 1] + (low > 0xffffffff ? 1 : 0);
}

function xor(v, a, b) {
  v[a] ^= v[b];
  v[a + 1] ^= v[b + 1];
}

function rotate(v, a, bits) {
  const low = v[a];
  const high = v[a + 1];
  v[a] = (low << bits) | (high >>> (32 - bits));
  v[a + 1] = (high << bits) | (low >>> (32 - bits));
}

/** Rotate by 32 bits. */
function swap(v, a) {
  const low = v[a];
  v[a] = v[a + 1];
  v[a + 1] = low;
}

function wordAt(bytes, at) {
  return bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
}

/** Write a string as UTF-8 and return its length. TextEncoder would replace a lone surrogate by U+FFFD. */
function writeUtf8(text, bytes) {
  let at = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.codePointAt(i);
    if (code < 0x80) {
      bytes[at++] = code;
    } else {
      if (code > 0xffff) i++;
      else if (code >= 0xd800 && code < 0xe000) throw illFormed(text);
      at = writeMultibyte(code, bytes, at);
    }
  }
  return at;
}

function writeMultibyte(code, bytes, at) {
  const more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  bytes[at++] = ((0xff80 >> more) & 0xff) | (code >> (6 * more));
  for (let shift = 6 * (more - 1); shift >= 0; shift -= 6) bytes[at++] = 0x80 | ((code >> shift) & 0x3f);
  return at;
}

function illFormed(id) {
  return new RangeError(`a decision's id must be valid Unicode, got ${shown(id)}`);
}
