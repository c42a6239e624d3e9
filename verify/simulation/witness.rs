//! Sees all that happens in a run, and says what must not have happened: what is known of each lock.

mod ends;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::plan::Plan;
use super::store::counter_of;
use super::waiters::{SLACK, Waiters};
use crate::asking::hold::AutoExtend;
use crate::asking::outcome::{AcquireOutcome, ExtendOutcome, Grant};
use crate::text::error::Error;
use crate::values::claim::Claim;
use crate::values::fence::Fence;
use crate::values::key::{GATE, Key};
use crate::values::lock_id::LockId;
use crate::values::time::TimeAuthority;
use crate::values::ttl::Ttl;

const TOLERANCE: Duration = Duration::from_millis(1000);
/// The longest pause between two tries to undo, while there are few of them and they take less than a minute.
const LONGEST_PAUSE: Duration = Duration::from_millis(1000);

pub(super) struct Witness {
    pub(super) problems: Vec<String>,
    pub(super) waiters: Waiters,
    locks: Vec<Lock>,
    numbers: HashMap<LockId, usize>,
    /// By key: the last fence, and whether readers have it.
    last_fences: BTreeMap<String, (Fence, bool)>,
    is_calm: bool,
    has_grace: bool,
    /// When the machine last stood still until, and when the store's clock was last set.
    pub(super) stalled: Instant,
    pub(super) stepped: Option<Instant>,
    /// The processes that have died or were closed: they undo nothing any more.
    pub(super) over: BTreeSet<usize>,
}

/// A lock id, from the moment in which it was sent.
struct Lock {
    /// Of a slot or a reader, that of the one which was granted.
    key: Key,
    /// The locks of the same acquisition, or that were gathered, this one among them.
    group: Vec<usize>,
    /// Whether it was asked for by one who gathers, and is not granted yet.
    is_part: bool,
    process: usize,
    ttl: Ttl,
    sent: Instant,
    /// When the store granted it, and when it last set its end.
    granted: Option<(Instant, Fence)>,
    set: Instant,
    lasts: Ttl,
    gone: bool,
    forced: bool,
    /// An extension came to the store long after it had been given up, and after a later one. It may have made the lock
    /// end earlier, and nobody can know.
    overtaken: bool,
    /// Who holds it, from when on.
    held: Option<(Instant, Option<AutoExtend>)>,
    told: Option<Instant>,
    /// When its holder released it, dropped it or let it go.
    ended: Option<Instant>,
    /// The same, whether or not somebody heard of its loss.
    let_go: bool,
    /// When it was given up without anybody having held it, or dropped: the library has to release it.
    orphaned: Option<Instant>,
    tries: u32,
    trying: u32,
    last_try: Option<Instant>,
    extensions: Vec<Extension>,
    absent: Option<Instant>,
}

/// Whether nobody may have the one lock beside the other: the same, or the key of a reader.
fn excludes(one: &Key, other: &Key) -> bool {
    let is_whole = |key: &Key| key.as_str() == key.base();
    let is_reader = |key: &Key| key.reader_id().is_some();
    let has_reader = is_reader(one) && is_whole(other) || is_whole(one) && is_reader(other);
    one == other || has_reader && one.base() == other.base()
}

struct Extension {
    ttl: Ttl,
    sent: Instant,
    /// When the caller knew its outcome, or nobody waited for it any more.
    done: Option<Instant>,
    was_answered: bool,
}

impl Witness {
    pub(super) fn new(start: Instant, plan: &Plan) -> Self {
        Self {
            problems: Vec::new(),
            waiters: Waiters::new(plan),
            locks: Vec::new(),
            numbers: HashMap::new(),
            last_fences: BTreeMap::new(),
            is_calm: plan.is_calm,
            has_grace: plan.authority == TimeAuthority::Server,
            stalled: start,
            stepped: None,
            over: BTreeSet::new(),
        }
    }

    pub(super) fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Whether something that was due then is late by now, the time in which the machine stood still aside.
    fn is_late(&self, due: Instant) -> bool {
        Instant::now() > due.max(self.stalled) + SLACK
    }

