// Acquire and release.

/** Takes and releases a lock of `library` under a key of its own for each index. */
export function pairOf(library) {
  return async (index) => {
    const result = await library.acquire({ key: `key:${index}`, ttlMs: 30_000 });
    if (!result.ok) throw new Error("nobody else can hold this lock");
    const { ok } = await library.release({ lockId: result.lockId });
    if (!ok) throw new Error("the lock was not released");
  };
}
