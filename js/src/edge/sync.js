/** Synchronisation of a device with its service. */

import { InvalidPolicy } from "../errors.js";
import { NoPolicy, Refused, Unreachable } from "./errors.js";
import { upload } from "./upload.js";

/** Limits of one upload. The service accepts 1,000 rows and 16 MiB, but waits only ten seconds for a body. */
const BATCH_ROWS = 1000;
const BATCH_CHARACTERS = 1024 * 1024;
/** Smallest batch, however slow the network. */
const FEWEST_ROWS = 10;
const PLACES = { decision: ["observe", "observations"], reward: ["reward", "rewards"] };

/** Download the policy of a device that has none. */
export async function firstPolicy(service, stored, url) {
  try {
    await stored.replace(await service.policyFile(null));
  } catch (error) {
    if (![InvalidPolicy, Refused, Unreachable].some((kind) => error instanceof kind)) throw error;
    throw new NoPolicy(
      `there is no policy to decide with: ${stored.reason}, and ${url} gave none: ${error.message}. ` +
        "Start once with a network",
    );
  }
}

/** Uploads the queue and refreshes the policy. */
export class Sync {
  #service;
  #store;
  #stored;
  #batch = BATCH_ROWS;
  /** Set to stop an upload after the current batch; the rest stays in the store. */
  stopping = false;

  constructor(service, store, stored) {
    this.#service = service;
    this.#store = store;
    this.#stored = stored;
  }

  /** Send the rows that are in the queue now, and check for a new policy. */
  async run() {
    const sent = await this.#upload();
    const policyError = await refresh(this.#service, this.#stored);
    return { ...sent, policy: this.#stored.current.version, policyError };
  }

  async #upload() {
    const sent = { decisions: 0, rewards: 0, refused: 0 };
    const last = await this.#store.newest();
    while (!this.stopping) {
      const rows = fitting(await this.#store.oldest(this.#batch, last));
      if (!rows.length) break;
      try {
        // Decisions are sent before their rewards.
        for (const kind of Object.keys(PLACES)) await this.#send(kind, rows, sent);
      } catch (error) {
        // The network may be too slow for this many rows.
        if (error instanceof Unreachable) this.#batch = Math.max(this.#batch >> 2, FEWEST_ROWS);
        throw error;
      }
      this.#batch = Math.min(this.#batch * 2, BATCH_ROWS);
    }
    return sent;
  }

  async #send(kind, rows, sent) {
    const some = rows.filter((row) => row.kind === kind);
    const post = (part) => this.#service.postRows(...PLACES[kind], part.map((row) => row.body));
    const accepted = async (part) => {
      await this.#store.remove(part);
      sent[`${kind}s`] += part.length;
    };
    const refused = async (row, reason) => {
      await this.#store.setAside(row, reason);
      sent.refused++;
    };
    if (some.length) await upload(some, post, accepted, refused);
  }
}

/** As many rows as fit into one body, but at least one if there are any. */
function fitting(rows) {
  let left = BATCH_CHARACTERS;
  const end = rows.findIndex((row, i) => (left -= row.body.length) < 0 && i > 0);
  return end < 0 ? rows : rows.slice(0, end);
}

/** Switch to a new policy if there is one; returns why a downloaded policy was rejected, or null. */
async function refresh(service, stored) {
  const bytes = await service.policyFile(stored.etag);
  try {
    if (bytes !== null) await stored.replace(bytes);
    return null;
  } catch (error) {
    if (error instanceof InvalidPolicy) return error.message;
    throw error;
  }
}
