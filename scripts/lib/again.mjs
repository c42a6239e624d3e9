// What a failure means. A busy machine can make a test fail that says nothing wrong of the code, so a test that failed is asked once
// more, alone. What speaks of safety is not: it may be as rare as it is true.

/** More tests than these are not asked again: so many do not fail by chance. */
export const MOST = 5;

/** What says that two held one lock, or that what was written under one was lost. The product's own panics count: none is meant. */
const UNSAFE = [
  /(?<!\b0 )\bviolations?\b/i,
  /\btwo (holders|have held|hold)\b/i,
  /\blost writes?\b/i,
  /panicked at crates\/[\w-]+\/src\/(?!(?:[\w/]+\/)?(?:\w+_)?tests?(?:\.rs|\/))/,
  /the native core panicked/,
];

/** Tests that know no time: whatever fails there is wrong, also if it tells of operations that timed out. */
const TIMELESS = /^model\/model |^torture\/check |^syncguard simulation::|^samples in Rust /;

/** Tests of which any failure speaks of safety, unless it is one of time. */
const SAFETY = [
  /^torture\/run |^syncguard\/behavior .*::concurrency::|^syncguard\/redis(_cluster)? failovers?::/,
  /^__test__\/\w+\/mixed-fleet\.test\.ts /,
  /^__test__\/behavior\/contention\.test\.ts .*(work under one lock never overlaps|one of many gets the lock)/,
];
const OF_TIME = /timed? ?out|Timeout|in time|too late|took too long/i;

/** Whether a failure counts whatever the same test says the next time. */
export function isFinal({ where, name, text }) {
  const test = `${where} ${name}`;
  if (TIMELESS.test(test) || UNSAFE.some((pattern) => pattern.test(text))) return true;
  return SAFETY.some((pattern) => pattern.test(test)) && !OF_TIME.test(text);
}

/**
 * What all results say together. What failed is asked once more, one after another.
 *
 * @param ask runs one test alone, and resolves to its result
 * @returns `{ passed, failed, alone, report }`: how many passed, how many failed, what passed only when it was asked alone, and what
 *     to print of the rest
 */
export async function judge(results, ask) {
  const broken = results.flatMap((result) => result.broken ?? []);
  for (const { passed, skipped, failures, broken: why } of results) {
    if (passed === 0 && failures.length === 0 && !why) broken.push("a runner executed no test");
    if (skipped > 0) broken.push(`${skipped} tests were skipped`);
  }
  const failures = results.flatMap((result) => result.failures);
  const others = failures.filter((failure) => !isFinal(failure));
  const failed = others.length > MOST ? failures : failures.filter(isFinal);
  const alone = [];
  let passed = results.reduce((sum, result) => sum + result.passed, 0);
  for (const failure of failed === failures ? [] : others) {
    const again = await ask(failure);
    if (again.passed > 0 && again.failures.length === 0 && !again.broken) {
      passed += again.passed;
      alone.push(failure);
    } else {
      failed.push(failure);
    }
  }
  const report = [
    ...failed.map((failure) => `FAILED ${title(failure)}\n${failure.text}`),
    ...broken,
  ];
  return { passed, failed: failed.length + broken.length, alone, report };
}

/** A failure in a line. */
export function title({ where, name = "the whole file" }) {
  return `${where}: ${name}`;
}
