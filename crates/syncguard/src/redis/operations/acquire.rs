//! Acquires a lock if nobody holds it. Repeated with the lock id that holds it, it answers as before.

use std::time::Duration;

use super::{mark, record};
use crate::asking::outcome::{AcquireOutcome, Grant};
use crate::asking::request::AcquireRequest;
use crate::redis::backend::Runner;
use crate::redis::names::{self, Names};
use crate::redis::plan::{Plan, lifetime_ms, script};
use crate::redis::reply::{Reply, malformed, untagged};
use crate::text::error::Error;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "acquire.lua", fits);

// The same, if the period is still to be done. The period is the last argument.
script!(ONCE_SCRIPT, "acquire_once.lua", |reply| fits(reply)
    || done_text(reply).is_some());

/// What to send. If the request names a period, it is added behind the last argument.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key, and in a cluster for a lock id that does not fit.
pub fn plan(names: &Names, request: &AcquireRequest) -> Result<Plan, Error> {
    let claim = request.only()?;
    let [lock_key, fence_key, key] = names.claimed(claim)?;
    let index_key = names.index_key(&claim.lock_id)?;
    let ttl_ms = request.ttl.as_millis();
    let (script, mark_key) = match request.due {
        None => (&SCRIPT, None),
        Some(_) => (&ONCE_SCRIPT, Some(names::mark_key(&fence_key))),
    };
    Ok(Plan::new(script)
        .tagged(&claim.lock_id)
        .key(names, &lock_key)
        .key(names, &index_key)
        .key(names, &fence_key)
        .keys_of(names, mark_key.as_deref())
        .arg(claim.lock_id.as_str())
        .number(ttl_ms)
        .number(TIME_TOLERANCE_MS)
        .arg(&lock_key)
        .arg(&key)
        .arg(&record::tail(&key, &request.labels))
        .number(lifetime_ms(ttl_ms)))
}

/// The name of the lock in a plan, without the client's prefix.
fn lock_key(plan: &Plan) -> Option<&str> {
    plan.args().nth(3)
}

impl Runner {
    /// Acquires all that is claimed: here, if that is one key, which should not have to carry the room that several need.
    pub(in crate::redis) async fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        if request.only().is_err() {
            return Box::pin(self.acquire_several(request)).await;
        }
        let mut plan = plan(&self.names, request)?
            .replicated(self.replication)
            .noted_in(&request.sending);
        if let Some(ttl_ms) = self.fence_ttl_ms() {
            plan = plan.number(ttl_ms);
        }
        if let Some(due) = &request.due {
            plan = plan.arg(due.as_stored());
        }
        // From now on it is known which lock the lock id owns if it owns one.
        if let Some(lock_key) = lock_key(&plan) {
            self.known.learn(&request.only()?.lock_id, lock_key);
        }
        let outcome = outcome(request, &self.run(plan).await?)?;
        if !matches!(outcome, AcquireOutcome::Acquired(_)) {
            self.forget(&request.only()?.lock_id);
        }
        Ok(outcome)
    }
}

/// What the reply means.
///
/// # Errors
/// `Internal` for a fence counter at its limit, and for a reply that makes no sense. In the second
/// case the lock may have been granted.
pub fn outcome(request: &AcquireRequest, reply: &Reply) -> Result<AcquireOutcome, Error> {
    match reply {
        Reply::Array(items) => locked(request, untagged(items))
            .or_else(|| granted(request, untagged(items)))
            .or_else(|| done(reply))
            .ok_or_else(|| malformed("acquire")),
        other => match other.integer() {
            // From somebody's mock of a client.
            Some(0) => Ok(AcquireOutcome::Locked {
                claim: 0,
                free_in: None,
                labels: Labels::default(),
                is_shared: false,
            }),
            Some(-3) => Err(Fence::overflow()),
            _ => Err(malformed("acquire")),
        },
    }
}

