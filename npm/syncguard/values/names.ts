/** A fencing token: 15 decimal digits, zero-padded, so that comparing strings compares numbers. */
export type Fence = string;

/** 24 lower-case hexadecimal digits by which a key or a lock id can be recognised. Not secure: see `hashKey`. */
export type HashId = string;

/** Names a lock by its key. */
export type KeyOp = Readonly<{
  /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
  key: string;
  /** Cancels the operation, which is then rejected with `Aborted`. */
  signal?: AbortSignal | undefined;
}>;

/** Names a lock by the id that its acquisition returned. */
export type LockOp = Readonly<{
  /** The id that the acquisition returned: 22 characters of base64url. */
  lockId: string;
  /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
  signal?: AbortSignal | undefined;
}>;

/** Names several locks by the ids that their acquisition returned. */
export type LocksOp = Readonly<{
  /** The ids that the acquisition returned: at most 100. */
  lockIds: readonly string[];
  /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
  signal?: AbortSignal | undefined;
}>;

/** How a key is locked: by any number of shared holders, or by one exclusive holder. */
export type LockMode = "shared" | "exclusive";

/** What is asked of one key: the lock on it, or slots of it. A text alone stands for the lock, in exclusive mode. */
export type Claim = Readonly<{
  /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
  key: string;
  /**
   * `"shared"` to hold the lock together with all others who share it: whoever wants it alone waits until they have released it. A
   * shared lock cannot become an exclusive one: release it, and ask for that. Not with slots. Default `"exclusive"`.
   */
  mode?: LockMode | undefined;
  /**
   * At most so many hold a slot of the key at a time; 1 to 1000. The limit is that of whoever asks: where different ones are in
   * use, there are never more holders than the largest of them says. Slots have nothing to do with the lock on the key itself.
   */
  slots?: number | undefined;
  /** How many slots to take, or none: at most 100. Default 1. */
  take?: number | undefined;
}>;

/** A claim of one slot. */
export type SlotClaim = Readonly<{
  /** The key of the slots. */
  key: string;
  /** At most so many hold a slot of the key at a time; 1 to 1000. */
  slots: number;
  /** With it, several are asked for: {@link Claim}. */
  take?: undefined;
  /** Slots are not shared. */
  mode?: undefined;
}>;

/** A claim of the lock on a key, perhaps in shared mode. */
export type ModeClaim = Readonly<{
  /** Names what the lock protects. */
  key: string;
  /** Whether others may hold it, too: {@link Claim}. */
  mode: LockMode;
  /** With them, slots are asked for: {@link Claim}. */
  slots?: undefined;
  /** With it, several slots are asked for: {@link Claim}. */
  take?: undefined;
}>;

/** Several claims, all or nothing: at most 100 locks. A key that is there twice is one key. */
export type Claims = readonly (string | Claim)[];

/** One of several locks that were granted together. */
export type GrantedLock = {
  /** The key as given. */
  readonly key: string;
  /** The number of the slot, from 1 on, where a slot was asked for. */
  readonly slot?: number;
  /** Proof of ownership: whoever knows it can release and extend the lock. */
  readonly lockId: string;
  /** The fencing token: larger than that of every earlier lock on the key, or on that slot of it. */
  readonly fence: Fence;
};

/** What several locks show that were granted together. */
export type LockSet = {
  /** The locks, in the order of their keys. */
  readonly locks: readonly GrantedLock[];
  /** The fencing token of each key; of several slots of a key, that of the last of them in `locks`. */
  readonly fences: ReadonlyMap<string, Fence>;
  /** Proof of ownership: whoever knows them can release and extend the locks. */
  readonly lockIds: readonly string[];
};

/** Looks up a lock by its key. */
export type KeyLookup = {
  /** The key of the lock. */
  key: string;
  /** Cancels the lookup, which is then rejected with `Aborted`. */
  signal?: AbortSignal | undefined;
};

/** Looks up a lock by its lock id. */
export type OwnershipLookup = {
  /** The id that the acquisition returned. */
  lockId: string;
  /** Cancels the lookup, which is then rejected with `Aborted`. */
  signal?: AbortSignal | undefined;
};
