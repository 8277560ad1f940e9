/** Rows that leave only after the service has them, and bad rows that do not hold up the good ones. */

import { Refused } from "./errors.js";

/** Refusals that may be about a single row. Others, such as 401 and 404, are about the client. */
const ABOUT_ROWS = new Set([400, 409, 413, 422]);

/**
 * Send rows; a batch that is refused is halved until the bad row stands alone.
 * `accepted(rows)` is told of what the service has acknowledged, `refused(row, reason)` of what it does not take.
 */
export async function upload(rows, post, accepted, refused) {
  try {
    await post(rows);
  } catch (error) {
    if (!(error instanceof Refused && ABOUT_ROWS.has(error.status))) throw error;
    if (rows.length === 1) return refused(rows[0], error.message);
    const middle = rows.length >> 1;
    await upload(rows.slice(0, middle), post, accepted, refused);
    return upload(rows.slice(middle), post, accepted, refused);
  }
  return accepted(rows);
}
