// node scripts/build-release.mjs <platform>: the addon for a platform, as it is published, in that platform's folder.
// For Linux, cargo-zigbuild and zig (`pip install cargo-zigbuild ziglang`) link it; on others, their own compiler.

import { join } from "node:path";
import { place } from "./lib/build.mjs";
import { inspectAddon } from "./lib/elf.mjs";
import { isOlderThan, libraryOf, OLDEST_GLIBC, releaseBuild } from "./lib/platforms.mjs";
import { root, target as folder } from "./lib/paths.mjs";
import { main, must } from "./lib/run.mjs";

await main(async () => {
  const [platform = ""] = process.argv.slice(2);
  const { target, args, env } = releaseBuild(platform);
  await must("cargo", args, { env });
  const built = join(folder, target, "release", libraryOf(platform));
  const addon = join(root, "npm", platform, `syncguard.${platform}.node`);
  if (target.includes("-linux-")) {
    const { libraries, glibc, faults } = await inspectAddon(built);
    if (target.endsWith("-gnu") && isOlderThan(OLDEST_GLIBC, glibc)) {
      faults.push(`needs glibc ${glibc}, not only ${OLDEST_GLIBC}`);
    }
    if (target.endsWith("-musl") && glibc !== undefined) faults.push("needs glibc");
    if (faults.length > 0) throw new Error(faults.map((fault) => `${addon} ${fault}`).join("\n"));
    console.log(`needs ${libraries.join(", ")}${glibc ? ` and glibc ${glibc}` : ""}`);
  }
  place(built, addon);
  console.log(addon);
});
