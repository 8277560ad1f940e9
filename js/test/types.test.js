import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import * as potstill from "../potstill.js";
import { policyFile } from "../testing/craft.js";

const read = (file) => readFileSync(new URL(`../${file}`, import.meta.url), "utf8");
const TYPES = read("potstill.d.ts").replace(/\/\*\*.*?\*\//gs, "");

const matches = (text, pattern) => [...text.matchAll(pattern)].map((match) => match[1]).sort();
const body = (kind, name) => TYPES.match(new RegExp(`export ${kind} ${name}\\b[^{]*\\{(.*?)\\n\\}`, "s"))[1];

test("the types declare what the module exports", () => {
  assert.deepEqual(matches(TYPES, /^export (?:class|function|const) (\w+)/gm), Object.keys(potstill).sort());
});

test("the types declare the members that a policy has", () => {
  const { Policy } = potstill;
  const declared = body("class", "Policy");
  const policy = Policy.load(policyFile());
  const members = [...Object.getOwnPropertyNames(Policy.prototype), ...Object.keys(policy)];
  const names = matches(declared, /^  (?:readonly |get )?(\w+)(?=[(:])/gm);
  assert.deepEqual(names, members.filter((name) => name !== "constructor").sort());
  const statics = Object.getOwnPropertyNames(Policy).filter((name) => !["length", "name", "prototype"].includes(name));
  assert.deepEqual(matches(declared, /^  static (\w+)/gm), statics.sort());
});

test("the types declare the fields of a decision and of the metadata", () => {
  const policy = potstill.Policy.load(policyFile());
  const context = { bandwidth: 1 };
  const full = policy.decide(context, { id: "a", eligible: ["low"], floor: 0 });
  assert.deepEqual(matches(body("interface", "Decision"), /^  (\w+)\??:/gm), Object.keys(full).sort());
  const required = matches(body("interface", "Decision"), /^  (\w+):/gm);
  assert.deepEqual(required, Object.keys(policy.decide(context, { id: "a" })).sort());
  const metadata = matches(body("interface", "Metadata"), /^  readonly (\w+)\??:/gm);
  assert.deepEqual(metadata, Object.keys(policy.metadata).sort());
});

test("the package has no dependencies, and holds all that it imports", () => {
  const described = JSON.parse(read("package.json"));
  assert.ok(!("dependencies" in described || "devDependencies" in described));
  const sources = readdirSync(new URL("../src/", import.meta.url)).map((name) => `src/${name}`);
  assert.ok(sources.length > 5);
  for (const file of ["potstill.js", ...sources]) {
    for (const target of matches(read(file), /from "(.*)"/g)) assert.match(target, /^\.\/[\w/]+\.js$/, file);
  }
});
