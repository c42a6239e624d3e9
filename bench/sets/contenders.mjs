// Who takes part: it has `pair(index)`, which takes and releases a set of two keys of its own.

import { open as openStore } from "../waiting/stores.mjs";

export const open = {
  async syncguard({ place, from }) {
    const backend = await openStore(place, from);
    return {
      async pair(index) {
        const held = await backend.lock([`${index}:a`, `${index}:b`]);
        await held.release();
      },
    };
  },
};
