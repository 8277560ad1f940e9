/**
 * Potstill's runtime for browsers, Node and other places with JavaScript: reads a `.policy` file and decides with it.
 * What it does is specified in `docs/policy-format.md`; the NumPy code under `src/potstill/` is the definition.
 */
export { InvalidContext, InvalidPolicy } from "./src/errors.js";
export { Policy } from "./src/policy.js";
