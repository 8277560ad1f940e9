"""The page that shows the OpenAPI document: one file that loads only from the service, under a strict CSP."""

from __future__ import annotations

import base64
import hashlib

_STYLE = """
:root { color-scheme: light dark; --text: #1d2330; --soft: #5b6475; --line: #dfe3ea; --paper: #fff; --back: #f6f7f9;
  --link: #1f5fbf; --get: #1a7f4b; --post: #9a4b00; --code: #f0f2f6; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ef; --soft: #9aa4b5; --line: #333b49; --paper: #1a1f29;
  --back: #12161d; --link: #86b4ff; --get: #5fd39a; --post: #f0a35e; --code: #242b37; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main, header > div { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
header { background: var(--paper); border-bottom: 1px solid var(--line); padding: 22px 0 14px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 20px; margin: 34px 0 12px; }
h3 { font-size: 17px; margin: 0; } h4 { font-size: 13px; color: var(--soft); margin: 16px 0 4px; font-weight: 600; }
p { margin: 6px 0; } .soft { color: var(--soft); } a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 10px; }
article { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 16px 20px;
  margin: 0 0 14px; display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 4px 28px; }
article > .top { grid-column: 1 / -1; display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 12px; }
@media (max-width: 860px) { article { grid-template-columns: minmax(0, 1fr); padding: 14px; } }
@media (max-width: 480px) { main, header > div { padding: 0 14px; } }
.method { font: 700 13px ui-monospace, monospace; } .get { color: var(--get); } .post { color: var(--post); }
code, pre, textarea { font: 13px/1.5 ui-monospace, monospace; }
code { background: var(--code); border-radius: 4px; padding: 1px 4px; overflow-wrap: anywhere; }
pre { background: var(--code); border-radius: 6px; padding: 10px 12px; margin: 4px 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
textarea { width: 100%; color: inherit; background: var(--code); border: 1px solid transparent; border-radius: 6px;
  padding: 10px 12px; resize: vertical; }
textarea:focus, input:focus { outline: 2px solid var(--link); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td { border-top: 1px solid var(--line); padding: 5px 10px 5px 0; vertical-align: top; overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; width: 1%; } tr:first-child td { border-top: 0; }
button, input { font: inherit; font-size: 14px; border-radius: 6px; border: 1px solid var(--line); padding: 4px 12px;
  background: var(--paper); color: inherit; } button { cursor: pointer; } button:hover { border-color: var(--link); }
input { width: 24em; max-width: 100%; } .bad { color: var(--bad); } .tag { font-size: 13px; color: var(--soft); }
summary { font-size: 13px; color: var(--soft); font-weight: 600; margin: 12px 0 4px; cursor: pointer; }
.row { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; margin: 6px 0; }
"""

