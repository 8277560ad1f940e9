import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import * as client from "../client.js";
import * as edge from "../edge.js";
import * as openfeature from "../openfeature.js";
import * as potstill from "../potstill.js";
import { policyFile } from "../testing/craft.js";

const read = (file) => readFileSync(new URL(`../${file}`, import.meta.url), "utf8");
const types = (file) => read(file).replace(/\/\*\*.*?\*\//gs, "");
const TYPES = types("potstill.d.ts");

const matches = (text, pattern) => [...text.matchAll(pattern)].map((match) => match[1]).sort();
const body = (kind, name, text = TYPES) =>
  text.match(new RegExp(`export ${kind} ${name}\\b[^{]*\\{(.*?)\\n\\}`, "s"))[1];
const members = (kind) => Object.getOwnPropertyNames(kind.prototype).filter((name) => name !== "constructor");

for (const [name, module] of Object.entries({ client, edge, openfeature, potstill })) {
  test(`the types declare what ${name}.js exports`, () => {
    const text = types(`${name}.d.ts`);
    const again = matches(text, /^export \{ (.*) \} from/gm).flatMap((list) => list.split(", "));
    const declared = [...matches(text, /^export (?:class|function|const) (\w+)/gm), ...again];
    assert.deepEqual(declared.sort(), Object.keys(module).sort());
  });
}

test("the types declare the methods of clients and stores", () => {
  const { EdgeClient, IndexedDBStore, MemoryStore } = edge;
  for (const [file, kind] of [
    ["client.d.ts", client.Client],
    ["edge.d.ts", EdgeClient],
    ["edge.d.ts", IndexedDBStore],
    ["edge.d.ts", MemoryStore],
    ["openfeature.d.ts", openfeature.PotstillProvider],
  ]) {
    const declared = matches(body("class", kind.name, types(file)), /^  (?:get )?(\w+)(?=\()/gm);
    assert.deepEqual(declared.filter((name) => name !== "constructor"), members(kind).sort(), kind.name);
  }
  const store = matches(body("interface", "Store", types("edge.d.ts")), /^  (\w+)(?=\()/gm);
  assert.deepEqual(store, members(MemoryStore).sort());
});

test("the types declare the members that a policy has", () => {
  const { Policy } = potstill;
  const declared = body("class", "Policy");
  const policy = Policy.load(policyFile());
  const own = [...members(Policy), ...Object.keys(policy)];
  const names = matches(declared, /^  (?:readonly |get )?(\w+)(?=[(:])/gm);
  assert.deepEqual(names, own.sort());
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
  const folders = ["src/", "src/edge/"];
  const sources = folders.flatMap((folder) =>
    readdirSync(new URL(`../${folder}`, import.meta.url)).map((name) => `${folder}${name}`),
  );
  const files = ["client.js", "edge.js", "potstill.js", ...sources.filter((file) => file.endsWith(".js"))];
  assert.ok(files.length > 15);
  for (const file of files) {
    for (const target of matches(read(file), /from "(.*)"/g)) assert.match(target, /^\.\.?\/[\w/]+\.js$/, file);
  }
  for (const file of Object.values(described.exports).flatMap(Object.values)) {
    assert.ok(described.files.includes(file.replace("./", "")), file);
  }
});
