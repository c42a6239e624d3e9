/** Reads the settings of clients, so that a native connection can stand in for them. */

import { isDeepStrictEqual } from "node:util";
import type { FirestoreSettings } from "../native/exports.js";
import { isGiven, isOwnMethod } from "../options/clients.js";
import { nodeVerifies } from "../options/node-trust.js";
import { credentialsJson } from "./connection.js";
import type { FirestoreClient } from "./types.js";

/** Settings for a connection that does what the client would, or what stands in the way. */
export type Reading = { settings: FirestoreSettings } | { obstacle: string };

const PUBLIC_HOST = "firestore.googleapis.com";

const OWNER = { Authorization: "Bearer owner" };

/** Settings that say nothing of where documents are and who may read them. */
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

function readSettings(given: Readonly<Record<string, unknown>>): Reading {
  const settings: FirestoreSettings = {};
  const { projectId, databaseId, credentials, keyFilename, ssl, ...rest } = given;
  const { servicePath, apiEndpoint, port, preferRest, ...others } = rest;
  const texts = { projectId, databaseId, keyFilename };
  for (const [name, text] of Object.entries(texts) as [keyof typeof texts, unknown][]) {
    if (!isGiven(text)) continue;
    if (typeof text !== "string") return { obstacle: name };
    settings[name] = text;
  }
  if (isGiven(credentials)) {
    const json = typeof credentials === "object" ? credentialsJson(credentials) : undefined;
    if (json === undefined) return { obstacle: "credentials" };
    // They win over a file there, too.
    delete settings.keyFilename;
    settings.credentials = json;
  }
  // Who asks for it may have no way for gRPC.
  if (isGiven(preferRest) && preferRest !== false) return { obstacle: "preferRest" };
  for (const [name, value] of Object.entries(others)) {
    if (!isGiven(value) || INDIFFERENT.has(name)) continue;
    // Once it has spoken to an emulator, the client notes there what it says to all of them.
    if (name === "customHeaders" && ssl === false && isDeepStrictEqual(value, OWNER)) continue;
    return { obstacle: name };
  }

  const name = servicePath ?? apiEndpoint ?? PUBLIC_HOST;
  if (typeof name !== "string") return { obstacle: "the host" };
  const host = isGiven(port) ? `${name}:${Number(port)}` : name;
  // Without TLS, the client takes the server for an emulator and says that it may do everything.
  if (ssl === false) settings.emulatorHost = host;
  // The native connection cannot do without a certificate that it trusts.
  else if (!nodeVerifies()) return { obstacle: "NODE_TLS_REJECT_UNAUTHORIZED=0" };
  else settings.host = host;
  return { settings };
}
