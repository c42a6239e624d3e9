import type { ReleaseResult } from "../../values/types.js";
import { normalizeAndValidateKey } from "../../values/values.js";
import { constants } from "../../native/constants.js";
import type { Command } from "../command.js";
import { readCount } from "../values.js";
import { Exit, usage } from "../exit.js";
import { slotsInUse } from "../../inspection/listing.js";
import { parted } from "../../values/slots.js";
import { type Backend, withBackend } from "../store.js";

export const forceRelease: Command = {
  name: "force-release",
  summary: "release a lock, whoever holds it",
  operands: ["<key>"],
  description:
    "Releases the lock on a key, whoever holds it. Its holder is told only if the lock extends itself, and may go on working until\n" +
    "then: make sure that it has ended, or that your data refuses smaller fences. `syncguard status` shows the holder.",
  options: {
    yes: { type: "boolean", short: "y", help: "I know what I do; needed" },
    slot: {
      type: "string",
      value: "N",
      help: "release that slot of the key, and not the lock on the key; looks through the list of all locks",
    },
  },
  examples: [
    ["syncguard force-release job:nightly-report --yes", "its process is surely gone"],
    ["syncguard force-release api:partner --slot 3 --yes", "one of its slots"],
  ],
  exits: [["1", "nobody held it"]],
  run: async ({ values, operands, out }) => {
    if (values.yes !== true) {
      throw usage(
        "force-release takes a lock away from whoever holds it: nothing was done without --yes",
        "`syncguard status` shows who holds it",
      );
    }
    const key = operands[0] as string;
    const slot = readCount(values, "slot", constants.maxSlots);
    return await withBackend(values, out, async (backend) => {
      const { ok } =
        slot === undefined ? await backend.forceRelease(key) : await freeSlot(backend, key, slot);
      out.result({ released: ok }, () => (ok ? "released" : "nobody held it"));
      return ok ? Exit.OK : Exit.NO;
    });
  },
};

/** By the lock id that it has now, so that nobody loses the slot who takes it meanwhile. */
async function freeSlot(backend: Backend, key: string, slot: number): Promise<ReleaseResult> {
  const slots = await slotsInUse(backend, normalizeAndValidateKey(key));
  const lock = slots.find((record) => parted(record.key).slot === slot);
  return lock === undefined ? { ok: false } : await backend.release({ lockId: lock.lockId });
}
