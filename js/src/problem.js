/** The problem: encodes contexts as float32 and knows the actions. */

import { Continuous } from "./continuous.js";
import { InvalidContext, shown } from "./errors.js";
import { readFeatures } from "./features.js";
import { checkName, checkNames, choice, field, misfit, typed } from "./fields.js";

/** Names that a message lists at most. */
const LISTED = 50;

export class Problem {
  /** From the `problem` of a policy file's metadata. */
  constructor(described, path) {
    this.name = checkName(field(described, "name", ["str"], path), `${path}.name`);
    this.features = readFeatures(field(described, "context", ["array"], path), `${path}.context`);
    const actions = field(described, "actions", ["object"], path);
    const space = readActions(actions, `${path}.actions`);
    /** The space of a number; null for a list of actions. */
    this.number = space instanceof Continuous ? space : null;
    /** The names of a list of actions. */
    this.actions = this.number ? [] : space;
    const retired = this.number ? [] : readRetired(actions, this.actions, `${path}.actions`);
    /** Whether each action is chosen, Uint8Array[K] of 0 and 1; null if none is retired. */
    const gone = new Set(retired);
    this.chosen = gone.size ? Uint8Array.from(this.actions, (name) => (gone.has(name) ? 0 : 1)) : null;
    /** Whether the actions are items of a catalogue. */
    this.catalog = actions.type === "catalog";
    /** The format of policy files: the lowest that the features and the actions need. */
    const listed = this.chosen ? 3 : 1;
    this.format = Math.max(this.catalog ? 4 : listed, ...this.features.map((feature) => feature.format ?? 1));
    this.outputs = this.number ? this.number.outputs : this.actions.length;
    this.labels = this.features.flatMap((feature) => feature.labels);
    this.width = this.labels.length;
    this.#places = new Map(this.features.map((feature, i) => [feature.name, i]));
    this.#positions = new Map(this.actions.map((action, i) => [action, i]));
  }

  #places;
  #positions;

  /** Encode a context into `row`, Float32Array[d]. */
  encode(context, row) {
    if (isFloat32Array(context)) this.#copy(context, row);
    else if (isMapping(context)) this.#encodeMapping(context, row);
    else throw new InvalidContext(`a context must be a mapping of feature names to values, got ${shown(context)}`);
  }

  /**
   * What to choose from as Uint8Array[K] of 0 and 1, null for all: the eligible actions without retired ones, or all
   * eligible ones where only retired ones are eligible.
   */
  mask(eligible) {
    const asked = this.#asked(eligible);
    if (this.chosen === null) return asked;
    if (asked === null) return this.chosen;
    const left = asked.map((one, i) => one & this.chosen[i]);
    return left.includes(1) ? left : asked;
  }

  #asked(eligible) {
    if (eligible === null || eligible === undefined) return null;
    if (!Array.isArray(eligible)) {
      throw new InvalidContext(`eligible must be a list of action names, got ${shown(eligible)}`);
    }
    if (!eligible.length) {
      throw new InvalidContext("eligible is empty; name at least one action, or leave it out to allow all");
    }
    const mask = new Uint8Array(this.actions.length);
    for (const action of eligible) mask[this.#position(action)] = 1;
    return mask;
  }

  #encodeMapping(context, row) {
    // Getters and proxies run here, also those of lists, before the shared row is written: they may call decide too.
    const names = Object.keys(context);
    const given = Object.values(context);
    const values = new Array(this.features.length).fill(undefined);
    let unknown;
    for (let i = 0; i < names.length; i++) {
      const place = this.#places.get(names[i]);
      if (place === undefined) unknown ??= names[i];
      else values[place] = this.features[place].snapshot?.(given[i]) ?? given[i];
    }
    row.fill(0);
    for (let i = 0; i < values.length; i++) this.features[i].write(values[i], row);
    if (unknown !== undefined) throw this.#unknownFeature(unknown);
  }

  #copy(encoded, row) {
    if (encoded.length !== this.width) {
      throw new InvalidContext(
        `an array is taken as already encoded and must have ${this.width} columns, got ${encoded.length}`,
      );
    }
    for (let i = 0; i < encoded.length; i++) {
      if (!Number.isFinite(encoded[i])) {
        throw new InvalidContext(`encoded context has a non-finite number at ${i}: ${encoded[i]}`);
      }
      row[i] = encoded[i];
    }
  }

  #position(action) {
    const position = this.#positions.get(action);
    if (position !== undefined) return position;
    throw new InvalidContext(`unknown action ${shown(action)}; the actions are ${listed(this.actions)}`);
  }

  #unknownFeature(name) {
    const known = this.features.map((feature) => feature.name).sort();
    return new InvalidContext(`unknown feature ${shown(name)}; the problem's features are ${known.join(", ")}`);
  }
}

function readActions(described, path) {
  const type = choice(described, "type", ["discrete", "continuous", "catalog"], path);
  if (type === "continuous") return new Continuous(described, path);
  if (type === "catalog") return readIds(described, path);
  const names = field(described, "names", ["array"], path);
  if (names.length < 2) throw misfit("actions must be a list of at least two names", `${path}.names`);
  return checkNames(names, "action", `${path}.names`);
}

/** Names for a message: the first of many. */
function listed(names) {
  const first = names.slice(0, LISTED).join(", ");
  return names.length > LISTED ? `${first} and ${(names.length - LISTED).toLocaleString("en-US")} more` : first;
}

/** The ids of a catalogue's items. Their features have been learnt from, and are not needed to decide. */
function readIds(described, path) {
  const items = field(described, "items", ["array"], path);
  if (items.length < 2) throw misfit("items must be a list of at least two items", `${path}.items`);
  const ids = items.map((item, i) => field(typed(item, ["object"], `${path}.items[${i}]`), "id", ["str"], `${path}.items[${i}]`));
  return checkNames(ids, "item", `${path}.items`);
}

/** The actions that are no longer chosen. */
function readRetired(described, actions, path) {
  if (described.retired === undefined) return [];
  const retired = checkNames(field(described, "retired", ["array"], path), "retired action", `${path}.retired`);
  const known = new Set(actions);
  const unknown = retired.find((name) => !known.has(name));
  if (unknown !== undefined) throw misfit(`retired: unknown action ${shown(unknown)}`, `${path}.retired`);
  if (retired.length && actions.length - retired.length < 2) {
    throw misfit("retired leaves fewer than two actions", `${path}.retired`);
  }
  return retired;
}

/** Also true for arrays of another realm (a frame, a test runner's sandbox), where `instanceof` fails. */
function isFloat32Array(value) {
  return value instanceof Float32Array || (ArrayBuffer.isView(value) && value[Symbol.toStringTag] === "Float32Array");
}

/** A plain object or class instance; not an array, Map, Promise or Date, which would pass for empty contexts. */
export function isMapping(value) {
  if (typeof value !== "object" || value === null) return false;
  return Object.getPrototypeOf(value) === Object.prototype || tag(value) === "[object Object]";
}

function tag(value) {
  return Object.prototype.toString.call(value);
}