    pub(super) fn number(&self, lock_id: &LockId) -> u64 {
        self.numbers.get(lock_id).map_or(u64::MAX, |id| *id as u64)
    }

    fn lock(&mut self, lock_id: &LockId) -> Option<(usize, &mut Lock)> {
        let id = *self.numbers.get(lock_id)?;
        Some((id, &mut self.locks[id]))
    }

    /// The locks that were asked for together with this one.
    fn set(&self, lock_id: &LockId) -> Vec<usize> {
        let id = self.numbers.get(lock_id);
        id.map_or_else(Vec::new, |id| self.locks[*id].group.clone())
    }

    /// An acquisition is sent, by the waiter of that number if it is one. Gives the number of its first lock.
    pub(super) fn attempt(
        &mut self,
        process: usize,
        claims: &[Claim],
        ttl: Ttl,
        waiter: Option<usize>,
    ) -> usize {
        let now = Instant::now();
        let id = self.locks.len();
        let is_part = waiter.is_some_and(|waiter| self.waiters.is_part(waiter, claims, ttl));
        let locks = claims.iter().map(|claim| Lock {
            key: claim.key.clone(),
            group: (id..id + claims.len()).collect(),
            is_part,
            process,
            ttl,
            sent: now,
            granted: None,
            set: now,
            lasts: ttl,
            gone: false,
            forced: false,
            overtaken: false,
            held: None,
            told: None,
            ended: None,
            let_go: false,
            orphaned: None,
            tries: 0,
            trying: 0,
            last_try: None,
            extensions: Vec::new(),
            absent: None,
        });
        self.locks.extend(locks);
        let numbers = claims.iter().zip(id..);
        self.numbers
            .extend(numbers.map(|(claim, id)| (claim.lock_id.clone(), id)));
        if let Some(waiter) = waiter {
            let before = match is_part {
                true => self.waiters.takes(waiter, id).map(|()| Vec::new()),
                false => self.waiters.attempt(waiter, id, self.stalled),
            };
            match before {
                Ok(before) => before.into_iter().for_each(|id| self.orphan(id)),
                Err(problem) => self.problem(problem),
            }
        }
        id
    }

    /// The store has answered an acquisition. Whoever gave it up before does not hear of it.
    pub(super) fn answered(
        &mut self,
        waiter: usize,
        id: usize,
        claims: &[Claim],
        answer: &Result<AcquireOutcome, Error>,
    ) {
        if self.locks[id].tries == 0 {
            self.waiters.answered(waiter, id, claims, answer);
        }
    }

    /// Nobody has an interest in that acquisition any more, and nobody was given the lock.
    pub(super) fn orphan(&mut self, id: usize) {
        for id in self.locks[id].group.clone() {
            self.locks[id].orphaned.get_or_insert_with(Instant::now);
        }
    }

    pub(super) fn given_up(&mut self, lock_id: &LockId) {
        if let Some((id, _)) = self.lock(lock_id) {
            self.orphan(id);
        }
    }

    /// The store has granted a lock, or says again that it has.
    pub(super) fn granted(&mut self, key: &Key, grant: &Grant, ttl: Ttl) -> u64 {
        let now = Instant::now();
        let Some(id) = self.numbers.get(&grant.lock_id).copied() else {
            return u64::MAX;
        };
        if let Some((_, fence)) = self.locks[id].granted
            && fence == grant.fence
        {
            return id as u64;
        }
        let (is_reader, name) = (key.reader_id().is_some(), counter_of(key).to_owned());
        let last = self.last_fences.insert(name, (grant.fence, is_reader));
        let joins = is_reader && last == Some((grant.fence, true));
        if last.is_some_and(|(last, _)| last >= grant.fence) && !joins {
            self.problem("a fence is not larger than all before it");
        }
        for other in 0..self.locks.len() {
            self.check_alone(other, id, key);
        }
        let lock = &mut self.locks[id];
        lock.key = key.clone();
        lock.granted = Some((now, grant.fence));
        (lock.set, lock.lasts, lock.gone) = (now, ttl, false);
        id as u64
    }

