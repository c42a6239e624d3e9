/** A registry of npm packages on this machine, which has the tarballs of a folder. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { basename } from "node:path";

export type Published = { path: string; manifest: { name: string; version: string } };

export type Registry = {
  url: string;
  /** What was asked for, in words such as `GET /syncguard`. */
  requests: string[];
  close: () => Promise<void>;
};

/** Starts it. It only answers: nothing can be published there. */
export async function startRegistry(packages: readonly Published[]): Promise<Registry> {
  const requests: string[] = [];
  const server = createServer(({ method = "", url = "" }, response) => {
    requests.push(`${method} ${url}`);
    const tarball = packages.find(({ path }) => url === `/-/${basename(path)}`);
    if (method === "GET" && tarball !== undefined) {
      response.end(readFileSync(tarball.path));
      return;
    }
    const named = packages.find(({ manifest }) => url === `/${manifest.name}`);
    response.statusCode = method === "GET" && named !== undefined ? 200 : 404;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(named === undefined ? {} : packument(named, at())));
  });
  const at = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  };
  return { url: at(), requests, close };
}

function packument({ path, manifest }: Published, url: string): object {
  const { name, version } = manifest;
  const integrity = `sha512-${createHash("sha512").update(readFileSync(path)).digest("base64")}`;
  const dist = { tarball: `${url}/-/${basename(path)}`, integrity };
  return {
    name,
    "dist-tags": { latest: version },
    versions: { [version]: { ...manifest, dist } },
  };
}
