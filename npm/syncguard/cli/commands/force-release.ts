import type { Command } from "../command.js";
import { Exit, usage } from "../exit.js";
import { withBackend } from "../store.js";

export const forceRelease: Command = {
  name: "force-release",
  summary: "release a lock, whoever holds it",
  operands: ["<key>"],
  description:
    "Releases the lock on a key, whoever holds it. Its holder is told only if the lock extends itself, and may go on working until\n" +
    "then: make sure that it has ended, or that your data refuses smaller fences. `syncguard status` shows the holder.",
  options: { yes: { type: "boolean", short: "y", help: "I know what I do; needed" } },
  examples: [["syncguard force-release job:nightly-report --yes", "its process is surely gone"]],
  exits: [["1", "nobody held it"]],
  run: async ({ values, operands, out }) => {
    if (values.yes !== true) {
      throw usage(
        "force-release takes a lock away from whoever holds it: nothing was done without --yes",
        "`syncguard status` shows who holds it",
      );
    }
    return await withBackend(values, out, async (backend) => {
      const { ok } = await backend.forceRelease(operands[0] as string);
      out.result({ released: ok }, () => (ok ? "released" : "nobody held it"));
      return ok ? Exit.OK : Exit.NO;
    });
  },
};
