import { checkDisposal } from "../values/arguments.js";
import { ClockSkew } from "../watching/store-warnings.js";
import { createBackend } from "../backend/native-backend.js";
import type { SyncGuardBackend } from "../values/types.js";
import type {
  FirestoreConnection,
  FirestoreLockOptions,
  FirestoreSettings,
} from "../native/exports.js";
import { shareConnections } from "../options/clients.js";
import { checkKnownOptions } from "../options/known.js";
import { nodeRoots } from "../options/node-trust.js";
import { openOn } from "../options/transport.js";
import {
  checkBooleans,
  checkServerOptions,
  checkStrings,
  copyGiven,
  withoutNulls,
} from "../options/validation.js";
import { createFirestoreConnection, openFirestore, openFirestoreOverClient } from "./addon.js";
import { driveClient, warning } from "./client.js";
import { readClient } from "./client-settings.js";
import { readConnection } from "./connection.js";
import { guarding } from "./guard.js";
import type {
  FirestoreBackendOptions,
  FirestoreCapabilities,
  FirestoreClient,
  FirestoreConnectionOptions,
} from "./types.js";

const OPTIONS = Object.keys({
  collection: true,
  fenceCollection: true,
  operationTimeoutMs: true,
  transport: true,
  cleanupInIsLocked: true,
  ignoreClockSkew: true,
  onReleaseError: true,
  onLost: true,
  disposeTimeoutMs: true,
} satisfies Record<keyof FirestoreBackendOptions, true>);

/**
 * A backend that keeps locks in Google Cloud Firestore.
 *
 * Each client's own clock decides when locks end, so keep the clocks synchronised. The backend connects at the first
 * operation, and again when the connection is lost. An idle connection does not keep the process alive.
 *
 * @param db - one of
 *   - an instance of `Firestore` of `@google-cloud/firestore`: its settings are read, and the backend makes a connection of
 *     its own. If the settings cannot be carried over, or if it is a wrapper or a mock, its `runTransaction` and
 *     `collection` are used instead: see {@link FirestoreBackendOptions.transport}. You terminate it yourself.
 *   - connection options
 *   - nothing: all settings are taken from the environment
 * @throws LockError `InvalidArgument` that names the setting. A missing project or wrong credentials are only reported by
 *   the first operation, because nothing connects before.
 * @example
 * ```ts
 * import { Firestore } from "@google-cloud/firestore";
 * import { createFirestoreBackend } from "syncguard/firestore";
 *
 * const byClient = createFirestoreBackend(new Firestore());
 * const byOptions = createFirestoreBackend({ projectId: "my-project" }, { collection: "app-locks" });
 * await using held = await byClient.lock("report:nightly", { ttlMs: 30_000 });
 * ```
 */
export function createFirestoreBackend(
  db: FirestoreClient | FirestoreConnectionOptions = {},
  options: FirestoreBackendOptions = {},
): SyncGuardBackend<FirestoreCapabilities> {
  const backendOptions = withoutNulls(options);
  checkOptions(backendOptions);
  checkDisposal(backendOptions);
  const locks = copyGiven<FirestoreLockOptions>({}, backendOptions, ...LOCK_OPTIONS);
  const clockSkew = new ClockSkew();
  const { store, transport } = openOn(db, backendOptions.transport, {
    ...{ name: "Firestore", isClient, readClient },
    clients: "a client with runTransaction() and collection()",
    readConnection: (connection: FirestoreConnectionOptions) => ({
      settings: readConnection(connection),
    }),
    connect: (reading, client) => {
      const settings = withNodeRoots(reading.settings);
      const connection =
        client === undefined ? createFirestoreConnection(settings) : connectionOf(client, settings);
      return openFirestore(connection, locks, warning(clockSkew));
    },
    drive: (client) => openFirestoreOverClient(driveClient(client, clockSkew), locks),
  });
  return createBackend(store, backendOptions, transport, guarding(backendOptions), clockSkew);
}

/** Adds the authorities that Node trusts, if there is TLS. */
function withNodeRoots(settings: FirestoreSettings): FirestoreSettings {
  if (settings.emulatorHost !== undefined || settings.ssl === false) return settings;
  return copyGiven({ ...settings }, { defaultRoots: nodeRoots() }, "defaultRoots");
}

const connectionOf = shareConnections<FirestoreClient, FirestoreSettings, FirestoreConnection>(
  createFirestoreConnection,
);

const LOCK_OPTIONS = [
  "collection",
  "fenceCollection",
  "cleanupInIsLocked",
  "ignoreClockSkew",
  "operationTimeoutMs",
] as const;

function isClient(value: unknown): value is FirestoreClient {
  if ((typeof value !== "object" || value === null) && typeof value !== "function") return false;
  const { collection, runTransaction } = value as Partial<FirestoreClient>;
  return typeof runTransaction === "function" && typeof collection === "function";
}

function checkOptions(options: unknown): asserts options is FirestoreBackendOptions {
  checkServerOptions(options);
  checkKnownOptions(options as object, OPTIONS, "Firestore backend option");
  const { collection, fenceCollection, ignoreClockSkew } = options as Partial<
    Record<string, unknown>
  >;
  checkStrings({ collection, fenceCollection });
  checkBooleans({ ignoreClockSkew });
}
