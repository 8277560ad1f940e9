/** Requests to one problem of the service, with retries. */

import { sha256 } from "../sha256.js";
import { DeviceClock } from "./device_clock.js";
import { Refused, Unreachable } from "./errors.js";

/** Retryable statuses: the service or a proxy is overloaded or down, or the request body arrived too slowly. */
const PASSING = new Set([408, 429, 502, 503, 504]);
/** Shortest timeout, in milliseconds: `setTimeout` needs a positive delay. */
const LEAST = 1;
/** The largest body that is read, unpacked. A policy with 100,000 actions and 100 hidden units has 40 MB. */
const MAX_BYTES = 64 * 1024 * 1024;

export class Service {
  #base;
  #headers;
  #options;
  clock = new DeviceClock();

  /** Times are in milliseconds. `fetch`, `sleep`, `random` and `clock` can be replaced in tests. */
  constructor(url, token, options) {
    this.problem = problemOf(url);
    this.#base = String(url).replace(/\/+$/, "");
    this.#headers = headersOf(token);
    this.#options = {
      retries: 3,
      pause: 50,
      longest: 10_000,
      fetch: (...request) => globalThis.fetch(...request),
      sleep: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
      random: Math.random,
      clock: () => performance.now(),
      ...options,
    };
  }

  /** Post JSON text and return the JSON of a reply with the expected status. */
  async post(path, body, expected, options = {}) {
    const headers = { "content-type": "application/json" };
    return this.#json(await this.#exchange("POST", path, { ...options, headers, body }), expected, path);
  }

  /** Post rows of JSON text; resolves when the service has acknowledged all of them. */
  async postRows(path, name, bodies, options) {
    const reply = await this.post(path, `{"${name}":[${bodies.join(",")}]}`, 202, options);
    if (reply?.accepted === bodies.length) return;
    throw new Unreachable(`${path}: ${bodies.length} rows were sent, and ${reply?.accepted} were accepted`);
  }

  async status() {
    return this.#json(await this.#exchange("GET", "status", {}), 200, "status");
  }

  /** The bytes of the policy file, or null if it still matches `etag`. */
  async policyFile(etag) {
    const headers = etag ? { "if-none-match": etag } : {};
    const reply = await this.#exchange("GET", "policy", { headers });
    if (reply.status === 304 && etag) return null;
    if (reply.status !== 200) throw refusal(reply, "policy");
    const stated = reply.headers.get("etag")?.replace(/^W\//, "");
    if (stated && stated !== etagOf(reply.bytes)) {
      throw new Unreachable(`policy: the download does not have the SHA-256 that the service stated, ${stated}`);
    }
    return reply.bytes;
  }

  #json(reply, expected, path) {
    if (reply.status !== expected) throw refusal(reply, path);
    const read = parsed(reply.bytes);
    // Not the service: a captive portal, or a proxy.
    if (read === undefined) throw new Unreachable(`${path}: the answer is not the service's`);
    return read;
  }

  /** Send a request, and retry on transient failures. */
  async #exchange(method, path, request) {
    const { clock, retries, sleep, timeout } = this.#options;
    const deadline = clock() + timeout;
    for (let attempt = 0; ; attempt++) {
      const outcome = await this.#attempt(method, path, request, Math.max(deadline - clock(), LEAST));
      if (outcome.status !== undefined && !PASSING.has(outcome.status)) return outcome;
      const pause = Math.max(this.backoff(attempt), askedFor(outcome));
      if (attempt >= retries || clock() + pause >= deadline) {
        const reason = outcome.reason ?? `the service answered ${outcome.status}`;
        throw new Unreachable(`${method} ${path}: ${reason}; ${attempt + 1} attempts were made`);
      }
      await sleep(pause);
    }
  }

  /** Milliseconds to wait after a failed attempt, with jitter of up to half, so that clients do not retry in step. */
  backoff(attempt, { pause, longest } = this.#options) {
    return Math.min(longest, pause * 2 ** Math.min(attempt, 60)) * (1 - this.#options.random() / 2);
  }

  /** A reply, or the reason for its absence. The deadline includes reading the body. */
  async #attempt(method, path, { body, headers, keepalive }, left) {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), left);
    try {
      const response = await this.#options.fetch(`${this.#base}/${path}`, {
        method,
        body,
        headers: { ...this.#headers, ...headers },
        signal: controller.signal,
        keepalive,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
      const { status, headers: stated } = response;
      this.clock.hear(stated?.get("x-potstill-time"));
      return { status, headers: stated, bytes: await readBody(response) };
    } catch (error) {
      return { reason: controller.signal.aborted ? `no whole answer in ${Math.round(left)} ms` : reasonOf(error) };
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The body of a response; a larger one than `MAX_BYTES` ends the request, however small it is on the wire. */
async function readBody(response) {
  const chunks = [];
  let size = 0;
  for (const reader = response.body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    chunks.push(value);
    if (size > MAX_BYTES) {
      reader.cancel().catch(() => {});
      throw new Error(`the answer is larger than ${MAX_BYTES / 2 ** 20} MiB`);
    }
  }
  const bytes = new Uint8Array(size);
  for (let at = 0; chunks.length; at += chunks.shift().length) bytes.set(chunks[0], at);
  return bytes;
}

/** The entity tag of a policy file: its SHA-256 in quotes. */
export function etagOf(bytes) {
  return `"${sha256(bytes)}"`;
}

/** Name of the problem in a URL such as `https://host/v1/video-upload`; other URLs are rejected. */
function problemOf(url) {
  const wrong = (message) => new TypeError(`url must ${message}`);
  let parts;
  try {
    parts = new URL(url);
  } catch {
    throw wrong("be a problem's address such as https://host/v1/video-upload");
  }
  const { protocol, pathname, username, password, search } = parts;
  const name = /\/v1\/([^/]+)\/*$/.exec(pathname)?.[1];
  if (!/^https?:$/.test(protocol) || !name) throw wrong("be a problem's address such as https://host/v1/video-upload");
  if (username || password || search) throw wrong("not carry a user, a password or a query; a token goes to `token`");
  return decodeURIComponent(name);
}

function headersOf(token) {
  if (token === undefined || token === null) return {};
  if (/^[!-~]+$/.test(token)) return { authorization: `Bearer ${token}` };
  // The value is a secret, so the message does not show it.
  throw new TypeError("token must be printable ASCII without spaces; was it read together with the end of its line?");
}

/** Milliseconds of a Retry-After header. The date form, which the service does not use, is ignored. */
function askedFor({ headers }) {
  const seconds = Number(headers?.get("retry-after") ?? 0);
  return Number.isFinite(seconds) ? 1000 * Math.max(seconds, 0) : 0;
}

function refusal(reply, path) {
  const said = parsed(reply.bytes)?.error ?? "it gave no reason";
  const message = `${path}: the service answered ${reply.status}: ${said}`;
  return reply.status >= 400 && reply.status < 500 ? new Refused(reply.status, message) : new Unreachable(message);
}

function parsed(bytes) {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

function reasonOf(error) {
  return error?.cause?.message ?? error?.message ?? String(error);
}
