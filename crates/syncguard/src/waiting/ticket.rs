//! The place of a waiter in the queues: by its ticket it stands in line, asks, and shares what is known of the locks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::line::{Line, LineMember, Wish};
use super::queue::{DOUBT, Queue, Queues, QueuesInner, Want, all_slots};
use super::retry::{GRACE, RetryPolicy, Wait};
use super::wakeups::Watch;
use crate::asking::outcome::Grant;
use crate::mutex::lock;
use crate::network::event_loop::Lane;
use crate::random;
use crate::text::error::{Busy, Error};
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};

/// The place of one waiter in the queues. Dropping it leaves them.
pub(crate) struct Ticket {
    queues: Queues,
    number: u64,
    since: Instant,
    policy: RetryPolicy,
    wants: Batch<Want>,
    /// Which of `wants` stood in the way last.
    obstacle: usize,
    place: Place,
    /// Tells the waiter that something has changed in its line. It is made when it is first needed.
    news: Option<Arc<Notify>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// In the line for its obstacle.
    InLine,
    Asking,
}

/// What a waiter in line has to do.
pub(crate) enum LineRole {
    /// It may ask.
    Ready,
    /// It is the first: it watches the lock for all in this line.
    First,
    /// It waits for news, because others come before it.
    Behind,
}

/// What a waiter whose time is over has to do.
pub(crate) enum LastTurn {
    Asks,
    /// It waits for the answer to another, who asks for the same at this moment.
    Hears,
    /// Nothing: it is known what the store would say.
    Knows,
}

impl Ticket {
    /// Makes the ticket of the waiter with this number, who would ask as `policy` says if it were alone. Claims of the same key stand side by
    /// side.
    pub(crate) fn new(
        queues: &Queues,
        number: u64,
        claims: &[Claim],
        policy: &RetryPolicy,
    ) -> Self {
        let keys = claims.chunk_by(|one, other| one.key == other.key);
        let want = |claims: &[Claim]| {
            let claim = claims.first()?;
            Some(Want {
                key: match claim.kind {
                    ClaimKind::Exclusive | ClaimKind::Shared => claim.key.clone(),
                    ClaimKind::SlotOf(_) => all_slots(&claim.key),
                },
                wish: Wish {
                    slots: claim.kind.slots(),
                    take: claims.len(),
                    is_shared: claim.kind == ClaimKind::Shared,
                },
                was_freed: false,
            })
        };
        Self {
            queues: queues.clone(),
            number,
            since: Instant::now(),
            policy: *policy,
            wants: keys.filter_map(want).collect(),
            obstacle: 0,
            place: Place::Nowhere,
            news: None,
        }
    }

    /// Leaves the line to ask the store, if all that the waiter wants may be free. Otherwise stands in the line for what is not free, and gives
    /// `false`. Fails if nobody may wait any more.
    pub(crate) fn asks(&mut self) -> Result<bool, Error> {
        self.with(|ticket, queues| {
            if let Some(refusal) = &queues.refusal {
                return Err(refusal.clone());
            }
            let is_closed = |want| !queues.is_open(want, ticket.number);
            let closed = ticket.wants.iter().position(is_closed);
            match closed {
                None => ticket.begins(queues),
                Some(obstacle) => {
                    ticket.leaves_line(queues);
                    ticket.stands(obstacle, queues);
                }
            }
            Ok(closed.is_none())
        })
    }

    /// Gives until when a waiter who has just come leaves what it wants to other processes. It stands in line meanwhile, before those who
    /// come later.
    pub(crate) fn pauses(&mut self) -> Option<Instant> {
        self.with(|ticket, queues| {
            let now = Instant::now();
            let wants = ticket.wants.iter().enumerate();
            let alone = wants.filter(|(_, want)| want.wish.is_exclusive());
            let pauses = alone.filter_map(|(at, want)| {
                let until = queues.turns.pause_until(&want.key, now)?;
                Some((until, at))
            });
            let (until, obstacle) = pauses.max()?;
            ticket.stands(obstacle, queues);
            Some(until)
        })
    }

