// One process of a mixed fleet: takes locks with one library and treats them with either.

import { setTimeout as sleep } from "node:timers/promises";
import { getByKeyRaw } from "syncguard";

const chance = (share) => Math.random() < share;

/**
 * Takes `goal` locks or a few more, `workers` at a time, and resolves to what it did and what went wrong.
 *
 * `mainly` is "ours" or "theirs". `enter(key, held)` must fail when somebody else is inside, and writes the
 * fence down; `leave(key)` undoes the first. `again(operation)` repeats what a library gives up too early.
 *
 * Ours takes shared locks, too: `readers.enter(key, held)` must fail when a writer is inside, or was given
 * a larger fence before, and `readers.leave(key, held)` undoes it. The other `enter` must then fail when a reader is inside.
 */
export async function member({
  ours,
  theirs,
  mainly,
  goal,
  enter,
  leave,
  readers,
  again = (operation) => operation(),
  ttlMs = 4_000,
  pauseMs = 0,
  workers = 1,
}) {
  const wrong = [];
  const counts = { granted: 0, byTheOther: 0, shared: 0 };
  const expect = (condition, what) => condition || wrong.push(what);

  /** What both libraries must see of a lock that is held. */
  async function checkReadable(key, held) {
    const [stored, seen] = await Promise.all([theirs.read({ key }), getByKeyRaw(ours, key)]);
    for (const found of [stored, seen]) {
      expect(found?.lockId === held.lockId, `${key}: another lock id`);
      expect(found?.fence === held.fence, `${key}: another fence`);
      expect(found?.key === key, `${key}: another key`);
    }
    expect(seen?.expiresAtMs === stored?.expiresAtMs, `${key}: another end`);
  }

  async function hold(key, held, library) {
    const { lockId } = held;
    // From here to where it leaves, nobody else may be inside.
    await enter(key, held).catch((error) => wrong.push(`${key}: two holders: ${error.message}`));
    await checkReadable(key, held);
    if (chance(0.3)) {
      const by = chance(0.5) ? ours : theirs;
      const extended = await again(() => by.extend({ lockId, ttlMs: 1.5 * ttlMs }));
      expect(extended.ok && extended.expiresAtMs > held.expiresAtMs, `${key}: not extended`);
      await checkReadable(key, held);
    }
    await leave(key);
    if (chance(0.02)) {
      // It ends by itself.
      await again(() => library.extend({ lockId, ttlMs: 20 }));
      return;
    }
    const other = chance(0.5);
    if (other) counts.byTheOther += 1;
    const by = other === (library === ours) ? theirs : ours;
    expect((await again(() => by.release({ lockId }))).ok, `${key}: not released`);
    expect(!(await again(() => by.release({ lockId }))).ok, `${key}: released twice`);
  }

  /** Ours, as one of several readers. */
  async function read(key) {
    const held = await again(() => ours.acquire({ key, mode: "shared", ttlMs }));
    if (!held.ok) return;
    const { lockId } = held;
    counts.shared += 1;
    await readers
      .enter(key, held)
      .catch((error) => wrong.push(`${key}: a reader: ${error.message}`));
    const writer = await again(() => theirs.acquire({ key, ttlMs }));
    expect(!writer.ok, `${key}: theirs was granted beside a reader`);
    if (chance(0.3)) {
      const extended = await again(() => ours.extend({ lockId, ttlMs: 1.5 * ttlMs }));
      expect(extended.ok, `${key}: a reader was not extended`);
    }
    await readers.leave(key, held);
    expect((await again(() => ours.release({ lockId }))).ok, `${key}: a reader was not released`);
  }

  async function work() {
    while (counts.granted < goal) {
      const key = `fleet:"${Math.floor(Math.random() * 3)}"\\`;
      if (chance(0.3)) {
        await read(key);
      } else {
        const library = chance(0.9) === (mainly === "ours") ? ours : theirs;
        const held = await again(() => library.acquire({ key, ttlMs }));
        if (held.ok) {
          counts.granted += 1;
          await hold(key, held, library);
        }
      }
      if (pauseMs > 0) await sleep(Math.random() * pauseMs);
    }
  }

  await Promise.all(Array.from({ length: workers }, work));
  return { ...counts, wrong };
}
