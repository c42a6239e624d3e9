/** `syncguard/testing`: for tests of code that uses locks. Loads no native code. */

export type { Clock, Timer } from "./values/clock.js";
export {
  createTestBackend,
  type TestBackend,
  type TestBackendOptions,
  type TestCapabilities,
} from "./testing/backend.js";
export { TestClock } from "./testing/clock.js";
export type { FaultyOperation, TestFaults } from "./testing/faults.js";
