//! How a lock, or several, are acquired: which statements are tried in which order, until nobody comes between.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tokio_postgres::error::SqlState;

use super::backend::{Executor, PostgresBackend};
use super::connection::quota::Subject;
use super::error::Failure;
use super::names::PrimaryKeys;
use super::operations::acquire::{Attempted, NamedRequest};
use super::operations::acquire_all::Claimed;
use super::operations::join::Join;
use super::operations::labels::StoredLabels;
use super::operations::{acquire, acquire_all, mark};
use super::statement::{Plan, Row};
use crate::asking::limit::Limit;
use crate::asking::outcome::AcquireOutcome;
use crate::asking::request::AcquireRequest;
use crate::text::error::{Error, ErrorKind};
use crate::values::claim::{Claim, ClaimKind};
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

impl PostgresBackend {
    /// What a statement that stores labels gives; `None` if the table of locks is older than they are. Then the lock is
    /// taken without them, which is better than no lock.
    async fn labelled(
        &self,
        executor: &Executor,
        subjects: &[Subject<'_>],
        plan: &Plan<'_>,
    ) -> Option<Result<Option<Row>, Failure>> {
        match executor.runner.try_run(subjects, plan).await {
            Err(failure) if failure.state() == Some(&SqlState::UNDEFINED_COLUMN) => {
                self.unlabelled.store(true, Ordering::Relaxed);
                None
            }
            answer => Some(answer),
        }
    }

    /// The labels as they are stored; `None` if there are none, or the table of locks is known to be older than they are.
    fn stored(&self, labels: &Labels, lock_id: Option<&LockId>) -> Option<StoredLabels> {
        let has_none = labels.is_empty() || self.unlabelled.load(Ordering::Relaxed);
        (!has_none).then(|| StoredLabels::of(labels, lock_id))
    }

    /// Tries to acquire one lock.
    async fn try_one(
        &self,
        executor: &Executor,
        request: &AcquireRequest,
        claim: &Claim,
        names: &PrimaryKeys,
    ) -> Result<Attempted, Error> {
        let (acquire, ttl) = (&self.operations.acquire, request.ttl);
        let due = request.due.as_ref();
        let subjects = [Subject::Key(&names.lock)];
        let labels = self.stored(&request.labels, Some(&claim.lock_id));
        if due.is_none() {
            let named = || NamedRequest::new(claim, ttl, names, labels.as_ref());
            if let Some(outcome) = executor.acquisitions.join(named).await? {
                return Ok(Attempted::Done(outcome));
            }
        }
        if labels.is_some() {
            let plan = acquire
                .plan(claim, ttl, names, due, labels.as_ref())
                .noted_in(&request.sending);
            if let Some(answer) = self.labelled(executor, &subjects, &plan).await {
                return acquire::outcome(claim, answer?.as_ref());
            }
        }
        if due.is_some() {
            let plan = acquire
                .plan(claim, ttl, names, due, None)
                .noted_in(&request.sending);
            let answer = executor.runner.try_run(&subjects, &plan).await;
            let row = answer.map_err(|failure| {
                // The column that is missing may be none of labels.
                self.unlabelled.store(false, Ordering::Relaxed);
                mark::to_error(failure)
            })?;
            return acquire::outcome(claim, row.as_ref());
        }
        let plan = acquire
            .plan(claim, ttl, names, None, None)
            .noted_in(&request.sending);
        acquire::outcome(claim, executor.runner.run(&subjects, &plan).await?.as_ref())
    }

    /// Tries to join other readers, together with those who ask at the same time; `None` where this is no join, or runs alone.
    async fn try_joining(
        &self,
        executor: &Executor,
        request: &AcquireRequest,
    ) -> Result<Option<Attempted>, Error> {
        match (request.claims.as_slice(), &request.due) {
            ([claim], None) if claim.kind == ClaimKind::Shared => {
                let (joins, key) = (&executor.joins, Subject::Key(claim.key.as_str()));
                if !joins.is_busy() && !joins.is_used_up(key) {
                    return Ok(None);
                }
                let labels = self.stored(&request.labels, None);
                joins.gather(Join::new(claim, request.ttl, labels)?).await
            }
            _ => Ok(None),
        }
    }

    /// Tries to acquire all that is claimed; `None` if somebody else came between.
    async fn try_all(
        &self,
        executor: &Executor,
        request: &AcquireRequest,
    ) -> Result<Option<AcquireOutcome>, Error> {
        let (acquire, ttl) = (&self.operations.acquire_all, request.ttl);
        let claims = &request.claims;
        let claimed = Claimed::new(claims)?;
        let subjects = claims.iter().map(|claim| Subject::Key(claim.key.as_str()));
        let subjects = subjects.collect::<Vec<_>>();
        let mut answer = None;
        if let Some(labels) = self.stored(&request.labels, None) {
            let plan = acquire
                .plan(&claimed, ttl, Some(&labels))
                .noted_in(&request.sending);
            answer = self.labelled(executor, &subjects, &plan).await;
        }
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let plan = acquire.plan(&claimed, ttl, None).noted_in(&request.sending);
                executor.runner.try_run(&subjects, &plan).await
            }
        };
        match answer {
            // The statement has found, while it wrote, a lock that was written beside its counter.
            Err(failure) if failure.state() == Some(&SqlState::INVALID_TEXT_REPRESENTATION) => {
                Ok(None)
            }
            answer => acquire_all::outcome(claims, answer?.as_ref()),
        }
    }

    /// Tries until nobody comes between. Each time, somebody else was granted one of the locks.
    async fn attempt(
        &self,
        executor: &Executor,
        request: &AcquireRequest,
        limit: &Limit,
    ) -> Result<AcquireOutcome, Error> {
        let single = match request.single() {
            Some(claim) => Some((claim, PrimaryKeys::new(&claim.key)?)),
            None => None,
        };
        loop {
            let attempted = match &single {
                Some((claim, names)) => Some(self.try_one(executor, request, claim, names).await?),
                None => self.try_joining(executor, request).await?,
            };
            let outcome = match attempted {
                Some(Attempted::Done(outcome)) => Some(outcome),
                Some(Attempted::Overtaken) => None,
                // One that has expired is taken over by the statement that acquires several.
                Some(Attempted::Expired) | None => {
                    let outcome = Box::pin(self.try_all(executor, request)).await?;
                    match (&request.due, &single, outcome) {
                        (
                            Some(_),
                            Some((_, names)),
                            Some(outcome @ AcquireOutcome::Acquired(_)),
                        ) => {
                            let held = Box::pin(self.while_due(executor, request, names, outcome));
                            // The lock is acquired: after a failure it has to be given back.
                            Some(held.await.map_err(Error::with_unknown_outcome)?)
                        }
                        (_, _, outcome) => outcome,
                    }
                }
            };
            match outcome {
                Some(outcome) => return Ok(outcome),
                None if Instant::now() < limit.at => {}
                None => return Err(overtaken()),
            }
        }
    }

    /// Gives a lock that was taken over back if something was done for its period meanwhile. The statement that takes over
    /// looks at no marks; while the lock is held, nobody else stores one.
    async fn while_due(
        &self,
        executor: &Executor,
        request: &AcquireRequest,
        names: &PrimaryKeys,
        outcome: AcquireOutcome,
    ) -> Result<AcquireOutcome, Error> {
        let mark = self.read_mark(executor, names).await?;
        match mark.zip(request.due.as_ref()) {
            Some((mark, due)) if !due.is_after(&mark.due) => {
                self.release_alone(executor, &request.lock_ids()).await?;
                Ok(AcquireOutcome::Done(mark))
            }
            _ => Ok(outcome),
        }
    }

    pub(super) async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        let executor = self.executor.get()?;
        let own = || Arc::new(Limit::after(self.options.operation_timeout));
        let limit = request.limit.clone().unwrap_or_else(own);
        let attempt = self.attempt(&executor, request, &limit);
        let blocked = &self.operations.blocked;
        blocked
            .watch(&executor.runner, &request.claims, &limit, attempt)
            .await
    }
}

fn overtaken() -> Error {
    Error::new(
        ErrorKind::NetworkTimeout,
        "others were granted one of the locks each time that this call was about to get them",
    )
}
