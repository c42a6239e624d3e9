//! Frees a lock, and stores in the same step that something is done for a period.

use super::mark;
use crate::asking::outcome::ReleaseOutcome;
use crate::asking::request::Finish;
use crate::redis::backend::Runner;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_elsewhere, malformed, untagged};
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "release_done.lua", |reply| outcome(reply).is_ok());

/// What to send. `fence_ttl_ms` is how long fence counters stay, if not for ever.
fn plan(
    names: &Names,
    lock_id: &LockId,
    done: &Finish,
    fence_ttl_ms: Option<i64>,
    declares_lock: bool,
) -> Result<Plan, Error> {
    let lock_key = names.lock_key(&done.key)?;
    let index_key = names.index_key(lock_id)?;
    let plan = Plan::new(&SCRIPT)
        .tagged(lock_id)
        .key(names, &index_key)
        .key(names, &names.mark_key_of(&done.key)?)
        .keys_of(names, declares_lock.then_some(&lock_key))
        .arg(lock_id.as_str())
        .number(TIME_TOLERANCE_MS)
        .arg(done.due.as_stored());
    Ok(mark::lasting(plan, fence_ttl_ms)
        .bare(names, &index_key)
        .for_cluster(names))
}

/// What the reply means.
fn outcome(reply: &Reply) -> Result<ReleaseOutcome, Error> {
    match reply {
        Reply::Array(items) => match untagged(items) {
            // The lock id owns the lock on another key.
            [code] if is_elsewhere(code) => super::release::outcome(&Reply::Int(0)),
            [code] => super::release::outcome(code),
            _ => Err(malformed("release")),
        },
        _ => Err(malformed("release")),
    }
}

impl Runner {
    /// Frees what a lock id owns, and stores that something is done. With replicas, these must have it, or the period would be
    /// done again after a failover.
    pub(in crate::redis) async fn finish(
        &self,
        lock_id: &LockId,
        done: &Finish,
    ) -> Result<ReleaseOutcome, Error> {
        let plan = |declares_lock| {
            let plan = plan(
                &self.names,
                lock_id,
                done,
                self.fence_ttl_ms(),
                declares_lock,
            )?;
            Ok::<_, Error>(plan.replicated(self.replication))
        };
        let is_strict = self.is_strict();
        let reply = match self.run(plan(self.declares_known())?).await {
            Err(error) if self.declaring.learns_from(is_strict, &error) => {
                self.run(plan(true)?).await?
            }
            reply => reply?,
        };
        let outcome = outcome(&reply)?;
        self.forget(lock_id);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asking::outcome::Absence;
    use crate::redis::names::ClientPrefix;
    use crate::values::due::Due;
    use crate::values::key::Key;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let id = LockId::parse("f4-_AAAAAAAAAAAAAAAAAA").unwrap();
        let done = Finish {
            key: Key::new("k").unwrap(),
            due: Due::new("v42").unwrap(),
        };
        let plan_of = |names: Names, ttl_ms| {
            let declares_lock = names.is_in_cluster();
            plan(&names, &id, &done, ttl_ms, declares_lock).unwrap()
        };
        let plain = plan_of(Names::new("s", ClientPrefix::None).unwrap(), None);
        assert!(
            plain
                .keys()
                .eq(["s:id:f4-_AAAAAAAAAAAAAAAAAA", "s:fence:s:k\u{37e}done"])
        );
        assert!(plain.args().eq([id.as_str(), "1000", "tv42", ""]));
        let names = Names::in_cluster("s", ClientPrefix::Ours("c:".into())).unwrap();
        let clustered = plan_of(names, Some(9));
        let keys: Vec<_> = clustered.keys().collect();
        assert_eq!(keys.len(), 3);
        assert!(keys[2].ends_with(":k") && keys[1].ends_with("\u{37e}done"));
        let args: Vec<_> = clustered.args().collect();
        let last = ["9", "{s:7f}:id:f4-_AAAAAAAAAAAAAAAAAA", "cluster"];
        assert_eq!(args[3..], last);
    }

    #[test]
    fn replies_have_one_meaning_each() {
        let absent = |absence| ReleaseOutcome::Absent(absence);
        for (code, expected) in [
            (1, ReleaseOutcome::Released),
            (-2, absent(Absence::Expired)),
            (-1, absent(Absence::NotFound)),
            (0, absent(Absence::NotFound)),
            (-4, absent(Absence::NotFound)),
        ] {
            let reply = Reply::Array(vec![Reply::Int(code)]);
            assert_eq!(outcome(&reply).unwrap(), expected);
        }
        for bad in [
            Reply::Int(1),
            Reply::Nil,
            Reply::Array(vec![]),
            Reply::Array(vec![Reply::Int(2)]),
        ] {
            assert!(outcome(&bad).is_err(), "{bad:?}");
        }
    }
}
