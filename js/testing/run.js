/** Prints the report on a directory of vectors as JSON: node js/testing/run.js DIRECTORY */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { checkVectors } from "./vectors.js";

const directory = process.argv[2];
const vectors = JSON.parse(readFileSync(join(directory, "vectors.json"), "utf8"));
const report = await checkVectors(vectors, (file) => readFileSync(join(directory, file)));
console.log(JSON.stringify(report));
if (report.failures.length) process.exitCode = 1;
