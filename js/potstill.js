/**
 * Potstill's runtime for browsers, Node and other JavaScript environments: reads a `.policy` file and decides with it.
 * `docs/policy-format.md` is its specification, the NumPy code under `src/potstill/` the reference implementation.
 */
export { InvalidContext, InvalidPolicy } from "./src/errors.js";
export { Policy } from "./src/policy.js";
