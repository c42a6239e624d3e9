// Withdrawals from accounts: one at a time for each account, whichever process a request reaches.

import { setTimeout as sleep } from "node:timers/promises";
import Fastify from "fastify";
import { lock, LockError } from "syncguard";

// Stands for a table of a database, which several processes would share.
const accounts = new Map([
  ["4711", { balance: 100, fence: "" }],
  ["4712", { balance: 100, fence: "" }],
]);

const app = Fastify();

// When the server is to end, nobody waits for a lock any longer. Who holds one finishes.
const stopping = new AbortController();

const body = {
  type: "object",
  required: ["amount"],
  properties: { amount: { type: "integer", minimum: 1 }, takesMs: { type: "integer", minimum: 0 } },
};

app.post("/accounts/:id/withdrawals", { schema: { body } }, async (request, reply) => {
  const { id } = request.params;
  const { amount, takesMs = 20 } = request.body;
  const account = accounts.get(id);
  if (account === undefined) return reply.code(404).send({ error: "there is no such account" });

  return await lock(
    async ({ fence, signal }) => {
      const { balance } = account;
      // Stands for what takes time between reading and writing. It ends when the lock is lost.
      await sleep(takesMs, undefined, { signal });
      if (balance < amount) return reply.code(422).send({ error: "not enough", balance });
      // UPDATE accounts SET balance = …, fence = $1 WHERE id = … AND fence <= $1
      if (fence < account.fence) throw new Error("a later holder has written already");
      account.balance = balance - amount;
      account.fence = fence;
      return { balance: account.balance, fence };
    },
    {
      key: `account:${id}`,
      ttlMs: 5_000,
      autoExtend: true,
      acquisition: { timeoutMs: 2_000, signal: stopping.signal },
    },
  );
});

app.setErrorHandler((error, _request, reply) => {
  // `sleep` and `fetch` put the signal's reason into the cause of their own error.
  const cause = error instanceof LockError ? error : error.cause;
  if (!(cause instanceof LockError)) return reply.send(error);
  // The account is busy (AcquisitionTimeout), the server ends (Aborted), the lock was lost (LockLost), or the store
  // cannot be reached: in each case nothing was written, and the client may try again.
  return reply.code(503).header("retry-after", "1").send({ error: cause.code });
});

process.once("SIGTERM", async () => {
  stopping.abort();
  // Answers the requests that are being handled, then the process has nothing more to do.
  await app.close();
});

const url = await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT ?? 3000) });
console.log(`listening on ${url}`);
