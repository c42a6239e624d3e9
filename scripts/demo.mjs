// npm run demo: builds, then runs the main job on the SQLite backend.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { build } from "./lib/build.mjs";
import { root } from "./lib/paths.mjs";
import { main } from "./lib/run.mjs";

await main(async () => {
  await build();
  const demo = spawn(process.execPath, [join(root, "demo", "run.mjs")], { stdio: "inherit" });
  // Ctrl-C reaches the demo too; it ends its children and then itself.
  process.on("SIGINT", () => {});
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => demo.kill(signal));
  const [code] = await once(demo, "exit");
  return code ?? 1;
});
