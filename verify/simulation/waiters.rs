//! Sees who waits for a lock, and says who was forgotten or overtaken.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::asking::outcome::AcquireOutcome;
use crate::holding::lock::LockOptions;
use crate::text::error::Error;
use crate::values::claim::Claim;
use crate::values::time::TIME_TOLERANCE_MS;
use crate::waiting::hand_over::LATE_MESSAGE;
use crate::waiting::retry::{Backoff, RetryPolicy, Wait};
use crate::waiting::waiter::LONGEST_TRUST;

const TOLERANCE: Duration = Duration::from_millis(TIME_TOLERANCE_MS as u64);

/// Timers have a resolution of a millisecond, and a chain of them has that of each.
pub(super) const SLACK: Duration = Duration::from_millis(3);

/// An attempt may take so long, however little time is left.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);

/// Those who wait, and in which order they came.
pub(super) struct Waiters {
    all: Vec<Waiter>,
    /// By process and name: that of a key, or of the slots of one.
    queues: BTreeMap<(usize, String), Queue>,
    operation_timeout: Duration,
}

#[derive(Default)]
struct Queue {
    waiters: Vec<usize>,
    /// When somebody who was not the first last asked. Of slots, several ask at the same time, and whoever is refused waits until
    /// the others have been answered.
    others_asked: Option<Instant>,
    /// When the lock ends that one who stood in it was granted, if nobody has asked since.
    taken: Option<Instant>,
}

struct Waiter {
    process: usize,
    /// The queues in which it stands.
    names: Vec<String>,
    /// Which of them are those of slots.
    of_slots: BTreeSet<usize>,
    /// Whether it wants nothing but slots of one key: then it may ask beside others who do.
    asks_beside: bool,
    /// In which of them it waits, once the store has said what stands in the way.
    obstacle: Option<usize>,
    /// In which it has waited so far: it hears what the store tells of those.
    listens: BTreeSet<usize>,
    policy: RetryPolicy,
    /// How long a lock that it is granted lasts, the tolerance included.
    lasts: Duration,
    came: Instant,
    attempts: u32,
    /// When it asked last, or came.
    asked_at: Instant,
    is_asking: bool,
    /// Of which it was told, while it was asking, that it may be free.
    hinted: BTreeSet<usize>,
    /// When it has to ask at the latest, once it is the first.
    due: Option<Instant>,
    /// The number of the lock that it last asked for, unless that is known not to have been granted.
    asked: Option<usize>,
    has_left: bool,
}

