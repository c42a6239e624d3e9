// A registry on this machine that knows nothing but what is published there: Verdaccio.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, closeSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../../bench/lib/ports.mjs";
import { tool } from "./tools.mjs";

/**
 * Starts it with its files in `folder`. Resolves to its address, what npm needs to publish there, as the workflow has it from
 * the action that installs Node.js, and how to stop it.
 */
export async function startRegistry(folder) {
  mkdirSync(folder);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/`;
  const settings = {
    storage: join(folder, "storage"),
    listen: `127.0.0.1:${port}`,
    web: { enable: false },
    auth: { htpasswd: { file: join(folder, "users"), max_users: 1 } },
    packages: { "**": { access: "$all", publish: "$authenticated" } },
    max_body_size: "100mb",
    log: { type: "stdout", format: "pretty", level: "warn" },
  };
  const config = join(folder, "config.yaml");
  // JSON is YAML.
  writeFileSync(config, JSON.stringify(settings));
  const log = join(folder, "log");
  const output = openSync(log, "w");
  const program = [tool("verdaccio/bin/verdaccio"), "--config", config];
  const child = spawn(process.execPath, program, { stdio: ["ignore", output, output] });
  closeSync(output);
  const kill = () => child.kill("SIGKILL");
  process.on("exit", kill);
  const stop = async () => {
    process.off("exit", kill);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    kill();
    await ended;
  };
  try {
    await answers(`${url}-/ping`, child, log);
    return { url, publisher: await publisher(url, folder), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function answers(url, child, log) {
  for (const deadline = Date.now() + 60_000; ; await sleep(100)) {
    const response = await fetch(url).catch(() => undefined);
    await response?.arrayBuffer();
    if (response?.ok) return;
    if (child.exitCode !== null || Date.now() > deadline)
      throw new Error(`the registry does not start:\n${readFileSync(log, "utf8")}`);
  }
}

/** Variables with which npm may publish: a token, and a file that says what it is for. */
async function publisher(url, folder) {
  const response = await fetch(`${url}-/user/org.couchdb.user:rehearsal`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ name: "rehearsal", password: crypto.randomUUID() }),
  });
  const { token, error } = await response.json();
  if (token === undefined) throw new Error(`the registry gives no token: ${error}`);
  const file = join(folder, "npmrc");
  const authority = `//${new URL(url).host}/:_authToken=\${NODE_AUTH_TOKEN}`;
  writeFileSync(file, `${authority}\nregistry=${url}\n`);
  return { NPM_CONFIG_USERCONFIG: file, NODE_AUTH_TOKEN: token };
}
