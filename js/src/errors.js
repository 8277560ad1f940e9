/** Errors about a caller's input; every message names the value, the place and the way out. */

const MAX_SHOWN = 60;

/** Escaped by Python's repr too: control characters, lone surrogates, unassigned code points, special spaces. */
const NOT_PRINTABLE = /\p{C}|(?! )\p{Z}/gu;
const ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** A context, or the list of eligible actions, does not fit the problem. */
export class InvalidContext extends Error {
  name = "InvalidContext";
}

/** A policy file is invalid; the message says why. */
export class InvalidPolicy extends Error {
  name = "InvalidPolicy";
}

/** A quoted text as Python's repr writes it, so that the messages of all runtimes can be compared. */
export function quoted(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replaceAll("\\", "\\\\").replace(NOT_PRINTABLE, escape);
  return quote + escaped.replaceAll(quote, `\\${quote}`) + quote;
}

/** A value for an error message: truncated, with its type. */
export function shown(value) {
  return `${shortened(display(value))} (${typeName(value)})`;
}

/** Like `typeof`, but null and arrays have names of their own. */
export function typeName(value) {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function escape(character) {
  const code = character.codePointAt(0);
  const hex = code.toString(16);
  if (code < 0x100) return ESCAPES[character] ?? `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

function display(value) {
  // A code point takes at most two units, so a huge string can be cut before it is escaped.
  if (typeof value === "string") return quoted(value.slice(0, 2 * MAX_SHOWN + 2));
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : String(value);
  try {
    return JSON.stringify(value) ?? tag(value);
  } catch {
    return tag(value); // a cycle, a BigInt within, or a toJSON that throws
  }
}

function shortened(text) {
  const characters = Array.from(text.slice(0, 2 * MAX_SHOWN + 2));
  return characters.length > MAX_SHOWN ? `${characters.slice(0, MAX_SHOWN).join("")}…` : text;
}

function tag(value) {
  return Object.prototype.toString.call(value);
}