/// Whether the script can have given that reply. How long to wait is the server's arithmetic on what others wrote.
fn fits(reply: &Reply) -> bool {
    match reply {
        Reply::Array(items) => match untagged(items) {
            [code, wait_ms] | [code, wait_ms, Reply::Bulk(_)] if code.integer() == Some(0) => {
                wait_ms.integer().is_some()
            }
            items => grant(items).is_some(),
        },
        other => matches!(other.integer(), Some(0 | -3)),
    }
}

fn locked(request: &AcquireRequest, items: &[Reply]) -> Option<AcquireOutcome> {
    let (code, wait_ms, lock) = match items {
        [code, wait_ms] => (code, wait_ms, None),
        [code, wait_ms, lock] => (code, wait_ms, Some(lock)),
        _ => return None,
    };
    if code.integer()? != 0 {
        return None;
    }
    Some(AcquireOutcome::Locked {
        claim: 0,
        free_in: Some(wait(wait_ms)?),
        labels: labels(lock)?,
        is_shared: is_groups(lock, &request.only().ok()?.key),
    })
}

/// What is stored of the last period, if that is done already which was asked for.
fn done_text(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Array(items) => match untagged(items) {
            [code, Reply::Bulk(stored)] if code.integer() == Some(2) => Some(stored),
            _ => None,
        },
        _ => None,
    }
}

fn done(reply: &Reply) -> Option<AcquireOutcome> {
    Some(AcquireOutcome::Done(mark::read(done_text(reply)?)?))
}

/// The labels of the lock that stands in the way, as it is stored; none where a reply has nothing of it.
pub(super) fn labels(stored: Option<&Reply>) -> Option<Labels> {
    match stored {
        None => Some(Labels::default()),
        Some(Reply::Bulk(json)) => Some(record::labels(json)),
        Some(_) => None,
    }
}

/// Whether the lock in a reply is the group of the key.
pub(super) fn is_groups(lock: Option<&Reply>, key: &Key) -> bool {
    matches!(lock, Some(Reply::Bulk(json)) if record::is_groups(json, key))
}

/// How long somebody else holds a lock.
pub(super) fn wait(wait_ms: &Reply) -> Option<Duration> {
    let wait_ms = wait_ms.integer().filter(|ms| *ms > 0)?;
    Some(Duration::from_millis(wait_ms.unsigned_abs()))
}

fn granted(request: &AcquireRequest, items: &[Reply]) -> Option<AcquireOutcome> {
    let (fence, expires_at_ms) = grant(items)?;
    Some(AcquireOutcome::one(Grant {
        lock_id: request.only().ok()?.lock_id.clone(),
        slot: None,
        fence,
        expires_at_ms,
    }))
}

/// The fence and the end of a lock that was granted.
fn grant(items: &[Reply]) -> Option<(Fence, i64)> {
    let [code, fence, expires_at_ms] = items else {
        return None;
    };
    if code.integer()? != 1 {
        return None;
    }
    fence_and_end(fence, expires_at_ms)
}

