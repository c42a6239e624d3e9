import { expect, test } from "vitest";
import { getByKeyRaw, type Leadership, type LockError } from "syncguard";
import { deferred } from "../support/fake-backend";
import { type Backend, newKey, onEveryStore } from "../support/suite";
import { until } from "../support/until";

/** What the leader of a term has. */
type Term = Leadership & { readonly end: () => void };

/** A process that leads until it is told to end its term. */
function campaign(backend: Backend, key: string, owner: string) {
  const terms: Term[] = [];
  const errors: unknown[] = [];
  const stopping = new AbortController();
  const over = backend.lead(
    key,
    async (leadership) => {
      const { promise, resolve } = deferred<null>();
      terms.push({ ...leadership, end: () => resolve(null) });
      await promise;
    },
    {
      ...{ ttlMs: 5_000, owner, signal: stopping.signal },
      onError: (error) => errors.push(error),
      onLost: () => undefined,
    },
  );
  const stop = async (): Promise<void> => {
    stopping.abort();
    terms.at(-1)?.end();
    await over;
  };
  return { terms, errors, over, stop };
}

onEveryStore("lead", (connect) => {
  test.concurrent(
    "one of several leads, a force release ends its term, and the next term has a larger number",
    async () => {
      const [backend, key] = [connect(), newKey()];
      const members = ["north", "south", "west"].map((owner) => campaign(backend, key, owner));
      const terms = (): Term[] => members.flatMap((member) => member.terms);
      await until(() => terms().length === 1, 30_000);
      const first = terms()[0] as Term;
      const leader = members.findIndex((member) => member.terms.length === 1);
      expect(await getByKeyRaw(backend, key)).toMatchObject({
        owner: ["north", "south", "west"][leader],
        fence: first.fence,
      });

      await backend.forceRelease(key);
      await until(() => terms().length === 2, 30_000);
      await until(() => first.signal.aborted, 30_000);
      expect(first.signal.reason).toMatchObject({ code: "LockLost" });
      // The function of the first has not settled, so that another process leads.
      expect(members[leader]?.terms).toHaveLength(1);
      const second = terms().find((term) => term !== first) as Term;
      expect(second.term).toBeGreaterThan(first.term);
      first.end();
      await Promise.all(members.map((member) => member.stop()));
      expect(members.flatMap((member) => member.errors)).toEqual([]);
      expect(await backend.isLocked({ key })).toBe(false);
    },
  );

  test.concurrent("releaseAll() hands over while the function still runs", async () => {
    const [going, staying, key] = [connect({}), connect(), newKey()];
    const leader = campaign(going, key, "going");
    await until(() => leader.terms.length === 1, 30_000);
    const other = campaign(staying, key, "staying");
    const [term] = leader.terms as [Term];
    // A backend in memory is a store of its own.
    const isOneStore = await staying.isLocked({ key });
    await going.releaseAll();
    expect((term.signal.reason as LockError).code).toBe("LockLost");
    await until(() => other.terms.length === 1, 30_000);
    if (isOneStore) expect(other.terms[0]?.term).toBeGreaterThan(term.term);
    await going.close();
    term.end();
    await leader.over;
    await other.stop();
    expect([leader.errors, other.errors]).toEqual([[], []]);
    expect(leader.terms).toHaveLength(1);
  });
});