    /// Leaves the line for as long as the waiter gathers.
    pub(crate) fn leaves(&mut self) {
        self.with(Self::leaves_line);
    }

    /// Decides what a waiter does whose wait ends, whether it is its turn or not. It asks at once if nobody is to wait any longer. If its time
    /// is over, since `over`, the answer to another serves as well. `waited` is how long it has waited for one: with little of the grace
    /// left, the store is not asked again.
    pub(crate) fn asks_at_last(
        &mut self,
        over: Option<Instant>,
        waited: Option<Duration>,
    ) -> Result<LastTurn, Error> {
        let news = self.news();
        self.with(|ticket, queues| {
            if let Some(refusal) = &queues.refusal {
                return Err(refusal.clone());
            }
            let line = queues.line_or_new(&ticket.wants[ticket.obstacle]);
            let has_heard = line.heard.is_some();
            // After a reader who was let in, say, there is room for those who share the key, too.
            let knows = has_heard && !line.has_room();
            Ok(match over {
                Some(over) if has_heard && line.known >= over => LastTurn::Knows,
                Some(_) if line.hears_another(&news) => LastTurn::Hears,
                Some(_) if waited.is_some_and(|waited| knows || waited > GRACE / 2) => {
                    LastTurn::Knows
                }
                _ => {
                    ticket.begins(queues);
                    LastTurn::Asks
                }
            })
        })
    }

    /// Notes that the lock of this claim is held, what the store has said of it, and when it ends, if that is known.
    pub(crate) fn refused(
        &mut self,
        claim: usize,
        busy: Option<(Instant, Busy)>,
        free_at: Option<Instant>,
    ) {
        self.with(|ticket, queues| {
            let obstacle = ticket.want_of(claim);
            let mut has_rival = false;
            ticket.ends_asking(queues, |at, want, queue| {
                let held = queue.held.len();
                let line = queue.line_mut(want).filter(|_| at == obstacle)?;
                has_rival = line.refused(free_at, busy.clone(), want.was_freed, held);
                Some(())
            });
            let want = &ticket.wants[obstacle];
            if has_rival && want.wish.is_exclusive() {
                queues.turns.found_held(&want.key, Instant::now());
            }
            ticket.stands(obstacle, queues);
        });
    }

    /// Notes that the attempt ended before the store could answer.
    pub(crate) fn asked_in_vain(&mut self) {
        self.with(|ticket, queues| {
            ticket.ends_asking(queues, |_, _, _| None);
            ticket.stands(ticket.obstacle, queues);
        });
    }

    /// Notes that the store has failed.
    pub(crate) fn failed(&mut self, failure: Option<&Error>) {
        self.with(|ticket, queues| {
            let obstacle = ticket.obstacle;
            ticket.ends_asking(queues, |at, want, queue| {
                let line = queue.line_mut(want).filter(|_| at == obstacle)?;
                line.failed(failure);
                Some(())
            });
            ticket.stands(obstacle, queues);
        });
    }

    /// Notes that the store has granted all that the waiter wants, until `end`.
    pub(crate) fn granted(&mut self, end: Instant, grants: &[Grant]) {
        self.with(|ticket, queues| {
            let mut grants = grants.iter();
            ticket.ends_asking(queues, |_, want, queue| {
                let granted = grants.by_ref().take(want.wish.take);
                queue.held.extend(granted.filter_map(|grant| grant.slot));
                queue.line_mut(want)?.granted(end);
                Some(())
            });
            let now = Instant::now();
            for want in &ticket.wants {
                queues.turns.granted(&want.key, now);
            }
            ticket.place = Place::Nowhere;
        });
    }

    /// Notes that all that the waiter wants was granted part by part, and lasts until that time now.
    pub(crate) fn gathered(&self, end: Instant) {
        let mut queues = lock(&self.queues.0);
        for want in &self.wants {
            if let Some(line) = queues.line_mut(want) {
                line.lasts(end);
            }
        }
    }