pub(super) fn fence_and_end(fence: &Reply, expires_at_ms: &Reply) -> Option<(Fence, i64)> {
    let fence = Fence::from_counter(fence.integer()?).ok()?;
    Some((fence, expires_at_ms.integer().filter(|ms| *ms > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;
    use crate::text::error::ErrorKind;
    use crate::values::lock_id::LockId;
    use crate::values::owner::Owner;
    use crate::values::ttl::Ttl;

    const ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

    fn request() -> AcquireRequest {
        let key = Key::new("job:\"1\"").unwrap();
        let mut request = AcquireRequest::new(key, Ttl::from_millis(5000).unwrap()).unwrap();
        request.claims[0].lock_id = LockId::parse(ID).unwrap();
        request
    }

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("syncguard", ClientPrefix::None).unwrap();
        let mut request = request();
        request.labels.owner = Some(Owner::new("me").unwrap());
        let plan = plan(&names, &request).unwrap();
        assert!(plan.keys().eq([
            "syncguard:job:\"1\"",
            "syncguard:id:AAAAAAAAAAAAAAAAAAAAAA",
            "syncguard:fence:syncguard:job:\"1\"",
        ]));
        assert!(plan.args().eq([
            ID,
            "5000",
            "1000",
            "syncguard:job:\"1\"",
            "job:\"1\"",
            r#""key":"job:\"1\"","owner":"me"}"#,
            "6000",
        ]));
    }

    #[test]
    fn a_clients_prefix_stands_before_the_keys_and_not_in_the_arguments() {
        let names = Names::new("s", ClientPrefix::Ours("app:".into())).unwrap();
        let plan = plan(&names, &request()).unwrap();
        assert!(plan.keys().all(|key| key.starts_with("app:s:")));
        assert_eq!(lock_key(&plan), Some("s:job:\"1\""));
    }

    #[test]
    fn replies_are_grants_locks_or_errors() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let grant = AcquireOutcome::one(Grant {
            lock_id: LockId::parse(ID).unwrap(),
            slot: None,
            fence: Fence::from_counter(7).unwrap(),
            expires_at_ms: 1_700_000_000_000,
        });
        for reply in [
            Reply::Array(vec![
                Reply::Int(1),
                Reply::Int(7),
                Reply::Int(1_700_000_000_000),
            ]),
            Reply::Array(vec![
                bulk("1"),
                bulk("000000000000007"),
                bulk("1700000000000"),
            ]),
        ] {
            assert_eq!(outcome(&request(), &reply).unwrap(), grant);
        }
        for (reply, free_in) in [
            (Reply::Int(0), None),
            (bulk("0"), None),
            (Reply::Array(vec![Reply::Int(0), Reply::Int(7)]), Some(7)),
            (Reply::Array(vec![bulk("0"), bulk("7")]), Some(7)),
        ] {
            let free_in = free_in.map(Duration::from_millis);
            let locked = |labels| AcquireOutcome::Locked {
                claim: 0,
                free_in,
                labels,
                is_shared: false,
            };
            assert_eq!(
                outcome(&request(), &reply).unwrap(),
                locked(Labels::default())
            );
            let Reply::Array(mut items) = reply else {
                continue;
            };
            items.push(bulk("{\"lockId\":\"x\",\"key\":\"k\",\"owner\":\"me\"}"));
            items.push(bulk(ID));
            let mine = Owner::new("me").unwrap().into();
            let reply = Reply::Array(items);
            assert!(fits(&reply));
            assert_eq!(outcome(&request(), &reply).unwrap(), locked(mine));
        }
        let overflow = outcome(&request(), &Reply::Int(-3)).unwrap_err();
        assert_eq!(overflow.kind(), ErrorKind::Internal);
        assert!(overflow.message().contains("limit"));
        assert!(!overflow.is_outcome_unknown());
    }

    #[test]
    fn other_replies_are_malformed_and_may_hide_a_grant() {
        let int = Reply::Int;
        for reply in [
            int(1),
            int(-1),
            Reply::Nil,
            Reply::Bulk(b"OK".to_vec()),
            Reply::Array(vec![]),
            Reply::Array(vec![int(1)]),
            Reply::Array(vec![int(0), int(0)]),
            Reply::Array(vec![int(2), int(5)]),
            Reply::Array(vec![int(0), int(1), int(1)]),
            Reply::Array(vec![int(1), int(0), int(1)]),
            Reply::Array(vec![int(1), int(1), Reply::Nil]),
            Reply::Array(vec![int(1), int(1), int(-5)]),
            Reply::Array(vec![int(1), int(1_000_000_000_000_000), int(5)]),
            Reply::Array(vec![int(1), int(1), int(5), int(5)]),
        ] {
            let error = outcome(&request(), &reply).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{reply:?}");
            assert!(error.is_outcome_unknown());
        }
    }
}
