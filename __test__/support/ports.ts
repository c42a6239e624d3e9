// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { freePort as find } from "../../bench/lib/ports.mjs";

/** A port that nobody listens on. */
export const freePort = find as () => Promise<number>;
