/** What can go wrong between a client and its service. */

/** No answer came in time: no network, a service that is down or overloaded. Trying later may help. */
export class Unreachable extends Error {
  name = "Unreachable";
}

/** The service answered, and refused. Trying again with the same request does not help. */
export class Refused extends Error {
  name = "Refused";

  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** There is no room for another row; what is in the queue is kept. */
export class QueueFull extends Error {
  name = "QueueFull";
}

/** There is no policy to decide with: none is stored, and none could be downloaded. */
export class NoPolicy extends Error {
  name = "NoPolicy";
}
