/** The public types of the Firestore backend. */

import type { BackendCapabilities, CommonBackendOptions } from "../values/types.js";

/** Firestore gives fencing tokens; the clock of the client decides. */
export interface FirestoreCapabilities extends BackendCapabilities {
  /** The store, for those who handle backends of several. */
  backend: "firestore";
  /** Each acquisition comes with a fencing token. */
  supportsFencing: true;
  /** The clock of the process that asks decides when a lock ends, so clocks must be synchronised. */
  timeAuthority: "client";
}

/** Your client: an instance of `Firestore` of `@google-cloud/firestore`, or any object with its methods. */
export interface FirestoreClient {
  /** Gives a reference to a collection. */
  collection: (...args: never[]) => unknown;
  /** Runs a function in a transaction. */
  runTransaction: (...args: never[]) => unknown;
}

/**
 * Which database to use and how to authenticate, with the option names of `@google-cloud/firestore`. Missing options are
 * taken from the environment.
 */
export interface FirestoreConnectionOptions {
  /** The Google Cloud project. Default: GOOGLE_CLOUD_PROJECT, GCLOUD_PROJECT, else that of the credentials. */
  projectId?: string | undefined;
  /** The database in the project. Default `"(default)"`. */
  databaseId?: string | undefined;
  /**
   * The content of a key file; `client_email` and `private_key` are enough. Default: Application Default Credentials,
   * that is the file in GOOGLE_APPLICATION_CREDENTIALS, that of `gcloud`, or the machine's own account.
   */
  credentials?: Readonly<Record<string, unknown>> | undefined;
  /** The path of a key file, instead of `credentials`. It is read by the first operation. */
  keyFilename?: string | undefined;
  /** `host:port` of an emulator, which needs no credentials. Default: FIRESTORE_EMULATOR_HOST. */
  emulatorHost?: string | undefined;
  /** The server: `host` or `host:port`. Default: Google's public one. */
  host?: string | undefined;
  /** Whether `host` speaks TLS. Default true. */
  ssl?: boolean | undefined;
}

/** Options of the Firestore backend. */
export interface FirestoreBackendOptions extends CommonBackendOptions {
  /** The collection of locks. Default `"locks"`. */
  collection?: string | undefined;
  /** The collection of fence counters, which must not be that of the locks. Default `"fence_counters"`. */
  fenceCollection?: string | undefined;
  /**
   * Milliseconds after which an operation fails, including its retries after conflicts; at most an hour. Default 5000.
   */
  operationTimeoutMs?: number | undefined;
  /**
   * Whether locks are granted and extended however far this machine's clock is from Firestore's. Default false: both fail
   * with `ServiceUnavailable` if they differ by more than 500 ms, because two holders could be the result.
   */
  ignoreClockSkew?: boolean | undefined;
  /**
   * How operations get to Firestore.
   *
   * - `"native"`: over a connection of this package. Of a client, only the settings are used.
   * - `"client"`: through the client's own transactions.
   *
   * Default: native if all settings that matter can be carried over, else the client.
   */
  transport?: "native" | "client" | undefined;
}

/** The options, with the defaults filled in. */
export interface FirestoreConfig {
  /** The collection of locks. */
  collection: string;
  /** The collection of fence counters. */
  fenceCollection: string;
  /** Whether `isLocked()` deletes what expired more than two seconds ago. */
  cleanupInIsLocked: boolean;
}

/** A lock as Firestore keeps it. */
export interface LockDocument {
  /** The lock id: whoever knows it can release the lock. */
  lockId: string;
  /** When the lock ends, in milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** When the lock was granted, in milliseconds since the Unix epoch. */
  acquiredAtMs: number;
  /** The user's key in Unicode NFC. */
  key: string;
  /** The fencing token: 15 decimal digits. */
  fence: string;
}
