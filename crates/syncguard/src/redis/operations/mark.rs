//! For which period of a key something was done last.

use serde_json::Value;

use crate::redis::backend::Runner;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, malformed};
use crate::text::error::Error;
use crate::values::due::{DoneMark, Due, MarkChange};
use crate::values::key::Key;
use crate::values::lock_id::LockId;

script!(SCRIPT, "set_mark.lua", |reply| {
    matches!(reply, Reply::Nil | Reply::Bulk(_))
});

/// What to send. `fence_ttl_ms` is how long fence counters stay, if not for ever.
fn plan(
    names: &Names,
    key: &Key,
    change: &MarkChange,
    fence_ttl_ms: Option<i64>,
) -> Result<Plan, Error> {
    let plan = Plan::new(&SCRIPT).key(names, &names.mark_key_of(key)?);
    Ok(match change {
        MarkChange::Keep => plan.arg("keep"),
        MarkChange::Clear => plan.arg("clear"),
        MarkChange::Set(due) => lasting(
            plan.arg("set")
                .arg(due.as_stored())
                .arg(LockId::generate()?.as_str()),
            fence_ttl_ms,
        ),
    })
}

/// Adds for how long a mark stays: as long as the fence counter beside it.
pub(super) fn lasting(plan: Plan, fence_ttl_ms: Option<i64>) -> Plan {
    match fence_ttl_ms {
        Some(ttl_ms) => plan.number(ttl_ms),
        None => plan.arg(""),
    }
}

fn outcome(reply: &Reply) -> Result<Option<DoneMark>, Error> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Bulk(stored) => read(stored).map(Some).ok_or_else(|| malformed("mark")),
        Reply::Int(_) | Reply::Array(_) | Reply::Error(_) => Err(malformed("mark")),
    }
}

/// Reads what mark.lua has written.
pub(super) fn read(stored: &[u8]) -> Option<DoneMark> {
    let stored: Value = serde_json::from_slice(stored).ok()?;
    let text = |name| stored.get(name)?.as_str();
    Some(DoneMark {
        due: Due::stored(text("due")?).ok()?,
        done_at_ms: stored.get("doneAtMs")?.as_i64()?,
        lock_id: LockId::parse(text("lockId")?).ok()?,
    })
}

impl Runner {
    pub(in crate::redis) async fn mark(
        &self,
        key: &Key,
        change: &MarkChange,
    ) -> Result<Option<DoneMark>, Error> {
        let plan = plan(&self.names, key, change, self.fence_ttl_ms())?;
        outcome(&self.run(plan).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let key = Key::new("k").unwrap();
        let due = Due::new("v42").unwrap();
        let standalone = Names::new("s", ClientPrefix::Ours("c:".into())).unwrap();
        let plan_of = |change: &MarkChange| plan(&standalone, &key, change, None).unwrap();
        let set = plan_of(&MarkChange::Set(due.clone()));
        assert!(set.keys().eq(["c:s:fence:s:k\u{37e}done"]));
        let args: Vec<_> = set.args().collect();
        assert_eq!(
            [args[0], args[1], args[3]],
            ["set", "tv42", ""],
            "{}",
            args.len()
        );
        assert!(plan_of(&MarkChange::Keep).args().eq(["keep"]));
        assert!(plan_of(&MarkChange::Clear).args().eq(["clear"]));
        let clustered = Names::in_cluster("s", ClientPrefix::None).unwrap();
        let plan = plan(&clustered, &key, &MarkChange::Keep, Some(9)).unwrap();
        let lock_key = clustered.lock_key(&key).unwrap();
        let slot = crate::redis::key_slot;
        assert!(plan.keys().all(|name| slot(name) == slot(&lock_key)));
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let text = br#"{"due":"tv42","doneAtMs":1700000000000,"lockId":"AAAAAAAAAAAAAAAAAAAAAA"}"#;
        let mark = read(text).unwrap();
        assert_eq!(mark.due, Due::new("v42").unwrap());
        assert_eq!(mark.done_at_ms, 1_700_000_000_000);
        let bulk = |text: &[u8]| Reply::Bulk(text.to_vec());
        assert_eq!(outcome(&bulk(text)).unwrap(), Some(mark));
        assert_eq!(outcome(&Reply::Nil).unwrap(), None);
        for bad in [bulk(b""), bulk(b"{}"), Reply::Int(1), Reply::Array(vec![])] {
            assert!(outcome(&bad).is_err(), "{bad:?}");
        }
    }
}
