// A worker: calls the partner's service, of which all workers together may make five calls at a time.

import { lock } from "syncguard";

const CALLS = 20;
const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());

// All at once: those without a slot wait, in the order in which they came.
const answers = await Promise.all(Array.from({ length: CALLS }, (_, number) => tryCall(number)));
console.log(`${answers.filter(Boolean).length} of ${CALLS} calls answered`);

async function tryCall(number) {
  try {
    return await lock((permit) => call(number, permit), {
      key: "api:partner",
      slots: 5,
      // So soon a slot is free again after a worker has died. The call takes less.
      ttlMs: 2_000,
      signal: stopping.signal,
      acquisition: { timeoutMs: 30_000, maxRetries: 1_000 },
    });
  } catch (error) {
    console.log(`call ${number}: ${error.code ?? error.message}`);
    return undefined;
  }
}

async function call(number, { slot, signal }) {
  console.log(`calls ${number} in slot ${slot}`);
  // Ended when the slot is lost, or the worker is stopped.
  const response = await fetch(process.env.PARTNER_URL, { signal });
  if (!response.ok) throw new Error(`the partner has refused: ${response.status}`);
  return await response.text();
}
