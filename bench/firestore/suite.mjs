// Acquire and release on a Firestore emulator: this package, and the TypeScript library's transactions on Google's client.

import { comparePairs, contender } from "../lib/compare.mjs";
import { builds } from "../lib/built.mjs";
import { endMembers } from "../lib/members.mjs";
import { startServer } from "./server.mjs";

const IN_FLIGHT = [1, 4, 16, 64];
const CONTENDERS = new URL("contenders.mjs", import.meta.url);

export async function run({ against, runs, seconds }) {
  const server = await startServer();
  const { host } = server;
  try {
    console.log("The emulator of this repository, which is not Firestore");
    const contenders = {};
    for (const [name, from] of builds(against)) {
      contenders[name] = contender(CONTENDERS, "syncguard", { from, host, projectId: name });
    }
    contenders["transactions on @google-cloud/firestore"] = contender(CONTENDERS, "canonical", {
      ...{ host, projectId: "canonical" },
    });
    await comparePairs(contenders, IN_FLIGHT, { runs, seconds });
  } finally {
    endMembers();
    await server.stop();
  }
}
