/** Server-sent events: a stream for each page that is open. */

import { encode, type Feed } from "./feed.js";

/** Of what type the streams are. */
export const EVENTS = "text/event-stream";
/** A page whose connection is dead is noticed when something is sent. */
const BEAT_MS = 8_000;
/** So many of them, ten minutes: then the page connects anew, and authorize() is asked again. */
const BEATS = 75;
/** A page that reads so many bytes behind gets all at once later, in place of each change. */
const MOST_WAITING = 1 << 18;

export function streamOf(feed: Feed): ReadableStream<Uint8Array> {
  let isBehind = false;
  let leave = (): void => undefined;
  const start = (controller: ReadableStreamDefaultController): void => {
    const send = (bytes?: Uint8Array): void => {
      if (bytes === undefined) {
        leave();
        controller.close();
      } else if ((controller.desiredSize ?? 0) <= 0) isBehind = true;
      else if (!isBehind) controller.enqueue(bytes);
    };
    send(encode("retry: 500\n\n"));
    const stop = feed.listen(send);
    let beats = 0;
    const beat = setInterval(() => {
      beats += 1;
      send(beats < BEATS ? encode(":\n\n") : undefined);
    }, BEAT_MS).unref();
    leave = () => {
      stop();
      clearInterval(beat);
    };
  };
  const pull = (controller: ReadableStreamDefaultController): void => {
    const now = isBehind ? feed.now() : undefined;
    isBehind = false;
    if (now !== undefined) controller.enqueue(now);
  };
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: MOST_WAITING });
  return new ReadableStream<Uint8Array>({ start, pull, cancel: () => leave() }, strategy);
}
