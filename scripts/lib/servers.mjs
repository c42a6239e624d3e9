// The servers that test suites start for themselves, with the Debian packages that hold them.

import { needPrograms } from "./debian.mjs";

// One line per server: { command: "name", packages: ["debian-package"], why: "which suite" }
const servers = [
  { command: "redis-server", packages: ["redis-server"], why: "suites of the Redis backend" },
  { command: "redis-sentinel", packages: ["redis-sentinel"], why: "Redis over Sentinel" },
  { command: "openssl", packages: ["openssl"], why: "certificates for Redis over TLS" },
];

/** Makes sure that every server program is there. */
export function needServers() {
  return needPrograms(servers);
}