impl Waiters {
    pub(super) fn new(operation_timeout: Duration) -> Self {
        Self {
            all: Vec::new(),
            queues: BTreeMap::new(),
            operation_timeout,
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
        let names: BTreeSet<_> = claims
            .iter()
            .map(|claim| claim.key.as_str().to_owned())
            .collect();
        let wants_slots = |name: &String| {
            let mut claims = claims.iter();
            claims.any(|claim| claim.key.as_str() == name && claim.slots.is_some())
        };
        let of_slots = names.iter().enumerate();
        let of_slots = of_slots.filter(|(_, name)| wants_slots(name));
        let of_slots: BTreeSet<_> = of_slots.map(|(place, _)| place).collect();
        let asks_beside = names.len() == 1 && !of_slots.is_empty();
        for name in &names {
            let queue = self.queues.entry((process, name.clone())).or_default();
            if options.retry.waits() {
                queue.waiters.push(number);
            }
        }
        self.all.push(Waiter {
            process,
            names: names.into_iter().collect(),
            of_slots,
            asks_beside,
            obstacle: None,
            listens: BTreeSet::new(),
            policy: options.retry,
            lasts: options.ttl.as_duration() + TOLERANCE,
            came: now,
            attempts: 0,
            asked_at: now,
            is_asking: false,
            hinted: BTreeSet::new(),
            due: None,
            asked: None,
            has_left: false,
        });
        let is_first = self.is_first(number) || !options.retry.waits();
        self.all[number].due = is_first.then_some(now);
        number
    }

    fn queue(&self, waiter: &Waiter, name: &str) -> Option<&Queue> {
        self.queues.get(&(waiter.process, name.to_owned()))
    }

    /// Whether it is the first in all its queues.
    fn is_first(&self, number: usize) -> bool {
        let waiter = &self.all[number];
        let mut queues = waiter
            .names
            .iter()
            .filter_map(|name| self.queue(waiter, name));
        queues.all(|queue| queue.waiters.first() == Some(&number))
    }

    /// Whether it may ask: it is the first, or those before it want nothing but slots of the same key, too.
    fn has_turn(&self, number: usize) -> bool {
        let waiter = &self.all[number];
        let before = waiter.names.iter().flat_map(|name| {
            let queue = self.queue(waiter, name);
            let waiters = queue
                .map(|queue| queue.waiters.as_slice())
                .unwrap_or_default();
            waiters.iter().take_while(|other| **other != number)
        });
        let mut before = before.map(|other| &self.all[*other]);
        before.all(|other| waiter.asks_beside && other.asks_beside)
    }

    /// When others last asked for slots of the key that it waits for.
    fn others_asked(&self, number: usize) -> Option<Instant> {
        let waiter = &self.all[number];
        if !waiter.asks_beside {
            return None;
        }
        let queue = self.queue(waiter, &waiter.names[0])?;
        let mut others = queue.waiters.iter().filter(|other| **other != number);
        match others.any(|other| self.all[*other].is_asking) {
            true => Some(Instant::now()),
            false => queue.others_asked,
        }
    }

    /// Notes that it asks no more, for those who wait until it does.
    fn has_asked(&mut self, number: usize) {
        let waiter = &self.all[number];
        let names = waiter.names.iter().filter(|_| waiter.asks_beside);
        for name in names {
            if let Some(queue) = self.queues.get_mut(&(waiter.process, name.clone())) {
                queue.others_asked = Some(Instant::now());
            }
        }
    }

    /// Asks the store. Gives the lock that it had asked for before.
    pub(super) fn attempt(
        &mut self,
        number: usize,
        lock: usize,
        stalled: Instant,
    ) -> Result<Option<usize>, String> {
        let now = Instant::now();
        let timeout = self.operation_timeout;
        let has_turn = self.has_turn(number);
        let others_asked = self.others_asked(number);
        let waiter = &mut self.all[number];
        for name in &waiter.names {
            if let Some(queue) = self.queues.get_mut(&(waiter.process, name.clone())) {
                queue.taken = None;
            }
        }
        let before = waiter.asked.replace(lock);
        waiter.attempts += 1;
        waiter.is_asking = true;
        waiter.hinted.clear();
        let due = waiter.due.replace(now + timeout + waiter.longest_pause());
        let was_late = due.is_some_and(|due| waiter.is_late(due, stalled, others_asked));
        waiter.asked_at = now;
        if waiter.has_left {
            return Err(format!("{number} asked the store after it had left"));
        }
        if waiter.policy.waits() && !has_turn {
            return Err(format!("{number} asked the store before its turn"));
        }
        if was_late {
            return Err(format!("{number} was forgotten for a while"));
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
        let waiter = &self.all[number];
        if waiter.has_left || waiter.asked != Some(lock) {
            return;
        }
        self.has_asked(number);
        let is_first = self.is_first(number) || !self.all[number].policy.waits();
        let waiter = &mut self.all[number];
        waiter.is_asking = false;
        let mut due = now + waiter.longest_pause();
        if let Ok(AcquireOutcome::Locked { claim, free_in, .. }) = answer {
            waiter.asked = None;
            // Claims are asked for in the order of their names, those of slots of a key side by side.
            let name = claims.get(*claim).map(|claim| claim.key.as_str());
            waiter.obstacle = waiter
                .names
                .iter()
                .position(|other| Some(other.as_str()) == name);
            due = free_in.map_or(due, |free_in| waiter.asks_by(now + free_in));
        }
        let obstacle = *waiter.obstacle.get_or_insert(0);
        let is_hinted = waiter.listens.contains(&obstacle) && waiter.hinted.contains(&obstacle);
        waiter.listens.insert(obstacle);
        if answer
            .as_ref()
            .is_err_and(|error| !error.is_outcome_unknown())
        {
            waiter.asked = None;
        }
        let soon = now + waiter.late_message(obstacle);
        let due = if is_hinted { due.min(soon) } else { due };
        // Whoever has asked beside others goes back to its place, and asks again once it is the first.
        waiter.due = is_first.then_some(due);
    }

    /// A process was told that the lock may be free.
    pub(super) fn hinted(&mut self, process: usize, key: &str) {
        let queue = self.queues.get(&(process, key.to_owned()));
        let Some(&first) = queue.and_then(|queue| queue.waiters.first()) else {
            return;
        };
        let is_first = self.is_first(first);
        let waiter = &mut self.all[first];
        if waiter.policy.wait == Wait::Poll {
            return;
        }
        let place = waiter.names.iter().position(|name| name == key);
        let now = Instant::now();
        match (waiter.is_asking, place) {
            // With its first question, it may not have been listening yet.
            (true, Some(place)) => {
                waiter.hinted.insert(place);
            }
            (false, Some(_)) if is_first && waiter.obstacle == place => {
                let soon = now + waiter.late_message(place.unwrap_or_default());
                waiter.due = Some(waiter.due.map_or(soon, |due| due.min(soon)));
            }
            _ => {}
        }
    }

    /// Waits no longer. Gives the lock that it may have been granted without knowing it.
    pub(super) fn leave(
        &mut self,
        number: usize,
        was_granted: bool,
        stalled: Instant,
    ) -> Result<Option<usize>, String> {
        let now = Instant::now();
        let others_asked = self.others_asked(number);
        self.has_asked(number);
        let waiter = &mut self.all[number];
        waiter.has_left = true;
        let is_late = |due| waiter.is_late(due, stalled, others_asked);
        let is_forgotten = waiter.due.is_some_and(is_late);
        let is_forgotten = is_forgotten && !was_granted && !waiter.is_asking;
        let asked = waiter.asked.take().filter(|_| !was_granted);
        let late = Duration::try_from_secs_f64(waiter.policy.timeout_ms / 1000.0)
            .ok()
            .map(|longest| longest + SHORTEST_ATTEMPT)
            .map(|longest| (waiter.came + longest).max(stalled + SHORTEST_ATTEMPT) + SLACK)
            .is_some_and(|limit| now > limit);
        waiter.is_asking = false;
        let (process, names, lasts) = (waiter.process, waiter.names.clone(), waiter.lasts);
        let mut next = BTreeSet::new();
        for name in names {
            if let Some(queue) = self.queues.get_mut(&(process, name)) {
                let was_first = queue.waiters.first() == Some(&number);
                queue.waiters.retain(|other| *other != number);
                if was_granted {
                    queue.taken = Some(now + lasts);
                }
                next.extend(queue.waiters.first().filter(|_| was_first));
            }
        }
        next.retain(|next| self.is_first(*next));
        for next in next {
            let waiter = &self.all[next];
            let queues = waiter
                .names
                .iter()
                .filter_map(|name| self.queue(waiter, name));
            let taken = queues.filter_map(|queue| queue.taken).max();
            let next = &mut self.all[next];
            // After a grant there is no need to ask at once, and not if somebody was refused a slot.
            let due = match taken {
                Some(end) => next.asks_by(end).max(now + next.longest_pause()),
                None if !next.of_slots.is_empty() => now + next.longest_pause(),
                None => now,
            };
            if !next.is_asking {
                next.due = Some(next.due.map_or(due, |before| due.max(before)));
                next.obstacle = next.obstacle.or((next.names.len() == 1).then_some(0));
            }
        }
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

impl Waiter {
    /// For how long what the store tells may be taken for the release of a slot that this process has handed over.
    fn late_message(&self, place: usize) -> Duration {
        match self.of_slots.contains(&place) {
            true => LATE_MESSAGE,
            false => Duration::ZERO,
        }
    }

    /// Whether some of its retries need not ask while it is told of releases.
    fn may_rely_on_messages(&self) -> bool {
        self.policy.wait != Wait::Poll && self.of_slots.len() < self.names.len()
    }

    /// When it has to ask at the latest, having just learned that the lock ends at that time.
    fn asks_by(&self, end: Instant) -> Instant {
        let now = Instant::now();
        let waits_for_slots = self.obstacle.is_some_and(|it| self.of_slots.contains(&it));
        let trusts = match self.may_rely_on_messages() && !waits_for_slots {
            true if self.policy.wait == Wait::NotifyOnly => return end,
            true => LONGEST_TRUST,
            false => Duration::ZERO,
        };
        end.min(now + trusts + self.longest_pause())
    }

    /// The longest pause that the rules for polling allow after so many attempts. Retries that have not asked have made it longer,
    /// too.
    fn longest_pause(&self) -> Duration {
        match self.may_rely_on_messages() {
            true => self.pause_after(u32::MAX),
            false => self.pause_after(self.attempts),
        }
    }

    /// Whether it should have asked by now. If the machine stood still meanwhile, it may have given up an attempt after
    /// that, and then begun to wait.
    fn is_late(&self, due: Instant, stalled: Instant, others_asked: Option<Instant>) -> bool {
        let goes_on = |since: Instant| match since > self.asked_at {
            true if self.may_rely_on_messages() => since + self.longest_pause(),
            true => since + self.pause_after(self.attempts + 1),
            false => since,
        };
        let others_asked = others_asked.map_or(due, goes_on);
        Instant::now() > due.max(goes_on(stalled)).max(others_asked) + SLACK
    }

    fn pause_after(&self, attempts: u32) -> Duration {
        let ms = match self.policy.backoff {
            Backoff::Fixed => self.policy.retry_delay_ms,
            Backoff::Exponential => self.policy.retry_delay_ms * f64::from(attempts.min(20)).exp2(),
        };
        let longest_ms = self
            .policy
            .max_retry_delay_ms
            .max(self.policy.retry_delay_ms);
        Duration::from_secs_f64(ms.min(longest_ms).min(1e7) / 1000.0)
    }
}
