/** Mistakes, to see that the compiler looks, and what it says. Not part of the project that lint and tsc check. */

import { createSqliteBackend } from "syncguard/sqlite";

const backend = createSqliteBackend(":memory:");
await backend.acquire({ key: "k" });
await backend.lock("k", { wait: 1_000 });
await backend.lock({ key: "k", mod: "shared" });
await backend.tryLock("k", () => 1, { wait: 1_000 });
