/** The client transport: transactions and reads through a client's own methods. */

import type { ClockSkew } from "../watching/store-warnings.js";
import type {
  FirestoreCall,
  FirestoreReads,
  FirestoreRef,
  FirestoreWarning,
  FirestoreWrite,
} from "./addon.js";
import type { FirestoreClient } from "./types.js";

type Fields = Record<string, string | number>;
/** When Firestore read it: mocks need not say. */
type Timed = { readTime?: { toMillis?: () => unknown } | undefined };
type Document = Timed & {
  id?: string;
  ref?: Reference;
  data: () => Record<string, unknown> | undefined;
};
type Documents = Timed & { docs: Document[] };
type Query = {
  get: () => Promise<Documents>;
  where: Collection["where"];
  limit?: (count: number) => Query;
};
type Reference = { id?: string; get: () => Promise<Document> };
type Collection = {
  doc: (id: string) => Reference;
  where: (field: string, operator: string, value: string | readonly string[]) => Query;
};
type Transaction = {
  get(what: Reference): Promise<Document>;
  get(what: Query): Promise<Documents>;
  getAll?: (...references: Reference[]) => Promise<Document[]>;
  set: (reference: Reference, fields: Fields) => unknown;
  update: (reference: Reference, fields: Fields) => unknown;
  delete: (reference: Reference) => unknown;
  /** Only in Google's client. It rejects when the first read has started no transaction. */
  _transactionIdPromise?: unknown;
};
type Database = {
  collection: (name: string) => Collection;
  runTransaction: (
    run: (transaction: Transaction) => Promise<void>,
    options?: { maxAttempts: number },
  ) => Promise<unknown>;
  /** Only in Google's client. */
  _clientPool?: { terminated?: unknown };
};

/** The result of a read; `refs` are the documents of a query by their ids. */
type Found = { answer: unknown; refs: Map<string, Reference> };

/** A transaction that has read and waits for its writes. */
type PendingTransaction = {
  refs: Map<string, Reference>;
  /** Makes it read more. */
  read: (reads: FirestoreReads) => Promise<unknown>;
  /** Makes it write and end; with `null`, end without writes. */
  decide: (writes: readonly FirestoreWrite[] | null) => void;
  ended: Promise<void>;
};

/** The function that carries out the core's requests on `client`. */
export function driveClient(
  client: FirestoreClient,
  clockSkew: ClockSkew,
): (call: FirestoreCall) => Promise<unknown> {
  const warn = warning(clockSkew);
  const db = client as unknown as Database;
  const transactions = new Map<number, PendingTransaction>();

  return async (call) => {
    // On a terminated client, reads would never end, and a promise inside the client would be rejected without a
    // handler, which ends the process.
    if (db._clientPool?.terminated === true) throw terminated();
    if ("open" in call) return await open(call.open, call.read, call.limitMs);
    if ("more" in call) {
      const transaction = transactions.get(call.more);
      // The request came after the limit.
      if (transaction === undefined) throw conflict();
      return await transaction.read(call.read);
    }
    if ("read" in call) return (await readAlone(db, call.read)).answer;
    if ("duplicate" in call || "clockAheadMs" in call) {
      await warn(call);
      return null;
    }
    const number = "commit" in call ? call.commit : call.rollback;
    const transaction = transactions.get(number);
    transactions.delete(number);
    if ("rollback" in call) {
      transaction?.decide(null);
      return null;
    }
    // The request came after the limit: the transaction has ended without writes.
    if (transaction === undefined) throw conflict();
    transaction.decide(call.writes);
    await transaction.ended;
    return null;
  };

  function open(number: number, reads: FirestoreReads, limitMs: number): Promise<unknown> {
    return new Promise((answer, fail) => {
      let decide: PendingTransaction["decide"] = () => undefined;
      const decision = new Promise<readonly FirestoreWrite[] | null>((resolve) => {
        decide = resolve;
      });
      const refs: PendingTransaction["refs"] = new Map();
      let opened: Transaction | undefined;
      const readMore = async (more: FirestoreReads): Promise<unknown> => {
        if (opened === undefined) throw conflict();
        const found = await readWithin(db, opened, more);
        for (const [id, ref] of found.refs) refs.set(id, ref);
        return found.answer;
      };
      const read = async (transaction: Transaction): Promise<void> => {
        opened = transaction;
        const found = await readMore(reads);
        // The client itself looks at it only with the commit. A rejection without a handler would end the process.
        await transaction._transactionIdPromise;
        answer(found);
      };
      const write = async (transaction: Transaction): Promise<void> => {
        const writes = await decision;
        if (writes === null) throw new RolledBack();
        for (const write of writes) apply(db, transaction, refs, write);
      };
      const ended = transact(db, read, write);
      transactions.set(number, { refs, read: readMore, decide, ended });
      // The operation that should commit or roll back may have ended.
      const limit = setTimeout(() => {
        transactions.delete(number);
        decide(null);
      }, limitMs);
      limit.unref?.();
      ended.catch(fail).finally(() => {
        clearTimeout(limit);
      });
    });
  }
}