    /// Nobody may believe to hold a key when the store grants it to another.
    fn check_alone(&mut self, other: usize, granted: usize, key: &Key) {
        let lock = &self.locks[other];
        let believes = lock.held.is_some() && lock.told.is_none() && lock.ended.is_none();
        if other == granted
            || !believes
            || !excludes(&lock.key, key)
            || lock.forced
            || lock.overtaken
        {
            return;
        }
        // The store's clock was set: its promise to keep a lock for its TTL is broken.
        let was_stepped = self.stepped.is_some_and(|stepped| stepped >= lock.set);
        let has_just_stalled = !self.is_late(self.stalled);
        if !was_stepped && !has_just_stalled {
            self.problem(format!("lock {granted} was granted while the holder of {other} has not been told that it is lost"));
        }
    }

    /// The store has a lock no more. Gives its number.
    pub(super) fn gone(&mut self, lock_id: &LockId, was_live: bool, is_forced: bool) -> u64 {
        let Some((id, lock)) = self.lock(lock_id) else {
            return u64::MAX;
        };
        lock.gone = true;
        lock.forced |= is_forced;
        if !was_live {
            self.check_undone(id);
        }
        id as u64
    }

    /// A lock that ended by itself must have been released before, if that was the library's part.
    fn check_undone(&mut self, id: usize) {
        let lock = &self.locks[id];
        let (Some(orphaned), Some((granted, _))) = (lock.orphaned, lock.granted) else {
            return;
        };
        let ends = lock.set + lock.lasts.as_duration();
        let schedule_ends = orphaned + lock.ttl.as_duration() + TOLERANCE;
        let tried = lock.last_try.unwrap_or(orphaned).max(granted).max(orphaned);
        let due = (tried + LONGEST_PAUSE).max(self.stalled) + SLACK;
        if self.over.contains(&lock.process) {
            return;
        }
        if lock.trying == 0 && due < ends.min(Instant::now()).min(schedule_ends) {
            self.problem(format!(
                "lock {id} was left behind: it was not released again and again"
            ));
        }
    }

    /// The locks of a set have been given to whoever asked for them.
    pub(super) fn hold(&mut self, grants: &[Grant], ttl: Ttl, auto_extend: Option<AutoExtend>) {
        let of_set = |grant: &Grant| self.numbers.get(&grant.lock_id).copied();
        let set: Vec<_> = grants.iter().filter_map(of_set).collect();
        for id in set.clone() {
            if self.locks[id].is_part {
                self.was_gathered(id, ttl, &set);
            }
        }
        for grant in grants {
            self.holds(&grant.lock_id, grant.fence, auto_extend);
        }
        let set = grants.first().map(|grant| self.set(&grant.lock_id).len());
        if set != Some(grants.len()) {
            self.problem(format!("{} locks of {set:?} were given", grants.len()));
        }
    }

    /// A lock that was gathered is held from its last extension on, which was one of all of the set, and of their gates.
    fn was_gathered(&mut self, id: usize, ttl: Ttl, set: &[usize]) {
        let is_gate = |id: &usize| self.locks[*id].key.slot_number() == Some(GATE);
        let mut of_set = self.locks[id].group.clone();
        of_set.retain(|id| !is_gate(id));
        let lock = &mut self.locks[id];
        (lock.is_part, lock.group) = (false, set.to_vec());
        let last = std::mem::take(&mut lock.extensions).pop();
        let last = last.filter(|last| last.was_answered && last.ttl == ttl && of_set == set);
        match last {
            Some(last) => (lock.sent, lock.ttl) = (last.sent, last.ttl),
            None => self.problem(format!("lock {id} was given before all were extended")),
        }
    }

    fn holds(&mut self, lock_id: &LockId, fence: Fence, auto_extend: Option<AutoExtend>) {
        let Some((id, lock)) = self.lock(lock_id) else {
            return self.problem("a lock was given that nobody asked for");
        };
        lock.held = Some((Instant::now(), auto_extend));
        let granted = lock.granted.map(|(_, fence)| fence);
        if granted != Some(fence) {
            self.problem(format!(
                "lock {id} was given with a fence that the store did not say"
            ));
        }
    }

