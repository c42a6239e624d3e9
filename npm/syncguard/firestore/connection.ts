/** Connection settings as users give them. */

import type { FirestoreSettings } from "../native/exports.js";
import { backendsOwn, checkKnownOptions } from "../options/known.js";
import { invalid, withoutNulls } from "../options/validation.js";
import type { FirestoreConnectionOptions } from "./types.js";

/** The type of each option. */
const TYPES: Readonly<Record<keyof FirestoreConnectionOptions, string>> = {
  projectId: "string",
  databaseId: "string",
  credentials: "object",
  keyFilename: "string",
  emulatorHost: "string",
  host: "string",
  ssl: "boolean",
};

/** Other names for them. */
const FOREIGN: Readonly<Record<string, string>> = {
  ...backendsOwn(["operationTimeoutMs", "transport"], {}),
  project: "projectId",
  database: "databaseId",
  keyFile: "keyFilename",
};

/**
 * Reads options.
 *
 * @throws LockError `InvalidArgument` that names the option
 */
export function readConnection(connection: unknown): FirestoreSettings {
  if (typeof connection !== "object" || connection === null || Array.isArray(connection)) {
    throw invalid("db must be a Firestore client or connection options");
  }
  const options = withoutNulls(connection);
  checkKnownOptions(options, Object.keys(TYPES), "connection option", FOREIGN);
  const settings: Partial<Record<keyof FirestoreSettings, unknown>> = {};
  for (const [name, value] of Object.entries(options) as [keyof typeof TYPES, unknown][]) {
    if (value === undefined) continue;
    const type = TYPES[name];
    if (typeof value !== type) throw invalid(`${name} must be a ${type}`);
    settings[name] = value;
  }
  if (settings.credentials !== undefined) {
    if (settings.keyFilename !== undefined) {
      throw invalid("credentials and keyFilename exclude each other");
    }
    settings.credentials = credentialsJson(settings.credentials);
    if (settings.credentials === undefined) throw invalid("credentials must be plain data");
  }
  return settings as FirestoreSettings;
}

/** Credentials as the text of a key file; `undefined` if they are not plain data. */
export function credentialsJson(credentials: unknown): string | undefined {
  try {
    return JSON.stringify(credentials);
  } catch {
    return undefined;
  }
}

/**
 * The database that a `firestore:` URL names: `firestore://project` or `firestore://project/database`. With `firestore:`
 * it is taken from the environment, as the credentials always are.
 *
 * @throws LockError `InvalidArgument`
 */
export function connectionOfUrl(url: string): FirestoreConnectionOptions {
  const match = /^firestore:(?:\/\/([^/?#@]+)(?:\/([^/?#@]+))?)?$/i.exec(url);
  if (match === null) throw invalid("a firestore URL is firestore://project/database");
  const [, projectId, databaseId] = match;
  return { projectId, databaseId };
}
