//! Acquires several locks, or slots of keys, if nobody holds any of them. Repeated with the lock ids that hold them, it answers
//! as before.

use std::time::Duration;

use super::acquire::{fence_and_end, is_groups, labels, wait};
use super::record;
use crate::asking::outcome::Grant;
use crate::asking::request::AcquireRequest;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, lifetime_ms, script};
use crate::redis::reply::{Reply, malformed, untagged};
use crate::text::error::Error;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::fence::Fence;
use crate::values::labels::Labels;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "acquire_all.lua", fits);

/// What to send for those claims of a request whose locks are in one place.
pub(super) fn plan(
    names: &Names,
    request: &AcquireRequest,
    claims: &[&Claim],
    fence_ttl_ms: Option<i64>,
    declares_slots: bool,
) -> Result<Plan, Error> {
    let (mut keys, mut args) = (Plan::new(&SCRIPT), Vec::new());
    for claim in claims {
        let [lock_key, fence_key, key] = names.claimed(claim)?;
        keys = keys
            .key(names, &lock_key)
            .key(names, &names.index_key(&claim.lock_id)?)
            .key(names, &fence_key);
        args.push((claim, key));
    }
    for claim in claims
        .iter()
        .filter(|claim| claim.kind == ClaimKind::Shared)
    {
        for name in names.beside_shared(claim)? {
            keys = keys.key(names, &name);
        }
    }
    if declares_slots {
        keys = with_slots(keys, names, claims)?;
    }
    let ttl_ms = request.ttl.as_millis();
    if let Some(first) = claims.first() {
        keys = keys.tagged(&first.lock_id);
    }
    let mut plan = keys
        .number(ttl_ms)
        .number(TIME_TOLERANCE_MS)
        .number(lifetime_ms(ttl_ms));
    plan = match fence_ttl_ms {
        Some(ttl_ms) => plan.number(ttl_ms),
        None => plan.arg(""),
    };
    plan = plan.arg(&record::tail_end(&request.labels));
    for (claim, key) in args {
        plan = plan
            .arg(claim.lock_id.as_str())
            .arg(&record::tail_start(&key));
        plan = match claim.kind {
            ClaimKind::Exclusive => plan.number(0).number(0),
            ClaimKind::Shared => plan.number(-1).arg(names.group_id(claim).as_str()),
            ClaimKind::SlotOf(slots) => plan
                .number(slots.count().into())
                .number(slots.first()?.into()),
        };
    }
    Ok(plan)
}

/// Adds the names of the locks and the counters of all slots of the keys that are claimed.
fn with_slots(mut plan: Plan, names: &Names, claims: &[&Claim]) -> Result<Plan, Error> {
    for same in claims.chunk_by(|a, b| a.key == b.key) {
        let Some((claim, slots)) = same.first().and_then(|it| Some((it, it.kind.slots()?))) else {
            continue;
        };
        let [lock_key, fence_key, _] = names.claimed(claim)?;
        for number in 1..=slots.count() {
            plan = plan
                .key(names, &format!("{lock_key}{number}"))
                .key(names, &format!("{fence_key}{number}"));
        }
    }
    Ok(plan)
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    Granted {
        grants: Vec<Grant>,
        /// Whether the lock ids held them before: they have been granted once.
        is_repeated: bool,
    },
    /// The number of the claim whose lock is held, for how long it still is, its labels, and whether it is a group.
    Locked(usize, Duration, Labels, bool),
}

/// What the reply to those claims means.
pub(super) fn outcome(claims: &[&Claim], reply: &Reply) -> Result<StepOutcome, Error> {
    match reply {
        Reply::Array(items) => locked(claims, untagged(items))
            .or_else(|| granted(claims, untagged(items)))
            .ok_or_else(|| malformed("acquire")),
        other => match other.integer() {
            Some(-3) => Err(Fence::overflow()),
            _ => Err(malformed("acquire")),
        },
    }
}

/// Whether the script can have given that reply.
fn fits(reply: &Reply) -> bool {
    let Reply::Array(items) = reply else {
        return reply.integer() == Some(-3);
    };
    match untagged(items) {
        [code, claim, wait_ms] | [code, claim, wait_ms, Reply::Bulk(_)]
            if code.integer() == Some(0) =>
        {
            claim.integer().is_some() && wait_ms.integer().is_some()
        }
        [code, held, grants @ ..] if code.integer() == Some(1) && held.integer().is_some() => {
            let (grants, rest) = grants.as_chunks::<3>();
            let is_grant = |[slot, fence, expires_at_ms]: &[Reply; 3]| {
                slot.integer().is_some() && fence_and_end(fence, expires_at_ms).is_some()
            };
            !grants.is_empty() && rest.is_empty() && grants.iter().all(is_grant)
        }
        _ => false,
    }
}

