//! Sees who waits for a lock, and says who was forgotten or overtaken.

mod lines;
mod pauses;
mod wants;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use self::lines::{Want, line_of, wants_of};
use super::plan::Plan;
use crate::asking::outcome::AcquireOutcome;
use crate::holding::lock::LockOptions;
use crate::text::error::Error;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::key::readers_name;
use crate::values::time::TIME_TOLERANCE_MS;
use crate::values::ttl::Ttl;
use crate::waiting::retry::{RetryPolicy, Wait};
use crate::waiting::yielding::LONGEST_WAY;

const TOLERANCE: Duration = Duration::from_millis(TIME_TOLERANCE_MS as u64);

/// Timers have a resolution of a millisecond, and a chain of them has that of each.
pub(super) const SLACK: Duration = Duration::from_millis(3);

/// An attempt may take so long, however little time is left.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);

/// Whoever wants several things may gather them after so long.
const PATIENCE: Duration = Duration::from_millis(250);

/// Whoever wants a key alone may take its gate after so long.
const PATIENCE_WITH_READERS: Duration = Duration::from_millis(50);

/// Those who wait, and in which order they came.
pub(super) struct Waiters {
    all: Vec<Waiter>,
    /// By process and key: when the lock ends that somebody was granted, or told of.
    taken: BTreeMap<(usize, String), Instant>,
    operation_timeout: Duration,
    has_readers: bool,
}

struct Waiter {
    process: usize,
    wants: Vec<Want>,
    /// After how long it may gather, if at all.
    gathers_after: Option<Duration>,
    /// For which of them it waits: what the store has said to stand in the way, or the only one.
    obstacle: Option<usize>,
    /// Whether it waits for that without a doubt: whoever wants several things goes to wait for another without a word if
    /// somebody else wants that at the time.
    is_bound: bool,
    /// In which it has been the first so far: it hears what the store tells of those.
    listens: BTreeSet<usize>,
    policy: RetryPolicy,
    /// How long a lock that it is granted lasts, the tolerance included.
    lasts: Duration,
    came: Instant,
    attempts: u32,
    /// How often others asked for what it waits for, and when last: it may count a retry then, and its pause begins anew.
    others: (u32, Option<Instant>),
    /// When it asked last, or came.
    asked_at: Instant,
    /// Until when its question may be on its way, if it asks, and whether it asks because its time is over.
    asks_until: Option<Instant>,
    asks_at_last: bool,
    /// Of which it was told, while it was asking, that it may be free.
    hinted: BTreeSet<usize>,
    /// When it has to ask at the latest, once it is the first.
    due: Option<Instant>,
    /// The number of the lock that it last asked for, unless that is known not to have been granted.
    asked: Option<usize>,
    /// While it gathers: the locks that it has asked for one by one, unless they are known not to have been granted.
    parts: Vec<usize>,
    has_left: bool,
}

