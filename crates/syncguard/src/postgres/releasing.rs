//! How locks are released: in a group or alone, with what is done, and with what the readers leave behind.

use std::slice;

use serde_json::Value;

use super::backend::{Executor, PostgresBackend};
use super::connection::quota::{self, Subject};
use super::names::PrimaryKeys;
use super::operations::tidy::Leaver;
use super::operations::{mark, release};
use super::readers::{beginning, first_of, may_be_shared};
use super::reply;
use crate::asking::outcome::ReleaseOutcome;
use crate::asking::request::Finish;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::due::DoneMark;
use crate::values::lock_id::LockId;

impl PostgresBackend {
    pub(super) async fn release(
        &self,
        lock_ids: &Batch<LockId>,
    ) -> Result<Batch<ReleaseOutcome>, Error> {
        let executor = self.executor.get()?;
        if lock_ids.iter().any(may_be_shared) {
            return self.leave(&executor, lock_ids).await;
        }
        let joining = executor.releases.join(|| lock_ids.clone());
        let subjects = quota::rows(lock_ids);
        let joined = self.on_rows(&executor, &subjects, joining).await?;
        let mut found = joined.unwrap_or_else(|| lock_ids.iter().map(|_| None).collect());
        let left = lock_ids.iter().zip(&found);
        let left = left.filter(|(_, outcome)| outcome.is_none());
        let left: Batch<LockId> = left.map(|(lock_id, _)| lock_id.clone()).collect();
        if !left.is_empty() {
            let mut outcomes = self.release_alone(&executor, &left).await?.into_iter();
            for outcome in found.iter_mut().filter(|outcome| outcome.is_none()) {
                *outcome = outcomes.next();
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Releases locks of which some may be readers'.
    async fn leave(
        &self,
        executor: &Executor,
        lock_ids: &[LockId],
    ) -> Result<Batch<ReleaseOutcome>, Error> {
        let (subjects, listed) = (quota::rows(lock_ids), reply::joined(lock_ids));
        let (release, durable) = (&self.operations.release, self.options.durable_releases);
        let plan = release.plan_leave(&listed, durable);
        let running = executor.runner.run(&subjects, &plan);
        let row = self.on_rows(executor, &subjects, running).await?;
        let outcomes = release::outcomes(lock_ids, row.as_ref())?;
        let leaver = match lock_ids {
            [lock_id] => Some(lock_id),
            _ => None,
        };
        self.tidy(executor, leaver, &release::left_groups(row.as_ref())?)
            .await;
        Ok(outcomes)
    }

    /// Lets the groups of these keys end with the last of their readers. `leaver` is the reader who has left, if it was one: others who leave share
    /// its statement. If this fails, a group keeps its end until another reader leaves.
    pub(super) async fn tidy(
        &self,
        executor: &Executor,
        leaver: Option<&LockId>,
        names: &[String],
    ) {
        if names.is_empty() {
            return;
        }
        let rows: Vec<_> = names.iter().map(|name| Subject::Row(name)).collect();
        let readers: Vec<_> = match leaver {
            Some(leaver) => vec![leaver.clone()],
            None => names.iter().map(|name| first_of(name)).collect(),
        };
        let subjects = readers.iter().filter_map(beginning);
        let subjects: Vec<_> = subjects.map(Subject::Readers).collect();
        let listed = Value::from(names).to_string();
        let running = async {
            if let (Some(leaver), [readers]) = (leaver, subjects.as_slice()) {
                let leaver = || Leaver {
                    lock_id: leaver.clone(),
                    listed: listed.clone(),
                };
                if executor
                    .tidies
                    .join_crowd(*readers, leaver)
                    .await?
                    .is_some()
                {
                    return Ok(());
                }
            }
            let (tidy, durable) = (&self.operations.tidy, self.options.durable_releases);
            let plan = tidy.plan(&listed, durable);
            executor.runner.run(&subjects, &plan).await.map(drop)
        };
        let _ = self.on_rows(executor, &rows, running).await;
    }

    pub(super) async fn release_alone(
        &self,
        executor: &Executor,
        lock_ids: &[LockId],
    ) -> Result<Batch<ReleaseOutcome>, Error> {
        let (release, durable) = (&self.operations.release, self.options.durable_releases);
        let subjects = quota::rows(lock_ids);
        if let [lock_id] = lock_ids {
            let plan = release.plan(lock_id, durable);
            let running = executor.runner.run(&subjects, &plan);
            let row = self.on_rows(executor, &subjects, running).await?;
            return Ok(Batch::from([release::outcome(lock_id, row.as_ref())?]));
        }
        let listed = reply::joined(lock_ids);
        let plan = release.plan_several(&listed, durable);
        let running = executor.runner.run(&subjects, &plan);
        let row = self.on_rows(executor, &subjects, running).await?;
        release::outcomes(lock_ids, row.as_ref())
    }

    /// What a statement gives that frees locks: it waits for a transaction that has locked their rows, and this says so if
    /// that takes too long.
    pub(super) async fn on_rows<T>(
        &self,
        executor: &Executor,
        rows: &[Subject<'_>],
        running: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (blocked, limit) = (&self.operations.blocked, self.options.operation_timeout);
        blocked
            .watch_rows_for(&executor.runner, rows, limit, running)
            .await
    }

    pub(super) async fn finish(
        &self,
        lock_id: &LockId,
        done: &Finish,
    ) -> Result<ReleaseOutcome, Error> {
        let executor = self.executor.get()?;
        let names = PrimaryKeys::new(&done.key)?;
        let plan = self.operations.release.plan_done(lock_id, done, &names);
        let subjects = quota::rows(slice::from_ref(lock_id));
        let running = async {
            let row = executor.runner.try_run(&subjects, &plan).await;
            row.map_err(mark::to_error)
        };
        let row = self.on_rows(&executor, &subjects, running).await?;
        let outcome = release::outcome(lock_id, row.as_ref())?;
        if outcome == ReleaseOutcome::Released {
            return Ok(outcome);
        }
        // A try before, whose answer was lost, may have stored it and freed the lock, or a transaction of the holder's. Only a
        // statement that begins now shows what has come since the one above began.
        let is_own = |mark: DoneMark| mark.lock_id == *lock_id && mark.due == done.due;
        Ok(
            match self.read_mark(&executor, &names).await?.is_some_and(is_own) {
                true => ReleaseOutcome::Released,
                false => outcome,
            },
        )
    }
}
