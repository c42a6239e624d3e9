// Three instances that are deployed at the same time.

import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";
import { openDatabase } from "./database.mjs";

const script = fileURLToPath(new URL("instance.mjs", import.meta.url));
const fleet = startFleet(script, ["one", "two", "three"]);
const codes = await fleet.ended;
const { applied } = await openDatabase(join(fleet.folder, "database.json")).read();
console.log(`migrations, in order: ${applied.join(", ")}`);
process.exitCode = codes.every((code) => code === 0) ? 0 : 1;
fleet.remove();
