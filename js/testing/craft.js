/** Builds policy files for tests, valid or not; checksums come from Node's SHA-256, which tests ours. */

import { createHash } from "node:crypto";

export const PROBLEM = {
  name: "upload",
  context: [
    { type: "numeric", name: "bandwidth", low: 0, high: 100 },
    { type: "categorical", name: "connection", values: ["3g", "4g"] },
    { type: "boolean", name: "hd", missing: "flag" },
  ],
  actions: { type: "discrete", names: ["low", "high", "best"] },
};

const METADATA = {
  format: 1,
  sha256: "0".repeat(64),
  problem: PROBLEM,
  problem_hash: "00112233445566778899aabbccddeeff",
  version: 3,
  salt: "000102030405060708090a0b0c0d0e0f",
  lineage: { library: "0.1.0" },
};

/** A float32 tensor for a file. */
export function tensor(shape, values) {
  const size = shape.reduce((product, n) => product * n, 1);
  return { dtype: "F32", shape, values: values ?? Array.from({ length: size }, (_, i) => Math.sin(i + size)) };
}

/** The tensors of a network with these layer sizes, from the columns of a context to the actions. */
export function network(...sizes) {
  const tensors = { "context.mean": tensor([sizes[0]]) };
  for (let i = 0; i + 1 < sizes.length; i++) {
    tensors[`layers.${i}.weight`] = tensor([sizes[i], sizes[i + 1]]);
    tensors[`layers.${i}.bias`] = tensor([sizes[i + 1]]);
  }
  return tensors;
}

/** A valid file, except for the given overrides: metadata fields, tensors, or the text of the metadata. */
export function policyFile({ metadata = {}, tensors = network(6, 4, 3), text } = {}) {
  const stated = { ...METADATA, ...metadata };
  return seal(container({ __metadata__: { potstill: text ?? JSON.stringify(stated) } }, tensors));
}

/** A policy file for the given features, with a single layer. */
export function fileFor(context, width) {
  return policyFile({ metadata: { problem: { ...PROBLEM, context } }, tensors: network(width, 3) });
}

/** A safetensors file of a header and tensors. */
export function container(header, tensors = {}) {
  const entries = { ...header };
  const parts = [];
  let end = 0;
  for (const [name, { dtype, shape, values }] of Object.entries(tensors)) {
    const bytes = new Uint8Array(Float32Array.from(values).buffer);
    entries[name] = { dtype, shape, data_offsets: [end, end + bytes.length] };
    end += bytes.length;
    parts.push(bytes);
  }
  return assemble(JSON.stringify(entries), ...parts);
}

/** A file from the text of its header and bytes. */
export function assemble(header, ...parts) {
  const encoded = new TextEncoder().encode(header);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(encoded.length), true);
  return new Uint8Array(Buffer.concat([length, encoded, ...parts]));
}

/** Replace the first 64 zeros, if there are any, by the checksum. */
export function seal(file) {
  const at = Buffer.from(file).indexOf("0".repeat(64));
  if (at < 0) return file;
  const sealed = file.slice();
  sealed.set(new TextEncoder().encode(createHash("sha256").update(file).digest("hex")), at);
  return sealed;
}
