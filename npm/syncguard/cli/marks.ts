/** What is stored as done, for people. */

import type { Mark } from "../inspection/marks.js";
import { time } from "./locks.js";

export function shownMark({ due, doneAtMs }: Mark): string {
  return `${due}, at ${time(doneAtMs)}`;
}
