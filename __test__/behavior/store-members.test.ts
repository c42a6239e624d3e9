/** What only the locks of some stores can do: on every handle of these, and a clear refusal on every handle of the others. */

import { expect, test } from "vitest";
import { lock } from "syncguard";
import { lockError } from "../support/errors";
import { type Backend, newKey, onEveryStore, take } from "../support/suite";

const HAVE: Record<string, readonly string[]> = {
  eval: ["redis"],
  guard: ["postgres", "firestore"],
  guardQuery: ["postgres"],
  guardFailed: ["postgres"],
};

/** Every kind of handle, by what gives it, while it is held. */
const HANDLES: Record<
  string,
  (backend: Backend, work: (handle: object) => Promise<void>) => Promise<unknown>
> = {
  "acquire()": async (backend, work) => {
    const held = await take(backend, newKey());
    await work(held).finally(() => held.release());
  },
  "backend.lock()": async (backend, work) => {
    const held = await backend.lock(newKey());
    await work(held).finally(() => held.release());
  },
  "backend.lock() of several keys": async (backend, work) => {
    const held = await backend.lock([newKey(), newKey()]);
    await work(held).finally(() => held.release());
  },
  "lock()": (backend, work) => lock(backend, work, { key: newKey() }),
  "once()": (backend, work) => backend.once(newKey(), { due: 1 }, work),
  "lead()": async (backend, work) => {
    const stopping = new AbortController();
    let failure: unknown;
    const { signal } = stopping;
    await backend.lead(
      newKey(),
      async (leadership) => {
        await work(leadership).catch((error: unknown) => (failure = error));
        stopping.abort();
      },
      { signal },
    );
    if (failure !== undefined) throw failure;
  },
};

onEveryStore("what only some stores can do", (connect) => {
  test.each(Object.keys(HANDLES))("is there, or is refused with a reason: %s", async (name) => {
    const backend = connect();
    const { backend: store } = backend.capabilities as unknown as {
      backend: string;
    };
    const held = HANDLES[name] as (typeof HANDLES)[string];
    let asked = 0;
    await held(backend, async (handle) => {
      for (const [member, stores] of Object.entries(HAVE)) {
        asked += 1;
        const isThere = stores.includes(store);
        expect(Object.hasOwn(handle, member)).toBe(isThere);
        if (isThere) continue;
        // Callers destructure what they are given.
        const { [member]: call } = handle as Record<string, () => unknown>;
        const error = await lockError((async () => await call?.())());
        expect(error.code).toBe("InvalidArgument");
        expect(error.message).toMatch(new RegExp(`^${member}\\(\\) is for `));
      }
    });
    expect(asked).toBe(Object.keys(HAVE).length);
  });
});
