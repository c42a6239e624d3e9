import { invalid } from "./validation.js";

/** Refuses to create a backend that this version announces and does not have. */
export function notBuilt(name: string): never {
  throw invalid(`The ${name} backend is not built yet`);
}
