/** A fake service on loopback: has the URLs of the real one, records requests, and fails on demand. */

import { createHash } from "node:crypto";
import { createServer } from "node:http";

import { Policy } from "../potstill.js";
import { policyFile } from "./craft.js";

export class FakeService {
  /** Bodies received, by id, and by id and key. */
  observations = new Map();
  rewards = new Map();
  /** Faults of the next requests: a status, [status, headers, body], "cut", "lost" (processed without reply), "slow". */
  faults = [];
  badIds = new Set();
  requests = [];
  bodies = [];
  file = policyFile();
  #server = null;
  #port = 0;

  get url() {
    return `http://127.0.0.1:${this.#port}/v1/upload`;
  }

  async start() {
    this.#server = createServer((request, response) => this.#handle(request, response));
    await new Promise((resolve) => this.#server.listen(this.#port, "127.0.0.1", resolve));
    this.#port = this.#server.address().port;
    return this;
  }

  /** Cut the network: close connections, and accept no new ones. */
  async stop() {
    const server = this.#server;
    this.#server = null;
    if (!server) return;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }

  async #handle(request, response) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const fault = this.faults.shift();
    if (typeof fault === "number" || Array.isArray(fault)) {
      const [status, headers, reply = '{"error":"on demand"}'] = [fault].flat();
      response.writeHead(status, headers).end(reply);
      return;
    }
    if (fault === "cut") {
      response.writeHead(202, { "content-length": 500 }).write("{");
      setTimeout(() => request.socket.destroy(), 5);
      return;
    }
    const [status, headers, reply] = this.#answer(request, body);
    if (fault === "lost") request.socket.destroy();
    else if (fault === "slow") response.writeHead(status, headers).write("{");
    else response.writeHead(status, headers).end(reply);
  }

  #answer({ method, url, headers }, body) {
    const told = body ? JSON.parse(body) : null;
    const path = url.replace("/v1/upload/", "");
    this.requests.push({ method, path, headers });
    this.bodies.push(told);
    if (path === "policy") return this.#policy(headers["if-none-match"]);
    if (path === "decide") return json(200, this.#decide(told));
    if (path === "decide/batch") return json(200, { decisions: told.requests.map((one) => this.#decide(one)) });
    if (path === "observe") return this.#take(told.observations, this.observations, (row) => row.id);
    if (path === "reward") return this.#take(told.rewards, this.rewards, (row) => `${row.id}/${row.key}`);
    if (path === "status") return json(200, { problem: "upload", ready: true });
    return json(404, { error: `no such path: ${path}` });
  }

  #policy(asked) {
    const etag = `"${createHash("sha256").update(this.file).digest("hex")}"`;
    const time = { "x-potstill-time": String(Date.now() / 1000) };
    return asked === etag ? [304, { etag, ...time }, ""] : [200, { etag: this.etag ?? etag, ...time }, this.file];
  }

  #decide({ context, id, eligible }) {
    const { action, propensity, policy } = Policy.load(this.file).decide(context, { id, eligible });
    return { id, action, propensity, policy, mode: "online" };
  }

  #take(rows, kept, nameOf) {
    const bad = rows.findIndex((row) => this.badIds.has(row.id));
    if (bad >= 0) return json(422, { error: `row ${bad} does not fit` });
    for (const row of rows) kept.set(nameOf(row), [...(kept.get(nameOf(row)) ?? []), row]);
    return json(202, { accepted: rows.length });
  }
}

function json(status, value) {
  return [status, { "content-type": "application/json" }, JSON.stringify(value)];
}
