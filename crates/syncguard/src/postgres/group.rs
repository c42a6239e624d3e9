//! Group commit: several operations in one statement.
//!
//! Once most connections of a pool are in use, acquisitions run in groups, and so do releases and heartbeats. Those that
//! arrive while a group is running form the next one, which is one statement and one commit on one connection. Each member
//! gets its own outcome. A group never waits for a lock in the server: a member that would have to wait runs alone instead,
//! and so delays nobody else. Readers of one key are the exception: each needs the row that all of them share, so their
//! group waits for it. They group once the quota of that row is used up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::connection::quota::{QuotaId, Subject, rows};
use super::runner::StatementRunner;
use super::statement::{Plan, Row};
use crate::background::work::Work;
use crate::mutex::lock;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

/// How long a group waits for the one before it, at most: little compared with the round trip to a distant server.
const PATIENCE: Duration = Duration::from_millis(1);

/// One kind of operation that can run in groups.
pub(super) trait Grouped: fmt::Debug + Send + Sync + 'static {
    type Item: Send + Sync + 'static;
    /// The parameters of the statement.
    type Params: Send + Sync + 'static;
    /// What the statement tells of one lock.
    type Reply: Send;
    type Outcome: Send + Sync + 'static;

    /// Whether its statement [is urgent](super::statement::Statement::is_urgent).
    const IS_URGENT: bool;

    /// The most members of a group. It keeps the transaction short, and the advisory locks of many processes' groups
    /// within the server's lock table, which has some 6,000 entries.
    const MOST: usize = 32;

    /// The locks of an item.
    fn lock_ids(item: &Self::Item) -> &[LockId];

    /// Whether both, which have one subject, can be in one group: it can change each row only once, and tells of each lock
    /// once.
    fn agree(item: &Self::Item, other: &Self::Item) -> bool {
        let others = Self::lock_ids(other);
        !Self::lock_ids(item).iter().any(|own| others.contains(own))
    }

    /// What the statement may have to wait for in the server, if it waits.
    fn subject(_item: &Self::Item) -> Option<Subject<'_>> {
        None
    }

    /// The items as parameters of the statement.
    fn params<'a>(items: impl Iterator<Item = &'a Self::Item>) -> Self::Params;

    fn plan<'a>(&'a self, params: &'a Self::Params) -> Plan<'a>;

    /// What the row says about each lock, by its lock id.
    fn replies<'a>(
        row: Option<&'a Row>,
        params: &'a Self::Params,
    ) -> Result<HashMap<&'a str, Self::Reply>, Error>;

    /// The outcome for an item, by what is told of its locks; `None` if it has to run alone.
    fn outcome(found: Batch<Option<Self::Reply>>) -> Result<Option<Self::Outcome>, Error>;

    /// What to send to undo an outcome whose caller no longer waits, if anything.
    fn undo<'a>(&'a self, _item: &'a Self::Item, _outcome: &Self::Outcome) -> Vec<Plan<'a>> {
        Vec::new()
    }
}

/// The groups of one kind of work.
#[derive(Debug)]
pub(super) struct Groups<W: Grouped> {
    counted: Work,
    runner: Arc<StatementRunner>,
    work: W,
    limit: Duration,
    /// The groups that wait for a connection and still take members, by what they may have to wait for.
    open: Mutex<HashMap<Option<QuotaId>, Arc<Group<W>>>>,
    /// Has one permit. A group waits [a moment](PATIENCE) for it, so that members gather, and then runs with or without it.
    running: Semaphore,
}

/// What a member gets; `None` if it has to run alone.
type Answer<W> = Result<Option<<W as Grouped>::Outcome>, Error>;

struct Group<W: Grouped> {
    since: Instant,
    quota: Option<QuotaId>,
    /// `None` once it has a connection: then it takes no more members.
    members: Mutex<Option<Vec<Member<W>>>>,
}

struct Member<W: Grouped> {
    item: W::Item,
    answer: oneshot::Sender<Answer<W>>,
}

impl<W: Grouped> Groups<W> {
    /// Groups of `work` for a backend with that count of what is running, that runner, and that time limit.
    pub(super) fn new(
        (counted, runner, limit): (Work, Arc<StatementRunner>, Duration),
        work: W,
    ) -> Self {
        Self {
            counted,
            runner,
            work,
            limit,
            open: Mutex::default(),
            running: Semaphore::new(1),
        }
    }

    /// Whether connections are short for all, so that what comes now may run in a group.
    pub(super) fn is_busy(&self) -> bool {
        self.runner.connections.is_busy()
    }

