// What a Linux addon needs from the machine it is loaded on.

import { statSync } from "node:fs";
import { needPrograms } from "./debian.mjs";
import { isOlderThan } from "./platforms.mjs";
import { must } from "./run.mjs";

const EXPECTED_LIBRARIES = /^(libc|libm|libgcc_s|libpthread|libdl|librt|ld-linux-[\w-]+)\.so\.\d+$/;
const LARGEST_BYTES = 12 * 1024 * 1024;

/**
 * Reads an addon with readelf: `{ libraries, glibc, stripped, bytes, faults }`. `glibc` is the newest
 * version whose symbols it uses; `faults` says what is wrong with shipping it.
 */
export async function inspectAddon(path) {
  await needPrograms([{ command: "readelf", packages: ["binutils"], why: "checks the addon" }]);
  const parts = ["--dynamic", "--section-headers", "--version-info"];
  const { output } = await must("readelf", ["--wide", ...parts, path], {
    quiet: true,
    env: { LC_ALL: "C" },
  });
  const libraries = [...output.matchAll(/\(NEEDED\).*\[(.+?)\]/g)].map((match) => match[1]);
  const glibc = [...output.matchAll(/\bGLIBC_(\d+\.\d+)/g)]
    .map(([, version]) => version)
    .sort((one, other) => (isOlderThan(one, other) ? -1 : 1))
    .at(-1);
  const stripped = !/\s\.symtab\s/.test(output);
  const { size: bytes } = statSync(path);
  const faults = [
    ...libraries
      .filter((name) => !EXPECTED_LIBRARIES.test(name))
      .map((name) => `needs the shared library ${name}`),
    ...(/\((RPATH|RUNPATH)\)/.test(output) ? ["has a library search path of its own"] : []),
    ...(stripped ? [] : ["is not stripped"]),
    ...(bytes > LARGEST_BYTES ? [`has ${bytes} bytes, more than ${LARGEST_BYTES}`] : []),
  ];
  return { libraries, glibc, stripped, bytes, faults };
}
