//! Read, decide, write: in one transaction, again after a conflict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::client::{Begin, Client, Failure, ReadSet};
use super::decision::{Decision, Warning};
use super::error::{Step, from_status, timed_out};
use super::wire::Reply;
use crate::error::Error;
use crate::random;

/// The longest wait after the first conflict. It doubles with each, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(320);

/// How long to try to end a transaction that nobody waits for.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(5);

/// Reads `what`, lets `decide` decide, and commits what it wants written; all of it again while other
/// transactions are in the way and `limit` lasts. `decide` sees each attempt's own documents, and must
/// take the time itself, so that it is the attempt's own too.
pub(super) async fn transact<T>(
    client: &Arc<Client>,
    limit: Duration,
    what: &ReadSet,
    decide: impl Fn(&Reply) -> Result<Decision<T>, Error>,
    warn: impl Fn(&Warning),
) -> Result<T, Error> {
    let deadline = Instant::now() + limit;
    let mut repeated = Vec::new();
    let mut longest_wait = FIRST_WAIT;
    let mut conflict = None;
    loop {
        let committing = AtomicBool::new(false);
        let attempt = attempt(client, what, &mut repeated, &decide, &committing);
        let outcome = match timeout_at(deadline, attempt).await {
            Ok(outcome) => outcome?,
            Err(_) if committing.into_inner() => return Err(timed_out(limit, Step::Commit)),
            // What used the time up says more than that it is over.
            Err(_) => return Err(conflict.unwrap_or_else(|| timed_out(limit, Step::Read))),
        };
        let last_conflict = match outcome {
            Ok(decision) => {
                if let Some(warning) = &decision.warning {
                    warn(warning);
                }
                return Ok(decision.answer);
            }
            Err(last_conflict) => last_conflict,
        };
        let wait = longest_wait.mul_f64(random::unit()?);
        if Instant::now() + wait >= deadline {
            return Err(last_conflict);
        }
        conflict = Some(last_conflict);
        sleep(wait).await;
        longest_wait = (longest_wait * 2).min(LONGEST_WAIT);
    }
}

/// Reads outside of a transaction.
pub(super) async fn read(client: &Client, limit: Duration, what: &ReadSet) -> Result<Reply, Error> {
    match tokio::time::timeout(limit, client.read(what, Begin::No)).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(failure)) => Err(error(failure, Step::Read)),
        Err(_) => Err(timed_out(limit, Step::Read)),
    }
}

/// One attempt; the inner error is a conflict. `repeated` is the id of the attempt before, and then of
/// this one: Firestore lets a transaction that says which one it repeats go first.
async fn attempt<T>(
    client: &Arc<Client>,
    what: &ReadSet,
    repeated: &mut Vec<u8>,
    decide: &impl Fn(&Reply) -> Result<Decision<T>, Error>,
    committing: &AtomicBool,
) -> Result<Result<Decision<T>, Error>, Error> {
    let begin = Begin::ReadWrite(std::mem::take(repeated));
    let reply = match client.read(what, begin).await {
        Ok(reply) => reply,
        Err(failure) => return failed(failure, Step::Read),
    };
    let open = Open {
        client,
        id: reply.transaction.clone(),
    };
    let mut decision = decide(&reply)?;
    if decision.writes.is_empty() {
        return Ok(Ok(decision));
    }
    let writes = std::mem::take(&mut decision.writes);
    let writes = writes
        .into_iter()
        .map(|write| client.layout().write(write))
        .collect();
    committing.store(true, Ordering::Relaxed);
    match client.commit(open.id.clone(), writes).await {
        Ok(()) => {
            open.ended();
            Ok(Ok(decision))
        }
        Err(failure) => {
            if failure.is_conflict() {
                *repeated = open.ended();
            }
            failed(failure, Step::Commit)
        }
    }
}

fn failed<T>(failure: Failure, step: Step) -> Result<Result<T, Error>, Error> {
    let conflict = failure.is_conflict();
    let error = error(failure, step);
    if conflict { Ok(Err(error)) } else { Err(error) }
}

fn error(failure: Failure, step: Step) -> Error {
    match failure {
        Failure::Status(status) => from_status(&status, step),
        Failure::Unsent(error) => error,
    }
}

/// A transaction that is not known to have ended. Dropping it rolls it back in the background: until
/// then Firestore may keep others waiting for what it has read. A commit whose answer nobody waits for
/// any more, or did not come, is in doubt; if it was carried out, the rollback does nothing.
struct Open<'a> {
    client: &'a Arc<Client>,
    id: Vec<u8>,
}

impl Open<'_> {
    /// There is nothing to roll back any more; its id.
    fn ended(mut self) -> Vec<u8> {
        std::mem::take(&mut self.id)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.id.is_empty() {
            return;
        }
        // Without a runtime, Firestore ends it after a minute.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = Arc::clone(self.client);
            let id = std::mem::take(&mut self.id);
            runtime.spawn(async move {
                let _ = tokio::time::timeout(ROLLBACK_LIMIT, client.rollback(id)).await;
            });
        }
    }
}
