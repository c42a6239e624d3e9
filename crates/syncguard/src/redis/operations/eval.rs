//! Runs a script of the caller's only if locks are held, in one step.

use std::sync::Arc;

use crate::asking::outcome::{Absence, EvalOutcome};
use crate::asking::request::Eval;
use crate::redis::backend::Runner;
use crate::redis::hash_slots::key_slot;
use crate::redis::names::{Names, group_keys};
use crate::redis::plan::{Plan, Script};
use crate::redis::reply::Reply;
use crate::text::error::Error;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;

/// What comes before the caller's text: see `callers.rs`.
const CHECK: &str = include_str!(concat!(env!("OUT_DIR"), "/eval.lua"));

/// The first word of a reply that is not the caller's.
const LOST: &[u8] = b"syncguard:lost";

/// What to send. `script` is the caller's behind the check.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room, and in a cluster for keys in another hash slot than the locks.
fn plan(names: &Names, eval: &Eval, script: Arc<Script>) -> Result<Plan, Error> {
    let callers_counts = [eval.keys.len(), eval.arguments.len()];
    let mut plan = Plan::of_callers(script, callers_counts);
    for key in &eval.keys {
        plan = plan.key(names, key);
    }
    let mut slot = None;
    for (key, _) in &eval.locks {
        let lock_key = names.lock_key(key)?;
        if names.is_in_cluster() {
            let own = key_slot(&names.before(&lock_key));
            if *slot.get_or_insert(own) != own {
                return Err(Error::invalid(SEVERAL_SLOTS));
            }
        }
        let group = group_keys(&lock_key).map(|[group, _]| group);
        plan = plan.keys_of(names, group.as_deref()).key(names, &lock_key);
    }
    let is_elsewhere = |key: &String| slot.is_some_and(|slot| key_slot(&names.before(key)) != slot);
    if let Some(place) = eval.keys.iter().position(is_elsewhere) {
        return Err(Error::invalid(format!(
            "keys[{place}] is in another hash slot than the lock: in a redis cluster, one script touches the keys of one hash slot \
             (a keyPrefix with a hash tag puts locks where your data is)"
        )));
    }
    for argument in &eval.arguments {
        plan = plan.arg(argument);
    }
    for (_, lock_id) in &eval.locks {
        plan = plan.arg(lock_id.as_str());
    }
    let count = eval.locks.len().to_string();
    Ok(plan.number(TIME_TOLERANCE_MS).arg(&count))
}

const SEVERAL_SLOTS: &str = "the locks are in several hash slots: in a redis cluster, one script touches the keys of one hash slot \
     (a keyPrefix with a hash tag puts all locks in one)";

/// What the reply means.
fn outcome(eval: &Eval, reply: Reply) -> EvalOutcome {
    match lost(eval, &reply) {
        Some((lock, absence)) => EvalOutcome::Absent { lock, absence },
        None => EvalOutcome::Done(reply),
    }
}

fn lost(eval: &Eval, reply: &Reply) -> Option<(usize, Absence)> {
    let Reply::Array(items) = reply else {
        return None;
    };
    let [Reply::Bulk(word), Reply::Bulk(lock_id), place, code] = items.as_slice() else {
        return None;
    };
    let lock = usize::try_from(place.integer()?).ok()?;
    let (_, expected) = eval.locks.get(lock)?;
    let absence = match code.integer()? {
        -2 => Absence::Expired,
        -1 => Absence::NotFound,
        _ => return None,
    };
    (word == LOST && lock_id == expected.as_str().as_bytes()).then_some((lock, absence))
}

impl Runner {
    pub(in crate::redis) async fn eval(&self, eval: &Eval) -> Result<EvalOutcome, Error> {
        if eval.locks.is_empty() {
            return Err(Error::invalid("eval needs a lock that must be held"));
        }
        // Anybody can compute the lock id of a group, so it proves nothing.
        let is_group = |(key, lock_id): &(Key, LockId)| lock_id.is_group_of(key.as_str());
        if let Some(lock) = eval.locks.iter().position(is_group) {
            let absence = Absence::NotFound;
            return Ok(EvalOutcome::Absent { lock, absence });
        }
        let script = self.scripts.get(&eval.script, CHECK);
        let plan = plan(&self.names, eval, script)?.noted_in(&eval.sending);
        Ok(outcome(eval, self.run(plan).await?))
    }
}
