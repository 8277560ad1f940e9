/** Decisions and rewards as JSON text, serialised when they happen. */

import { InvalidContext, shown } from "../errors.js";
import { freshId } from "../ids.js";
import { isMapping } from "../problem.js";
import { elapsed } from "./device_clock.js";

/** A snapshot of a context, independent of its getters. Anything but an object is left for the policy to reject. */
export function snapshot(context) {
  if (isMapping(context)) return { ...context };
  throw new InvalidContext(`a context to be logged maps feature names to values, got ${shown(context)}`);
}

/** The row of a decision, with the time of the decision. */
export function decisionRow(decision, context, unit) {
  const body = { ...decision, context, time: new Date().toISOString() };
  if (unit !== null && unit !== undefined) body.unit = unit;
  return { kind: "decision", id: decision.id, body: JSON.stringify(body), taken: elapsed() };
}

/** The row of a reward. Without a key it gets a random one, so that a retry counts once. */
export function rewardRow(id, reward, { key, time, metrics } = {}) {
  checkNumber(reward, "reward");
  checkText(id, "id");
  if (key !== null && key !== undefined) checkText(key, "key");
  const stated = time !== null && time !== undefined;
  const moment = stated ? new Date(time) : new Date();
  if (Number.isNaN(moment.getTime())) throw new RangeError(`time must be a Date, got ${shown(time)}`);
  const body = { id, reward, key: key ?? freshId(), time: moment.toISOString() };
  if (metrics !== null && metrics !== undefined) body.metrics = checkedMetrics(metrics);
  const row = { kind: "reward", id, body: JSON.stringify(body) };
  return stated ? row : { ...row, taken: elapsed() };
}

/** The queued decision, if its request was identical. */
export function sameDecision(earlier, later) {
  const [first, second] = [earlier, later].map((text) => JSON.parse(text));
  if (asked(first) !== asked(second)) {
    throw new RangeError(`decision ${shown(first.id)} was taken in another context, or with other eligible actions`);
  }
  const { context, time, unit, ...decision } = first;
  return decision;
}

function asked({ context, eligible }) {
  return JSON.stringify([Object.entries(context).sort(([a], [b]) => (a < b ? -1 : 1)), eligible ?? null]);
}

function checkedMetrics(metrics) {
  if (!isMapping(metrics)) throw new RangeError(`metrics must map names to numbers, got ${shown(metrics)}`);
  const seen = { ...metrics };
  for (const [name, value] of Object.entries(seen)) {
    checkText(name, "a metric's name");
    checkNumber(value, `metric ${shown(name)}`);
  }
  return seen;
}

function checkNumber(value, what) {
  if (!Number.isFinite(value)) throw new RangeError(`${what} must be a finite number, got ${shown(value)}`);
}

function checkText(value, what) {
  if (typeof value === "string" && value) return;
  throw new RangeError(`${what} must be a string that is not empty, got ${shown(value)}`);
}
