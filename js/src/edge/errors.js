/** Errors between a client and its service. */

/** No reply in time: no network, or the service is down or overloaded. A later retry may succeed. */
export class Unreachable extends Error {
  name = "Unreachable";
}

/** The service rejected the request. Retrying the same request does not help. */
export class Refused extends Error {
  name = "Refused";

  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The queue is full; existing rows are kept. */
export class QueueFull extends Error {
  name = "QueueFull";
}

/** No policy is available: none is stored, and none could be downloaded. */
export class NoPolicy extends Error {
  name = "NoPolicy";
}
