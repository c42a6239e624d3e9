/** The addon's exports for Forrst. Answers are JSON. */

import type { AcquisitionPolicy } from "../values/defaults.js";
import { addon as native } from "../native/addon.js";
import type * as exported from "../native/exports.js";

type Native = typeof exported;

/** The Forrst extension's options in one request. */
export type ForrstOptions = Omit<exported.ForrstOptions, "waiting"> & {
  readonly waiting: Pick<AcquisitionPolicy, keyof exported.ForrstOptions["waiting"]>;
};

/** The same, with more precise types than Rust's. */
export const addon = native() as unknown as Omit<Native, "ForrstOptions"> & {
  ForrstOptions: new (...args: ConstructorParameters<Native["ForrstOptions"]>) => ForrstOptions;
};
