//! Frees the locks that lock ids own, each for itself.

use std::mem;

use crate::asking::outcome::{Absence, ReleaseOutcome};
use crate::redis::backend::{OwnedLock, Runner, TRIES, keeps_moving, owned_args, owned_keys};
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_elsewhere, malformed};
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "release_all.lua", fits);

/// What to send for locks that are in one place.
fn plan(names: &Names, locks: &[OwnedLock<'_>]) -> Result<Plan, Error> {
    let plan = owned_keys(Plan::new(&SCRIPT), names, locks)?.number(TIME_TOLERANCE_MS);
    Ok(owned_args(plan, names, locks)?.for_cluster(names))
}

/// What the reply means for each of `count` locks. `None`: nothing was done, because the lock is another than the one that was
/// given.
fn outcomes(reply: &Reply, count: usize) -> Result<Vec<Option<ReleaseOutcome>>, Error> {
    let outcome = |reply: &Reply| match is_elsewhere(reply) {
        true => Ok(None),
        false => super::release::outcome(reply).map(Some),
    };
    match reply {
        Reply::Array(items) if items.len() == count => items.iter().map(outcome).collect(),
        _ => Err(malformed("release")),
    }
}

fn fits(reply: &Reply) -> bool {
    match reply {
        Reply::Array(items) => outcomes(reply, items.len()).is_ok(),
        _ => false,
    }
}

impl Runner {
    /// Frees what lock ids of one place own.
    pub(super) async fn release_all(
        &self,
        lock_ids: &[&LockId],
    ) -> Result<Vec<ReleaseOutcome>, Error> {
        let absent = ReleaseOutcome::Absent(Absence::NotFound);
        let mut all = vec![absent; lock_ids.len()];
        let mut left: Vec<_> = lock_ids.iter().copied().enumerate().collect();
        for _ in 0..TRIES {
            let is_strict = self.is_strict();
            let locks = self.owned(mem::take(&mut left), is_strict).await?;
            if locks.is_empty() {
                return Ok(all);
            }
            let reply = match self.run(plan(&self.names, &locks)?).await {
                Err(error) if self.declaring.learns_from(is_strict, &error) => {
                    left = locks
                        .iter()
                        .map(|lock| (lock.place, lock.lock_id))
                        .collect();
                    continue;
                }
                reply => reply?,
            };
            for (lock, outcome) in locks.iter().zip(outcomes(&reply, locks.len())?) {
                match (outcome, all.get_mut(lock.place)) {
                    (Some(outcome), Some(place)) => *place = outcome,
                    _ => left.push((lock.place, lock.lock_id)),
                }
                self.forget(lock.lock_id);
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
        let ids = ["f4-_AAAAAAAAAAAAAAAAAA", "f4-_BBBBBBBBBBBBBBBBBA"];
        let lock_ids = ids.map(|id| LockId::parse(id).unwrap());
        let locks = |lock_key: Option<&str>| {
            let owned = lock_ids
                .iter()
                .enumerate()
                .map(|(place, lock_id)| OwnedLock {
                    place,
                    lock_id,
                    lock_key: lock_key.map(Into::into),
                });
            owned.collect::<Vec<_>>()
        };
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let plain = plan(&names, &locks(None)).unwrap();
        assert!(plain.keys().eq(ids.map(|id| format!("s:id:{id}"))));
        assert!(plain.args().eq(["1000", "2", ids[0], ids[1]]));
        let names = Names::in_cluster("s", ClientPrefix::Ours("c:".into())).unwrap();
        let clustered = plan(&names, &locks(Some("{s:7f}:k"))).unwrap();
        let index = ids.map(|id| format!("{{s:7f}}:id:{id}"));
        let keys: Vec<_> = clustered.keys().collect();
        let lock = "c:{s:7f}:k";
        let [first, second] = index.each_ref().map(|name| format!("c:{name}"));
        assert_eq!(keys, [&*first, lock, &*second, lock]);
        let args = ["1000", "2", ids[0], &index[0], ids[1], &index[1], "cluster"];
        assert!(clustered.args().eq(args));
    }

    #[test]
    fn replies_have_one_meaning_for_each() {
        let ints = |items: &[i64]| Reply::Array(items.iter().copied().map(Reply::Int).collect());
        let reply = ints(&[1, -2, -1, 0, -4]);
        let absent = |absence| Some(ReleaseOutcome::Absent(absence));
        let expected = [
            Some(ReleaseOutcome::Released),
            absent(Absence::Expired),
            absent(Absence::NotFound),
            absent(Absence::NotFound),
            None,
        ];
        assert_eq!(outcomes(&reply, 5).unwrap(), expected);
        assert!(fits(&reply));
        assert!(outcomes(&reply, 4).is_err());
        for reply in [Reply::Int(1), Reply::Nil, ints(&[2]), ints(&[1, -3])] {
            assert!(!fits(&reply), "{reply:?}");
        }
    }
}
