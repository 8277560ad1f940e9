/**
 * Context features and their encoding as columns. A feature has a `name`, `labels` (one per column) and
 * `write(value, row)`, which encodes one value into a row of zeros; null and undefined are missing values.
 */

import { InvalidContext, quoted, shown } from "./errors.js";
import { checkName, checkNames, choice, field, misfit, typed } from "./fields.js";

/** Definition of a numeric feature that may be missing. */
const MAY_BE_MISSING = "missing=<number> or missing='flag'";

/** A number, scaled so that `low` is 0 and `high` is 1, and clipped to [0, 1]. */
class NumericFeature {
  constructor(described, path, at) {
    this.name = described.name;
    this.at = at;
    this.low = field(described, "low", ["float"], path);
    this.high = field(described, "high", ["float"], path);
    this.log = choice(described, "scale", ["linear", "log"], path, "linear") === "log";
    this.missing = readStandIn(described, path);
    this.start = this.#scaled(this.low);
    this.span = this.#scaled(this.high) - this.start;
    this.#checkRange(path);
    this.labels = flagged(this.name, this.missing);
  }

  write(value, row) {
    if (typeof value === "number" && value >= this.low && value <= this.high) {
      row[this.at] = (this.#scaled(value) - this.start) / this.span;
    } else if (value === null || value === undefined) {
      this.#writeMissing(row);
    } else {
      this.write(this.#clipped(value), row);
    }
  }

  #writeMissing(row) {
    if (this.missing === "error") throw missingError(this.name, MAY_BE_MISSING);
    if (this.missing === "flag") row[this.at + 1] = 1;
    else this.write(this.missing, row);
  }

  #clipped(value) {
    if (typeof value !== "number") throw mistyped(this.name, "a number", value);
    if (!Number.isFinite(value)) {
      const wayOut =
        this.missing === "error"
          ? `if it may be missing, define the feature with ${MAY_BE_MISSING} and send null`
          : "send null for a missing value";
      throw new InvalidContext(
        `feature ${quoted(this.name)}: expected a finite number, got ${shown(value)}; ${wayOut}`,
      );
    }
    return value < this.low ? this.low : this.high;
  }

  #scaled(value) {
    return this.log ? Math.log(value) : value;
  }

  #checkRange(path) {
    const { low, high } = this;
    if (this.log && low <= 0) {
      throw misfit(`feature ${quoted(this.name)}: a log scale needs low > 0, got low=${low}`, path);
    }
    if (!(low < high && this.span > 0 && this.span < Infinity)) {
      throw misfit(`feature ${quoted(this.name)}: low must be below high, got low=${low}, high=${high}`, path);
    }
  }
}

/** One of several strings, one-hot, with a last column for unlisted values. */
class CategoricalFeature {
  constructor(described, path, at) {
    this.name = described.name;
    const values = field(described, "values", ["array"], path);
    if (!values.length) throw misfit(`feature ${quoted(this.name)}: values must not be empty`, `${path}.values`);
    checkNames(values, `feature ${quoted(this.name)}: value`, `${path}.values`);
    this.missing = choice(described, "missing", ["unseen", "error"], path, "unseen");
    this.places = new Map(values.map((value, i) => [value, at + i]));
    this.unseen = at + values.length;
    this.labels = [...values, "<unseen>"].map((value) => `${this.name}=${value}`);
  }

  write(value, row) {
    if (typeof value === "string") row[this.places.get(value) ?? this.unseen] = 1;
    else if (value !== null && value !== undefined) throw mistyped(this.name, "a string", value);
    else if (this.missing === "error") throw missingError(this.name, "missing='unseen'");
    else row[this.unseen] = 1;
  }
}

/** True or false, as 1 or 0. */
class BooleanFeature {
  constructor(described, path, at) {
    this.name = described.name;
    this.at = at;
    this.missing = choice(described, "missing", ["error", "flag", true, false], path, "error");
    this.labels = flagged(this.name, this.missing);
  }

  write(value, row) {
    if (typeof value === "boolean") row[this.at] = value ? 1 : 0;
    else if (value !== null && value !== undefined) throw mistyped(this.name, "true or false", value);
    else if (this.missing === "error") throw missingError(this.name, "missing=False, missing=True or missing='flag'");
    else if (this.missing === "flag") row[this.at + 1] = 1;
    else row[this.at] = this.missing ? 1 : 0;
  }
}

const KINDS = new Map([
  ["numeric", NumericFeature],
  ["categorical", CategoricalFeature],
  ["boolean", BooleanFeature],
]);

/** The features that a policy file describes, laid out side by side. */
export function readFeatures(described, path) {
  let at = 0;
  const features = described.map((one, i) => {
    const feature = readFeature(one, `${path}[${i}]`, at);
    at += feature.labels.length;
    return feature;
  });
  const names = features.map((feature) => feature.name);
  checkNames(names, "feature", path);
  return features;
}

function readFeature(described, path, at) {
  typed(described, ["object"], path);
  const Kind = KINDS.get(choice(described, "type", [...KINDS.keys()], path));
  checkName(field(described, "name", ["str"], path), `${path}.name`);
  return new Kind(described, path, at);
}

function readStandIn(described, path) {
  const missing = field(described, "missing", ["float", "str"], path, "error");
  return typeof missing === "number" ? missing : choice(described, "missing", ["error", "flag"], path, "error");
}

function flagged(name, missing) {
  return missing === "flag" ? [name, `${name}=<missing>`] : [name];
}

function missingError(name, wayOut) {
  return new InvalidContext(`feature ${quoted(name)} is missing; send a value, or define the feature with ${wayOut}`);
}

function mistyped(name, expected, value) {
  return new InvalidContext(`feature ${quoted(name)}: expected ${expected}, got ${shown(value)}`);
}
