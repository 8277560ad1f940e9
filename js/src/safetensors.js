/** The container of a policy file: 8 bytes of header length, a JSON header, then the tensors' bytes. */

import { InvalidPolicy, shown, typeName } from "./errors.js";
import { checkDepth } from "./fields.js";

const METADATA = "__metadata__";
const LENGTH_BYTES = 8;

/** The header as an object, and where the tensors' bytes start. */
export function readHeader(data) {
  const size = headerSize(data);
  if (data.length < LENGTH_BYTES || size > BigInt(data.length - LENGTH_BYTES)) {
    throw new InvalidPolicy(`truncated, or no policy file: a header of ${size} bytes in a file of ${data.length}`);
  }
  const start = LENGTH_BYTES + Number(size);
  return { header: parseHeader(data.subarray(LENGTH_BYTES, start)), start };
}

/** One string of the header's metadata; undefined if absent. */
export function metadataEntry(header, key) {
  const entries = Object.hasOwn(header, METADATA) ? header[METADATA] : {};
  if (typeName(entries) !== "object" || !Object.values(entries).every((text) => typeof text === "string")) {
    throw unreadable(`Expected an object of strings, got ${shown(entries)} - at \`$.${METADATA}\``);
  }
  return Object.hasOwn(entries, key) ? entries[key] : undefined;
}

/** The tensors by name: `{dtype, shape, values}`, where only a float32 tensor has values. */
export function readTensors(data, header, start) {
  const entries = Object.entries(header).filter(([name]) => name !== METADATA);
  entries.forEach(([name, entry]) => checkEntry(name, entry));
  checkOffsets(entries, data.length - start);
  return new Map(entries.map(([name, entry]) => [name, readTensor(data, entry, start)]));
}

function headerSize(data) {
  const bytes = new Uint8Array(LENGTH_BYTES);
  bytes.set(data.subarray(0, LENGTH_BYTES));
  return new DataView(bytes.buffer).getBigUint64(0, true);
}

function parseHeader(bytes) {
  let header;
  try {
    // The decoder would drop a byte order mark, which is invalid in JSON.
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch (error) {
    throw unreadable(error.message);
  }
  if (typeName(header) !== "object") throw unreadable(`Expected \`object\`, got ${shown(header)}`);
  checkDepth(header, "its header");
  return header;
}

function checkEntry(name, entry) {
  const fits =
    typeName(entry) === "object" &&
    typeof entry.dtype === "string" &&
    isSizes(entry.shape) &&
    isSizes(entry.data_offsets) &&
    entry.data_offsets.length === 2;
  if (!fits) throw notSafetensors(`tensor ${name} is described as ${shown(entry)}`);
}

/** Tensors are contiguous, without gaps or overlaps, up to the end of the file. */
function checkOffsets(entries, length) {
  const offsets = entries.map(([, entry]) => entry.data_offsets);
  let end = 0;
  for (const [from, to] of offsets.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
    if (from !== end || to < from) throw notSafetensors(`a tensor at bytes ${from} to ${to}, where ${end} was due`);
    end = to;
  }
  if (end !== length) throw notSafetensors(`its tensors take ${end} bytes, but it has ${length} for them`);
}

function readTensor(data, { dtype, shape, data_offsets: [from, to] }, start) {
  if (dtype !== "F32") return { dtype, shape, values: null };
  const size = shape.reduce((product, n) => product * n, 1);
  if (to - from !== 4 * size) throw notSafetensors(`${to - from} bytes for a float32 tensor of shape [${shape}]`);
  return { dtype: "float32", shape, values: floats(data.subarray(start + from, start + to)) };
}

/** Little-endian float32, at any alignment and on any machine. */
function floats(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = new Float32Array(bytes.length / 4);
  for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(4 * i, true);
  return values;
}

function isSizes(value) {
  return Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && n >= 0);
}

function unreadable(reason) {
  return new InvalidPolicy(`its header cannot be read: ${reason}`);
}

function notSafetensors(reason) {
  return new InvalidPolicy(`not a readable safetensors file: ${reason}`);
}
