// The servers that test suites start for themselves, with the Debian packages that hold them.

import { needPrograms } from "./debian.mjs";

// One line per server: { command: "name", packages: ["debian-package"], why: "which suite" }
const servers = [];

/** Makes sure that every server program is there. */
export function needServers() {
  return needPrograms(servers);
}
