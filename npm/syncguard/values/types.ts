/** The public types, a file per concept. */

export type * from "./backends.js";
export type * from "./capabilities.js";
export type * from "./handles.js";
export type * from "./names.js";
export type * from "./options.js";
export type * from "./results.js";
export type * from "./telemetry-types.js";
