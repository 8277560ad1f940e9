// Try it: the JavaScript runtime decides in the page, as a context is changed; the server says what rewards to expect.
import { Policy } from "./js/potstill.js";

const { authorised, api, draw, ready } = window.potstill;
const STEPS = 60, CELLS = 15, PARTS = 16, PAUSE = 250;
let policy = null, expected = null, waiting = 0, asked = 0;

const get = (id) => document.getElementById(id);
const fields = () => [...document.querySelectorAll("#try-form [data-feature]")];
const percent = (share) => (share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
const short = (number) => Number(number.toPrecision(3)).toLocaleString();
/** A reward with its interval, all with as many decimals as the interval's width is worth. */
function within(mean, low, high) {
  if (!(high > low)) return short(mean);
  const digits = Math.min(Math.max(1 - Math.floor(Math.log10((high - low) / 2)), 0), 9);
  const [a, b, c] = [mean, low, high].map((one) => one.toLocaleString([], { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  return `${a} (${b} to ${c})`;
}

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// The context.

function valueOf(field) {
  const { holds } = field.dataset;
  const missing = document.querySelector(`[data-missing="${field.id}"]`);
  if (missing?.checked) return null;
  if (field.selectedOptions?.[0]?.hasAttribute("data-none")) return null;
  if (holds === "number") return field.value === "" ? null : Number(field.value);
  if (holds === "boolean") return field.value === "true";
  if (holds === "numbers") return field.value.split(",").map(Number);
  return field.value;
}
function context() {
  const found = {};
  for (const field of fields()) {
    const value = valueOf(field);
    if (value !== null) found[field.dataset.feature] = value;
  }
  return found;
}
/** Value of a number's field at a share of its range. */
function at(field, share) {
  const low = Number(field.dataset.low), high = Number(field.dataset.high);
  if (!field.hasAttribute("data-log")) return low + (high - low) * share;
  return Math.exp(Math.log(low) + (Math.log(high) - Math.log(low)) * share);
}
function shareOf(field) {
  const low = Number(field.dataset.low), high = Number(field.dataset.high), value = Number(field.value);
  const scale = field.hasAttribute("data-log") ? Math.log : (number) => number;
  return Math.min(Math.max((scale(Math.max(value, low)) - scale(low)) / (scale(high) - scale(low)), 0), 1);
}

// The distribution over actions, or over parts of the interval of a number.

function isNumber() {
  return policy.problem.actions.type === "continuous";
}
function labels() {
  return isNumber() ? parts().map(([low, high]) => `${short(low)} to ${short(high)}`) : policy.actions;
}
function parts() {
  const { edges } = policy.histogram(context());
  const bins = edges.length - 1, count = Math.min(PARTS, bins);
  const starts = Array.from({ length: count }, (_, part) => Math.floor((part * bins) / count));
  return starts.map((start, part) => [edges[start], edges[starts[part + 1] ?? bins], start, starts[part + 1] ?? bins]);
}
/** Probabilities of the labels. */
export function distribution(given) {
  if (!isNumber()) return [...policy.probabilities(given)];
  const { probabilities } = policy.histogram(given);
  return parts().map(([, , from, to]) => probabilities.slice(from, to).reduce((sum, p) => sum + p, 0));
}

function show() {
  const error = get("try-error");
  try {
    const given = context(), p = distribution(given);
    bars(p);
    sweep(given);
    error.textContent = "";
  } catch (fault) {
    error.textContent = fault.message;
  }
}
function bars(p) {
  const names = labels(), rows = names.map((name, i) => {
    const fill = make("div", { class: "fill" });
    fill.style.width = `${100 * p[i]}%`;
    const track = make("div", { class: "track", "aria-hidden": "true" }, fill);
    const label = make("td", {}, make("bdi", {}, name));
    const cells = [label, make("td", { class: "wide" }, track), make("td", { class: "number" }, percent(p[i]))];
    if (expected && !isNumber()) cells.push(...reward(i));
    return make("tr", {}, ...cells);
  });
  const heads = [[isNumber() ? policy.problem.actions.name : "action"], ["probability"], [""]];
  if (expected && !isNumber()) heads.push(["", "roomy"], ["expected reward", "number"]);
  const head = make("tr", {}, ...heads.map(([text, kind]) => make("th", { scope: "col", class: kind ?? "" }, text)));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  const region = make("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Probabilities" }, table);
  get("try-bars").replaceChildren(region, ...(expected && isNumber() ? [curve()] : []));
}
/** The cells of an expected reward: a number with its interval, and a place on the range of all of them. */
function reward(i) {
  const mean = expected.mean[0][i], low = expected.low[0]?.[i] ?? mean, high = expected.high[0]?.[i] ?? mean;
  const from = Math.min(...(expected.low[0] ?? expected.mean[0])), to = Math.max(...(expected.high[0] ?? expected.mean[0]));
  const place = (value) => (to > from ? (100 * (value - from)) / (to - from) : 50);
  const range = make("div", { class: "range" }), point = make("div", { class: "point" });
  range.style.left = `${place(low)}%`;
  range.style.width = `${place(high) - place(low)}%`;
  point.style.left = `${place(mean)}%`;
  const track = make("td", { class: "wide roomy" }, make("div", { class: "track", "aria-hidden": "true" }, range, point));
  return [track, make("td", { class: "number" }, within(mean, low, high))];
}
function curve() {
  const x = expected.labels.map(Number), values = expected.mean[0];
  return figure("Expected reward by value", { x, times: false, label: policy.problem.actions.name, marks: [],
    unit: "reward", series: [{ label: "expected reward", values, low: expected.low[0], high: expected.high[0] }] });
}
function figure(title, spec) {
  const chart = make("div", { class: "chart", role: "img", "aria-label": title, "data-chart": JSON.stringify(spec) });
  requestAnimationFrame(() => draw(chart));
  return make("figure", {}, make("figcaption", {}, title), chart);
}

// Expected rewards, by the teacher of the serving version.

async function expect() {
  const mine = ++asked, note = get("try-expected");
  let found = null, said = "";
  try {
    const reply = await fetch(api("expect"), {
      method: "POST", headers: authorised({ "Content-Type": "application/json" }),
      body: JSON.stringify({ contexts: [context()] }),
    });
    found = await reply.json();
    if (!reply.ok) throw new Error(found.error);
    said = found.why ? sentence(found.why) : `Expected rewards with ${100 * found.level} % intervals, by the teacher of version ${found.version}.`;
  } catch (error) {
    said = sentence(`expected rewards are not available: ${error.message}`);
    found = null;
  }
  if (mine !== asked) return;
  expected = found?.mean.length ? found : null;
  note.textContent = said;
  get("try-waits").classList.remove("waiting");
  show();
  ready();
}
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;

// Sweeps.

function isLog(name) {
  return fields().find((one) => one.dataset.feature === name).hasAttribute("data-log");
}
function points(name, count) {
  const field = fields().find((one) => one.dataset.feature === name);
  if (field.dataset.holds === "number") {
    return Array.from({ length: count }, (_, i) => at(field, i / (count - 1)));
  }
  if (field.dataset.holds === "boolean") return [true, false];
  return [...field.options].filter((one) => !one.hasAttribute("data-none")).map((one) => one.value);
}
export function swept(given, name, count = STEPS) {
  return points(name, count).map((value) => [value, distribution({ ...given, [name]: value })]);
}
function sweep(given) {
  const form = get("try-sweep");
  if (!form) return;
  const x = form.elements.x.value, y = form.elements.y.value;
  get("try-chart").replaceChildren(y && y !== x ? grid(given, x, y) : line(given, x));
}
/** A quantile of a number's distribution in a context. */
function quantile(given, share) {
  const { edges, probabilities } = policy.histogram(given);
  let below = 0;
  for (let bin = 0; bin < probabilities.length; bin++) {
    const p = probabilities[bin];
    if (below + p >= share) return edges[bin] + (p > 0 ? (share - below) / p : 0) * (edges[bin + 1] - edges[bin]);
    below += p;
  }
  return edges[probabilities.length];
}
/** The median of a number over a feature, and where 90 % of decisions are. */
function band(given, name) {
  const x = points(name, STEPS), at = (share) => x.map((value) => quantile({ ...given, [name]: value }, share));
  const action = policy.problem.actions.name;
  return figure(`Median ${action} over ${name}, and the middle 90 % of decisions`, {
    x, times: false, label: name, log: isLog(name), marks: [], unit: action,
    series: [{ label: `median ${action}`, values: at(0.5), low: at(0.05), high: at(0.95) }],
  });
}
function line(given, name) {
  if (isNumber() && typeof points(name, 2)[0] === "number") return band(given, name);
  const found = swept(given, name), names = labels();
  if (typeof found[0][0] !== "number") return listed(name, found, names);
  return figure(`Probability of each action over ${name}`, {
    x: found.map(([value]) => value), times: false, stacked: true, label: name, log: isLog(name), marks: [],
    unit: "probability", series: names.map((label, i) => ({ label, values: found.map(([, p]) => p[i]) })),
  });
}
function listed(name, found, names) {
  const head = make("tr", {}, ...[name, ...names].map((text) => make("th", { scope: "col" }, text)));
  const rows = found.map(([value, p]) => make("tr", {}, make("td", {}, make("bdi", {}, String(value))),
    ...p.map((share) => make("td", { class: "number" }, percent(share)))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": `Sweep over ${name}` }, table);
}
function grid(given, x, y) {
  const columns = points(x, CELLS), rows = points(y, CELLS).reverse(), names = labels();
  const text = (value) => (typeof value === "number" ? short(value) : String(value));
  const body = rows.map((up) => make("tr", {}, make("th", { scope: "row" }, text(up)), ...columns.map((across) => {
    const p = distribution({ ...given, [x]: across, [y]: up });
    const best = p.indexOf(Math.max(...p));
    const cell = make("td", { title: `${names[best]}: ${percent(p[best])}` },
      make("span", { class: "hidden" }, `${names[best]} ${percent(p[best])}`));
    cell.style.background = `color-mix(in srgb, var(--line-${(best % 6) + 1}) ${Math.round(100 * p[best])}%, transparent)`;
    return cell;
  })));
  const ends = columns.map((value, i) => (i % 7 === 0 ? text(value) : ""));
  const foot = make("tr", {}, make("td", {}), ...ends.map((end) => make("td", { class: "end" }, end)));
  const legend = make("p", { class: "legend" }, ...names.map((name, i) => {
    const mark = make("span", { class: "mark", "aria-hidden": "true" });
    mark.style.background = `var(--line-${(i % 6) + 1})`;
    return make("span", {}, mark, make("bdi", {}, name));
  }));
  const caption = make("caption", {}, `The most probable action: ${x} across, ${y} up; the darker, the more probable`);
  const table = make("table", { class: "grid" }, caption, make("tbody", {}, ...body, foot));
  const region = { class: "table", tabindex: "0", role: "region", "aria-label": `Sweep over ${x} and ${y}` };
  return make("div", {}, legend, make("div", region, table));
}

// Start, and again when a token has made the form appear.

function changed() {
  expected = null;
  show();
  clearTimeout(waiting);
  waiting = setTimeout(expect, PAUSE);
}
function slide(event) {
  const name = event.target.dataset.slides, field = get(name ?? event.target.id);
  if (name) field.value = Number(at(field, event.target.value / 1000).toPrecision(4));
  const slider = document.querySelector(`[data-slides="${field?.id}"]`);
  if (slider && !name) slider.value = Math.round(1000 * shareOf(field));
}
async function start() {
  const form = get("try-form");
  if (!form || form.dataset.started) return;
  form.dataset.started = "";
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const field of fields()) slide({ target: field });
  try {
    const reply = await fetch(api("policy"), { headers: authorised() });
    if (!reply.ok) throw new Error((await reply.json()).error);
    policy = Policy.load(await reply.arrayBuffer());
  } catch (error) {
    get("try-error").textContent = error.message;
    get("try-waits").textContent = "";
    get("try-waits").classList.remove("waiting");
    ready();
    return;
  }
  // Two features of a number would need a third dimension.
  if (isNumber() && get("try-sweep")) get("try-sweep").elements.y.closest("label").hidden = true;
  get("try-waits").textContent = `Version ${policy.version}, decided in this page.`;
  form.addEventListener("input", (event) => { slide(event); changed(); });
  get("try-sweep")?.addEventListener("change", show);
  get("try-sweep")?.addEventListener("submit", (event) => event.preventDefault());
  window.potstill.swept = swept;
  window.potstill.context = context;
  changed();
}
document.addEventListener("htmx:afterSettle", start);
start();
