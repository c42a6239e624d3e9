//! Whether somebody holds a key.

use crate::redis::backend::Runner;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_elsewhere, malformed};
use crate::text::error::Error;
use crate::values::key::Key;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "is_locked.lua", |reply| {
    is_elsewhere(reply) || outcome(reply).is_ok()
});

/// What to send. With `cleanup`, a lock that expired more than two seconds ago is removed; where its index must be
/// declared, `holder` is the lock id of that lock, else `None`.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key, cleanup: bool, holder: Option<&str>) -> Result<Plan, Error> {
    let lock_key = names.lock_key(key)?;
    let index_key = names.index_key_beside(&lock_key, holder)?;
    // The script takes the next key for the index, so the names of a group can only follow an index.
    let declares_group = !cleanup || index_key.is_some();
    Ok(Plan::new(&SCRIPT)
        .key(names, &lock_key)
        .keys_of(names, index_key.as_deref())
        .group_of(names, declares_group.then_some(&*lock_key))
        .arg(names.start_of(&lock_key))
        .number(TIME_TOLERANCE_MS)
        .arg(if cleanup { "true" } else { "false" })
        .bare(names, &lock_key)
        .for_cluster(names))
}

/// What the reply means.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: &Reply) -> Result<bool, Error> {
    match reply.integer() {
        Some(1) => Ok(true),
        Some(0) => Ok(false),
        _ => Err(malformed("isLocked")),
    }
}

impl Runner {
    pub(in crate::redis) async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let (names, cleanup) = (&self.names, self.cleanup_in_is_locked);
        let is_strict = self.is_strict();
        if !cleanup || !is_strict {
            match self.run(plan(names, key, cleanup, None)?).await {
                Err(error) if self.declaring.learns_from(is_strict, &error) => {}
                reply => return outcome(&reply?),
            }
        }
        if outcome(&self.run(plan(names, key, false, None)?).await?)? {
            return Ok(true);
        }
        let plan = |holder: Option<&str>| plan(names, key, true, holder);
        let reply = self.by_key(key, plan).await?;
        reply.map_or(Ok(false), |reply| outcome(&reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;
    use crate::text::error::ErrorKind;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let key = Key::new("k").unwrap();
        let plain = plan(&names, &key, false, None).unwrap();
        assert!(plain.keys().eq(["s:k"]));
        assert!(plain.args().eq(["s", "1000", "false"]));
        let cleaning = plan(&names, &key, true, None).unwrap();
        assert_eq!(cleaning.args().nth(2), Some("true"));
    }

    #[test]
    fn replies_have_one_meaning_each() {
        assert!(outcome(&Reply::Int(1)).unwrap());
        assert!(!outcome(&Reply::Int(0)).unwrap());
        for reply in [Reply::Nil, Reply::Int(2), Reply::Int(-1)] {
            assert_eq!(outcome(&reply).unwrap_err().kind(), ErrorKind::Internal);
        }
    }
}
