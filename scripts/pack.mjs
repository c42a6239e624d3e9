// npm run pack [folder]: builds, then makes the tarballs that are published.

import { join, resolve } from "node:path";
import { build } from "./lib/build.mjs";
import { pack } from "./lib/pack.mjs";
import { root } from "./lib/paths.mjs";
import { main } from "./lib/run.mjs";

await main(async () => {
  const folder = process.argv[2] ? resolve(process.argv[2]) : join(root, "dist-packages");
  await build();
  const { main: tarball, platforms } = await pack(folder);
  console.log(tarball);
  for (const { path, addon } of platforms) {
    console.log(path);
    if (!addon.libraries) continue;
    console.log(`  needs ${addon.libraries.join(", ")} and glibc ${addon.glibc} or later`);
    console.log(`  ${(addon.bytes / 1024 / 1024).toFixed(1)} MiB, stripped`);
  }
});