    /// What the waiter has to do where it stands.
    pub(crate) fn role(&self) -> LineRole {
        let queues = lock(&self.queues.0);
        let want = &self.wants[self.obstacle];
        match queues.line(want) {
            Some(line) if !line.lets(self.number) && queues.refusal.is_none() => {
                match line.asking == 0 && line.first() == Some(self.number) {
                    true => LineRole::First,
                    false => LineRole::Behind,
                }
            }
            _ => LineRole::Ready,
        }
    }

    /// What tells the waiter that something has changed in its line.
    pub(crate) fn news(&mut self) -> Arc<Notify> {
        Arc::clone(self.news.get_or_insert_default())
    }

    /// The number of the first claim for what stands in the way.
    pub(crate) fn obstacle(&self) -> usize {
        let before = self.wants.iter().take(self.obstacle);
        before.map(|want| want.wish.take).sum()
    }

    /// When the lock in the way ends by itself, if that is known.
    pub(crate) fn free_at(&self) -> Option<Instant> {
        self.look(|line| line.free_at)
    }

    /// Whether the store has answered whoever asked last of this line, or how it failed. `None` if nobody has asked yet.
    pub(crate) fn heard(&self) -> Option<Result<(), Error>> {
        self.look(|line| line.heard.clone())
    }

    /// When the store has last spoken of the lock in the way, and what it said.
    pub(crate) fn busy(&self) -> Option<(Instant, Busy)> {
        self.look(|line| line.busy.clone())
    }

    /// Whether the store is sure to tell when the lock is freed: it can at this moment, and has not failed to lately. It is never sure to for
    /// slots, because one message may stand for several releases.
    pub(crate) fn is_told(&self) -> bool {
        let doubted = lock(&self.queues.0).doubted_until;
        let is_told = self.look(|line| Some(line.is_of_key() && line.is_told()));
        is_told == Some(true) && doubted.is_none_or(|until| until <= Instant::now())
    }

    /// Notes that the lock was freed before its end, and the store has not told.
    pub(crate) fn was_not_told(&self) {
        lock(&self.queues.0).doubted_until = Instant::now().checked_add(DOUBT);
    }

    /// Gives the watch by which the line hears of releases. If there is none yet and a waiter in the line does not only poll, `listen` makes
    /// it. `lane` is where the first of the line asks.
    pub(crate) fn listen(
        &self,
        lane: Option<Lane>,
        listen: impl FnOnce() -> Option<Watch>,
    ) -> Option<Arc<Watch>> {
        self.change(|line| {
            line.lane = lane;
            let listens = |member: &LineMember| member.policy.wait != Wait::Poll;
            if line.watch.is_none() && line.members().any(listens) {
                line.watch = listen().map(Arc::new);
            }
            line.watch.clone()
        })
    }

    /// Whether so many messages, which come now, tell of anything new. If so, this notes that the lock may be free.
    pub(crate) fn is_news(&self, times: u64) -> bool {
        let is_news = self.change(|line| Some(line.is_news(times))) == Some(true);
        if is_news {
            self.may_be_free();
        }
        is_news
    }

    /// Gives until when the waiter, who has just been told of a release, leaves the lock to other processes.
    pub(crate) fn gives_way(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut queues = lock(&self.queues.0);
        let want = self.wants.get(self.obstacle)?;
        let line = queues.line_mut(want)?;
        let held = now - std::mem::replace(&mut line.changed, now);
        let is_exclusive = want.wish.is_exclusive();
        is_exclusive.then(|| queues.turns.gives_way(&want.key, held, now))?
    }

    /// Notes that the lock in the way may have been freed by others, or have ended.
    pub(crate) fn may_be_free(&self) {
        self.change(|line| {
            line.may_be_free();
            Some(())
        });
    }

    /// When to ask again, because messages may have been wrongly taken for those of slots that this process has handed over.
    pub(crate) fn looks_again_at(&self) -> Option<Instant> {
        self.look(|line| line.look_again_at)
    }

