/**
 * The states of a held lock.
 *
 * The state changes as this table says. Where it stays what it is, nothing happens, and nobody is told.
 *
 * | state     | lose      | end       | freed    | gone     |
 * | --------- | --------- | --------- | -------- | -------- |
 * | held      | lost      | releasing | released | gone     |
 * | lost      | lost      | lost      | released | lost     |
 * | releasing | releasing | releasing | released | gone     |
 * | released  | released  | released  | released | released |
 * | gone      | gone      | gone      | released | gone     |
 *
 * - lose: its loss was noticed, by heartbeats, a look, or whoever extends it.
 * - end: its release begins. From then on, nobody but the release notices its loss.
 * - freed: a release has freed it, or may have done so. Whoever releases it again learns nothing of it.
 * - gone: a release has found it gone. The work under it went on without it.
 *
 * This is what its handles do. What was lost while it was held is refused for ever, also once it is released.
 *
 * | state     | extend         | release        | assertHeld | signal  |
 * | --------- | -------------- | -------------- | ---------- | ------- |
 * | held      | asks the store | asks the store | passes     | quiet   |
 * | lost      | is refused     | is refused     | throws     | aborted |
 * | releasing | asks the store | asks the store | throws     | quiet   |
 * | released  | asks the store | asks the store | throws     | quiet   |
 * | gone      | asks the store | asks the store | throws     | aborted |
 *
 * A release that is refused asks the store all the same, so that nothing is left there.
 */

/** Where a lock is on its way from its grant to its end. */
export type LeaseStateName = "held" | "lost" | "releasing" | "released" | "gone";

/** A state, and those that follow it. Objects that refer to each other: every lock goes through them, and V8 reads members quickly. */
export class LeaseState {
  lose: LeaseState = this;
  end: LeaseState = this;
  freed: LeaseState = this;
  gone: LeaseState = this;

  constructor(readonly name: LeaseStateName) {}
}

export const HELD = new LeaseState("held");
const LOST = new LeaseState("lost");
const RELEASING = new LeaseState("releasing");
const RELEASED = new LeaseState("released");
export const GONE = new LeaseState("gone");

Object.assign(HELD, { lose: LOST, end: RELEASING, freed: RELEASED, gone: GONE });
LOST.freed = RELEASED;
Object.assign(RELEASING, { freed: RELEASED, gone: GONE });
GONE.freed = RELEASED;
for (const state of [HELD, LOST, RELEASING, RELEASED, GONE]) Object.freeze(state);
