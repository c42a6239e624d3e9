// A contender's process: it does the tasks that come as messages, and answers each.

import { tasksOf } from "./tasks.mjs";

const [id, place] = process.argv.slice(2);
const tasks = tasksOf(id, place);

process.on("message", async ({ number, task, options }) => {
  try {
    process.send({ number, result: await (await tasks)[task](options) });
  } catch (error) {
    process.send({ number, error: error instanceof Error ? error.stack : String(error) });
  }
});
// Whoever asked is gone.
process.on("disconnect", () => process.exit());
