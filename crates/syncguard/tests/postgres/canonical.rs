//! A writer as SyncGuard for TypeScript is one (docs/format.md, "PostgreSQL"): several statements in a
//! transaction, the time from its start, and an unconditional upsert that knows no labels.

use syncguard::postgres::Tables;
use syncguard::postgres::operations::PrimaryKeys;
use syncguard::{Key, LockId, TIME_TOLERANCE_MS, is_live};
use tokio_postgres::{Client, Error};

const NOW: &str = "SELECT floor(extract(epoch FROM now()) * 1000)::bigint";

pub(crate) struct Canonical {
    client: Client,
    tables: Tables,
}

/// A lock that it was granted.
pub(crate) struct Held {
    pub(crate) lock_id: LockId,
    pub(crate) fence: i64,
    pub(crate) expires_at_ms: i64,
}

impl Canonical {
    pub(crate) fn new(client: Client, tables: &Tables) -> Self {
        let tables = tables.clone();
        Self { client, tables }
    }

    pub(crate) async fn acquire(&mut self, key: &Key, ttl_ms: i64) -> Result<Option<Held>, Error> {
        let (locks, fences) = (self.tables.locks(), self.tables.fences());
        let names = PrimaryKeys::new(key).unwrap();
        let lock_id = LockId::generate().unwrap();
        let t = self.client.transaction().await?;
        let advisory = "SELECT pg_advisory_xact_lock(hashtext($1))";
        t.execute(advisory, &[&names.lock]).await?;
        let now_ms: i64 = t.query_one(NOW, &[]).await?.get(0);
        let read = format!("SELECT expires_at_ms FROM {locks} WHERE key = $1 FOR UPDATE");
        if let Some(row) = t.query_opt(&read, &[&names.lock]).await?
            && is_live(row.get(0), now_ms, TIME_TOLERANCE_MS)
        {
            return Ok(None);
        }
        let ensure = format!(
            "INSERT INTO {fences} (fence_key, fence, key_debug) VALUES ($1, 0, $2) \
             ON CONFLICT (fence_key) DO NOTHING"
        );
        t.execute(&ensure, &[&names.fence, &key.as_str()]).await?;
        let count =
            format!("UPDATE {fences} SET fence = fence + 1 WHERE fence_key = $1 RETURNING fence");
        let fence: i64 = t.query_one(&count, &[&names.fence]).await?.get(0);
        let upsert = format!(
            "INSERT INTO {locks} (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (key) DO UPDATE SET \
             lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms, \
             acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, \
             user_key = excluded.user_key"
        );
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] = [
            &names.lock,
            &lock_id.as_str(),
            &(now_ms + ttl_ms),
            &now_ms,
            &format!("{fence:015}"),
            &key.as_str(),
        ];
        t.execute(&upsert, &params).await?;
        t.commit().await?;
        Ok(Some(Held {
            lock_id,
            fence,
            expires_at_ms: now_ms + ttl_ms,
        }))
    }

    pub(crate) async fn release(&mut self, lock_id: &LockId) -> Result<bool, Error> {
        let locks = self.tables.locks();
        let t = self.client.transaction().await?;
        let now_ms: i64 = t.query_one(NOW, &[]).await?.get(0);
        let read = format!("SELECT key, expires_at_ms FROM {locks} WHERE lock_id = $1 FOR UPDATE");
        let Some(row) = t.query_opt(&read, &[&lock_id.as_str()]).await? else {
            return Ok(false);
        };
        if !is_live(row.get(1), now_ms, TIME_TOLERANCE_MS) {
            return Ok(false);
        }
        let delete = format!("DELETE FROM {locks} WHERE key = $1");
        t.execute(&delete, &[&row.get::<_, String>(0)]).await?;
        t.commit().await?;
        Ok(true)
    }
}
