//! Frees a key whoever holds it.

use crate::redis::backend::Runner;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_elsewhere, malformed};
use crate::text::error::Error;
use crate::values::key::Key;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "force_release.lua", |reply| {
    is_elsewhere(reply) || outcome(reply).is_ok()
});

/// What to send. Where its index must be declared, `holder` is the lock id of the lock, else `None`.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key, holder: Option<&str>) -> Result<Plan, Error> {
    let lock_key = names.lock_key(key)?;
    let index_key = names.index_key_beside(&lock_key, holder)?;
    Ok(Plan::new(&SCRIPT)
        .key(names, &lock_key)
        .keys_of(names, index_key.as_deref())
        .group_of(names, index_key.is_some().then_some(&*lock_key))
        .arg(names.start_of(&lock_key))
        .number(TIME_TOLERANCE_MS)
        .bare(names, &lock_key)
        .for_cluster(names))
}

/// Whether somebody held it.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: &Reply) -> Result<bool, Error> {
    match reply.integer() {
        Some(1) => Ok(true),
        Some(0) => Ok(false),
        _ => Err(malformed("forceRelease")),
    }
}

impl Runner {
    pub(in crate::redis) async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        let plan = |holder: Option<&str>| plan(&self.names, key, holder);
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
    fn keys_and_arguments_stand_in_order() {
        let names = Names::new("s:", ClientPrefix::Ours("x".into())).unwrap();
        let plan = plan(&names, &Key::new("k").unwrap(), None).unwrap();
        assert!(plan.keys().eq(["xs:k"]));
        assert!(plan.args().eq(["s:", "1000", "s:k"]));
    }

    #[test]
    fn in_a_cluster_the_index_is_a_key_too() {
        let names = Names::in_cluster("s:", ClientPrefix::Ours("x".into())).unwrap();
        // The first byte of SHA-256 over s:k is 0xc7.
        let plan = plan(&names, &Key::new("k").unwrap(), Some("any")).unwrap();
        assert!(plan.keys().eq(["x{s:c7}:k", "x{s:c7}:id:any"]));
        assert!(plan.args().eq(["{s:c7}", "1000", "{s:c7}:k", "cluster"]));
    }

    #[test]
    fn replies_have_one_meaning_each() {
        assert!(outcome(&Reply::Int(1)).unwrap());
        assert!(!outcome(&Reply::Int(0)).unwrap());
        assert_eq!(
            outcome(&Reply::Nil).unwrap_err().kind(),
            ErrorKind::Internal
        );
    }
}
