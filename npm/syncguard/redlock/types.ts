import type { SyncGuardBackend } from "../values/types.js";
import type { RedisClient } from "../redis/types.js";

/** Where the locks are: a client of Redis, the URL of any store, or a backend of this package. */
export type Client = RedisClient | string | SyncGuardBackend;

/** How one client has voted. */
export type ClientExecutionResult =
  | {
      /** The client. */
      client: Client;
      /** The operation was carried out. */
      vote: "for";
      /** For how many resources. */
      value: number;
    }
  | {
      /** The client. */
      client: Client;
      /** The operation was not carried out. */
      vote: "against";
      /** Why not. */
      error: Error;
    };

/** How the votes of an attempt were; here there is one. */
export type ExecutionStats = {
  /** How many clients there are: one. */
  readonly membershipSize: number;
  /** How many of them must agree: one. */
  readonly quorumSize: number;
  /** Those for which the operation was carried out. */
  readonly votesFor: Set<Client>;
  /** Those for which it was not, and why. */
  readonly votesAgainst: Map<Client, Error>;
};

/** What an operation has come to. */
export type ExecutionResult = {
  /** The attempts: one stands for all. */
  attempts: ReadonlyArray<Promise<ExecutionStats>>;
};

/** The settings of redlock 5. */
export interface Settings {
  /** The part of a lock's duration that is taken off its `expiration`. Default 0.01. */
  readonly driftFactor: number;
  /** Attempts after the first; -1 or `Infinity` for no limit. Default 10. */
  readonly retryCount: number;
  /** Milliseconds between two attempts. Default 200. An attempt that follows a release is made at once, and is no retry. */
  readonly retryDelay: number;
  /** Whether the time between two attempts is random: with 0 it is not, otherwise it is by up to a third of `retryDelay`. Default 100. */
  readonly retryJitter: number;
  /** Milliseconds before the end of a lock at which `using` extends it. Default 500. */
  readonly automaticExtensionThreshold: number;
}

/** What the constructor takes. */
export type RedlockSettings = Partial<Settings> & {
  /** Of several clients, whether the first is used and the others are left alone. Default false: they are refused. */
  readonly firstClientOnly?: boolean | undefined;
};

/** The signal that the routine of `using` is given. */
export type RedlockAbortSignal = AbortSignal & {
  /** Why the lock was lost, once it is. */
  error?: Error;
};
