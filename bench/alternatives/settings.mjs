// What is the same for all.

export const IN_FLIGHT = [1, 4, 16, 64, 256];
export const CONTENDED_IN_FLIGHT = 16;
/** Several keys at once, and slots of one. */
export const SET_SIZES = [2, 4, 16];
export const SLOTS = [1, 10, 100];
export const SLOTS_IN_FLIGHT = [16, 64];
export const SETS_IN_FLIGHT = 16;
export const HANDED_SLOTS = 4;
/** Hand-off. */
export const WAITERS = 16;
export const PROCESSES = 4;
export const HOLD_MS = 5;
/** Locks that extend themselves. */
export const HOLDING_TTL_MS = 5_000;
/** The HTTP server: connections of the load generator, keys, and a handler's work. */
export const CONNECTIONS = [8, 64];
export const KEYS = 1_000;
export const WORK_MICROS = 50;
/** Milliseconds before each sample in which nothing is measured. */
export const WARM_MS = 100;

/** Seconds of a sample, from those of the shortest. */
export const secondsOf = (row, seconds) =>
  seconds * ({ handOff: 3, holding: 10, http: 4 }[row] ?? 1);
