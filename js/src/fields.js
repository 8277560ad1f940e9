/** Typed fields of the JSON in a policy file. Messages match the Python reader's: expected, found, path. */

import { InvalidPolicy, quoted, shown, typeName } from "./errors.js";

const TYPES = {
  array: Array.isArray,
  bool: (value) => typeof value === "boolean",
  float: Number.isFinite,
  int: Number.isSafeInteger,
  null: (value) => value === null,
  object: (value) => typeName(value) === "object",
  str: (value) => typeof value === "string",
};

/** The deepest nesting of JSON that is read, as in Python. */
const MAX_DEPTH = 64;

const LONE_SURROGATE = /\p{Cs}/u;

/** Reject JSON that nests too deep. Level by level, since a file may nest deeper than the call stack allows. */
export function checkDepth(root, where) {
  const isNested = (value) => typeof value === "object" && value !== null;
  let depth = 0;
  for (let level = [root].filter(isNested); level.length; level = level.flatMap(Object.values).filter(isNested)) {
    if (++depth > MAX_DEPTH) throw new InvalidPolicy(`${where} nests more than ${MAX_DEPTH} levels deep`);
  }
}

/** The error for invalid metadata at a path such as `$.problem.name`. */
export function misfit(message, path) {
  return new InvalidPolicy(`its metadata does not fit: ${message} - at \`${path}\``);
}

/** A value of one of several types, by their names in `TYPES`. */
export function typed(value, types, path) {
  if (types.some((type) => TYPES[type](value))) return value;
  throw misfit(`Expected \`${types.join(" | ")}\`, got ${shown(value)}`, path);
}

/** A field of an object; required if there is no fallback. */
export function field(object, name, types, path, fallback) {
  if (Object.hasOwn(object, name)) return typed(object[name], types, `${path}.${name}`);
  if (fallback !== undefined) return fallback;
  throw misfit(`Object missing required field \`${name}\``, path);
}

/** A field with one of a few values. */
export function choice(object, name, values, path, fallback) {
  const value = Object.hasOwn(object, name) ? object[name] : fallback;
  if (values.includes(value)) return value;
  throw misfit(`expected ${values.map((v) => JSON.stringify(v)).join(" or ")}, got ${shown(value)}`, `${path}.${name}`);
}

/** A name: a non-empty string that can be encoded as UTF-8. */
export function checkName(name, path) {
  typed(name, ["str"], path);
  if (!name) throw misfit("a name must not be empty", path);
  if (LONE_SURROGATE.test(name)) throw misfit(`a name must be valid Unicode, got ${shown(name)}`, path);
  return name;
}

/** A list of distinct names. */
export function checkNames(names, what, path) {
  const seen = new Set();
  names.forEach((name, i) => {
    checkName(name, `${path}[${i}]`);
    if (seen.has(name)) throw misfit(`${what} ${quoted(name)} is named twice; names must be distinct`, path);
    seen.add(name);
  });
  return names;
}