fn locked(claims: &[&Claim], items: &[Reply]) -> Option<StepOutcome> {
    let (code, claim, wait_ms, lock) = match items {
        [code, claim, wait_ms] => (code, claim, wait_ms, None),
        [code, claim, wait_ms, lock] => (code, claim, wait_ms, Some(lock)),
        _ => return None,
    };
    if code.integer()? != 0 {
        return None;
    }
    let claim = usize::try_from(claim.integer()?).ok()?;
    let (labels, is_shared) = (labels(lock)?, is_groups(lock, &claims.get(claim)?.key));
    Some(StepOutcome::Locked(
        claim,
        wait(wait_ms)?,
        labels,
        is_shared,
    ))
}

fn granted(claims: &[&Claim], items: &[Reply]) -> Option<StepOutcome> {
    let [code, held, grants @ ..] = items else {
        return None;
    };
    let (grants, rest) = grants.as_chunks::<3>();
    if code.integer()? != 1 || grants.len() != claims.len() || !rest.is_empty() {
        return None;
    }
    let grant = |(claim, [slot, fence, expires_at_ms]): (&&Claim, &[Reply; 3])| {
        let (fence, expires_at_ms) = fence_and_end(fence, expires_at_ms)?;
        Some(Grant {
            lock_id: claim.lock_id.clone(),
            slot: slot_of(claim.kind, slot.integer()?)?,
            fence,
            expires_at_ms,
        })
    };
    let grants: Option<_> = claims.iter().zip(grants).map(grant).collect();
    Some(StepOutcome::Granted {
        grants: grants?,
        is_repeated: held.integer()? > 0,
    })
}

