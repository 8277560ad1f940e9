/** Synchronisation of a device with its service. */

import { InvalidPolicy } from "../errors.js";
import { NoPolicy, Refused, Unreachable } from "./errors.js";
import { upload } from "./upload.js";

/** Limits of one upload. The service accepts 1,000 rows and 16 MiB, but waits only ten seconds for a body. */
const BATCH_ROWS = 1000;
const BATCH_CHARACTERS = 1024 * 1024;
/** Smallest batch, however slow the network. */
const FEWEST_ROWS = 10;
/** In the order in which they are sent: a decision that was taken long ago is final when it arrives. */
const PLACES = { reward: ["reward", "rewards"], decision: ["observe", "observations"] };

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
    // The first reply tells the service's time, which corrects the rows.
    const early = this.#service.clock.isKnown ? null : await this.#refreshUnlessRefused();
    const sent = await this.#upload();
    const { policyError } = early ?? (await this.#refresh());
    return { ...sent, policy: this.#stored.current.version, policyError };
  }

  async #upload() {
    const sent = { decisions: 0, rewards: 0, refused: 0 };
    const last = await this.#store.newest();
    for (const kind of Object.keys(PLACES)) {
      let after = 0;
      while (!this.stopping) {
        const rows = fitting(await this.#store.oldest(this.#batch, last, after));
        if (!rows.length || rows.at(-1).number <= after) break; // a store of the user's own may not know `after`
        after = rows.at(-1).number;
        const some = rows.filter((row) => row.kind === kind);
        if (some.length) await this.#send(kind, some, sent);
      }
    }
    return sent;
  }

  async #refresh() {
    return { policyError: await refresh(this.#service, this.#stored) };
  }

  /** Null if the service refuses, which is raised after the upload. */
  async #refreshUnlessRefused() {
    try {
      return await this.#refresh();
    } catch (error) {
      if (error instanceof Refused) return null;
      throw error;
    }
  }

  /** Send rows in one batch; the next one is larger, or smaller where the network may be too slow. */
  async #send(kind, rows, sent) {
    try {
      await this.#post(kind, rows, sent);
    } catch (error) {
      if (error instanceof Unreachable) this.#batch = Math.max(this.#batch >> 2, FEWEST_ROWS);
      throw error;
    }
    this.#batch = Math.min(this.#batch * 2, BATCH_ROWS);
  }

  async #post(kind, rows, sent) {
    const { clock } = this.#service;
    const post = (part) => this.#service.postRows(...PLACES[kind], part.map((row) => clock.corrected(row)));
    const accepted = async (part) => {
      await this.#store.remove(part);
      sent[`${kind}s`] += part.length;
    };
    const refused = async (row, reason) => {
      await this.#store.setAside(row, reason);
      sent.refused++;
    };
    await upload(rows, post, accepted, refused);
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
