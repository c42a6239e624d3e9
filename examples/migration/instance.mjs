// An instance of an application: migrates, then serves.

import { join } from "node:path";
import { migrate } from "./migrate.mjs";
import { openDatabase } from "./database.mjs";

const [, folder] = process.argv.slice(2);
const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());

try {
  const done = await migrate(openDatabase(join(folder, "database.json")), stopping);
  console.log(done.length > 0 ? `carried out ${done.join(", ")}` : "nothing to migrate");
  console.log("serves"); // the application would start here
} catch (error) {
  // It must not serve on a schema that is not known: whoever started it decides what follows.
  console.log(stopping.signal.aborted ? "stopped" : `not migrated: ${error.message}`);
  process.exitCode = 1;
}
