/** Where native connections go to. */

import type { PostgresSettings } from "./addon.js";

export type Target = {
  connection: PostgresSettings;
  /** Asked for at each connection that is opened. */
  password?: () => unknown;
  /** What the client gives a query. */
  operationTimeoutMs?: number;
};

/** Settings for connections that do what a client would, or what stands in the way. */
export type Reading = Target | { obstacle: string };

export type PostgresTls = NonNullable<PostgresSettings["tls"]>;

type Host = NonNullable<PostgresSettings["hosts"]>[number];

/** Folder and port of a unix socket, from the name that PostgreSQL gives it. */
export function socketHost(path: string): Host | undefined {
  const match = /^(\/.*)\/\.s\.PGSQL\.(\d+)$/.exec(path);
  return match === null ? undefined : { host: match[1] as string, port: Number(match[2]) };
}

/** Settings of sessions as lists, `undefined` if one of them is no simple value. */
export function readParameters(
  settings: object,
): NonNullable<PostgresSettings["parameters"]> | undefined {
  const parameters: { name: string; value: string }[] = [];
  for (const [name, value] of Object.entries(settings) as [string, unknown][]) {
    if (value === undefined || value === null) continue;
    if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") {
      return undefined;
    }
    parameters.push({ name, value: String(value) });
  }
  return parameters;
}

export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

export function isPositive(value: unknown): value is number {
  return typeof value === "number" && value > 0;
}
