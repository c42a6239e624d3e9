import { checkDisposal } from "../lock/arguments.js";
import { createBackend } from "../lock/native-backend.js";
import type { BackendTransport, SyncGuardBackend } from "../lock/types.js";
import type {
  FirestoreConnection,
  FirestoreLockOptions,
  FirestoreSettings,
} from "../native/exports.js";
import type { Store } from "../native/store.js";
import { shareConnections } from "../options/clients.js";
import { transportBy } from "../options/debug.js";
import { checkKnownOptions } from "../options/known.js";
import { nodeRoots } from "../options/node-trust.js";
import { checkServerOptions, checkStrings, invalid, withoutNulls } from "../options/validation.js";
import { createFirestoreConnection, openFirestore, openFirestoreOverClient } from "./addon.js";
import { driveClient, warnOfDuplicates } from "./client.js";
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
  const given = withoutNulls(options);
  checkOptions(given);
  checkDisposal(given);
  const { store, transport } = connect(db, given);
  return createBackend(store, given, transport, guarding(store, given.collection));
}

function connect(
  db: FirestoreClient | FirestoreConnectionOptions,
  options: FirestoreBackendOptions,
): { store: Store; transport: BackendTransport } {
  const { transport } = options;
  if (!isClient(db)) {
    if (transport === "client") {
      throw invalid('transport "client" needs a client with runTransaction() and collection()');
    }
    const settings = withNodeRoots(readConnection(db));
    const store = connectNatively(createFirestoreConnection(settings), options);
    return { store, transport: transportBy("Firestore", { by: "settings" }) };
  }
  if (transport === "client") {
    const store = drive(db, options);
    return { store, transport: transportBy("Firestore", { through: "client" }) };
  }
  const reading = readClient(db);
  if ("settings" in reading) {
    const store = connectNatively(connectionOf(db, withNodeRoots(reading.settings)), options);
    return { store, transport: transportBy("Firestore", { by: "client's settings" }) };
  }
  const { obstacle } = reading;
  if (transport === "native") {
    throw invalid(`transport "native" cannot take over ${obstacle} of the client`);
  }
  const store = drive(db, options);
  return { store, transport: transportBy("Firestore", { through: "client", obstacle }) };
}

/** Adds the authorities that Node trusts, if there is TLS. */
function withNodeRoots(settings: FirestoreSettings): FirestoreSettings {
  if (settings.emulatorHost !== undefined || settings.ssl === false) return settings;
  const defaultRoots = nodeRoots();
  const all = { ...settings };
  if (defaultRoots !== undefined) all.defaultRoots = defaultRoots;
  return all;
}

function connectNatively(connection: FirestoreConnection, options: FirestoreBackendOptions): Store {
  return openFirestore(connection, lockSettings(options), warnOfDuplicates);
}

const connectionOf = shareConnections<FirestoreClient, FirestoreSettings, FirestoreConnection>(
  createFirestoreConnection,
);

function drive(db: FirestoreClient, options: FirestoreBackendOptions): Store {
  return openFirestoreOverClient(driveClient(db), lockSettings(options));
}

function lockSettings(options: FirestoreBackendOptions): FirestoreLockOptions {
  const { collection, fenceCollection, cleanupInIsLocked, operationTimeoutMs } = options;
  const locks: FirestoreLockOptions = {};
  if (collection !== undefined) locks.collection = collection;
  if (fenceCollection !== undefined) locks.fenceCollection = fenceCollection;
  if (cleanupInIsLocked !== undefined) locks.cleanupInIsLocked = cleanupInIsLocked;
  if (operationTimeoutMs !== undefined) locks.operationTimeoutMs = operationTimeoutMs;
  return locks;
}

function isClient(value: unknown): value is FirestoreClient {
  if ((typeof value !== "object" || value === null) && typeof value !== "function") return false;
  const { collection, runTransaction } = value as Partial<FirestoreClient>;
  return typeof runTransaction === "function" && typeof collection === "function";
}

function checkOptions(options: unknown): asserts options is FirestoreBackendOptions {
  checkServerOptions(options);
  checkKnownOptions(options as object, OPTIONS, "Firestore backend option");
  const { collection, fenceCollection } = options as Partial<Record<string, unknown>>;
  checkStrings({ collection, fenceCollection });
}