/// The slot that was granted, if the claim asks for slots. The outer `None` says that this cannot be granted for the claim.
fn slot_of(kind: ClaimKind, number: i64) -> Option<Option<u16>> {
    let number = u16::try_from(number).ok()?;
    let slot = (number > 0).then_some(number);
    kind.admits(slot).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;
    use crate::text::error::ErrorKind;
    use crate::values::claim::Slots;
    use crate::values::key::Key;
    use crate::values::lock_id::LockId;
    use crate::values::owner::Owner;
    use crate::values::ttl::Ttl;

    const IDS: [&str; 3] = [
        "AAAAAAAAAAAAAAAAAAAAAA",
        "BBBBBBBBBBBBBBBBBBBBBA",
        "CCCCCCCCCCCCCCCCCCCCCA",
    ];

    /// Of a key, and of two slots of another.
    fn request() -> AcquireRequest {
        let key = |name| Key::new(name).unwrap();
        let slots = Slots::new(5).unwrap();
        let claims = [
            Claim::new(key("a\"")).unwrap(),
            Claim::slot(key("p"), slots).unwrap(),
            Claim::slot(key("p"), slots).unwrap(),
        ];
        let mut request = AcquireRequest::of(claims, Ttl::from_millis(5000).unwrap()).unwrap();
        for (claim, id) in request.claims.iter_mut().zip(IDS) {
            claim.lock_id = LockId::parse(id).unwrap();
        }
        request
    }

    fn claims(request: &AcquireRequest) -> Vec<&Claim> {
        request.claims.iter().collect()
    }

    fn ints(items: &[i64]) -> Reply {
        Reply::Array(items.iter().copied().map(Reply::Int).collect())
    }

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::Ours("app:".into())).unwrap();
        let mut request = request();
        request.labels.owner = Some(Owner::new("me").unwrap());
        let plan = plan(&names, &request, &claims(&request), Some(9), false).unwrap();
        let expected = [
            "app:s:a\"",
            &format!("app:s:id:{}", IDS[0]),
            "app:s:fence:s:a\"",
            "app:s:p\u{37e}",
            &format!("app:s:id:{}", IDS[1]),
            "app:s:fence:s:p\u{37e}",
            "app:s:p\u{37e}",
            &format!("app:s:id:{}", IDS[2]),
            "app:s:fence:s:p\u{37e}",
        ];
        assert!(plan.keys().eq(expected));
        let args: Vec<_> = plan.args().collect();
        let common = ["5000", "1000", "6000", "9", "\",\"owner\":\"me\"}"];
        assert_eq!(args[..5], common);
        assert_eq!(args[5..9], [IDS[0], r#""key":"a\""#, "0", "0"]);
        assert_eq!(args[9..12], [IDS[1], "\"key\":\"p\u{37e}", "5"]);
        assert!((1..=5).contains(&args[12].parse::<u16>().unwrap()));
        assert_eq!(args[13], IDS[2]);
        assert_eq!(args.len(), 17);
        let declaring = super::plan(&names, &request, &claims(&request), Some(9), true).unwrap();
        let slots = (1..=5).flat_map(|number| {
            ["p", "fence:s:p"].map(|name| format!("app:s:{name}\u{37e}{number}"))
        });
        assert!(declaring.keys().skip(9).eq(slots));
        assert_eq!(declaring.args().len(), 17);
    }

    #[test]
    fn a_shared_lock_brings_what_is_beside_it() {
        let names = Names::new("s", ClientPrefix::Ours("app:".into())).unwrap();
        let mut request = request();
        request.claims[0].kind = ClaimKind::Shared;
        let plan = plan(&names, &request, &claims(&request), None, true).unwrap();
        let lock = "app:s:a\"";
        let reader = format!("{lock}\u{37e}r{}", IDS[0]);
        let beside = [
            reader,
            format!("{lock}\u{37e}readers"),
            format!("{lock}\u{37e}0"),
        ];
        assert!(plan.keys().skip(9).take(3).eq(beside));
        assert_eq!(plan.keys().len(), 9 + 3 + 10);
        let args: Vec<_> = plan.args().collect();
        let group = LockId::group("a\"");
        assert_eq!(args[5..9], [IDS[0], r#""key":"a\""#, "-1", group.as_str()]);
    }

    #[test]
    fn a_counter_that_stays_has_no_time() {
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let mut request = request();
        request.labels = Labels::default();
        let plan = plan(&names, &request, &claims(&request), None, false).unwrap();
        assert!(plan.args().skip(3).take(2).eq(["", "\"}"]));
    }

    #[test]
    fn replies_are_grants_locks_or_errors() {
        let request = request();
        let claims = claims(&request);
        let [new, repeated] = [0, 3].map(|held| ints(&[1, held, 0, 7, 99, 3, 8, 99, 5, 9, 98]));
        let granted = |reply: &Reply| {
            assert!(fits(reply));
            match outcome(&claims, reply).unwrap() {
                StepOutcome::Granted {
                    grants,
                    is_repeated,
                } => (grants, is_repeated),
                StepOutcome::Locked(..) => panic!("locked"),
            }
        };
        assert!(granted(&repeated).1);
        let (grants, is_repeated) = granted(&new);
        assert!(!is_repeated);
        let grants: Vec<_> = grants
            .iter()
            .map(|grant| (grant.lock_id.as_str(), grant.slot, grant.fence.get()))
            .collect();
        assert_eq!(
            grants,
            [
                (IDS[0], None, 7),
                (IDS[1], Some(3), 8),
                (IDS[2], Some(5), 9)
            ]
        );
        let reply = ints(&[0, 2, 700]);
        assert!(fits(&reply));
        let locked = |place, is_shared| {
            StepOutcome::Locked(
                place,
                Duration::from_millis(700),
                Labels::default(),
                is_shared,
            )
        };
        assert_eq!(outcome(&claims, &reply).unwrap(), locked(2, false));
        let group = LockId::group("a\"");
        for (lock_id, is_shared) in [(&group, true), (&claims[0].lock_id, false)] {
            let stored = format!("{{\"lockId\":\"{}\",\"expires", lock_id.as_str());
            let [code, place, wait] = [0, 0, 700].map(Reply::Int);
            let reply = Reply::Array(vec![code, place, wait, Reply::Bulk(stored.into())]);
            assert_eq!(outcome(&claims, &reply).unwrap(), locked(0, is_shared));
        }
        let error = outcome(&claims, &Reply::Int(-3)).unwrap_err();
        assert!(error.message().contains("limit") && !error.is_outcome_unknown());
        assert!(fits(&Reply::Int(-3)));
    }

    #[test]
    fn other_replies_are_malformed_and_may_hide_a_grant() {
        let request = request();
        let claims = claims(&request);
        for reply in [
            Reply::Int(0),
            Reply::Int(1),
            Reply::Nil,
            ints(&[]),
            ints(&[1]),
            ints(&[0, 3, 700]),
            ints(&[0, -1, 700]),
            ints(&[0, 0, 0]),
            ints(&[0, 700]),
            // One too few, a slot that nobody asked for, one that is not there, and no time.
            ints(&[1, 0, 0, 7, 99, 3, 8, 99]),
            ints(&[1, 0, 1, 7, 99, 3, 8, 99, 5, 9, 98]),
            ints(&[1, 0, 0, 7, 99, 6, 8, 99, 5, 9, 98]),
            ints(&[1, 0, 0, 7, 99, 0, 8, 99, 5, 9, 98]),
            ints(&[1, 0, 0, 7, 99, 3, 8, 0, 5, 9, 98]),
            ints(&[1, 0, 0, 7, 99, 3, 8, 99, 5, 9, 98, 1]),
        ] {
            let error = outcome(&claims, &reply).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{reply:?}");
            assert!(error.is_outcome_unknown());
        }
        for reply in [
            Reply::Nil,
            Reply::Int(0),
            ints(&[1]),
            ints(&[1, 0]),
            ints(&[1, 0, 0, 0, 5]),
        ] {
            assert!(!fits(&reply), "{reply:?}");
        }
    }
}
