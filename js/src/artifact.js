/** Reads the policy file and rejects invalid ones. `docs/policy-format.md` specifies it. */

import { InvalidPolicy, quoted } from "./errors.js";
import { checkDepth, choice, field, misfit, typed } from "./fields.js";
import { ACTIVATION_NAMES, checkFloor } from "./network.js";
import { Problem } from "./problem.js";
import { metadataEntry, readHeader, readTensors } from "./safetensors.js";
import { sha256 } from "./sha256.js";

/** Formats that are read; a file has the lowest that it needs. */
const FIRST_FORMAT = 1;
const LAST_FORMAT = 4;
/** The format of masked policies. */
const MASKED_FORMAT = 3;
const ZERO_DIGIT = 0x30;

/** A policy's parts from the bytes of its file; throws `InvalidPolicy` on any defect. */
export function readArtifact(data) {
  const { header, start } = readHeader(data);
  const metadata = readMetadata(header);
  const problem = new Problem(field(metadata, "problem", ["object"], "$"), "$.problem");
  checkFormat(metadata, problem);
  verifyChecksum(data, metadata.sha256);
  const tensors = readTensors(data, header, start);
  checkTower(takeTower(tensors), problem, metadata.masked);
  const layers = readLayers(tensors, problem, metadata.masked);
  const mean = tensorOf(tensors, "context.mean", [problem.width]);
  if (problem.number) problem.number.checkFloor(metadata.floor, InvalidPolicy);
  else checkFloor(metadata.floor, problem.outputs, InvalidPolicy);
  return { metadata, problem, layers, mean };
}

function checkFormat({ format, masked }, problem) {
  const needed = masked ? Math.max(MASKED_FORMAT, problem.format) : problem.format;
  if (format !== needed) {
    const what = masked ? "a masked policy is" : "its problem is";
    throw new InvalidPolicy(`format version ${format}, but ${what} of format ${needed}`);
  }
  if (masked && problem.number) throw new InvalidPolicy("masked, but its actions are no list");
}

function readMetadata(header) {
  const text = metadataEntry(header, "potstill");
  if (text === undefined) throw new InvalidPolicy("a safetensors file, but not a policy: it has no potstill metadata");
  const metadata = parseObject(text);
  checkDepth(metadata, "its metadata");
  const format = field(metadata, "format", ["int"], "$");
  if (format < FIRST_FORMAT || format > LAST_FORMAT) {
    const read = `${FIRST_FORMAT} to ${LAST_FORMAT}`;
    throw new InvalidPolicy(`format version ${format}; this version of Potstill reads ${read}`);
  }
  return checkMetadata(metadata);
}

function parseObject(text) {
  try {
    return typed(JSON.parse(text), ["object"], "$");
  } catch (error) {
    throw error instanceof SyntaxError ? misfit(error.message, "$") : error;
  }
}

/** The metadata with defaults for absent fields. */
function checkMetadata(metadata) {
  const salt = field(metadata, "salt", ["str"], "$");
  if (!/^[0-9a-f]{32}$/i.test(salt)) throw new InvalidPolicy(`its salt must be 32 hex digits, got ${quoted(salt)}`);
  const sha = field(metadata, "sha256", ["str"], "$");
  if (!/^[0-9a-f]{64}$/.test(sha)) throw new InvalidPolicy(`its checksum must be 64 hex digits, got ${quoted(sha)}`);
  field(metadata, "problem_hash", ["str"], "$");
  field(metadata, "version", ["int"], "$");
  return {
    parent: null,
    fidelity: null,
    ...metadata,
    floor: field(metadata, "floor", ["float"], "$", 0),
    activation: choice(metadata, "activation", ACTIVATION_NAMES, "$", "tanh"),
    masked: field(metadata, "masked", ["bool"], "$", false),
  };
}

/** The checksum covers the file with its own digits, at their first occurrence, replaced by zeros. */
function verifyChecksum(data, stated) {
  const blank = data.slice();
  const at = indexOf(data, new TextEncoder().encode(stated));
  if (at >= 0) blank.fill(ZERO_DIGIT, at, at + stated.length);
  const actual = sha256(blank);
  if (actual !== stated) {
    throw new InvalidPolicy(`truncated or altered: its SHA-256 is ${actual}, but it says ${stated}`);
  }
}

function indexOf(bytes, wanted) {
  for (let at = bytes.indexOf(wanted[0]); at >= 0; at = bytes.indexOf(wanted[0], at + 1)) {
    if (wanted.every((byte, i) => bytes[at + i] === byte)) return at;
  }
  return -1;
}

/** The tensors of the item tower, which deciding does not need; they are taken out of the others. */
function takeTower(tensors) {
  const names = [...tensors.keys()].filter((name) => name.startsWith("tower."));
  for (const name of names) tensors.delete(name);
  return names;
}

function checkTower(names, problem, masked) {
  if (!names.length || (problem.catalog && !masked)) return;
  const what = masked ? "a masked policy" : "a policy whose actions are no catalogue";
  throw new InvalidPolicy(`tensors of an item tower in ${what}: ${names.sort().join(", ")}`);
}

function readLayers(tensors, problem, masked) {
  const names = [...tensors.keys()];
  const count = names.filter((name) => name.endsWith(".weight")).length;
  if (count === 0 || tensors.size !== 2 * count + 1) {
    throw new InvalidPolicy(`unexpected tensors: ${names.sort().join(", ")}`);
  }
  let inputs = problem.width + (masked ? problem.outputs : 0);
  return Array.from({ length: count }, (_, i) => {
    const outputs = i === count - 1 ? problem.outputs : sizeOf(tensors.get(`layers.${i}.bias`));
    const weight = tensorOf(tensors, `layers.${i}.weight`, [inputs, outputs]);
    const bias = tensorOf(tensors, `layers.${i}.bias`, [outputs]);
    if (outputs === 0) throw new InvalidPolicy(`tensor layers.${i}.bias is empty; a layer has at least one unit`);
    inputs = outputs;
    return { weight, bias };
  });
}

function sizeOf(tensor) {
  return tensor === undefined ? 0 : tensor.shape.reduce((product, n) => product * n, 1);
}

function tensorOf(tensors, name, shape) {
  const tensor = tensors.get(name);
  if (tensor === undefined) throw new InvalidPolicy(`tensor ${name} is missing`);
  const wanted = `[${shape.join(", ")}]`;
  const got = `[${tensor.shape.join(", ")}]`;
  if (tensor.values === null || got !== wanted) {
    throw new InvalidPolicy(`tensor ${name} must be float32${wanted}, got ${tensor.dtype}${got}`);
  }
  if (!tensor.values.every(Number.isFinite)) {
    throw new InvalidPolicy(`tensor ${name} holds a number that is not finite`);
  }
  return tensor.values;
}
