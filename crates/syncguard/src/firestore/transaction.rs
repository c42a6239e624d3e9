//! Reads, decides and writes in one transaction, and starts again after a conflict.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};

use super::decision::{Decision, Warning};
use super::error::{Failure, TransactionStep, timed_out};
use super::progress::Progress;
use super::transport::{Documents, ReadSet, Transport};
use crate::random;
use crate::text::error::Error;

/// The longest wait after the first conflict. It doubles with each further one, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(320);

/// Reads `what` and what `decide` asks for besides, and commits the writes that it has decided. After a conflict with another
/// transaction it does all of that again, within `limit`. `decide` gets the documents of each attempt, and must take
/// the time itself, so that the time too is that of the attempt.
pub(super) async fn transact<T>(
    transport: &Arc<dyn Transport>,
    limit: Duration,
    what: &ReadSet,
    decide: impl Fn(&Documents) -> Result<Progress<T>, Error>,
    warn: impl Fn(&Warning),
) -> Result<T, Error> {
    let deadline = Instant::now() + limit;
    let mut repeated = Vec::new();
    let mut longest_wait = FIRST_WAIT;
    let mut conflict = None;
    loop {
        let committing = AtomicBool::new(false);
        let attempt = attempt(transport, what, &mut repeated, &decide, &committing);
        let outcome = match timeout_at(deadline, attempt).await {
            Ok(outcome) => outcome?,
            Err(_) if committing.into_inner() => {
                return Err(timed_out(limit, TransactionStep::Commit));
            }
            // The conflict that used up the time says more than that the time is over.
            Err(_) => {
                return Err(conflict.unwrap_or_else(|| timed_out(limit, TransactionStep::Read)));
            }
        };
        let last_conflict = match outcome {
            Ok(decision) => {
                decision.warnings.iter().for_each(&warn);
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
pub(super) async fn read(
    transport: &Arc<dyn Transport>,
    limit: Duration,
    what: &ReadSet,
) -> Result<Documents, Error> {
    match tokio::time::timeout(limit, transport.read(what)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(failure)) => Err(failure.into_error(TransactionStep::Read)),
        Err(_) => Err(timed_out(limit, TransactionStep::Read)),
    }
}

/// One attempt. The inner error is a conflict. `repeated` holds the transaction id of the previous attempt, and
/// afterwards that of this one: Firestore gives precedence to a transaction that names the one it repeats.
async fn attempt<T>(
    transport: &Arc<dyn Transport>,
    what: &ReadSet,
    repeated: &mut Vec<u8>,
    decide: &impl Fn(&Documents) -> Result<Progress<T>, Error>,
    committing: &AtomicBool,
) -> Result<Result<Decision<T>, Error>, Error> {
    let begun = match transport.begin(what, std::mem::take(repeated)).await {
        Ok(begun) => begun,
        Err(failure) => return failed(failure, TransactionStep::Read),
    };
    // A commit that names no transaction is carried out on its own, whatever has changed since the reads.
    if begun.transaction.is_empty() {
        return failed(Failure::malformed(), TransactionStep::Read);
    }
    let open = OpenTransaction {
        transport,
        id: begun.transaction,
    };
    let mut found = begun.found;
    let mut decision = loop {
        match decide(&found)? {
            Progress::Decided(decision) => break decision,
            Progress::Read(what) => {
                if let Err(failure) = read_more(transport, &open.id, what, &mut found).await {
                    if failure.is_conflict() {
                        *repeated = open.ended();
                    }
                    return failed(failure, TransactionStep::Read);
                }
            }
        }
    };
    if decision.writes.is_empty() {
        return Ok(Ok(decision));
    }
    let writes = std::mem::take(&mut decision.writes);
    committing.store(true, Ordering::Relaxed);
    match transport.commit(&open.id, writes).await {
        Ok(()) => {
            open.ended();
            Ok(Ok(decision))
        }
        Err(failure) => {
            if failure.is_conflict() {
                *repeated = open.ended();
            }
            failed(failure, TransactionStep::Commit)
        }
    }
}

/// Reads all of that in the transaction, in one round trip.
async fn read_more(
    transport: &Arc<dyn Transport>,
    transaction: &[u8],
    what: Vec<ReadSet>,
    found: &mut Documents,
) -> Result<(), Failure> {
    let reads = what.iter().map(|what| transport.more(transaction, what));
    let answers = all(reads.collect()).await;
    for (what, more) in what.into_iter().zip(answers) {
        let more = more?;
        // The time by which to decide is that after all reads.
        found.read_at_ms = more.read_at_ms.or(found.read_at_ms);
        found.add(what, more);
    }
    Ok(())
}

/// Waits for all of these at once.
async fn all<T>(mut asked: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut answers: Vec<Option<T>> = asked.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = asked.as_mut().poll(context)
            {
                *answer = Some(ready);
            }
        }
        match answers.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

fn failed<T>(failure: Failure, step: TransactionStep) -> Result<Result<T, Error>, Error> {
    let conflict = failure.is_conflict();
    let error = failure.into_error(step);
    if conflict { Ok(Err(error)) } else { Err(error) }
}

/// A transaction that is not known to have ended. Dropping it abandons it, also when the answer to its commit was
/// lost: if the commit was carried out, abandoning does nothing.
struct OpenTransaction<'a> {
    transport: &'a Arc<dyn Transport>,
    id: Vec<u8>,
}

impl OpenTransaction<'_> {
    /// Marks the transaction as ended, so that it is not abandoned. Gives its id.
    fn ended(mut self) -> Vec<u8> {
        std::mem::take(&mut self.id)
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        if !self.id.is_empty() {
            Arc::clone(self.transport).abandon(std::mem::take(&mut self.id));
        }
    }
}
