CREATE TABLE IF NOT EXISTS {locks} (
  key TEXT PRIMARY KEY,
  lock_id TEXT NOT NULL,
  expires_at_ms BIGINT NOT NULL,
  acquired_at_ms BIGINT NOT NULL,
  fence TEXT NOT NULL,
  user_key TEXT NOT NULL,
  -- The id of the lock that the label belongs to, and the label. Older writers leave it as it is.
  owner TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS {lock_id_index} ON {locks} (lock_id);
CREATE INDEX IF NOT EXISTS {expires_index} ON {locks} (expires_at_ms);
-- The readers of a key: its name, a mark, an r and their lock id.
CREATE INDEX IF NOT EXISTS {readers_index} ON {locks} (left(key, -24)) WHERE right(key, 23) = 'r' || lock_id;
-- The last fence of each key: the next one is larger.
CREATE TABLE IF NOT EXISTS {fences} (
  fence_key TEXT PRIMARY KEY,
  fence BIGINT NOT NULL DEFAULT 0,
  key_debug TEXT,
  -- For which period something was done last, when, and under which lock id. Older writers leave them as they are.
  done_due TEXT,
  done_at_ms BIGINT,
  done_lock_id TEXT
);
