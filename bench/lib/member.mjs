// The process of a contender: it does the tasks that come as messages, and answers each.

const [module, given] = process.argv.slice(2);
const tasks = import(module).then(({ tasksOf }) => tasksOf(...JSON.parse(given)));

process.on("message", async ({ number, task, options }) => {
  try {
    process.send({ number, result: await (await tasks)[task](options) });
  } catch (error) {
    process.send({ number, error: error instanceof Error ? error.stack : String(error) });
  }
});
// Whoever asked is gone.
process.on("disconnect", () => process.exit());
