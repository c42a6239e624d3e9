/** How many more entries may be deleted than twice what is left, before the table is replaced. */
const SPARE = 64;

/**
 * A map whose entries come and go.
 *
 * When deleted entries have filled the table of a `Map`, V8 makes a new one, to which the old one refers. As soon as one of
 * them has been promoted to the old generation, those after it survive every scavenge, with all that they refer to, until a
 * major collection finds that nobody needs them. With a lock for each entry, pauses took three times as long, and a tenth
 * fewer locks were taken a second. So a new `Map`, to which nothing old refers, takes over from time to time.
 */
export class ShortLivedMap<K, V> {
  #map = new Map<K, V>();
  #deleted = 0;

  get size(): number {
    return this.#map.size;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  has(key: K): boolean {
    return this.#map.has(key);
  }

  set(key: K, value: V): void {
    this.#map.set(key, value);
  }

  /** Gives whether it was there. */
  delete(key: K): boolean {
    if (!this.#map.delete(key)) return false;
    this.#deleted += 1;
    if (this.#deleted > 2 * this.#map.size + SPARE) {
      this.#map = new Map(this.#map);
      this.#deleted = 0;
    }
    return true;
  }

  /** The entries at this moment. */
  entries(): [K, V][] {
    return [...this.#map.entries()];
  }

  /** The values at this moment. */
  values(): V[] {
    return [...this.#map.values()];
  }
}