_SCRIPT = r"""
"use strict";
let token = "";
const main = document.querySelector("main"), nav = document.querySelector("nav");
const access = document.getElementById("access");

function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
function prose(text) {
  return (text || "").split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));
}
function headers(more, needed) {
  return token && needed ? { ...more, Authorization: `Bearer ${token}` } : more;
}
function indented(value) {
  return JSON.stringify(value, null, 2);
}

async function load() {
  const reply = await fetch("openapi.json", { headers: headers({}, true) });
  if (reply.status === 401 || reply.status === 403) {
    nav.replaceChildren();
    main.replaceChildren(make("h2", {}, "A token is needed to read this"));
    return ask(token ? (await reply.json()).error : "Its scope must be read. It stays in this page.", token);
  }
  if (!reply.ok) throw new Error(`openapi.json answered ${reply.status}`);
  const api = await reply.json();
  show(api);
  if (!api.components.securitySchemes) access.replaceChildren();
  else if (!api["x-hidden"]) ask("The token goes with requests that need one. It stays in this page.");
  else if (token) ask("Some problems are not shown: for them this token is unknown, or lacks the scope read.", true);
  else ask("Some problems need a token, and the scope read to be shown here. It stays in this page.");
}

function ask(note, bad) {
  const field = make("input", { type: "password", placeholder: "pst_…", autocomplete: "off", "aria-label": "token" });
  const use = (value) => { token = value; load().catch(fail); };
  const enter = (event) => { event.preventDefault(); use(field.value.trim()); };
  const forget = make("button", { type: "button", onclick: () => use("") }, "Forget the token");
  access.replaceChildren(
    make("form", { class: "row", onsubmit: enter }, field, make("button", {}, "Use this token"), token ? forget : null),
    make("p", { class: bad ? "bad" : "tag" }, note));
}
function fail(error) {
  main.replaceChildren(make("p", { class: "bad" }, `${error.message}; reload the page to retry.`));
}

function show(api) {
  const lookUp = (schema) => {
    const name = schema.$ref && schema.$ref.split("/").pop();
    return name ? { ...api.components.schemas[name], ...schema, name } : schema;
  };
  document.getElementById("about").replaceChildren(...prose(api.info.description));
  document.getElementById("version").textContent = api.info.version;
  nav.replaceChildren();
  main.replaceChildren();
  api.tags.forEach(({ name }, i) => {
    const told = new Set();
    nav.append(make("a", { href: `#tag-${i}` }, name));
    main.append(make("h2", { id: `tag-${i}` }, name));
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags.includes(name)) main.append(article(method, path, operation, lookUp, told));
      }
    }
  });
}

function article(method, path, operation, lookUp, told) {
  const body = operation.requestBody && operation.requestBody.content["application/json"];
  const needed = operation.security.length ? `needs the scope ${operation["x-scope"]}` : "";
  const left = make("div", {}, make("p", {}, ...prose(operation.description || "")));
  const schemas = body ? body.schema.anyOf || [body.schema] : [];
  for (const schema of schemas) left.append(...fields(lookUp(schema), lookUp, told));
  left.append(...replies(operation.responses));
  return make("article", {},
    make("div", { class: "top" }, make("span", { class: `method ${method}` }, method.toUpperCase()),
      make("h3", {}, operation.summary), make("code", {}, path), make("span", { class: "tag" }, needed)),
    left, sender(method, path, operation, body));
}

function kind(schema, lookUp) {
  schema = lookUp(schema);
  if (schema.enum) return schema.enum.join(" | ");
  const words = (schema.anyOf || []).map((part) => kind(part, lookUp)).filter((word) => word !== "null");
  if (words.length) return words.join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items, lookUp)}`;
  if (schema.type === "object") return schema.title || "object";
  if (schema.format === "date-time") return "date-time";
  return schema.type || "any";
}
function fields(schema, lookUp, told) {
  if (told.has(schema.name)) return [make("h4", {}, `${schema.title}: as above`)];
  const rows = [], inside = [];
  told.add(schema.name);
  for (const [name, given] of Object.entries(schema.properties)) {
    const field = lookUp(given), must = (schema.required || []).includes(name);
    rows.push(make("tr", {}, make("td", {}, make("code", {}, name)),
      make("td", {}, kind(given, lookUp), make("span", { class: "soft" }, must ? "" : ", optional")),
      make("td", { class: "soft" }, field.description || "")));
    const item = lookUp(field.items || given);
    if (item.properties) inside.push(...fields(item, lookUp, told));
  }
  return [make("h4", {}, schema.title), make("table", {}, make("tbody", {}, ...rows)), ...inside];
}
function replies(responses) {
  const row = ([status, { description }]) =>
    make("tr", {}, make("td", {}, make("code", {}, status)), make("td", { class: "soft" }, description));
  const table = (entries) => make("table", {}, make("tbody", {}, ...entries.map(row)));
  const entries = Object.entries(responses), good = entries.filter(([status]) => status < "400");
  const shown = Object.values(((good[0][1].content || {})["application/json"] || {}).examples || {});
  const faults = entries.filter(([status]) => status >= "400");
  return [make("h4", {}, "Reply"), table(good), ...shown.map(({ value }) => make("pre", {}, indented(value))),
    faults.length ? make("details", {}, make("summary", {}, "Errors"), table(faults)) : null].filter(Boolean);
}

function compact(text) {
  try { return JSON.stringify(JSON.parse(text)); } catch { return text; }
}
function curl(method, path, text, needed) {
  const parts = [`curl ${location.origin}${path}`];
  if (needed) parts.push('-H "Authorization: Bearer $POTSTILL_TOKEN"');
  const quoted = compact(text).replaceAll("'", "'\\''");
  if (method === "post") parts.push("-H 'Content-Type: application/json'", `-d '${quoted}'`);
  return parts.join(" \\\n  ");
}
function sender(method, path, operation, body) {
  const needed = operation.security.length > 0;
  const examples = body ? Object.values(body.examples || {}) : [];
  const text = make("textarea", { spellcheck: "false", "aria-label": "request body" });
  const line = make("pre", {}), answer = make("div", {});
  const refresh = () => { line.textContent = curl(method, path, text.value, needed); };
  const choose = (value) => { text.value = indented(value); text.rows = text.value.split("\n").length; refresh(); };
  text.addEventListener("input", refresh);
  const send = async () => {
    const started = performance.now();
    const sent = body ? { method: "POST", body: text.value } : {};
    const options = { ...sent, headers: headers(body ? { "Content-Type": "application/json" } : {}, needed) };
    const reply = await fetch(path.slice(1), options).catch((error) => ({ status: error.message, ok: false }));
    const type = reply.headers ? reply.headers.get("Content-Type") || "" : "";
    const shown = type.includes("json") ? indented(await reply.json())
      : type.includes("text") ? await reply.text() : type ? `${(await reply.arrayBuffer()).byteLength} bytes` : "";
    answer.replaceChildren(
      make("h4", { class: reply.ok ? "" : "bad" }, `${reply.status}, ${(performance.now() - started).toFixed(0)} ms`),
      make("pre", {}, shown));
  };
  const choice = ({ value }, i) =>
    make("button", { type: "button", onclick: () => choose(value) }, `Example ${i + 1}`);
  const choices = examples.length > 1 ? examples.map(choice) : [];
  const admin = operation["x-scope"] === "admin";
  const button = admin ? null : make("button", { type: "button", onclick: () => send().catch(fail) }, "Send");
  const hint = body && !admin ? make("span", { class: "tag" }, "requests from here are logged like any other") : null;
  if (examples.length) choose(examples[0].value); else refresh();
  return make("div", {}, ...(body ? [make("h4", {}, "Example"), text] : []),
    make("div", { class: "row" }, button, ...choices, hint), answer, make("h4", {}, "With curl"), line);
}

load().catch(fail);
"""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Potstill decision service</title>
<style>{style}</style>
<header><div>
<h1>Potstill decision service <span class="soft" id="version"></span></h1>
<p class="soft" id="about"></p>
<p class="soft">For machines: <a href="openapi.json">openapi.json</a></p>
<div id="access"></div>
<nav></nav>
</div></header>
<main><noscript><p>This page needs JavaScript; openapi.json holds the same.</p></noscript></main>
<script>{script}</script>
</html>
"""


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


#: The page.
PAGE = _PAGE.format(style=_STYLE, script=_SCRIPT).encode()
#: Its Content-Security-Policy: this script and this style only, and no address but the service's own.
POLICY = (
    f"default-src 'none'; script-src {_hashed(_SCRIPT)}; style-src {_hashed(_STYLE)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: Headers of the page, as ASGI takes them.
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
CONTENT_TYPE = b"text/html; charset=utf-8"
