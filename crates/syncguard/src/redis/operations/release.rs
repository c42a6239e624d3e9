//! Frees the lock that a lock id owns.

use crate::asking::outcome::{Absence, ReleaseOutcome};
use crate::redis::backend::Runner;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_elsewhere, malformed};
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "release.lua", |reply| {
    is_elsewhere(reply) || outcome(reply).is_ok()
});

/// What to send. `lock_key` is the name of the lock, where it is known.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room.
pub fn plan(names: &Names, lock_id: &LockId, lock_key: Option<&str>) -> Result<Plan, Error> {
    let index_key = names.index_key(lock_id)?;
    Ok(Plan::new(&SCRIPT)
        .key(names, &index_key)
        .keys_of(names, lock_key)
        .group_of(names, lock_key)
        .arg(lock_id.as_str())
        .number(TIME_TOLERANCE_MS)
        .bare(names, &index_key)
        .for_cluster(names))
}

/// What the reply means.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: &Reply) -> Result<ReleaseOutcome, Error> {
    match reply.integer() {
        Some(1) => Ok(ReleaseOutcome::Released),
        Some(-2) => Ok(ReleaseOutcome::Absent(Absence::Expired)),
        Some(-1 | 0) => Ok(ReleaseOutcome::Absent(Absence::NotFound)),
        _ => Err(malformed("release")),
    }
}

impl Runner {
    /// Frees what these lock ids own.
    pub(in crate::redis) async fn release(
        &self,
        lock_ids: &[LockId],
    ) -> Result<Batch<ReleaseOutcome>, Error> {
        match lock_ids {
            [lock_id] => Ok(Batch::from([self.release_one(lock_id).await?])),
            several => Box::pin(self.release_several(several)).await,
        }
    }

    async fn release_one(&self, lock_id: &LockId) -> Result<ReleaseOutcome, Error> {
        let plan = |lock: Option<&str>| plan(&self.names, lock_id, lock);
        let Some(reply) = self.by_lock_id(lock_id, plan).await? else {
            return Ok(ReleaseOutcome::Absent(Absence::NotFound));
        };
        let outcome = outcome(&reply)?;
        self.forget(lock_id);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;
    use crate::text::error::ErrorKind;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let plan_of = |prefix| plan(&Names::new("s", prefix).unwrap(), &id, None).unwrap();
        let plain = plan_of(ClientPrefix::None);
        assert!(plain.keys().eq(["s:id:AAAAAAAAAAAAAAAAAAAAAA"]));
        assert!(plain.args().eq(["AAAAAAAAAAAAAAAAAAAAAA", "1000"]));
        let prefixed = plan_of(ClientPrefix::Ours("app:".into()));
        assert!(prefixed.keys().eq(["app:s:id:AAAAAAAAAAAAAAAAAAAAAA"]));
        assert!(prefixed.args().eq([
            "AAAAAAAAAAAAAAAAAAAAAA",
            "1000",
            "s:id:AAAAAAAAAAAAAAAAAAAAAA"
        ]));
    }

    #[test]
    fn a_lock_that_is_known_is_a_key_too() {
        let id = LockId::parse("f4-_AAAAAAAAAAAAAAAAAA").unwrap();
        let names = Names::in_cluster("s", ClientPrefix::Ours("app:".into())).unwrap();
        let plan = plan(&names, &id, Some("{s:7f}:k")).unwrap();
        let index = "{s:7f}:id:f4-_AAAAAAAAAAAAAAAAAA";
        let keys = [format!("app:{index}"), "app:{s:7f}:k".to_owned()];
        assert!(plan.keys().eq(keys));
        assert!(plan.args().eq([id.as_str(), "1000", index, "cluster"]));
    }

    #[test]
    fn what_a_reader_shares_is_declared_with_it() {
        let id = LockId::parse("f4-_AAAAAAAAAAAAAAAAAA").unwrap();
        let names = Names::new("s", ClientPrefix::Ours("app:".into())).unwrap();
        let reader = format!("s:k\u{37e}r{}", id.as_str());
        let plan = plan(&names, &id, Some(&reader)).unwrap();
        let keys: Vec<_> = plan.keys().skip(1).collect();
        let expected = [
            &*format!("app:{reader}"),
            "app:s:k",
            "app:s:k\u{37e}readers",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn replies_have_one_meaning_each() {
        use ReleaseOutcome::{Absent, Released};
        for (code, expected) in [
            (1, Released),
            (-2, Absent(Absence::Expired)),
            (-1, Absent(Absence::NotFound)),
            (0, Absent(Absence::NotFound)),
        ] {
            assert_eq!(outcome(&Reply::Int(code)).unwrap(), expected);
        }
        for reply in [Reply::Int(2), Reply::Nil, Reply::Array(vec![Reply::Int(1)])] {
            assert_eq!(outcome(&reply).unwrap_err().kind(), ErrorKind::Internal);
        }
    }
}