    /// When the most eager waiter behind this one would ask again if it were alone. `None` if none of them would. With `relies`, only those
    /// count that do not rely on the store's messages.
    pub(crate) fn others_ask_at(&self, relies: bool) -> Option<Instant> {
        self.look(|line| {
            let random = random::unit().unwrap_or(0.5);
            let others = line.members().skip(1);
            let others = others.filter(|member| !relies || member.policy.wait == Wait::Poll);
            let paces = others.map(|member| {
                let waited = line.known.saturating_duration_since(member.since);
                let waited_ms = waited.as_secs_f64() * 1000.0;
                member.policy.pace_ms(waited_ms, random)
            });
            let pace = Duration::try_from_secs_f64(paces.reduce(f64::min)? / 1000.0);
            line.known.checked_add(pace.ok()?)
        })
    }

    fn with<T>(&mut self, run: impl FnOnce(&mut Self, &mut QueuesInner) -> T) -> T {
        let shared = Arc::clone(&self.queues.0);
        let mut queues = lock(&shared);
        let outcome = run(self, &mut queues);
        let watches = queues.tidy(&self.wants);
        drop(queues);
        drop(watches);
        outcome
    }

    /// Reads from the line in which the waiter stands.
    fn look<T>(&self, run: impl FnOnce(&Line) -> Option<T>) -> Option<T> {
        run(lock(&self.queues.0).line(&self.wants[self.obstacle])?)
    }

    fn change<T>(&self, run: impl FnOnce(&mut Line) -> Option<T>) -> Option<T> {
        run(lock(&self.queues.0).line_mut(&self.wants[self.obstacle])?)
    }

    /// The place in `wants` of what this claim is for.
    fn want_of(&self, claim: usize) -> usize {
        let mut claims = 0;
        let reaches = |want: &Want| {
            claims += want.wish.take;
            claim < claims
        };
        self.wants.iter().position(reaches).unwrap_or_default()
    }

    /// Leaves the line, and begins to ask for all that the waiter wants.
    fn begins(&mut self, queues: &mut QueuesInner) {
        if self.place == Place::InLine
            && let Some(line) = queues.line_mut(&self.wants[self.obstacle])
        {
            line.remove(self.number);
        }
        for want in &mut self.wants {
            let line = queues.line_or_new(want);
            want.was_freed = line.asks();
            // For slots, and for a key that is shared, another may ask at the same time.
            line.rouse();
        }
        self.place = Place::Asking;
    }

    /// Ends the attempt in all lines. `tell` notes what the attempt has shown of one want, and gives `None` if that is nothing.
    fn ends_asking(
        &self,
        queues: &mut QueuesInner,
        mut tell: impl FnMut(usize, &Want, &mut Queue) -> Option<()>,
    ) {
        for (at, want) in self.wants.iter().enumerate() {
            let Some(queue) = queues.by_key.get_mut(&want.key) else {
                continue;
            };
            if tell(at, want, queue).is_none()
                && let Some(line) = queue.line_mut(want)
            {
                line.asked_in_vain(want.was_freed);
            }
        }
    }

    /// Stands in the line for this want.
    fn stands(&mut self, obstacle: usize, queues: &mut QueuesInner) {
        let member = LineMember {
            number: self.number,
            since: self.since,
            policy: self.policy,
            news: self.news(),
        };
        (self.obstacle, self.place) = (obstacle, Place::InLine);
        queues.line_or_new(&self.wants[obstacle]).insert(member);
    }

    /// Leaves the line, in which another may be the first then.
    fn leaves_line(&mut self, queues: &mut QueuesInner) {
        if self.place != Place::InLine {
            return;
        }
        self.place = Place::Nowhere;
        if let Some(line) = queues.line_mut(&self.wants[self.obstacle]) {
            line.remove(self.number);
            line.rouse();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.with(|ticket, queues| {
            ticket.leaves_line(queues);
            if ticket.place == Place::Asking {
                ticket.ends_asking(queues, |_, _, _| None);
            }
        });
    }
}

#[cfg(test)]
mod tests;
