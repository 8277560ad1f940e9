// What the pages need besides htmx: tokens, a dialog before each change, local times, charts, and reading again.
"use strict";
(() => {
  const KEPT = "potstill.tokens"; // in this tab only: {problem: token}; "" has the one that was entered last
  const body = document.body;
  const main = document.getElementById("view");
  const problem = main.dataset.problem ?? null;

  // Tokens.

  function tokens() {
    try {
      const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
      return found !== null && typeof found === "object" ? found : {};
    } catch {
      return {};
    }
  }
  function keep(token) {
    const found = tokens();
    found[""] = token;
    if (problem !== null) found[problem] = token;
    sessionStorage.setItem(KEPT, JSON.stringify(found));
  }
  function token(name = problem) {
    const found = tokens();
    return (name !== null && Object.hasOwn(found, name) ? found[name] : found[""]) ?? "";
  }
  function authorised(headers = {}, name = problem) {
    const found = token(name);
    return found ? { ...headers, Authorization: `Bearer ${found}` } : headers;
  }
  // The scripts of single views use the same.
  window.potstill = { problem, authorised, api: (path) => `/v1/${encodeURIComponent(problem)}/${path}`, say, dress, draw, ready };

  document.addEventListener("htmx:configRequest", (event) => {
    Object.assign(event.detail.headers, authorised());
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "token-form") return;
    event.preventDefault();
    keep(event.target.elements.token.value.trim());
    read();
  });
  document.getElementById("forget")?.addEventListener("click", () => {
    sessionStorage.removeItem(KEPT);
    location.reload();
  });

  // Reading the view again.

  function say(text) {
    document.getElementById("said").textContent = text;
  }
  async function read() {
    const address = location.pathname + location.search;
    main.setAttribute("aria-busy", "true");
    await htmx.ajax("GET", address, { target: main, swap: "innerHTML" });
    if (problem === null) await others(address);
    main.removeAttribute("aria-busy");
  }
  /** In the list of problems: those that other tokens of this tab open, and which token opens which. */
  async function others(address) {
    const found = tokens(), list = () => main.querySelector(".problems");
    const names = (root) => [...root.querySelectorAll("[data-problem]")];
    for (const name of names(main)) if (found[""]) found[name.dataset.problem] ??= found[""];
    for (const each of new Set(Object.values(found))) {
      if (each === found[""]) continue;
      const reply = await fetch(address, { headers: { "HX-Request": "true", Authorization: `Bearer ${each}` } });
      const there = new DOMParser().parseFromString(await reply.text(), "text/html");
      for (const item of names(there)) {
        found[item.dataset.problem] = each;
        if (names(main).some((one) => one.dataset.problem === item.dataset.problem)) continue;
        if (list()) list().append(document.adoptNode(item));
        else main.replaceChildren(...there.body.childNodes);
      }
    }
    sessionStorage.setItem(KEPT, JSON.stringify(found));
    dress(main);
  }
  const busy = () =>
    document.hidden || main.querySelector("details[open], #token-form") || document.querySelector("dialog[open]") ||
    main.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button");
  const seconds = Number(main.dataset.refresh ?? 0);
  if (seconds) setInterval(() => { if (!busy()) read(); }, seconds * 1000);

  // Changes: each asks for a reason, and is sent as JSON, which no other site's page can do.

  const dialog = document.getElementById("ask-dialog");
  const form = document.getElementById("ask-form");
  const fault = document.getElementById("ask-error");
  let asked = null;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-action]");
    if (!button || button.disabled) return;
    asked = { path: button.dataset.action, body: JSON.parse(button.dataset.body), label: button.textContent };
    document.getElementById("ask-title").textContent = button.textContent;
    document.getElementById("ask").textContent = button.dataset.ask;
    fault.textContent = "";
    form.elements.reason.value = "";
    form.elements.by.value = localStorage.getItem("potstill.by") ?? "";
    dialog.showModal();
    form.elements.reason.focus();
  });
  document.getElementById("cancel").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const by = form.elements.by.value.trim();
    localStorage.setItem("potstill.by", by);
    const sent = { ...asked.body, reason: form.elements.reason.value.trim(), by };
    const confirm = document.getElementById("confirm");
    confirm.disabled = true;
    try {
      const reply = await fetch(window.potstill.api(asked.path), {
        method: "POST", headers: authorised({ "Content-Type": "application/json" }), body: JSON.stringify(sent),
      });
      if (!reply.ok) throw new Error((await reply.json()).error);
      dialog.close();
      await read();
      say(`${asked.label}: done`);
    } catch (error) {
      fault.textContent = error.message;
    } finally {
      confirm.disabled = false;
    }
  });

  // Times in the reader's zone, and charts.

  function local(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      if (time.title) continue;
      time.title = time.textContent;
      const moment = new Date(time.dateTime);
      const today = moment.toDateString() === new Date().toDateString();
      time.textContent = today ? moment.toLocaleTimeString() : moment.toLocaleString([], {
        year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
      });
    }
  }
  const colour = (name) => getComputedStyle(body).getPropertyValue(`--${name}`).trim();
  const COLOURS = 6, UNNAMED = "\u2060"; // uPlot gives a series without a label one of its own
  const drawn = new Map(); // element: [plot, specification]

  function shown(value) {
    if (value === null || value === undefined) return "–";
    return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString() : Number(value.toPrecision(3)).toString();
  }
  /** Values on each other, from the last line up: an area of each is drawn behind those before it. */
  function stacked(lines) {
    const sums = lines.map((line) => [...line.values]);
    for (let i = sums.length - 2; i >= 0; i--) {
      sums[i] = sums[i].map((value, at) => (value === null ? null : value + (sums[i + 1][at] ?? 0)));
    }
    return sums;
  }
  /** Colour of a line; along a ramp where lines are in an order. */
  function lineColour(at, spec) {
    if (!spec.ordered) return colour(`line-${(at % COLOURS) + 1}`);
    const part = at / Math.max(spec.series.length - 1, 1), ends = ["line-2", "line-1"].map((name) => colour(name));
    const channels = [1, 3, 5].map((from) => ends.map((end) => Number.parseInt(end.slice(from, from + 2), 16)));
    return `#${channels.map(([a, b]) => Math.round(a + (b - a) * part).toString(16).padStart(2, "0")).join("")}`;
  }
  function draw(element) {
    drawn.get(element)?.[0].destroy();
    const spec = JSON.parse(element.dataset.chart);
    const moment = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    const place = (_, at) => (at === null ? "" : spec.times ? moment(at) : shown(at));
    const data = [spec.x], series = [{ label: spec.label ?? (spec.times ? "time" : "x"), value: place }], bands = [];
    // Rounded: uPlot takes seconds to find ticks between values that differ in their last digits only.
    const round = (list) => list.map((value) => value === null ? null : Number(value.toPrecision(5)));
    const values = (spec.stacked ? stacked(spec.series) : spec.series.map((line) => line.values)).map(round);
    spec.series.forEach((line, at) => {
      const stroke = lineColour(at, spec);
      const legend = (_, __, ___, index) => (index === null ? "" : shown(line.values[index]));
      data.push(values[at]);
      series.push({ label: line.label, stroke, width: 1.75, value: legend, fill: spec.stacked ? stroke : undefined,
        spanGaps: true, points: { show: !spec.stacked && spec.x.length < 30 } });
      if (!line.low || !line.high) return;
      const hidden = { stroke: "transparent", spanGaps: true, points: { show: false }, value: () => "" };
      data.push(round(line.high), round(line.low));
      series.push({ ...hidden, label: UNNAMED }, { ...hidden, label: UNNAMED });
      bands.push({ series: [data.length - 2, data.length - 1], fill: `${stroke}2e` });
    });
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false },
      font: "12px system-ui", labelFont: "12px system-ui", labelSize: 20 };
    const numbers = { ...axis, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : shown(tick))) };
    const options = {
      width: Math.max(element.clientWidth, 240), height: spec.times ? 220 : 240, series, bands,
      padding: [spec.marks.length ? 20 : 8, null, null, null],
      scales: { x: { time: spec.times, distr: spec.log ? 3 : 1 }, y: spec.stacked ? { range: [0, 1] } : {} },
      axes: [spec.times ? axis : { ...numbers, label: spec.label }, { ...numbers, size: 50, label: spec.unit || null }],
      cursor: { y: false }, legend: { live: true },
      hooks: { draw: [(plot) => marks(plot, spec.marks)] },
    };
    element.replaceChildren();
    drawn.set(element, [new uPlot(options, data, element), spec]);
    for (const row of element.querySelectorAll(".u-legend .u-series")) {
      if (row.querySelector(".u-label").textContent === UNNAMED) row.hidden = true;
    }
  }
  function marks(plot, places) {
    const context = plot.ctx, { left, top, width, height } = plot.bbox;
    context.save();
    context.strokeStyle = context.fillStyle = colour("soft");
    context.font = `${11 * devicePixelRatio}px system-ui`;
    context.textBaseline = "bottom";
    context.setLineDash([4, 4]);
    for (const [at, label] of places) {
      const x = plot.valToPos(at, "x", true);
      if (x < left || x > left + width) continue;
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, top + height);
      context.stroke();
      const right = x + context.measureText(label).width > left + width;
      context.textAlign = right ? "right" : "left";
      context.fillText(label, x, top - 3 * devicePixelRatio);
    }
    context.restore();
  }
  function redraw() {
    for (const element of [...drawn.keys()]) {
      if (element.isConnected) {
        draw(element);
      } else {
        drawn.get(element)[0].destroy();
        drawn.delete(element);
      }
    }
  }
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  /** Make what the server sent ready to look at. */
  function dress(root) {
    local(root);
    for (const element of root.querySelectorAll(".chart[data-chart]")) if (!drawn.has(element)) draw(element);
    const forget = document.getElementById("forget");
    if (forget) forget.hidden = !token();
    if (main.querySelector("#token-form .reason") && !token()) main.querySelector(".reason").textContent = "";
  }
  document.addEventListener("htmx:afterSwap", () => {
    for (const [element, [plot]] of drawn) if (!element.isConnected) { plot.destroy(); drawn.delete(element); }
    dress(main);
  });
  document.querySelector("nav a[aria-current]")?.scrollIntoView({ inline: "nearest", block: "nearest" });
  dress(main);
  if (token() && (problem === null || main.hasAttribute("data-locked"))) read();
  else ready();
  document.addEventListener("htmx:afterSettle", ready);
  function ready() {
    if (!main.querySelector(".waiting")) document.documentElement.dataset.ready = "";
  }
})();