    /// Whether they are short for what this may have to wait for.
    pub(super) fn is_used_up(&self, subject: Subject<'_>) -> bool {
        let quotas = self.runner.connections.quotas.as_ref();
        quotas.is_some_and(|quotas| quotas.is_used_up(quotas.id_of(subject)))
    }

    /// Runs the item in a group if connections are short for all; `None` if it has to run alone.
    pub(super) async fn join(self: &Arc<Self>, item: impl FnOnce() -> W::Item) -> Answer<W> {
        match self.is_busy() {
            true => self.gather(item()).await,
            false => Ok(None),
        }
    }

    /// Runs the item in a group if connections are short for its subject; `None` if it has to run alone.
    pub(super) async fn join_crowd(
        self: &Arc<Self>,
        subject: Subject<'_>,
        item: impl FnOnce() -> W::Item,
    ) -> Answer<W> {
        match self.is_used_up(subject) {
            true => self.gather(item()).await,
            false => Ok(None),
        }
    }

    /// Runs the item in a group; `None` if it cannot be in one group with those that wait.
    pub(super) async fn gather(self: &Arc<Self>, item: W::Item) -> Answer<W> {
        let connections = &self.runner.connections;
        // While connections are short for all, whoever waits in a group counts as one that uses a connection: the pool stays busy.
        let _under_way = connections.is_busy().then(|| connections.begin());
        let Some(answered) = self.enter(item) else {
            return Ok(None);
        };
        answered.await.unwrap_or_else(|_| {
            let lost = Error::new(ErrorKind::Internal, "the answer was lost");
            Err(lost.with_unknown_outcome())
        })
    }

    /// Joins the waiting group, or opens one; `None` if the item cannot be in one group with those that wait.
    fn enter(self: &Arc<Self>, item: W::Item) -> Option<oneshot::Receiver<Answer<W>>> {
        let quotas = self.runner.connections.quotas.as_ref();
        let quota = quotas.zip(W::subject(&item));
        let quota = quota.map(|(quotas, subject)| quotas.id_of(subject));
        let mut open = lock(&self.open);
        if let Some(group) = open.get(&quota)
            && let Some(members) = &mut *group.lock()
            && group.takes_more(members, self.limit)
        {
            let agrees = members.iter().all(|other| W::agree(&other.item, &item));
            return agrees.then(|| Member::join(item, members));
        }
        let mut members = Vec::new();
        let answered = Member::join(item, &mut members);
        let group = Arc::new(Group {
            since: Instant::now(),
            quota,
            members: Mutex::new(Some(members)),
        });
        open.insert(quota, Arc::clone(&group));
        // The group may go on after its members are answered (see `tell`), so closing the backend waits for it.
        let counted = self.counted.start_beside();
        let run = Arc::clone(self).run(group);
        tokio::spawn(async move {
            run.await;
            drop(counted);
        });
        Some(answered)
    }

