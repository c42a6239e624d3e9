-- The tables of docs/format.md, "SQLite".
-- WITHOUT ROWID: the key is the table's own order, one tree less to write for each operation.

CREATE TABLE syncguard_locks (
  key TEXT NOT NULL PRIMARY KEY,
  lock_id TEXT NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  acquired_at_ms INTEGER NOT NULL,
  fence TEXT NOT NULL,
  user_key TEXT NOT NULL,
  owner TEXT
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX idx_syncguard_locks_lock_id ON syncguard_locks (lock_id);
CREATE INDEX idx_syncguard_locks_expires ON syncguard_locks (expires_at_ms);

-- The last fence of each key: the next one is larger.
CREATE TABLE syncguard_fence_counters (
  fence_key TEXT NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL DEFAULT 0,
  key_debug TEXT
) STRICT, WITHOUT ROWID;
