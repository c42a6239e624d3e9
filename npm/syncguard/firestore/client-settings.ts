/** Reads the settings of clients, so that a native connection can be used in their place. */

import { isDeepStrictEqual } from "node:util";
import type { FirestoreSettings } from "../native/exports.js";
import { changeOf, isGiven, isOwnMethod, toNumber } from "../options/clients.js";
import { nodeVerifies } from "../options/node-trust.js";
import { credentialsJson } from "./connection.js";
import type { FirestoreClient } from "./types.js";

/** The settings for a connection equivalent to the client's, or the name of the setting that makes that impossible. */
export type Reading = { settings: FirestoreSettings } | { obstacle: string };

const PUBLIC_HOST = "firestore.googleapis.com";

const OWNER = { Authorization: "Bearer owner" };

/** Settings that do not affect where documents are and who may read them. */
const INDIFFERENT: ReadonlySet<string> = new Set([
  "alwaysUseImplicitOrderBy",
  "firebaseVersion",
  "ignoreUndefinedProperties",
  "libName",
  "libVersion",
  "maxIdleChannels",
  "openTelemetry",
  "openTelemetryOptions",
  "timestampsInSnapshots",
  "toJSON",
  "useBigInt",
]);

/**
 * Settings of an instance of `@google-cloud/firestore`, which has resolved FIRESTORE_EMULATOR_HOST when it was made;
 * anything else is an obstacle.
 */
export function readClient(client: FirestoreClient): Reading {
  const change = changeOf(client);
  if (change !== undefined) return { obstacle: change };
  const unreadable = { obstacle: "the settings, which cannot be read," };
  const fields = client as unknown as Record<string, unknown>;
  for (const name of ["runTransaction", "collection"]) {
    if (!isOwnMethod(client, name, ["doc", "settings", "terminate"]))
      return { obstacle: `${name}, which is not its class's,` };
  }
  const { _settings: settings, _projectId: projectId, _databaseId: databaseId } = fields;
  if (typeof settings !== "object" || settings === null || !("_clientPool" in client)) {
    return unreadable;
  }
  return readSettings({ ...settings, projectId, databaseId });
}

type ClientSettings = Readonly<Record<string, unknown>>;

function readSettings(clientSettings: ClientSettings): Reading {
  const settings: FirestoreSettings = {};
  const { projectId, databaseId, credentials, keyFilename, preferRest, ...rest } = clientSettings;
  const { ssl, servicePath, apiEndpoint, port, ...others } = rest;
  const obstacle =
    readTexts({ projectId, databaseId, keyFilename }, settings) ??
    readCredentials(credentials, settings) ??
    // Whoever sets it may be on a network that gRPC cannot pass.
    (isGiven(preferRest) && preferRest !== false ? "preferRest" : undefined) ??
    obstacleAmong(others, ssl) ??
    readHost({ ssl, servicePath, apiEndpoint, port }, settings);
  return obstacle === undefined ? { settings } : { obstacle };
}

function readTexts(
  texts: Record<"projectId" | "databaseId" | "keyFilename", unknown>,
  settings: FirestoreSettings,
): string | undefined {
  for (const [name, text] of Object.entries(texts) as [keyof typeof texts, unknown][]) {
    if (!isGiven(text)) continue;
    if (typeof text !== "string") return name;
    settings[name] = text;
  }
  return undefined;
}

function readCredentials(credentials: unknown, settings: FirestoreSettings): string | undefined {
  if (!isGiven(credentials)) return undefined;
  const json = typeof credentials === "object" ? credentialsJson(credentials) : undefined;
  if (json === undefined) return "credentials";
  // In the client too, credentials win over a file.
  delete settings.keyFilename;
  settings.credentials = json;
  return undefined;
}

/** The first of the other settings that may affect where documents are, or who may read them. */
function obstacleAmong(others: ClientSettings, ssl: unknown): string | undefined {
  for (const [name, value] of Object.entries(others)) {
    if (!isGiven(value) || INDIFFERENT.has(name)) continue;
    // After its first call to an emulator, the client itself has put this header there.
    if (name === "customHeaders" && ssl === false && isDeepStrictEqual(value, OWNER)) continue;
    return name;
  }
  return undefined;
}

function readHost(
  { ssl, servicePath, apiEndpoint, port }: ClientSettings,
  settings: FirestoreSettings,
): string | undefined {
  const name = servicePath ?? apiEndpoint ?? PUBLIC_HOST;
  if (typeof name !== "string") return "the host";
  const host = isGiven(port) ? `${name}:${toNumber(port)}` : name;
  // Without TLS, the client treats the server as an emulator and sends an administrator's token.
  if (ssl === false) settings.emulatorHost = host;
  // The native connection always verifies certificates.
  else if (!nodeVerifies()) return "NODE_TLS_REJECT_UNAUTHORIZED=0";
  else settings.host = host;
  return undefined;
}
