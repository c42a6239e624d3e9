/** What docs/tried.md says was tried is what is tried here. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { clientFolder } from "../../scripts/lib/matrix.mjs";
import { operations } from "./operations";
import { postgresClients, postgresServers } from "./postgres";
import { redisClients, redisServers } from "./redis";

const page = readFileSync(join(import.meta.dirname, "../../docs/tried.md"), "utf8");

/** The cells of the table under a heading, without its first two lines. */
function rowsUnder(heading: string): string[][] {
  const section = page.split(`## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const lines = section.split("\n").filter((line) => line.startsWith("|"));
  return lines.slice(2).map((line) => {
    const cells = line.split("|").slice(1, -1);
    return cells.map((cell) => cell.trim());
  });
}

/** Rows that differ only in their version, in the second cell, as one row with all versions. */
function byVersion(rows: string[][]): string[][] {
  const found = new Map<string, string[]>();
  for (const [name = "", version = "", ...others] of rows) {
    const key = JSON.stringify([name, ...others]);
    found.set(key, [...(found.get(key) ?? []), version]);
  }
  return [...found].map(([key, versions]) => {
    const [name = "", ...others] = JSON.parse(key) as string[];
    return [name, versions.join(", "), ...others];
  });
}

test("the servers are those of the page", () => {
  const tried = [...redisServers, ...postgresServers].map(({ name, version, ...row }) => {
    const isSingle = "connections" in row && row.connections === 1;
    const alone = "works by polling, through a client with one connection: [below](#pglite)";
    return [name, version, isSingle ? alone : "works"];
  });
  expect(rowsUnder("Servers")).toEqual(byVersion(tried));
});

test("the clients are those of the page", () => {
  const tried = [...redisClients, ...postgresClients].map(({ name, version, ways }) => [
    name,
    version,
    ways.includes("native") ? "works" : "–",
    ways.includes("client") ? "works by polling" : "–",
  ]);
  expect(rowsUnder("Clients")).toEqual(byVersion(tried));
});

test.each([
  ["ioredis", "5"],
  ["redis", "5"],
  ["redis-4", "4"],
  ["pg", "8"],
  ["postgres", "3"],
])("%s is version %s here", (name, version) => {
  const text = readFileSync(
    join(import.meta.dirname, "../../node_modules", name, "package.json"),
    "utf8",
  );
  expect((JSON.parse(text) as { version: string }).version.split(".")[0]).toBe(version);
});

test.each([
  ["ioredis-6", "6."],
  ["redis-6", "6."],
  ["iovalkey", "0.4."],
])("%s is version %s among those that are fetched", (name, version) => {
  const folder = (clientFolder as (name: string) => string)(name);
  const text = readFileSync(join(folder, "package.json"), "utf8");
  expect((JSON.parse(text) as { version: string }).version.startsWith(version)).toBe(true);
});

test("there are sixteen operations", () => {
  expect(Object.keys(operations)).toHaveLength(16);
});
