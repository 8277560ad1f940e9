import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { checkVectors } from "../testing/vectors.js";

const directory = fileURLToPath(new URL("../../conformance/vectors/", import.meta.url));
const skip = existsSync(`${directory}vectors.json`) ? false : "conformance/vectors/ is not there";

test("the shared conformance vectors", { skip }, async (t) => {
  const vectors = JSON.parse(readFileSync(`${directory}vectors.json`, "utf8"));
  const report = await checkVectors(vectors, (file) => readFileSync(directory + file));
  t.diagnostic(JSON.stringify({ ...report, failures: report.failures.length }));
  assert.deepEqual(report.failures, []);
  assert.ok(report.cases > 0);
});
