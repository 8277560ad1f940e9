/** Upload of rows: they leave the store only when acknowledged, and bad rows do not block good ones. */

import { Refused } from "./errors.js";

/** Statuses that may be caused by a single row. Others, such as 401 and 404, concern the client. */
const ABOUT_ROWS = new Set([400, 409, 413, 422]);

/**
 * Send rows; a rejected batch is bisected until the bad row is isolated.
 * `accepted(rows)` is called for acknowledged rows, `refused(row, reason)` for rejected ones.
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
