/** What feature types share: sizes, labels, lengths and errors. */

import { keyOf } from "./draw.js";
import { InvalidContext, quoted, shown } from "./errors.js";
import { field, misfit } from "./fields.js";

/** The most columns of one feature. */
const MOST_COLUMNS = 65_536;

/** The key of hashed features is public: their columns do not depend on the policy. */
export const PUBLIC_KEY = keyOf("0".repeat(32));

export function readSize(described, path, smallest) {
  const size = field(described, "size", ["int"], path);
  if (size >= smallest && size <= MOST_COLUMNS) return size;
  const must = `size must be a whole number from ${smallest} to ${MOST_COLUMNS}`;
  throw misfit(`feature ${quoted(described.name)}: ${must}, got ${size}`, `${path}.size`);
}

export function numbered(size, label, { name, missing }) {
  const labels = Array.from({ length: size }, (_, i) => label(i));
  return missing === "flag" ? [...labels, `${name}=<missing>`] : labels;
}

export function notFinite({ name, missing }, place, value, mayBeMissing) {
  const wayOut =
    missing === "error"
      ? `if it may be missing, define the feature with ${mayBeMissing} and send null`
      : "send null for a missing value";
  return new InvalidContext(
    `feature ${quoted(name)}${place}: expected a finite number, got ${shown(value)}; ${wayOut}`,
  );
}

export function missingError(name, wayOut) {
  return new InvalidContext(`feature ${quoted(name)} is missing; send a value, or define the feature with ${wayOut}`);
}

export function mistyped(name, expected, value) {
  return new InvalidContext(`feature ${quoted(name)}: expected ${expected}, got ${shown(value)}`);
}

/** Added in this order by every runtime, to the same last bit. */
export function euclidean(numbers) {
  let total = 0;
  for (const number of numbers) total += number * number;
  return Math.sqrt(total);
}
