/**
 * The states of a held lock.
 *
 * The table gives the next state after each event. If the state stays the same, nothing happens, and nobody is told.
 *
 * | state     | lose      | end       | freed    | gone     |
 * | --------- | --------- | --------- | -------- | -------- |
 * | held      | lost      | releasing | released | gone     |
 * | lost      | lost      | lost      | released | lost     |
 * | releasing | releasing | releasing | released | gone     |
 * | released  | released  | released  | released | released |
 * | gone      | gone      | gone      | released | gone     |
 *
 * - lose: somebody noticed the loss: a heartbeat, an extension, a guard, or whoever looked at the clock.
 * - end: the release begins. From then on, only the release can notice a loss.
 * - freed: a release has freed the lock, or may have done so. A second release finds nothing out about it.
 * - gone: a release did not find the lock in the store. The work under it had gone on without it.
 *
 * The second table says what handles do. A lock that was lost while it was held is refused for ever, even once it is released.
 *
 * | state     | extend         | release        | assertHeld | signal  |
 * | --------- | -------------- | -------------- | ---------- | ------- |
 * | held      | asks the store | asks the store | passes     | quiet   |
 * | lost      | is refused     | is refused     | throws     | aborted |
 * | releasing | asks the store | asks the store | throws     | quiet   |
 * | released  | asks the store | asks the store | throws     | quiet   |
 * | gone      | asks the store | asks the store | throws     | aborted |
 *
 * A release that is refused still asks the store, so that nothing is left there.
 */

/** Where a lock is on its way from its grant to its end. */
export type LeaseStateName = "held" | "lost" | "releasing" | "released" | "gone";

/** A state, with the one that follows after each event. States are objects because every lock goes through them, and V8 reads members fast. */
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