/** The function that passes on the core's warnings: it prints those that several documents have the same lock id. */
export function warning(clockSkew: ClockSkew): (warning: FirestoreWarning) => Promise<void> {
  return async (warning) => {
    if ("clockAheadMs" in warning) {
      clockSkew.refused(warning.clockAheadMs);
      return;
    }
    const { lockIdHash, live, expired } = warning.duplicate;
    console.warn(
      `[SyncGuard] Several lock documents carry one lockId: lockIdHash=${lockIdHash}, live=${live}, expired=${expired}`,
    );
  };
}

/** Ends a transaction without writes. */
class RolledBack extends Error {
  override name = "RolledBack";
}

function terminated(): Error {
  return Object.assign(new Error("the client has been terminated"), { code: 3 });
}

/** The error that Firestore gives when it is unknown whether the request was carried out. */
function unknownOutcome(): Error {
  return Object.assign(new Error("the client repeated the transaction"), { code: 14 });
}

/** The error that Firestore gives after a conflict with another transaction, when nothing was written. */
function conflict(): Error {
  return Object.assign(new Error("the transaction has to be repeated"), { code: 10 });
}

/**
 * Runs a transaction once. If a client repeats it by itself, the repetition is refused: its writes were decided from
 * documents that may have changed since. Before there were writes, that counts as a conflict, and the core starts again.
 * After there were writes, it is unknown whether they were carried out.
 */
async function transact(
  db: Database,
  read: (transaction: Transaction) => Promise<void>,
  write: (transaction: Transaction) => Promise<void>,
): Promise<void> {
  let attempts = 0;
  let isWritten = false;
  const once = async (transaction: Transaction): Promise<void> => {
    attempts += 1;
    if (attempts > 1) throw new RolledBack();
    await read(transaction);
    await write(transaction);
    isWritten = true;
  };
  try {
    await db.runTransaction(once, { maxAttempts: 1 });
  } catch (error) {
    if (attempts <= 1) throw error;
    throw isWritten ? unknownOutcome() : conflict();
  }
}

async function readWithin(
  db: Database,
  transaction: Transaction,
  reads: FirestoreReads,
): Promise<Found> {
  const sentMs = performance.now();
  if (!("documents" in reads)) {
    const found = await Promise.all(queries(db, reads).map((query) => transaction.get(query)));
    const nowMs = Date.now();
    return ofQueries(found, { nowMs, server: serverTime(found, nowMs, sentMs) });
  }
  const references = reads.documents.map((ref) => reference(db, ref));
  // `getAll` takes one round trip. Several reads would take two, because the first has to start the transaction.
  const found =
    references.length > 1 && typeof transaction.getAll === "function"
      ? await transaction.getAll(...references)
      : await Promise.all(references.map((ref) => transaction.get(ref)));
  // The time is taken inside the transaction, after its reads.
  const nowMs = Date.now();
  return byName(reads.documents, found, { nowMs, server: serverTime(found, nowMs, sentMs) });
}

