import { text as readAll } from "node:stream/consumers";
import type { Command } from "../command.js";
import { Exit } from "../exit.js";
import { withBackend } from "../store.js";

export const release: Command = {
  name: "release",
  summary: "release a lock by its lock id",
  operands: ["<lockId>"],
  description:
    "Releases the lock that the lock id owns, as its holder would. With - the id is read from stdin: other users of the machine\n" +
    "can see the arguments of a program while it runs.",
  options: {},
  examples: [
    ["syncguard release lockIdOfTwentyTwoChar", "as the holder would"],
    ["syncguard release - < lock-id", "with the id from a file"],
  ],
  exits: [["1", "no lock has that id: it was released or has expired"]],
  run: async ({ values, operands, out }) => {
    const lockId = operands[0] === "-" ? (await readAll(process.stdin)).trim() : operands[0];
    return await withBackend(values, out, async (backend) => {
      const { ok } = await backend.release({ lockId: lockId as string });
      out.result({ released: ok }, () => (ok ? "released" : "no lock has that id"));
      return ok ? Exit.OK : Exit.NO;
    });
  },
};
