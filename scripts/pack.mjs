// npm run pack [folder]: builds, then makes the tarballs that are published.
// With --built, from what is built already; with --release, for all platforms that have a folder, not only for those that are built.

import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { build } from "./lib/build.mjs";
import { pack } from "./lib/pack.mjs";
import { root } from "./lib/paths.mjs";
import { main } from "./lib/run.mjs";

await main(async () => {
  const { values, positionals } = parseArgs({
    options: { built: { type: "boolean" }, release: { type: "boolean" } },
    allowPositionals: true,
  });
  const folder = resolve(positionals[0] ?? join(root, "packages"));
  if (!values.built) await build();
  const { main: tarball, platforms } = await pack(folder, { release: values.release });
  console.log(tarball);
  for (const { path, addon } of platforms) {
    console.log(path);
    if (!addon.libraries) continue;
    console.log(`  needs ${addon.libraries.join(", ")} and glibc ${addon.glibc} or later`);
    console.log(`  ${(addon.bytes / 1024 / 1024).toFixed(1)} MiB, stripped`);
  }
});