impl Waiters {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            all: Vec::new(),
            taken: BTreeMap::new(),
            operation_timeout: plan.operation_timeout,
            has_readers: plan.readers,
        }
    }

    /// Somebody begins to wait, or to try once. Gives its number.
    pub(super) fn enter(
        &mut self,
        process: usize,
        claims: &[Claim],
        options: &LockOptions,
    ) -> usize {
        let now = Instant::now();
        let number = self.all.len();
        let wants = wants_of(claims);
        let is_single = wants.len() == 1;
        let gathers_after = self.gathers_after(claims);
        self.all.push(Waiter {
            process,
            wants,
            obstacle: is_single.then_some(0),
            is_bound: is_single,
            gathers_after,
            listens: BTreeSet::new(),
            policy: options.retry,
            lasts: options.ttl.as_duration() + TOLERANCE,
            came: now,
            attempts: 0,
            others: (0, None),
            asked_at: now,
            asks_until: None,
            asks_at_last: false,
            hinted: BTreeSet::new(),
            due: None,
            asked: None,
            parts: Vec::new(),
            has_left: false,
        });
        for other in self.waiting_beside(number) {
            let is_wanted = self.wants_another(other, number);
            self.all[other].is_bound &= !is_wanted;
        }
        self.look_who_is_first(process);
        let is_wanted = self.waiting_beside(number).iter().any(|&other| {
            let mut wants = self.all[number].wants.iter();
            wants.any(|want| self.all[other].wants(&want.name))
        });
        let way = match options.retry.waits() {
            false => Some(Duration::ZERO),
            true if is_wanted => None,
            true => Some(LONGEST_WAY),
        };
        self.all[number].due = way.map(|way| now + way);
        number
    }

    fn gathers_after(&self, claims: &[Claim]) -> Option<Duration> {
        match claims {
            [one] => (self.has_readers && one.kind == ClaimKind::Exclusive)
                .then_some(PATIENCE_WITH_READERS),
            _ => Some(PATIENCE),
        }
    }

    /// The others of its process who wait.
    fn waiting_beside(&self, number: usize) -> Vec<usize> {
        let process = self.all[number].process;
        let waits = |other: &usize| {
            let waiter = &self.all[*other];
            let waits = waiter.process == process && !waiter.has_left && waiter.policy.waits();
            waits && *other != number
        };
        (0..self.all.len()).filter(waits).collect()
    }

    /// Whether the other one wants something that the first wants, and does not wait for.
    fn wants_another(&self, number: usize, other: usize) -> bool {
        let waiter = &self.all[number];
        let mut wants = waiter.wants.iter().enumerate();
        wants.any(|(place, want)| {
            waiter.obstacle != Some(place) && self.all[other].wants(&want.name)
        })
    }

    /// Whether all know that it is the first of those who wait for the same, that nobody gathers who wants that, too, and that it does
    /// not go to wait for something else.
    fn is_first(&self, number: usize) -> bool {
        let waiter = &self.all[number];
        let Some(want) = waiter.obstacle.map(|place| &waiter.wants[place]) else {
            return false;
        };
        let comes_before = |&other: &usize| {
            let other_waiter = &self.all[other];
            let waits_elsewhere = other_waiter.is_bound
                && !other_waiter.may_gather()
                && other_waiter
                    .waits_for()
                    .is_some_and(|other| other.name != want.name);
            other < number && other_waiter.wants(&want.name) && !waits_elsewhere
        };
        waiter.is_bound && !self.waiting_beside(number).iter().any(comes_before)
    }

    /// Who has become the first of a line has to ask in a while, and who is so no longer need not.
    fn look_who_is_first(&mut self, process: usize) {
        for number in 0..self.all.len() {
            let waiter = &self.all[number];
            if waiter.process != process
                || waiter.has_left
                || waiter.is_asking()
                || !waiter.policy.waits()
            {
                continue;
            }
            if !self.is_first(number) {
                self.all[number].due = None;
            } else if waiter.due.is_none() {
                let name = waiter.waits_for().map(|want| want.name.clone());
                let taken = name.and_then(|name| self.taken.get(&(process, name)));
                let pause = Instant::now() + waiter.longest_pause();
                let due = taken.map_or(pause, |end| waiter.asks_by(*end).max(pause));
                self.all[number].due = Some(due);
            }
        }
    }

    /// Why it may not ask now, if it may not.
    fn passes(&self, number: usize, stalled: Instant) -> Option<&'static str> {
        let waiter = &self.all[number];
        if waiter.is_over() || !waiter.policy.waits() {
            return None;
        }
        self.waiting_beside(number).iter().find_map(|&other| {
            let other_waiter = &self.all[other];
            if other_waiter.is_asking() {
                let mut wants = waiter.wants.iter();
                let is_beside = wants.any(|want| want.is_alone() && other_waiter.wants(&want.name));
                return is_beside.then_some("while another asked for the same");
            }
            // Of one whose question was given up at this moment, nobody knows whether it has noticed.
            let ended = other_waiter
                .asks_until
                .map(|until| until.max(stalled) + SLACK);
            if ended.is_some_and(|ended| Instant::now() <= ended) {
                return None;
            }
            let waits_for = other_waiter.waits_for()?;
            let is_bound = other_waiter.is_bound && !other_waiter.may_gather();
            let is_passed = is_bound && waiter.wants.contains(waits_for);
            (other < number && is_passed).then_some("before its turn")
        })
    }

    /// Notes for those who wait for the same that it asks, or asks no more.
    fn others_ask(&mut self, number: usize) {
        for other in self.waiting_beside(number) {
            let mut wants = self.all[number].wants.iter();
            if wants.any(|want| self.all[other].may_wait_for(&want.name)) {
                let (count, at) = &mut self.all[other].others;
                *count += 1;
                *at = Some(Instant::now());
            }
        }
    }

    /// When others last asked for what it waits for.
    fn others_asked(&self, number: usize) -> Option<Instant> {
        let waiter = &self.all[number];
        let asked = |other: usize| {
            let mut wants = self.all[other].wants.iter();
            let until = self.all[other].asks_until?.min(Instant::now());
            wants
                .any(|want| waiter.may_wait_for(&want.name))
                .then_some(until)
        };
        let others = self.waiting_beside(number).into_iter();
        others.filter_map(asked).max().max(waiter.others.1)
    }

    /// What those wanted who asked is not known to be held: the first who waits for one of the others has to ask at once.
    fn ask_at_once(&mut self, number: usize) {
        let now = Instant::now();
        if self.all[number].asks_at_last {
            return;
        }
        for other in self.waiting_beside(number) {
            let waiter = &self.all[other];
            let Some(want) = waiter.waits_for() else {
                continue;
            };
            let was_open =
                self.all[number].wants.contains(want) && self.all[number].waits_for() != Some(want);
            // Of what several may ask for at the same time, another may have heard meanwhile that it is held.
            let was_open = was_open && !want.is_shared();
            if was_open && !waiter.is_asking() && self.is_first(other) {
                // Nothing that others asked before excuses it.
                let waiter = &mut self.all[other];
                (waiter.due, waiter.asked_at) = (Some(now), now);
            }
        }
    }

    /// Whether that is a question of one who gathers: it wants more, or for longer.
    pub(super) fn is_part(&self, number: usize, claims: &[Claim], ttl: Ttl) -> bool {
        let waiter = &self.all[number];
        let takes = waiter.wants.iter().map(|want| want.take);
        claims.len() < takes.sum() || ttl.as_duration() + TOLERANCE != waiter.lasts
    }

    /// One who gathers asks the store for one of the things that it wants.
    pub(super) fn takes(&mut self, number: usize, lock: usize) -> Result<(), String> {
        self.others_ask(number);
        let waiter = &mut self.all[number];
        let may_gather = waiter.may_gather();
        waiter.parts.push(lock);
        waiter.due = None;
        let process = waiter.process;
        self.look_who_is_first(process);
        match may_gather {
            true => Ok(()),
            false => Err(format!("{number} gathers too soon")),
        }
    }

    /// Asks the store. Gives the locks that it had asked for before.
    pub(super) fn attempt(
        &mut self,
        number: usize,
        lock: usize,
        stalled: Instant,
    ) -> Result<Vec<usize>, String> {
        let now = Instant::now();
        self.look_who_is_first(self.all[number].process);
        let timeout = self.operation_timeout;
        let (passes, is_over) = (self.passes(number, stalled), self.all[number].is_over());
        let others_asked = self.others_asked(number);
        self.others_ask(number);
        let waiter = &mut self.all[number];
        let mut before = std::mem::take(&mut waiter.parts);
        before.extend(waiter.asked.replace(lock));
        waiter.attempts += 1;
        waiter.asks_until = Some(now + timeout);
        waiter.asks_at_last = is_over;
        waiter.hinted.clear();
        let due = waiter.due.replace(now + timeout + waiter.longest_pause());
        let was_late = due.is_some_and(|due| waiter.is_late(due, stalled, others_asked));
        waiter.asked_at = now;
        let has_left = waiter.has_left;
        self.look_who_is_first(self.all[number].process);
        if has_left {
            return Err(format!("{number} asked the store after it had left"));
        }
        if let Some(why) = passes {
            return Err(format!("{number} asked the store {why}"));
        }
        if was_late {
            let policy = self.all[number].policy;
            return Err(format!("{number} was forgotten for a while: {policy:?}"));
        }
        Ok(before)
    }

    /// The store has answered its last question, and it hears it.
    pub(super) fn answered(
        &mut self,
        number: usize,
        lock: usize,
        claims: &[Claim],
        answer: &Result<AcquireOutcome, Error>,
    ) {
        let now = Instant::now();
        let waiter = &mut self.all[number];
        if waiter.parts.contains(&lock) {
            let is_refused = matches!(answer, Ok(AcquireOutcome::Locked { .. }));
            waiter.parts.retain(|part| *part != lock || !is_refused);
            return self.others_ask(number);
        }
        if waiter.has_left || waiter.asked != Some(lock) {
            return;
        }
        self.others_ask(number);
        let waiter = &mut self.all[number];
        waiter.asks_until = None;
        let mut due = now + waiter.longest_pause();
        let mut taken = None;
        if let Ok(AcquireOutcome::Locked { claim, free_in, .. }) = answer {
            waiter.asked = None;
            let name = claims.get(*claim).map(line_of);
            waiter.obstacle = waiter
                .wants
                .iter()
                .position(|want| Some(&want.name) == name.as_ref());
            taken = free_in.map(|free_in| now + free_in);
            due = taken.map_or(due, |end| waiter.asks_by(end));
        }
        if answer
            .as_ref()
            .is_err_and(|error| !error.is_outcome_unknown())
        {
            waiter.asked = None;
        }
        let is_wanted = |&other: &usize| self.wants_another(number, other);
        let is_bound = !self.waiting_beside(number).iter().any(is_wanted);
        self.all[number].is_bound = is_bound && self.all[number].obstacle.is_some();
        if matches!(answer, Ok(AcquireOutcome::Acquired(_))) {
            return;
        }
        let waiter = &self.all[number];
        if let Some(name) = waiter.waits_for().map(|want| want.name.clone()) {
            self.is_known(waiter.process, name, taken);
        }
        let is_first = self.is_first(number) || !self.all[number].policy.waits();
        let waiter = &mut self.all[number];
        if let Some(obstacle) = waiter.obstacle {
            let is_hinted = waiter.listens.contains(&obstacle) && waiter.hinted.contains(&obstacle);
            if is_first {
                waiter.listens.insert(obstacle);
            }
            let soon = now + waiter.late_message(obstacle);
            due = if is_hinted { due.min(soon) } else { due };
        }
        waiter.due = is_first.then_some(due);
        self.look_who_is_first(self.all[number].process);
        if answer.is_ok() {
            self.ask_at_once(number);
        }
    }

    /// Notes until when that lasts which has that name, as far as the store has said so. Those who wait for it hear of that.
    fn is_known(&mut self, process: usize, name: String, taken: Option<Instant>) {
        for waiter in &mut self.all {
            let waits = waiter.waits_for().is_some_and(|want| want.name == name);
            if waits && waiter.process == process && !waiter.is_asking() {
                waiter.due = None;
            }
        }
        match taken {
            Some(end) => self.taken.insert((process, name), end),
            None => self.taken.remove(&(process, name)),
        };
    }

    /// A process was told that the lock may be free.
    pub(super) fn hinted(&mut self, process: usize, key: &str) {
        for name in [key, &*readers_name(key)] {
            self.hinted_line(process, name);
        }
    }

    fn hinted_line(&mut self, process: usize, name: &str) {
        let now = Instant::now();
        for number in 0..self.all.len() {
            let is_first = self.is_first(number);
            let waiter = &mut self.all[number];
            let place = waiter.wants.iter().position(|want| want.name == name);
            let Some(place) = place.filter(|_| waiter.process == process && !waiter.has_left)
            else {
                continue;
            };
            if waiter.policy.wait == Wait::Poll || !waiter.policy.waits() {
                continue;
            }
            if waiter.is_asking() {
                // With its first question, it may not have been listening yet.
                waiter.hinted.insert(place);
            } else if is_first && waiter.obstacle == Some(place) {
                let soon = now + waiter.late_message(place);
                waiter.due = Some(waiter.due.map_or(soon, |due| due.min(soon)));
            }
        }
    }

    /// Waits no longer. Gives the locks that it may have been granted without knowing it.
    pub(super) fn leave(
        &mut self,
        number: usize,
        was_granted: bool,
        stalled: Instant,
    ) -> Result<Vec<usize>, String> {
        let now = Instant::now();
        self.look_who_is_first(self.all[number].process);
        let others_asked = self.others_asked(number);
        self.others_ask(number);
        let waiter = &mut self.all[number];
        waiter.has_left = true;
        let is_late = |due| waiter.is_late(due, stalled, others_asked);
        let is_forgotten = waiter.due.is_some_and(is_late);
        let is_forgotten = is_forgotten && !was_granted && !waiter.is_asking();
        let mut asked = std::mem::take(&mut waiter.parts);
        asked.extend(waiter.asked.take());
        asked.retain(|_| !was_granted);
        let late = Duration::try_from_secs_f64(waiter.policy.timeout_ms / 1000.0)
            .ok()
            .map(|longest| longest + SHORTEST_ATTEMPT)
            .map(|longest| (waiter.came + longest).max(stalled + SHORTEST_ATTEMPT) + SLACK)
            .is_some_and(|limit| now > limit);
        waiter.asks_until = None;
        let (process, end) = (waiter.process, now + waiter.lasts);
        if was_granted {
            let names = waiter.wants.iter().map(|want| want.name.clone());
            for name in names.collect::<Vec<_>>() {
                self.is_known(process, name, Some(end));
            }
        }
        self.look_who_is_first(process);
        match () {
            () if is_forgotten => Err(format!("{number} was forgotten until it left")),
            () if late => Err(format!("{number} waited for longer than it may")),
            () => Ok(asked),
        }
    }

    pub(super) fn check_end(&self) -> Option<String> {
        let left = self.all.iter().position(|waiter| !waiter.has_left)?;
        Some(format!("{left} waits for ever"))
    }
}
