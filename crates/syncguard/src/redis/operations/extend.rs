//! Makes locks end later, all or none.

use crate::asking::outcome::{Absence, ExtendOutcome};
use crate::asking::request::Extension;
use crate::redis::backend::{OwnedLock, Runner, TRIES, keeps_moving, owned_args, owned_keys};
use crate::redis::names::Names;
use crate::redis::plan::{Plan, lifetime_ms, script};
use crate::redis::replication::Replication;
use crate::redis::reply::{Reply, is_elsewhere, malformed, untagged};
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;
use crate::values::ttl::Ttl;

// Of one lock: in the server, the other script takes a third longer for it.
script!(SCRIPT, "extend.lua", |reply| outcome(reply).is_ok());

script!(SEVERAL_SCRIPT, "extend_all.lua", |reply| outcome(reply)
    .is_ok());

/// What to send for locks that are in one place.
fn plan(names: &Names, locks: &[OwnedLock<'_>], ttl: Ttl) -> Result<Plan, Error> {
    let times = |plan: Plan| {
        let plan = match locks.first() {
            Some(first) => plan.tagged(first.lock_id),
            None => plan,
        };
        plan.number(TIME_TOLERANCE_MS)
            .number(ttl.as_millis())
            .number(lifetime_ms(ttl.as_millis()))
    };
    if let [lock] = locks {
        let plan = owned_keys(Plan::new(&SCRIPT), names, locks)?.arg(lock.lock_id.as_str());
        return Ok(times(plan).bare(names, &names.index_key(lock.lock_id)?));
    }
    let plan = owned_keys(Plan::new(&SEVERAL_SCRIPT), names, locks)?;
    owned_args(times(plan), names, locks)
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Extended {
    /// All were extended, or none because one was not there.
    Done(ExtendOutcome),
    /// None was, because this one is another lock than the one that was given.
    Elsewhere(usize),
}

/// What the reply of either script means.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: &Reply) -> Result<Extended, Error> {
    let (lock, code) = match reply {
        Reply::Array(items) => match untagged(items) {
            [code, ends] if code.integer() == Some(1) => {
                let expires_at_ms = ends.integer().filter(|ms| *ms > 0);
                let expires_at_ms = expires_at_ms.ok_or_else(|| malformed("extend"))?;
                return Ok(Extended::Done(ExtendOutcome::Extended { expires_at_ms }));
            }
            [code, place, of_it] if code.integer() == Some(0) => {
                let place = place
                    .integer()
                    .and_then(|place| usize::try_from(place).ok());
                (place.ok_or_else(|| malformed("extend"))?, of_it)
            }
            _ => return Err(malformed("extend")),
        },
        code => (0, code),
    };
    if is_elsewhere(code) {
        return Ok(Extended::Elsewhere(lock));
    }
    let absence = match code.integer() {
        Some(-2) => Absence::Expired,
        Some(-1 | 0) => Absence::NotFound,
        _ => return Err(malformed("extend")),
    };
    Ok(Extended::Done(ExtendOutcome::Absent { lock, absence }))
}

impl Runner {
    /// Makes what lock ids of one place own end later.
    pub(super) async fn extend_all(
        &self,
        lock_ids: &[&LockId],
        extension: &Extension,
    ) -> Result<ExtendOutcome, Error> {
        for _ in 0..TRIES {
            let is_strict = self.is_strict();
            let all = lock_ids.iter().copied().enumerate();
            let locks = self.owned(all.collect(), is_strict).await?;
            if locks.len() < lock_ids.len() {
                let mut places = (0..).zip(&locks);
                let missing = places.find(|(place, lock)| *place != lock.place);
                let lock = missing.map_or(locks.len(), |(place, _)| place);
                let absence = Absence::NotFound;
                return Ok(ExtendOutcome::Absent { lock, absence });
            }
            let replication = self.replication.filter(|_| !extension.gives_back);
            let replication = replication.map(Replication::of_extension);
            let plan = plan(&self.names, &locks, extension.ttl)?.replicated(replication);
            let reply = match self.run(plan.answered_by(extension.needed_by)).await {
                Err(error) if self.declaring.learns_from(is_strict, &error) => continue,
                reply => reply?,
            };
            match outcome(&reply)? {
                Extended::Done(ExtendOutcome::Absent { lock, .. }) | Extended::Elsewhere(lock)
                    if lock >= lock_ids.len() =>
                {
                    return Err(malformed("extend"));
                }
                Extended::Done(outcome) => return Ok(outcome),
                Extended::Elsewhere(lock) => self.forget(lock_ids[lock]),
            }
        }
        Err(keeps_moving())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let ids = ["AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBA"];
        let lock_ids = ids.map(|id| LockId::parse(id).unwrap());
        let owned = lock_ids
            .iter()
            .enumerate()
            .map(|(place, lock_id)| OwnedLock {
                place,
                lock_id,
                lock_key: None,
            });
        let locks: Vec<_> = owned.collect();
        let ttl = Ttl::from_millis(500).unwrap();
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let several = plan(&names, &locks, ttl).unwrap();
        assert!(several.keys().eq(ids.map(|id| format!("s:id:{id}"))));
        let args = ["1000", "500", "1500", "2", ids[0], ids[1]];
        assert!(several.args().eq(args));
        let names = Names::new("s", ClientPrefix::Theirs).unwrap();
        let single = plan(&names, &locks[..1], ttl).unwrap();
        let index = format!("s:id:{}", ids[0]);
        assert!(single.keys().eq([&index]));
        let args = [ids[0], "1000", "500", "1500", &index];
        assert!(single.args().eq(args));
    }

    #[test]
    fn replies_have_one_meaning_each() {
        let array = |items: &[i64]| Reply::Array(items.iter().copied().map(Reply::Int).collect());
        let absent = |lock, absence| Extended::Done(ExtendOutcome::Absent { lock, absence });
        let expires_at_ms = 99;
        for (reply, expected) in [
            (
                array(&[1, 99]),
                Extended::Done(ExtendOutcome::Extended { expires_at_ms }),
            ),
            (Reply::Int(-2), absent(0, Absence::Expired)),
            (Reply::Int(-1), absent(0, Absence::NotFound)),
            (Reply::Int(0), absent(0, Absence::NotFound)),
            (Reply::Int(-4), Extended::Elsewhere(0)),
            (array(&[0, 3, -2]), absent(3, Absence::Expired)),
            (array(&[0, 1, -1]), absent(1, Absence::NotFound)),
            (array(&[0, 0, 0]), absent(0, Absence::NotFound)),
            (array(&[0, 2, -4]), Extended::Elsewhere(2)),
        ] {
            assert_eq!(outcome(&reply).unwrap(), expected);
        }
        for reply in [
            Reply::Int(1),
            Reply::Nil,
            array(&[]),
            array(&[1]),
            array(&[1, 0]),
            array(&[0, 99]),
            array(&[1, 99, 1]),
            array(&[0, 1, 1]),
            array(&[0, -1, -1]),
            array(&[1, 1, -1]),
        ] {
            assert!(outcome(&reply).is_err(), "{reply:?}");
        }
    }
}
