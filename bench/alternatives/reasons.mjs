// Why this package is behind somebody in a figure, where it is. The page shows only what the samples show.

const THREADS =
  "An answer passes two threads, in a client in JavaScript one. Batches make up for that only with more in flight ([which thread does what](docs/decisions/io-thread.md)).";
const ASLEEP =
  "With few in flight on a quiet host, cores fall asleep between two packets, and a client that computes longer keeps them awake ([which thread does what](docs/decisions/io-thread.md)).";
const MORE_WORK =
  "A lock with a fence and a look-up by id is three entries in Redis and two scripts, one without them one entry, a `SET NX` and a script.";
const DISK =
  "An advisory lock is an entry in the server's memory. syncguard commits the lock and its fence to the disk before it answers, so that no fence is given twice after a crash ([PostgreSQL](docs/postgres.md)).";
const SHARED_CORES =
  "The load generator, the server and the store share the cores, so they use what the main thread saves.";
const TOGETHER =
  "Answers that arrive together are delivered together, so the event loop has fewer and longer turns.";
const READY_TO_WAIT =
  "`backend.lock()` prepares to wait before it tries, which takes 4 µs of the main thread; a pair of `acquire()` and `release()` takes 9.";

/** By row, field and store; `*` stands for any field. */
const REASONS = {
  "pairs * redis": [ASLEEP, MORE_WORK],
  "pairs * postgres": [DISK],
  "pairs * firestore": [THREADS],
  "sets * redis": [MORE_WORK],
  "slots * redis": [
    "A slot is a lock with a fence and a look-up by id. Its script looks for a free name, and its release notifies waiters. redis-semaphore has one sorted set, and a release is one command that notifies nobody.",
  ],
  "handOffSlots * redis": [
    "A release reaches waiters in other processes as a message, and each of them then asks. Polling gains time, and costs attempts and the longest waits.",
  ],
  "contended * redis": [ASLEEP, "A refusal is a script here, which also says how long the lock can still last; elsewhere it is one `SET NX`."], // prettier-ignore
  "contended * postgres": [
    "A refusal reads a row and compares its end with the server's clock; an advisory lock is in the server's memory.",
  ],
  "contended * firestore": [THREADS],
  "handOff * redis": [
    "A release reaches a waiter in another process as a message, and the waiter then asks. Polling gains time and costs attempts.",
  ],
  "handOff * postgres": [
    "The server keeps the queue for an advisory lock, one connection per waiter. Here a release is a message (`NOTIFY`), an attempt, and a commit that waits for the disk.",
  ],
  "handOff * firestore": [
    "A release arrives through a Listen stream, and the waiter then runs a transaction.",
  ],
  "holding * redis": [
    "syncguard sends three heartbeats per TTL, so two may be lost; the others extend once, shortly before the end. Most of the CPU is the native thread's: JavaScript's is woken once for each batch.",
  ],
  "http * redis": [READY_TO_WAIT, SHARED_CORES, TOGETHER, MORE_WORK],
  "http * postgres": [DISK, TOGETHER],
};

/** Sentences for a figure in which this package is behind. */
export const reasonsFor = ({ row, field, store }) =>
  REASONS[`${row} ${field} ${store}`] ?? REASONS[`${row} * ${store}`] ?? [];
