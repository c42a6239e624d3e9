-- For which period of a key something was done last. Files that older versions made lack it; these do without.
CREATE TABLE IF NOT EXISTS syncguard_done (
  fence_key TEXT NOT NULL PRIMARY KEY,
  due TEXT NOT NULL,
  done_at_ms INTEGER NOT NULL,
  lock_id TEXT NOT NULL,
  key_debug TEXT
) STRICT, WITHOUT ROWID;
