// Plays scenes: several processes on a store, of which some are stopped or killed, and a judge of what was noted.
//
// A scene has
// - `stores`, on which it is played unless others are named;
// - `settings`, numbers with their defaults, in the order in which the command line takes them;
// - `run(stage)`: starts processes (`stage.crew`), which note what they do (`stage.file`), and resolves when all is over;
// - `judge(notes, stage)`: the `violations`, texts of what must not have been, and `figures` for the report;
// - perhaps `cases(name)`: the ways in which it is played on a store, each with its `name` and `store`, and settings of its own;
// - perhaps `atOnce`, if all cases may be played at the same time.

import { Crew } from "./crew.mjs";
import { notesFile, notesIn } from "./notes.mjs";
import { startStore, storeNames } from "./stores.mjs";

/** Plays a scene on the store at `place`; resolves to what its judge says, and to `violations` of processes that have failed, too. */
export async function perform(scene, place, settings) {
  const crew = new Crew();
  const { file, remove } = notesFile();
  const stage = { ...scene.settings, ...settings, place, crew, file };
  try {
    await scene.run(stage);
    const judged = scene.judge(notesIn(file), stage);
    return { ...judged, violations: [...crew.failures, ...judged.violations] };
  } finally {
    await crew.end("SIGKILL");
    remove();
  }
}

/**
 * Plays a scene as the words of the command line say: on which stores, with which settings. Resolves to the exit code. In the end,
 * `told` hears of each case, one after the other: `which`, its `settings`, how many `seconds` it took, and what was `found`.
 */
export async function play(scene, [names = scene.stores.join(","), ...numbers], told) {
  const settings = settingsOf(scene, numbers);
  const cases = names.split(",").flatMap(scene.cases ?? ((name) => [{ name, store: name }]));
  for (const { store } of cases) {
    if (!storeNames.includes(store)) {
      throw new Error(`no such store: ${store} (${storeNames.join(", ")})`);
    }
  }
  console.log(settings);
  const played = [];
  const one = async (which) => played.push(await playCase(scene, which, settings));
  if (scene.atOnce) await Promise.all(cases.map(one));
  else for (const which of cases) await one(which);
  for (const each of played) await told?.(each);
  return played.every(({ found }) => found.violations.length === 0) ? 0 : 1;
}

async function playCase(scene, which, settings) {
  const { name, store, ...more } = which;
  const { place, stop } = await startStore(store);
  const started = Date.now();
  try {
    const found = await perform(scene, place, { ...settings, ...more });
    console.log(`\n${name}:`, found.figures);
    for (const violation of found.violations) console.error(`${name}: ${violation}`);
    return { which, settings, seconds: Math.round((Date.now() - started) / 1_000), found };
  } finally {
    await stop();
  }
}

function settingsOf(scene, numbers) {
  const settings = Object.entries(scene.settings).map(([name, usual], at) => {
    const value = Number(numbers[at] ?? usual);
    if (Number.isNaN(value)) throw new Error(`${name} is no number: ${numbers[at]}`);
    return [name, value];
  });
  return Object.fromEntries(settings);
}
