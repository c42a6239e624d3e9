// Why this package is behind somebody in a figure, where it is. The page shows only what the samples show.

const THREADS =
  "An answer passes two threads, the one that reads and JavaScript's, where a client in JavaScript passes one; with few in flight that is not made up for by what goes together ([which thread does what](docs/decisions/io-thread.md)).";
const ASLEEP =
  "With few in flight on a quiet host, cores fall asleep between two packets, and a client that computes longer keeps them awake. On hosts with other work it does not show ([which thread does what](docs/decisions/io-thread.md)).";
const MORE_WORK =
  "A lock with a fence and a look-up by id is three entries in Redis, written and deleted by two scripts. A lock without them is one entry: a `SET NX`, and a script that deletes it.";
const DISK =
  "An advisory lock is an entry in the server's memory, and the table says what is missing. syncguard commits the lock and its fence to the disk before it answers, because a fence must not be given twice, not even after a crash ([docs/postgres.md](docs/postgres.md)).";
const SHARED_CORES =
  "The load generator, the server and the store share the machine's cores, so that others use what the main thread saves.";
const TOGETHER =
  "Answers that have come together are told together, and the handlers that waited for them run in one turn of the event loop: there are fewer turns, and each is longer.";
const READY_TO_WAIT =
  "A request takes its lock with `backend.lock()`, which makes ready to wait before it tries: 4 µs of the main thread, and 3 more with options of `acquisition`, where a pair of `acquire()` and `release()` takes 9 in all.";

/** By row, field and store; `*` stands for any field. */
const REASONS = {
  "pairs * redis": [ASLEEP, MORE_WORK],
  "pairs * postgres": [DISK],
  "pairs * firestore": [THREADS],
  "sets * redis": [MORE_WORK],
  "slots * redis": [
    "A slot is a lock with a fence and a look-up by id, whose script looks for a free name among those of the key; a release is a script, too, which tells those who wait. There, a semaphore is one sorted set, and a release one command, of which nobody hears.",
  ],
  "handOffSlots * redis": [
    "Between processes a release travels as a message to all that wait, and each of them asks. Those who poll pay with attempts, and with the longest waits, for what they gain in time.",
  ],
  "contended * redis": [ASLEEP, "A refusal is a script here, which also tells how long the lock can still last; elsewhere it is one `SET NX`."], // prettier-ignore
  "contended * postgres": [
    "A refusal reads a row and its lock's end by the server's clock; an advisory lock is looked for in the server's memory.",
  ],
  "contended * firestore": [THREADS],
  "handOff * redis": [
    "Between processes a release travels as a message, and the one who hears it has to ask. Those who poll pay with attempts for what they gain in time.",
  ],
  "handOff * postgres": [
    "The server itself keeps the queue of those who wait for an advisory lock, one connection for each, and gives the lock to the next without a round trip. Here a release is a message (`NOTIFY`), an attempt, and a commit that waits for the disk.",
  ],
  "handOff * firestore": [
    "A release travels through a Listen stream, and the one who hears it runs a transaction.",
  ],
  "holding * redis": [
    "A heartbeat goes out three times in a TTL, so that two may be lost. The others extend once, shortly before the end. Most of it is the native thread's: JavaScript's is woken once for each batch.",
  ],
  "http * redis": [READY_TO_WAIT, SHARED_CORES, TOGETHER, MORE_WORK],
  "http * postgres": [DISK, TOGETHER],
};

/** Sentences for a figure in which this package is behind. */
export const reasonsFor = ({ row, field, store }) =>
  REASONS[`${row} ${field} ${store}`] ?? REASONS[`${row} * ${store}`] ?? [];
