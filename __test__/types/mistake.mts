/** One mistake, to see that the compiler looks. Not part of the project that lint and tsc check. */

import { createSqliteBackend } from "syncguard/sqlite";

await createSqliteBackend(":memory:").acquire({ key: "k" });
