/**
 * Checks the runtime against the vectors of the Python reference (`conformance/README.md`), in Node and in a browser.
 *
 * Encoded numbers must be bit-identical, but a logarithm may round to the next float32; probabilities must agree to the
 * relative precision of their case, u to the bit, and the action must be the same unless u of the total lies within that
 * precision of an edge between actions.
 */

import { Policy } from "../potstill.js";
import { keyOf, uniform } from "../src/draw.js";

/** Below this, a probability may be 0. */
const UNDERFLOW = 1e-37;

/**
 * Run all vectors. `readFile(name)` gives (a promise of) a file's bytes.
 * Returns the number of checks, and of differences within the tolerance.
 */
export async function checkVectors(vectors, readFile) {
  const report = { policies: 0, cases: 0, invalid: 0, refused: 0, logsRounded: 0, edges: 0, failures: [] };
  for (const { file, cases, invalid = [] } of vectors.policies) {
    const policy = Policy.load(await readFile(file));
    const fail = (i, what) => report.failures.push(`${file}, ${i}: ${what}`);
    report.policies++;
    cases.forEach((one, i) => checkCase(policy, one, report, (what) => fail(`case ${i}`, what)));
    invalid.forEach((one, i) => checkInvalid(policy, one, report, (what) => fail(`invalid ${i}`, what)));
  }
  for (const { file, cases } of vectors.numbers ?? []) {
    const policy = Policy.load(await readFile(file));
    report.policies++;
    cases.forEach((one, i) => checkNumber(policy, one, report, (what) => report.failures.push(`${file}, ${i}: ${what}`)));
  }
  for (const { file, reason } of vectors.refused ?? []) {
    const bytes = await readFile(file);
    report.refused++;
    checkThrows(
      () => Policy.load(bytes),
      reason,
      "InvalidPolicy",
      (what) => report.failures.push(`${file}: ${what}`),
    );
  }
  return report;
}

function checkCase(policy, expected, report, fail) {
  const { context, id, eligible, floor } = expected;
  report.cases++;
  checkEncoded(policy, policy.encode(context), expected.encoded, report, fail);
  checkProbabilities(policy.probabilities(context, { eligible, floor }), expected, fail);
  const u = uniform(id, keyOf(policy.metadata.salt));
  if (u !== expected.u) fail(`u is ${u}, not ${expected.u}`);
  const decision = policy.decide(context, { id, eligible, floor });
  checkDecision(decision, expected, report, fail);
  const again = policy.decide(policy.encode(context), { id, eligible, floor });
  if (JSON.stringify(again) !== JSON.stringify(decision)) fail("the encoded context is decided otherwise");
}

/** The number must be the same to the last bit: the vectors have no draw near the edge between two bins. */
function checkNumber(policy, expected, report, fail) {
  const { context, id, eligible, floor, agreement } = expected;
  report.cases++;
  checkEncoded(policy, policy.encode(context), expected.encoded, report, fail);
  const draws = [0, 1].map((j) => uniform(id, keyOf(policy.metadata.salt), j));
  if (draws.some((u, j) => u !== expected.u[j])) fail(`draws are ${draws}, not ${expected.u}`);
  const decision = policy.decide(context, { id, eligible, floor });
  if (decision.action !== expected.action) fail(`action is ${decision.action}, not ${expected.action}`);
  if (!agrees(decision.propensity, expected.propensity, agreement)) {
    fail(`density is ${decision.propensity}, not ${expected.propensity}`);
  }
}

function checkEncoded(policy, actual, expected, report, fail) {
  const logs = logColumns(policy);
  if (actual.length !== expected.length) fail(`${actual.length} encoded columns, not ${expected.length}`);
  actual.forEach((value, i) => {
    if (Object.is(value, Math.fround(expected[i]))) return;
    if (logs.has(i) && areNeighbours(value, expected[i])) report.logsRounded++;
    else fail(`column ${policy.labels[i]} is ${value}, not ${expected[i]}`);
  });
}

function logColumns(policy) {
  const columns = new Set();
  for (const feature of policy.problem.context) {
    if (feature.scale === "log") columns.add(policy.labels.indexOf(feature.name));
  }
  return columns;
}

/** Whether two float32 numbers of one sign are neighbours. */
function areNeighbours(a, b) {
  const bits = new Int32Array(Float32Array.of(a, b).buffer);
  return Math.abs(bits[0] - bits[1]) === 1;
}

function agrees(actual, expected, agreement) {
  return Math.abs(actual - expected) <= agreement * expected + UNDERFLOW;
}

function checkProbabilities(actual, { probabilities: expected, agreement }, fail) {
  const far = expected.findIndex((p, k) => !agrees(actual[k], p, agreement));
  if (actual.length !== expected.length) fail(`${actual.length} probabilities, not ${expected.length}`);
  else if (far >= 0) fail(`probability ${far} is ${actual[far]}, not ${expected[far]}`);
}

function checkDecision(decision, expected, report, fail) {
  if (decision.action === expected.action) {
    const { propensity, agreement } = expected;
    if (!agrees(decision.propensity, propensity, agreement)) fail(`propensity is ${decision.propensity}, not ${expected.propensity}`);
  } else if (isAtEdge(expected)) {
    report.edges++;
  } else {
    fail(`action is ${decision.action}, not ${expected.action}`);
  }
}

function isAtEdge({ probabilities, u, agreement }) {
  const total = probabilities.reduce((sum, p) => sum + p, 0);
  let cumulative = 0;
  return probabilities.some((p) => Math.abs((cumulative += p) - u * total) <= agreement);
}

function checkInvalid(policy, { context, error, id = "decision", eligible, floor }, report, fail) {
  report.invalid++;
  checkThrows(() => policy.decide(context, { id, eligible, floor }), error, "InvalidContext", fail);
}

function checkThrows(action, reason, name, fail) {
  try {
    action();
  } catch (error) {
    if (error.name !== name) fail(`${error.name}, not ${name}: ${error.message}`);
    else if (!error.message.includes(reason)) fail(`refused because "${error.message}", not "${reason}"`);
    return;
  }
  fail(`accepted, though "${reason}"`);
}
