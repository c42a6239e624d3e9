// What the server can do. Each function gets the arguments of the call, and the lock if the request
// asked for one: its `fence` belongs into everything that the function writes.

import { setTimeout as sleep } from "node:timers/promises";

export const functions = {
  "payments.charge": async ({ takes_ms = 0 }) => {
    await sleep(takes_ms);
    return { charge_id: "ch_abc", status: "succeeded" };
  },

  "billing.generateReport": ({ month }, lock) => ({
    report: `report-${month}`,
    fence: lock?.fence ?? null,
  }),
};
Object.setPrototypeOf(functions, null);
