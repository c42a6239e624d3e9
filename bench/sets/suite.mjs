// Taking and releasing two keys that nobody else wants, on each store. There is nothing beside it but another build.

import { builds } from "../lib/built.mjs";
import { chosen } from "../lib/chosen.mjs";
import { comparePairs, contender } from "../lib/compare.mjs";
import { endMembers } from "../lib/members.mjs";
import { stores } from "../waiting/stores.mjs";

const IN_FLIGHT = [1, 4, 16, 64];
const CONTENDERS = new URL("contenders.mjs", import.meta.url);

export async function run({ against, runs, seconds, stores: names }) {
  for (const name of chosen("stores", Object.keys(stores), names)) {
    const { place, server } = await stores[name]();
    try {
      console.log(name);
      const contenders = {};
      for (const [build, from] of builds(against)) {
        contenders[build] = contender(CONTENDERS, "syncguard", { place, from });
      }
      await comparePairs(contenders, IN_FLIGHT, { runs, seconds });
    } finally {
      endMembers();
      await server.stop();
    }
  }
}