async function readAlone(db: Database, reads: FirestoreReads): Promise<Found> {
  // Taken before the read: by the time of the answer, a lock that was extended in the meantime would look expired.
  const nowMs = Date.now();
  const sentMs = performance.now();
  if (!("documents" in reads)) {
    const found = await Promise.all(queries(db, reads).map((query) => query.get()));
    return ofQueries(found, { nowMs, server: serverTime(found, Date.now(), sentMs) });
  }
  const references = reads.documents.map((ref) => reference(db, ref));
  const found = await Promise.all(references.map((ref) => ref.get()));
  return byName(reads.documents, found, { nowMs, server: serverTime(found, Date.now(), sentMs) });
}

/** By which time to decide, and what the answer has shown of Firestore's clock, if the client says that. */
type Times = { nowMs: number; server: ServerTime | undefined };

/** The latest time of Firestore's in an answer, what our own clock showed then, and how long the answer took. */
type ServerTime = { timeMs: number; ownMs: number; waitedMs: number };

function serverTime(
  found: readonly (Timed | undefined)[],
  ownMs: number,
  sentMs: number,
): ServerTime | undefined {
  // Measured after our own clock was read: a pause in between makes the difference less certain, not more.
  const waitedMs = Math.max(0, performance.now() - sentMs);
  const times = found.map((snapshot) => snapshot?.readTime?.toMillis?.());
  const timeMs = Math.max(...times.map((ms) => (typeof ms === "number" ? ms : Number.NaN)));
  return Number.isFinite(timeMs) ? { timeMs, ownMs, waitedMs } : undefined;
}

function byName(asked: readonly FirestoreRef[], found: Document[], times: Times): Found {
  const documents = asked.map(({ id }, index) => {
    const data = found[index]?.data();
    return data === undefined ? null : { id, fields: plain(data) };
  });
  return { answer: { ...times, documents }, refs: new Map() };
}

function ofQueries(found: readonly Documents[], times: Times): Found {
  const refs: Found["refs"] = new Map();
  const documents = found
    .flatMap(({ docs }) => docs)
    .map((document, index) => {
      const id = document.id ?? document.ref?.id ?? String(index);
      if (document.ref !== undefined) refs.set(id, document.ref);
      return { id, fields: plain(document.data() ?? {}) };
    });
  return { answer: { ...times, documents }, refs };
}

/** The fields that locks use, as JSON values: clients may be configured to give numbers as BigInt. */
export function plain(data: Record<string, unknown>): Fields {
  const fields: Fields = {};
  for (const [name, value] of Object.entries(data)) {
    if (typeof value === "string" || typeof value === "number") fields[name] = value;
    else if (typeof value === "bigint") fields[name] = Number(value);
  }
  return fields;
}

function apply(
  db: Database,
  transaction: Transaction,
  refs: PendingTransaction["refs"],
  write: FirestoreWrite,
): void {
  if ("set" in write) transaction.set(reference(db, write.set), write.fields);
  else if ("update" in write) transaction.update(found(db, refs, write.update), write.fields);
  else transaction.delete(found(db, refs, write.delete));
}

function found(db: Database, refs: PendingTransaction["refs"], ref: FirestoreRef): Reference {
  return refs.get(ref.id) ?? reference(db, ref);
}

function reference(db: Database, { collection, id }: FirestoreRef): Reference {
  return db.collection(collection).doc(id);
}

function queries(db: Database, reads: Exclude<FirestoreReads, { documents: unknown }>): Query[] {
  const collection = db.collection(reads.collection);
  if ("from" in reads) {
    const { from, before, limit } = reads;
    const query = collection.where("__name__", ">=", from).where("__name__", "<", before);
    // Whoever does not know limits answers more.
    return [limit === null ? query : (query.limit?.(limit) ?? query)];
  }
  return reads.oneOf.map((values) => {
    const [first = "", ...others] = values;
    return others.length === 0
      ? collection.where(reads.field, "==", first)
      : collection.where(reads.field, "in", values);
  });
}
