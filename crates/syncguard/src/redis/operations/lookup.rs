//! The live lock on a key, or of a lock id.

use super::record;
use crate::asking::inspection::{LockRecord, Lookup};
use crate::redis::backend::Runner;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{is_elsewhere, misplaced};
use crate::text::error::Error;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;

script!(BY_KEY, "lookup_key.lua", record::fits);

script!(BY_LOCK_ID, "lookup_lock_id.lua", |reply| {
    is_elsewhere(reply) || record::fits(reply)
});

/// What to send for a key. [`record::outcome`] reads the reply.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan_by_key(names: &Names, key: &Key) -> Result<Plan, Error> {
    let lock_key = names.lock_key(key)?;
    Ok(Plan::new(&BY_KEY)
        .key(names, &lock_key)
        .group_of(names, Some(&lock_key))
        .number(TIME_TOLERANCE_MS))
}

/// What to send for a lock id. `lock_key` is the name of the lock, where it is known.
/// [`record::outcome`] reads the reply.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room.
pub fn plan_by_lock_id(
    names: &Names,
    lock_id: &LockId,
    lock_key: Option<&str>,
) -> Result<Plan, Error> {
    let index_key = names.index_key(lock_id)?;
    Ok(Plan::new(&BY_LOCK_ID)
        .key(names, &index_key)
        .keys_of(names, lock_key)
        .group_of(names, lock_key)
        .arg(lock_id.as_str())
        .number(TIME_TOLERANCE_MS)
        .bare(names, &index_key))
}

impl Runner {
    pub(in crate::redis) async fn lookup(
        &self,
        lookup: &Lookup,
    ) -> Result<Option<LockRecord>, Error> {
        let names = &self.names;
        let reply = match lookup {
            Lookup::Key(key) => Some(self.run(plan_by_key(names, key)?).await?),
            Lookup::LockId(lock_id) => {
                let plan = |lock: Option<&str>| plan_by_lock_id(names, lock_id, lock);
                self.by_lock_id(lock_id, plan).await?
            }
        };
        let Some(reply) = reply else {
            return Ok(None);
        };
        let record = record::outcome(&reply)?;
        match (&record, lookup) {
            (Some(record), Lookup::LockId(lock_id)) if record.lock_id != *lock_id => {
                Err(misplaced())
            }
            _ => Ok(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::Theirs).unwrap();
        let plan = plan_by_key(&names, &Key::new("k").unwrap()).unwrap();
        assert!(plan.keys().eq(["s:k"]));
        assert!(plan.args().eq(["1000"]));
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let plan = plan_by_lock_id(&names, &id, None).unwrap();
        assert!(plan.keys().eq(["s:id:AAAAAAAAAAAAAAAAAAAAAA"]));
        assert!(plan.args().eq(["AAAAAAAAAAAAAAAAAAAAAA", "1000"]));
    }
}
