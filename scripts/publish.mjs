// node scripts/publish.mjs <folder> [--dry-run] [--provenance]: publishes what `npm run pack` has made, in order.
// It can be run again where it ended: what is published is left alone.

import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { isPublished, publishArguments, publishOrder, registryInUse } from "./lib/publish.mjs";
import { main, must } from "./lib/run.mjs";

await main(async () => {
  const { values, positionals } = parseArgs({
    options: { "dry-run": { type: "boolean" }, provenance: { type: "boolean" } },
    allowPositionals: true,
  });
  const [folder = "packages"] = positionals;
  const registry = await registryInUse();
  for (const each of await publishOrder(resolve(folder))) {
    const { name, version } = each.manifest;
    if (await isPublished(each, registry)) {
      console.log(`${name} ${version} is published already`);
      continue;
    }
    console.log(`${name} ${version}`);
    const options = { dryRun: values["dry-run"], provenance: values.provenance };
    await must("npm", publishArguments(each, options), { quiet: true });
  }
});