    pub(super) fn releasing(&mut self, lock_id: &LockId) {
        let stalled = self.stalled;
        let Some((id, lock)) = self.lock(lock_id) else {
            return;
        };
        lock.tries += 1;
        lock.trying += 1;
        if !lock.let_go {
            lock.orphaned.get_or_insert_with(Instant::now);
        }
        let due = lock.orphaned.unwrap_or_else(Instant::now).max(stalled) + SLACK;
        let is_late = lock.tries == 1 && !lock.let_go && Instant::now() > due;
        let process = lock.process;
        if is_late && !self.over.contains(&process) {
            self.problem(format!(
                "lock {id} was not released at once when it was given up"
            ));
        }
    }

    pub(super) fn released(&mut self, lock_id: &LockId) {
        if let Some((_, lock)) = self.lock(lock_id) {
            lock.trying -= 1;
            lock.last_try = Some(Instant::now());
        }
    }

    /// Gives the number of the extension among those of each of these locks: all of a set.
    pub(super) fn extending(
        &mut self,
        lock_ids: &[LockId],
        ttl: Ttl,
        is_heartbeat: bool,
    ) -> Vec<usize> {
        let numbers = lock_ids.iter().filter_map(|id| self.numbers.get(id));
        let asked: Vec<usize> = numbers.copied().collect();
        for id in &asked {
            match self.locks[*id].is_part {
                // Those that are gathered become a set by and by.
                true => self.locks[*id].group.clone_from(&asked),
                false if self.locks[*id].group != asked => {
                    self.problem(format!("{asked:?} were extended, and {id} with them"));
                }
                false => {}
            }
        }
        let extension = |id: usize| {
            let lock = &mut self.locks[id];
            let is_over = lock.ended.is_some() || lock.told.is_some();
            let number = lock.extensions.len();
            lock.extensions.push(Extension {
                ttl,
                sent: Instant::now(),
                done: None,
                was_answered: false,
            });
            if is_heartbeat && is_over {
                let problem = format!("a heartbeat was sent for {id} after its end");
                self.problems.push(problem);
            }
            number
        };
        asked.into_iter().map(extension).collect()
    }

    /// The store has carried out an extension.
    pub(super) fn extended(&mut self, lock_ids: &[LockId], numbers: &[usize]) {
        for (lock_id, number) in lock_ids.iter().zip(numbers) {
            let Some((_, lock)) = self.lock(lock_id) else {
                continue;
            };
            lock.set = Instant::now();
            // What is held by now has forgotten those before.
            let Some(extension) = lock.extensions.get(*number) else {
                continue;
            };
            lock.lasts = extension.ttl;
            let (before, later) = lock.extensions.split_at(number + 1);
            let was_given_up = before.last().is_some_and(|call| call.done.is_some());
            lock.overtaken |= was_given_up && later.iter().any(|call| call.was_answered);
        }
    }

    /// Whoever has sent an extension knows its outcome now, or does not wait for it any more.
    pub(super) fn extension_done(
        &mut self,
        lock_ids: &[LockId],
        numbers: &[usize],
        outcome: Option<ExtendOutcome>,
    ) {
        let now = Instant::now();
        for (place, (lock_id, number)) in lock_ids.iter().zip(numbers).enumerate() {
            let Some((_, lock)) = self.lock(lock_id) else {
                continue;
            };
            let Some(extension) = lock.extensions.get_mut(*number) else {
                continue;
            };
            extension.done = Some(now);
            match outcome {
                Some(ExtendOutcome::Extended { .. }) => extension.was_answered = true,
                Some(ExtendOutcome::Absent { lock: absent, .. }) if absent == place => {
                    lock.absent.get_or_insert(now);
                }
                _ => {}
            }
        }
    }

    /// The run is over: nothing of that process may be left behind.
    pub(super) fn check_end(&mut self) {
        for id in 0..self.locks.len() {
            if !self.locks[id].gone {
                self.check_undone(id);
            }
        }
        if let Some(problem) = self.waiters.check_end() {
            self.problem(problem);
        }
    }
}
