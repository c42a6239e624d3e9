// What the parent knows of its workers, from their messages.

/** Keeps count of what happened. */
export function createTally(workers) {
  const watches = [];
  const tally = {
    workers: new Map(
      Array.from({ length: workers }, (_, index) => [
        index + 1,
        { pid: 0, state: "working", paid: 0, account: "" },
      ]),
    ),
    paid: 0,
    locks: 0,
    waits: [],
    wakeups: 0,
    told: [],
    refused: [],
    killed: undefined,
    stopped: undefined,

    /** Takes in a worker's message. */
    note(worker, message) {
      const entry = tally.workers.get(worker);
      if (message.account) entry.account = message.account;
      if (message.type === "locked") {
        tally.locks += 1;
        tally.wakeups += message.wakeups;
        if (message.waitedMs !== null) tally.waits.push(message.waitedMs);
      }
      if (message.type === "paid") {
        entry.paid += 1;
        tally.paid += 1;
      }
      if (message.type === "lost") tally.told.push({ worker, ...message });
      if (message.type === "refused") tally.refused.push({ worker, ...message });
      // A copy, because a watch that has fired goes away.
      for (const watch of [...watches]) watch(worker, message);
    },

    ended(worker, state) {
      tally.workers.get(worker).state = state;
    },

    /** Calls back when another worker gets the lock that `lost.worker` held. */
    onTakeover(lost, then) {
      watch(
        lost,
        ({ type }) => type === "locked",
        (worker) => {
          lost.takenOver = { worker, afterMs: Date.now() - lost.at };
          then(lost.takenOver);
        },
      );
    },

    /** Calls back when another worker, under a later lock, has made the payment that `lost.worker` was at. */
    onPaidByOther(lost, then) {
      watch(lost, ({ type, id }) => type === "paid" && id === lost.id, then);
    },
  };
  return tally;

  function watch(lost, isIt, then) {
    const look = (worker, message) => {
      const later = message.account === lost.account && message.fence > lost.fence;
      if (worker === lost.worker || !later || !isIt(message)) return;
      watches.splice(watches.indexOf(look), 1);
      then(worker);
    };
    watches.push(look);
  }
}
