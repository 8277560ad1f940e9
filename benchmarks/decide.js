// Microseconds per decision of the JavaScript runtime: node benchmarks/decide.js POLICY CONTEXTS
//
// CONTEXTS is a JSON list of contexts. Each decision is timed by itself, the clock included (about 0.05 µs), and the
// figures come as JSON: {"runtime": …, "dict": {"median_us": …, "p99_us": …, "decisions": …}, "encoded": {…}}.
"use strict";

const { readFileSync } = require("node:fs");

const WARM_UP = 20_000;
const DECISIONS = 50_000;

function timed(decide, contexts) {
  const ids = Array.from({ length: DECISIONS }, (_, i) => `decision-${i}`);
  for (let i = 0; i < WARM_UP; i++) decide(contexts[i % contexts.length], ids[i]);
  const microseconds = new Float64Array(DECISIONS);
  for (let i = 0; i < DECISIONS; i++) {
    const start = performance.now();
    decide(contexts[i % contexts.length], ids[i]);
    microseconds[i] = (performance.now() - start) * 1000;
  }
  microseconds.sort();
  const quantile = (q) => Number(microseconds[Math.floor(q * DECISIONS)].toFixed(3));
  return { median_us: quantile(0.5), p99_us: quantile(0.99), decisions: DECISIONS };
}

async function main([policyFile, contextsFile]) {
  if (!contextsFile) throw new Error("usage: node benchmarks/decide.js POLICY CONTEXTS");
  const { Policy } = await import("../js/potstill.js");
  const policy = Policy.load(readFileSync(policyFile));
  const contexts = JSON.parse(readFileSync(contextsFile, "utf8"));
  const encoded = contexts.map((context) => policy.encode(context));
  const decide = (context, id) => policy.decide(context, { id });
  const figures = {
    runtime: `node ${process.version}`,
    dict: timed(decide, contexts),
    encoded: timed(decide, encoded),
  };
  console.log(JSON.stringify(figures));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
