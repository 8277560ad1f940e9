/**
 * Context features and their encoding as columns. A feature has a `name`, `labels` (one per column) and
 * `write(value, row)`, which encodes one value into a row of zeros; null and undefined are missing values.
 */

import { hashModulo } from "./draw.js";
import { euclidean, missingError, mistyped, notFinite, numbered, PUBLIC_KEY, readSize } from "./encoding.js";
import { InvalidContext, quoted, shown } from "./errors.js";
import { checkName, checkNames, choice, field, misfit, typed } from "./fields.js";
import { TextFeature } from "./text.js";
import { TimestampFeature } from "./timestamp.js";

/** Definition of a numeric feature that may be missing. */
const MAY_BE_MISSING = "missing=<number> or missing='flag'";

/** The most knots of a scale. */
const MOST_KNOTS = 1_000;

const LARGEST_FLOAT32 = 3.4028234663852886e38;

/** A number, scaled so that `low` is 0 and `high` is 1, and clipped to [0, 1]. */
class NumericFeature {
  constructor(described, path, at) {
    this.name = described.name;
    this.at = at;
    this.low = field(described, "low", ["float"], path);
    this.high = field(described, "high", ["float"], path);
    const scale = choice(described, "scale", ["linear", "log", "quantile"], path, "linear");
    this.log = scale === "log";
    this.points = this.#readPoints(described, scale, path);
    this.format = this.points ? 2 : 1;
    this.missing = readStandIn(described, path);
    this.start = this.#scaled(this.low);
    this.span = this.#scaled(this.high) - this.start;
    this.#checkRange(path);
    this.labels = flagged(this.name, this.missing);
  }

  write(value, row) {
    if (typeof value === "number" && value >= this.low && value <= this.high) {
      row[this.at] = this.points ? this.#quantile(value) : (this.#scaled(value) - this.start) / this.span;
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
    if (!Number.isFinite(value)) throw notFinite(this, "", value, MAY_BE_MISSING);
    return value < this.low ? this.low : this.high;
  }

  /** Ends and knots of a quantile scale, which are encoded as 0, 1/m, 2/m, …, 1; null for other scales. */
  #readPoints(described, scale, path) {
    const knots = field(described, "knots", ["array"], path, []);
    knots.forEach((knot, i) => typed(knot, ["float"], `${path}.knots[${i}]`));
    if (knots.length > MOST_KNOTS || knots.length > 0 !== (scale === "quantile")) {
      throw misfit(`feature ${quoted(this.name)}: knots and scale='quantile' go together`, `${path}.knots`);
    }
    const points = [this.low, ...knots, this.high];
    if (knots.length && points.some((point, i) => i > 0 && !(points[i - 1] < point))) {
      throw misfit(`feature ${quoted(this.name)}: low, the knots and high must increase`, `${path}.knots`);
    }
    return knots.length ? points : null;
  }

  #quantile(value) {
    const points = this.points;
    let low = 0;
    let high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle] <= value) low = middle;
      else high = middle;
    }
    return (low + (value - points[low]) / (points[low + 1] - points[low])) / (points.length - 1);
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

/** A string, one-hot in the column that its hash selects. */
class HashedFeature {
  format = 2;

  constructor(described, path, at) {
    this.name = described.name;
    this.at = at;
    this.size = readSize(described, path, 2);
    this.missing = choice(described, "missing", ["error", "flag"], path, "error");
    this.labels = numbered(this.size, (i) => `${this.name}#${i}`, this);
  }

  write(value, row) {
    if (typeof value === "string") row[this.at + this.#column(value)] = 1;
    else if (value !== null && value !== undefined) throw mistyped(this.name, "a string", value);
    else if (this.missing === "error") throw missingError(this.name, "missing='flag'");
    else row[this.at + this.size] = 1;
  }

  #column(value) {
    const column = hashModulo(value, PUBLIC_KEY, this.size);
    if (column !== null) return column;
    throw new InvalidContext(
      `feature ${quoted(this.name)}: expected a string of valid Unicode, got ${shown(value)}; replace lone surrogates`,
    );
  }
}

/** A list of numbers: as they are, scaled from [low, high] to [0, 1], or divided by their Euclidean length. */
class VectorFeature {
  format = 2;

  constructor(described, path, at) {
    this.name = described.name;
    this.at = at;
    this.size = readSize(described, path, 1);
    this.unit = choice(described, "norm", ["unit", null], path, null) === "unit";
    this.#readRange(described, path);
    this.missing = choice(described, "missing", ["error", "flag"], path, "error");
    this.labels = numbered(this.size, (i) => `${this.name}[${i}]`, this);
  }

  /** A copy of a list, whose elements may be getters. */
  snapshot(value) {
    return Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value) : value;
  }

  write(value, row) {
    if (value === null || value === undefined) {
      if (this.missing === "error") throw missingError(this.name, "missing='flag'");
      row[this.at + this.size] = 1;
      return;
    }
    this.#check(value);
    const length = this.unit ? euclidean(value) : 1;
    for (let i = 0; length > 0 && i < this.size; i++) {
      row[this.at + i] = this.scaled ? this.#scaled(value[i]) : value[i] / length;
    }
  }

  #check(value) {
    if (!Array.isArray(value)) throw mistyped(this.name, `a list of ${this.size} numbers`, value);
    if (value.length !== this.size) {
      throw new InvalidContext(
        `feature ${quoted(this.name)}: expected a list of ${this.size} numbers, got one of ${value.length}`,
      );
    }
    value.forEach((number, i) => {
      if (typeof number !== "number") {
        throw new InvalidContext(`feature ${quoted(this.name)}[${i}]: expected a number, got ${shown(number)}`);
      }
      if (!(Math.abs(number) <= LARGEST_FLOAT32)) throw notFinite(this, `[${i}]`, number, "missing='flag'");
    });
  }

  #scaled(number) {
    const { low, high } = this;
    return ((number < low ? low : number > high ? high : number) - low) / (high - low);
  }

  #readRange(described, path) {
    this.low = field(described, "low", ["float", "null"], path, null);
    this.high = field(described, "high", ["float", "null"], path, null);
    this.scaled = this.low !== null;
    const stated = [this.low, this.high].filter((end) => end !== null);
    const fits = stated.every((end) => Math.abs(end) <= LARGEST_FLOAT32) && (stated.length === 0 || this.low < this.high);
    if (stated.length === 1 || !fits || (this.scaled && this.unit)) {
      throw misfit(`feature ${quoted(this.name)}: low must be below high, and without norm`, path);
    }
  }
}

const KINDS = new Map([
  ["numeric", NumericFeature],
  ["categorical", CategoricalFeature],
  ["boolean", BooleanFeature],
  ["hashed", HashedFeature],
  ["vector", VectorFeature],
  ["text", TextFeature],
  ["timestamp", TimestampFeature],
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