    /// Waits for a connection, runs the statement for all members that have joined by then, and tells each its
    /// outcome. It does not end when members are cancelled.
    async fn run(self: Arc<Self>, group: Arc<Group<W>>) {
        let begun = OnceLock::new();
        let plan = || {
            let (_, params) = begun.get_or_init(|| group.begin());
            let plan = self.work.plan(params);
            self.runner.silenced(&plan).unwrap_or(plan)
        };
        let connections = &self.runner.connections;
        let run = async {
            let _permit = match connections.quotas.as_ref().zip(group.quota) {
                Some((quotas, quota)) => Some(quotas.acquire_at(quota).await),
                None => None,
            };
            // Waiting for the group before lets members gather; the limit keeps one that hangs from blocking all.
            let _running = timeout(PATIENCE, self.running.acquire()).await;
            connections.transport.run_late(W::IS_URGENT, &plan).await
        };
        // A caller waits for one limit, and the undoing for another. What comes later is undone here.
        let row = timeout(self.limit * 2, run).await;
        let (members, params) = begun.into_inner().unwrap_or_else(|| group.begin());
        self.close(&group);
        let replies = match &row {
            Ok(Ok(row)) => W::replies(row.as_ref(), &params).map_err(Error::with_unknown_outcome),
            // Nothing was committed, and a single member may be the cause. So each runs alone and gets its own
            // error.
            Ok(Err(failure)) if failure.is_refusal() => Ok(HashMap::new()),
            Ok(Err(failure)) => Err(failure.error().clone()),
            Err(_) => Err(timed_out()),
        };
        match replies {
            Ok(replies) => self.tell(members, replies).await,
            Err(error) => {
                for member in members {
                    let _ = member.answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Forgets a group that takes no more members.
    fn close(&self, group: &Arc<Group<W>>) {
        if let Entry::Occupied(open) = lock(&self.open).entry(group.quota)
            && Arc::ptr_eq(open.get(), group)
        {
            open.remove();
        }
    }

    /// Tells each member its outcome.
    async fn tell(&self, members: Vec<Member<W>>, mut replies: HashMap<&str, W::Reply>) {
        let mut unheard = Vec::new();
        for Member { item, answer } in members {
            let locks = W::lock_ids(&item).iter();
            let found = locks.map(|lock_id| replies.remove(lock_id.as_str()));
            let outcome = W::outcome(found.collect()).map_err(Error::with_unknown_outcome);
            if let Err(Ok(Some(outcome))) = answer.send(outcome) {
                unheard.push((item, outcome));
            }
        }
        for (item, outcome) in &unheard {
            for plan in self.work.undo(item, outcome) {
                // If this fails, the lock ends with its TTL.
                let _ = self.runner.run(&rows(W::lock_ids(item)), &plan).await;
            }
        }
    }
}

fn timed_out() -> Error {
    Error::new(ErrorKind::NetworkTimeout, "no answer in time").with_unknown_outcome()
}

impl<W: Grouped> Member<W> {
    fn join(item: W::Item, members: &mut Vec<Self>) -> oneshot::Receiver<Answer<W>> {
        let (answer, answered) = oneshot::channel();
        members.push(Self { item, answer });
        answered
    }
}

impl<W: Grouped> Group<W> {
    /// Whether it takes another member. A group that has waited for long does not: it may soon give up, while
    /// a new member still has time left.
    fn takes_more(&self, members: &[Member<W>], limit: Duration) -> bool {
        members.len() < W::MOST && self.since.elapsed() < limit / 10
    }

    /// Closes the group. Gives the members that still wait, and the parameters of the statement for them.
    fn begin(&self) -> (Vec<Member<W>>, W::Params) {
        let mut members = self.lock().take().unwrap_or_default();
        members.retain(|member| !member.answer.is_closed());
        let params = W::params(members.iter().map(|member| &member.item));
        (members, params)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Member<W>>>> {
        lock(&self.members)
    }
}

impl<W: Grouped> fmt::Debug for Group<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations::acquire::Acquisitions;
    use super::super::operations::release::Releases;
    use super::*;
    use crate::asking::outcome::{Absence, AcquireOutcome, ReleaseOutcome};

    const ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

    fn row(outcomes: &str) -> Row {
        vec![Some(outcomes.to_owned()), None]
    }

    #[test]
    fn each_outcome_is_found_by_its_lock_id() {
        let (none, of_none) = (Default::default(), Default::default());
        let granted = row(&format!("{ID} 000000000000007 1234"));
        let found = Acquisitions::replies(Some(&granted), &none).unwrap();
        let AcquireOutcome::Acquired(grants) = &found[ID] else {
            panic!("locked");
        };
        let grant = &grants[0];
        assert_eq!((grant.fence.get(), grant.expires_at_ms), (7, 1234));
        let two = row(&format!("{ID} locked 1500,BBBBBBBBBBBBBBBBBBBBBB locked 1"));
        let found = Acquisitions::replies(Some(&two), &none).unwrap();
        let free_in = Some(Duration::from_millis(1500));
        let labels = crate::values::labels::Labels::default();
        let locked = AcquireOutcome::Locked {
            claim: 0,
            free_in,
            labels,
            is_shared: false,
        };
        assert_eq!(found[ID], locked);
        assert!(found.len() == 2 && found["BBBBBBBBBBBBBBBBBBBBBB"].is_locked());
        let two = row(&format!("{ID} released,BBBBBBBBBBBBBBBBBBBBBB expired"));
        let found = Releases::replies(Some(&two), &of_none).unwrap();
        assert_eq!(found[ID], ReleaseOutcome::Released);
        let other = &found["BBBBBBBBBBBBBBBBBBBBBB"];
        assert_eq!(*other, ReleaseOutcome::Absent(Absence::Expired));
        assert!(
            Releases::replies(Some(&vec![None, None]), &of_none)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_row_that_makes_no_sense_grants_nothing() {
        let (none, of_none) = (Default::default(), Default::default());
        for outcomes in [
            "",
            ID,
            &format!("{ID} "),
            &format!("{ID} 7 1234"),
            &format!("{ID} 000000000000007"),
            &format!("{ID} 000000000000007 soon"),
            &format!("{ID} locked"),
            &format!("{ID} locked soon"),
            "short 000000000000007 1234",
        ] {
            let malformed = row(outcomes);
            assert!(
                Acquisitions::replies(Some(&malformed), &none).is_err(),
                "{outcomes}"
            );
            assert!(
                Releases::replies(Some(&malformed), &of_none).is_err(),
                "{outcomes}"
            );
        }
        assert!(Acquisitions::replies(None, &none).is_err());
    }
}
