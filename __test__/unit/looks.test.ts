/** Questions after locks when another server may have taken over. */

import { expect, test } from "vitest";
import { Looks } from "../../npm/syncguard/holding/looks.js";
import type { Lease } from "../../npm/syncguard/holding/lease.js";
import type { Store } from "../../npm/syncguard/native/store.js";

/** A lock, and a store that answers when it is told to. */
function scene() {
  const asked: ((found: unknown) => void)[] = [];
  const lost: string[] = [];
  let tell = (): void => undefined;
  const store = {
    whenAnotherServer: (ask: () => void) => (tell = ask),
    lookupByLockId: () => new Promise((resolve) => asked.push(resolve)),
  } as unknown as Store;
  const lease = {
    lockIds: ["id"],
    leftMs: () => 1_000,
    lostInStore: (lockId: string) => lost.push(lockId),
  } as unknown as Lease;
  new Looks(store).add(lease);
  return { asked, lost, tell: () => tell(), store };
}

/** Whatever follows from an answer has happened. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("who is told again while a question is open asks once more, and not each time", async () => {
  const { asked, lost, tell, store } = scene();
  for (let time = 0; time < 3; time += 1) tell();
  expect(asked).toHaveLength(1);
  // The server that went away may have said so.
  asked[0]!({});
  await settled();
  expect(asked).toHaveLength(2);
  asked[1]!({});
  await settled();
  expect(asked).toHaveLength(2);
  tell();
  expect(asked).toHaveLength(3);
  asked[2]!(null);
  await settled();
  expect({ lost, questions: asked.length, store }).toEqual({ lost: ["id"], questions: 3, store });
});
