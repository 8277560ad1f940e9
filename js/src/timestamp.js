/** Moments: where in the day, the week and the year they are. The calendar is the Gregorian one, without time zones. */

import { missingError, mistyped, notFinite } from "./encoding.js";
import { InvalidContext, quoted, shown } from "./errors.js";
import { checkNames, choice, field, misfit } from "./fields.js";

const DAY = 86_400;
const PER_SECOND = { s: 1, ms: 1e3, us: 1e6 };

/** Seconds since 1970 of the first moment of year 1, and of that of year 10,000, which is excluded. */
const FIRST_SECOND = -62_135_596_800;
const LAST_SECOND = 253_402_300_800;

const RFC_3339 = /^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d):(\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d))?$/;
const OFFSET = /^(?:[Zz]|([+-])(\d\d):(\d\d))$/;

const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS = [
  "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
];

/** Columns of each part, and what it writes: sine and cosine, or 1 in the column of its value. */
const PARTS = {
  day: { labels: ["day sine", "day cosine"], wave: ({ second }) => [second, DAY] },
  week: { labels: ["week sine", "week cosine"], wave: ({ weekday, second }) => [weekday * DAY + second, 7 * DAY] },
  year: { labels: ["year sine", "year cosine"], wave: ({ yearday, daysOfYear }) => [yearday, daysOfYear] },
  hour: { labels: Array.from({ length: 24 }, (_, i) => `hour=${i}`), value: ({ second }) => Math.floor(second / 3600) },
  weekday: { labels: WEEKDAYS.map((day) => `weekday=${day}`), value: ({ weekday }) => weekday },
  monthday: { labels: Array.from({ length: 31 }, (_, i) => `monthday=${i + 1}`), value: ({ monthday }) => monthday },
  month: { labels: MONTHS.map((month) => `month=${month}`), value: ({ month }) => month },
};

export class TimestampFeature {
  format = 2;

  constructor(described, path, at) {
    this.name = described.name;
    this.at = at;
    this.parts = readParts(described, path);
    this.unit = choice(described, "unit", ["s", "ms", "us", null], path, null);
    this.#readClock(described, path);
    this.missing = choice(described, "missing", ["error", "flag"], path, "error");
    const labels = this.parts.flatMap((part) => PARTS[part].labels.map((label) => `${this.name} ${label}`));
    this.size = labels.length;
    this.labels = this.missing === "flag" ? [...labels, `${this.name}=<missing>`] : labels;
  }

  write(value, row) {
    if (value === null || value === undefined) {
      if (this.missing === "error") throw missingError(this.name, "missing='flag'");
      row[this.at + this.size] = 1;
    } else {
      this.#writeParts(placeOf(this.unit === null ? this.#localOfText(value) : this.#localOfNumber(value)), row);
    }
  }

  #writeParts(place, row) {
    let at = this.at;
    for (const part of this.parts) {
      const { labels, wave, value } = PARTS[part];
      if (wave) [row[at], row[at + 1]] = turned(...wave(place));
      else row[at + value(place)] = 1;
      at += labels.length;
    }
  }

  /** Seconds since 1970 on the feature's clock. */
  #localOfText(value) {
    if (typeof value !== "string") throw mistyped(this.name, "a string", value);
    const moment = readMoment(value);
    if (moment) return moment.local + (this.own || moment.offset === null ? 0 : this.offset - moment.offset);
    const must = "expected a time as RFC 3339, such as 2026-01-31T12:00:00Z, or a date";
    const wayOut = "a time needs seconds, and Z or an offset such as +02:00";
    throw new InvalidContext(`feature ${quoted(this.name)}: ${must}, got ${shown(value)}; ${wayOut}`);
  }

  #localOfNumber(value) {
    if (typeof value !== "number") throw mistyped(this.name, "a number", value);
    if (!Number.isFinite(value)) throw notFinite(this, "", value, "missing='flag'");
    const seconds = value / PER_SECOND[this.unit];
    if (seconds >= FIRST_SECOND && seconds < LAST_SECOND) return Math.floor(seconds) + this.offset;
    const must = `expected a number of ${this.unit} since 1970, of the years 1 to 9999`;
    const wayOut = "state the unit of your numbers, 's', 'ms' or 'us', in the problem";
    throw new InvalidContext(`feature ${quoted(this.name)}: ${must}, got ${shown(value)}; ${wayOut}`);
  }

  #readClock(described, path) {
    const stated = field(described, "offset", ["str"], path, "Z");
    this.own = stated === "own";
    this.offset = this.own ? 0 : readOffset(stated);
    if (this.offset === null || (this.own && this.unit !== null)) {
      const must = "offset must be 'Z', a number of hours and minutes such as '+02:00', or for strings 'own'";
      throw misfit(`feature ${quoted(this.name)}: ${must}, got ${shown(stated)}`, `${path}.offset`);
    }
  }
}

function readParts(described, path) {
  const parts = field(described, "parts", ["array"], path, ["day", "weekday"]);
  const known = Object.keys(PARTS);
  if (!parts.length || !parts.every((part) => known.includes(part))) {
    throw misfit(`feature ${quoted(described.name)}: parts must be a list of ${known.join(", ")}`, `${path}.parts`);
  }
  return checkNames(parts, `feature ${quoted(described.name)}: part`, `${path}.parts`);
}

/** Seconds since 1970 on the clock that the text was read from, and how far that is ahead of UTC; null if it is none. */
function readMoment(text) {
  const match = RFC_3339.exec(text);
  if (!match) return null;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map(Number);
  const days = daysTo(year, month, day);
  if (days === null) return null;
  if (match[4] === undefined) return { local: days * DAY, offset: null };
  const offset = readOffset(match[7]);
  if (offset === null || hour > 23 || minute > 59 || second > 60) return null;
  return { local: days * DAY + hour * 3600 + minute * 60 + second, offset };
}

/** Days since 1970 of a date of the years 1 to 9999; null if there is none. */
function daysTo(year, month, day) {
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  const exists = year >= 1 && date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
  return exists ? date.getTime() / (1000 * DAY) : null;
}

/** Seconds ahead of UTC; null if the text is no offset. */
function readOffset(text) {
  const match = OFFSET.exec(text);
  if (!match) return null;
  if (match[1] === undefined) return 0;
  const [hours, minutes] = [Number(match[2]), Number(match[3])];
  if (hours > 23 || minutes > 59) return null;
  return (hours * 3600 + minutes * 60) * (match[1] === "-" ? -1 : 1);
}

/** Where a moment is in the calendar; all count from 0, and weekday 0 is Monday. */
function placeOf(local) {
  const date = new Date(local * 1000);
  const start = new Date(0);
  const next = new Date(0);
  start.setUTCFullYear(date.getUTCFullYear(), 0, 1);
  next.setUTCFullYear(date.getUTCFullYear() + 1, 0, 1);
  const days = Math.floor(local / DAY);
  return {
    second: local - days * DAY,
    weekday: (date.getUTCDay() + 6) % 7,
    monthday: date.getUTCDate() - 1,
    month: date.getUTCMonth(),
    yearday: days - start.getTime() / (1000 * DAY),
    daysOfYear: (next.getTime() - start.getTime()) / (1000 * DAY),
  };
}

/** Sine and cosine of the turn's part step/steps: of the first quarter, and turned. */
function turned(step, steps) {
  const quarter = Math.floor((4 * step) / steps);
  const angle = ((Math.PI / 2) * ((4 * step) % steps)) / steps;
  const [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
  return [[sine, cosine], [cosine, 0 - sine], [0 - sine, 0 - cosine], [0 - cosine, sine]][quarter];
}
