// One process that takes part in a run: it gets its task as a message, and sends back what it has seen.

import { setTimeout as sleep } from "node:timers/promises";
import { lock } from "syncguard";
import { open } from "./stores.mjs";

process.once("message", async ({ place, waiters, holdMs, untilMs, key, wait }) => {
  const backend = await open(place);
  const now = () => Number(process.hrtime.bigint() / 1_000n) / 1_000;
  const [waits, holds] = [[], []];
  let errors = 0;
  await backend.isLocked({ key });
  process.send("ready");
  await new Promise((resolve) => process.once("message", resolve));
  const acquisition = { timeoutMs: 60_000, maxRetries: Infinity, wait };
  const loop = async () => {
    while (Date.now() < untilMs) {
      const asked = now();
      try {
        await lock(
          backend,
          async () => {
            const entered = now();
            waits.push(entered - asked);
            await sleep(holdMs);
            holds.push([entered, now()]);
          },
          { key, acquisition },
        );
      } catch (error) {
        errors += 1;
        console.error(error);
      }
    }
  };
  await Promise.all(Array.from({ length: waiters }, loop));
  await backend.close();
  process.send({ waits, holds, errors }, () => process.exit());
});
