// npm run build: everything that demo, tests and checks need, as far as it is out of date.

import { build } from "./lib/build.mjs";
import { main } from "./lib/run.mjs";

await main(build);
