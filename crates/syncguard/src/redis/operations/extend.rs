//! Makes a lock end later.

use crate::error::Error;
use crate::lock_id::LockId;
use crate::outcome::{Absence, ExtendOutcome};
use crate::redis::backend::Runner;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, lifetime_ms, script};
use crate::redis::reply::{Reply, is_elsewhere, malformed};
use crate::request::Extension;
use crate::time::TIME_TOLERANCE_MS;
use crate::ttl::Ttl;

script!(
    SCRIPT,
    [
        "clock.lua",
        ("local bare = ARGV[5]"),
        "find.lua",
        "read.lua",
        "extend.lua",
        "prolong.lua"
    ],
    |reply| { is_elsewhere(reply) || outcome(reply).is_ok() }
);

/// What to send. In a cluster, `lock_key` is the name of the lock, else `None`.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room.
pub fn plan(
    names: &Names,
    lock_id: &LockId,
    lock_key: Option<&str>,
    ttl: Ttl,
) -> Result<Plan, Error> {
    let index_key = names.index_key(lock_id)?;
    Ok(Plan::new(&SCRIPT)
        .key(names, &index_key)
        .keys_of(names, lock_key)
        .arg(lock_id.as_str())
        .number(TIME_TOLERANCE_MS)
        .number(ttl.as_millis())
        .number(lifetime_ms(ttl.as_millis()))
        .bare(names, &index_key))
}

/// What the reply means.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: &Reply) -> Result<ExtendOutcome, Error> {
    if let Reply::Array(items) = reply {
        return extended(items).ok_or_else(|| malformed("extend"));
    }
    match reply.integer() {
        Some(-2) => Ok(ExtendOutcome::absent(Absence::Expired)),
        Some(-1 | 0) => Ok(ExtendOutcome::absent(Absence::NotFound)),
        _ => Err(malformed("extend")),
    }
}

fn extended(items: &[Reply]) -> Option<ExtendOutcome> {
    let [code, expires_at_ms] = items else {
        return None;
    };
    if code.integer()? != 1 {
        return None;
    }
    let expires_at_ms = expires_at_ms.integer().filter(|ms| *ms > 0)?;
    Some(ExtendOutcome::Extended { expires_at_ms })
}

impl Runner {
    /// Makes what these lock ids own end later.
    pub(in crate::redis) async fn extend(
        &self,
        extension: &Extension,
    ) -> Result<ExtendOutcome, Error> {
        let ttl = extension.ttl;
        let [lock_id] = extension.lock_ids.as_slice() else {
            return Box::pin(self.extend_several(extension)).await;
        };
        let plan = |lock: Option<&str>| plan(&self.names, lock_id, lock, ttl);
        match self.by_lock_id(lock_id, plan).await? {
            Some(reply) => outcome(&reply),
            None => Ok(ExtendOutcome::absent(Absence::NotFound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::redis::names::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let names = Names::new("s", ClientPrefix::Theirs).unwrap();
        let plan = plan(&names, &id, None, Ttl::from_millis(500).unwrap()).unwrap();
        assert!(plan.keys().eq(["s:id:AAAAAAAAAAAAAAAAAAAAAA"]));
        assert!(plan.args().eq([
            "AAAAAAAAAAAAAAAAAAAAAA",
            "1000",
            "500",
            "1500",
            "s:id:AAAAAAAAAAAAAAAAAAAAAA"
        ]));
    }

    #[test]
    fn replies_have_one_meaning_each() {
        use ExtendOutcome::Extended;
        let absent = ExtendOutcome::absent;
        let array = |items: &[i64]| Reply::Array(items.iter().copied().map(Reply::Int).collect());
        for (reply, expected) in [
            (array(&[1, 99]), Extended { expires_at_ms: 99 }),
            (Reply::Int(-2), absent(Absence::Expired)),
            (Reply::Int(-1), absent(Absence::NotFound)),
            (Reply::Int(0), absent(Absence::NotFound)),
        ] {
            assert_eq!(outcome(&reply).unwrap(), expected);
        }
        for reply in [
            Reply::Int(1),
            Reply::Nil,
            array(&[1]),
            array(&[0, 99]),
            array(&[1, 0]),
            array(&[1, 99, 1]),
        ] {
            assert_eq!(outcome(&reply).unwrap_err().kind(), ErrorKind::Internal);
        }
    }
}
