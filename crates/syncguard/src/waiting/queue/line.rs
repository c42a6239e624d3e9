//! A line: the waiters of this process who want the same of one key.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::network::event_loop::Lane;
use crate::text::error::{Busy, Error};
use crate::values::claim::Slots;
use crate::waiting::hand_over::{HandOver, LATE_MESSAGE};
use crate::waiting::retry::RetryPolicy;
use crate::waiting::wakeups::Watch;

/// What a waiter wants of a key: the key alone, the key shared, or some of its slots. Each wish has a line of its own, because the refusal
/// of one says nothing of another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::waiting) struct Wish {
    /// The slots of which some are wanted; `None` for the key itself.
    pub(in crate::waiting) slots: Option<Slots>,
    /// How many locks are wanted.
    pub(in crate::waiting) take: usize,
    pub(in crate::waiting) is_shared: bool,
}

impl Wish {
    /// Whether only one can have it.
    pub(in crate::waiting) fn is_exclusive(self) -> bool {
        self.slots.is_none() && !self.is_shared
    }
}

/// A waiter in a line.
pub(in crate::waiting) struct LineMember {
    /// The larger, the later it came.
    pub(in crate::waiting) number: u64,
    pub(in crate::waiting) since: Instant,
    pub(in crate::waiting) policy: RetryPolicy,
    /// Tells the waiter that something has changed.
    pub(in crate::waiting) news: Arc<Notify>,
}

/// The waiters of one wish, and what is known of its lock. Only the first of them watches the lock, and asks.
pub(in crate::waiting) struct Line {
    pub(in crate::waiting) wish: Wish,
    /// The waiters in the order in which they came, without those who ask at this moment.
    members: VecDeque<LineMember>,
    /// How many waiters ask for this wish at this moment. They may ask for other locks, too.
    pub(in crate::waiting) asking: usize,
    room: Room,
    /// How many locks of this wish the process has freed since somebody last asked for one.
    freed: usize,
    /// How many releases are under way at whose end the first waiter may ask.
    awaited_releases: usize,
    pub(in crate::waiting) hand_over: HandOver,
    /// The lane in which the first waiter asks.
    pub(in crate::waiting) lane: Option<Lane>,
    /// Hears when the store tells of a release. It is made when a waiter first needs it.
    pub(in crate::waiting) watch: Option<Arc<Watch>>,
    /// When an attempt last left nothing for the next waiter: it was refused, failed, or got the only lock.
    pub(in crate::waiting) known: Instant,
    /// When the store last told of a release, or the line began.
    pub(in crate::waiting) changed: Instant,
    /// When the lock in the way ends by itself, if that is known.
    pub(in crate::waiting) free_at: Option<Instant>,
    /// When to ask for a slot again, because messages that counted as old may have been news.
    pub(in crate::waiting) look_again_at: Option<Instant>,
    /// How the last attempt has ended: with an answer of the store, or with this failure. `None` before the first one.
    pub(in crate::waiting) heard: Option<Result<(), Error>>,
    /// When the store last spoke of the lock in the way, and what it said.
    pub(in crate::waiting) busy: Option<(Instant, Busy)>,
    /// Tells waiters whose time is over that an attempt of another has ended.
    over: Vec<Arc<Notify>>,
}

/// How many waiters may ask at the same time, by what is known of the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Any number, because nobody was refused yet. For a key that is wanted alone, one at a time all the same.
    Open,
    /// As many as `window` says, because others may have freed something and nobody knows how much. At first that is one, and one more after
    /// each grant.
    Unknown { window: usize },
    /// None, because the last one that asked was refused, got the only lock, or met a store that fails.
    Full,
}

impl Line {
    pub(in crate::waiting) fn new(wish: Wish, now: Instant) -> Self {
        Self {
            wish,
            members: VecDeque::new(),
            asking: 0,
            room: Room::Open,
            freed: 0,
            awaited_releases: 0,
            hand_over: HandOver::default(),
            lane: None,
            watch: None,
            known: now,
            changed: now,
            free_at: None,
            look_again_at: None,
            heard: None,
            busy: None,
            over: Vec::new(),
        }
    }

    /// Whether the key itself is wanted.
    pub(in crate::waiting) fn is_of_key(&self) -> bool {
        self.wish.slots.is_none()
    }

    /// Whether only one can have it.
    fn is_exclusive(&self) -> bool {
        self.wish.is_exclusive()
    }

    pub(in crate::waiting) fn is_idle(&self) -> bool {
        self.members.is_empty() && self.asking == 0
    }

    /// The number of the first waiter.
    pub(in crate::waiting) fn first(&self) -> Option<u64> {
        self.members.front().map(|first| first.number)
    }

    pub(in crate::waiting) fn members(&self) -> impl Iterator<Item = &LineMember> {
        self.members.iter()
    }

    /// Whether one more waiter may ask beside those who already do. For a key that is wanted alone, one asks at a time.
    pub(in crate::waiting) fn has_room(&self) -> bool {
        let is_beside = !self.is_exclusive() || self.asking == 0;
        let has_room = match self.room {
            Room::Open => true,
            Room::Unknown { window } => self.asking < window,
            Room::Full => false,
        };
        is_beside && (has_room || self.freed > 0)
    }

    /// Whether the waiter of this number may ask for this wish. It may stand in another line.
    pub(in crate::waiting) fn lets(&self, number: u64) -> bool {
        self.has_room() && self.first().is_none_or(|first| first >= number)
    }

    /// Adds a waiter, behind those who came before it.
    pub(in crate::waiting) fn insert(&mut self, member: LineMember) {
        let place = self
            .members
            .partition_point(|one| one.number < member.number);
        self.members.insert(place, member);
        // If the new one is first, the second has watched until now. Otherwise the first may have to ask more often.
        if let Some(watches) = self.members.get(usize::from(place == 0)) {
            watches.news.notify_one();
        }
    }

    pub(in crate::waiting) fn remove(&mut self, number: u64) {
        let place = self.members.binary_search_by_key(&number, |one| one.number);
        if let Ok(place) = place {
            self.members.remove(place);
        }
    }

    /// Tells the first waiter that it may ask, or has to watch.
    pub(in crate::waiting) fn rouse(&self) {
        if self.asking == 0 || self.has_room() {
            self.members.iter().take(1).for_each(LineMember::tell);
        }
    }

    /// Notes that one more waiter asks. Gives whether it does because this process has freed the lock.
    pub(in crate::waiting) fn asks(&mut self) -> bool {
        self.asking += 1;
        let was_freed = self.freed > 0;
        self.freed = match self.is_of_key() {
            true => 0,
            false => self.freed.saturating_sub(self.wish.take),
        };
        was_freed
    }

    /// Whether a waiter whose time is over is to wait for the answer to another. If so, `news` tells it that the other's attempt has ended.
    pub(in crate::waiting) fn hears_another(&mut self, news: &Arc<Notify>) -> bool {
        let hears = self.asking > 0 && !self.has_room();
        if hears {
            self.over.push(Arc::clone(news));
        }
        hears
    }

    fn ends_asking(&mut self) {
        self.asking -= 1;
        self.over.drain(..).for_each(|news| news.notify_one());
    }

    /// Notes that an attempt has ended and shown nothing of this wish, so that another waiter may ask in its place.
    pub(in crate::waiting) fn asked_in_vain(&mut self, was_freed: bool) {
        self.ends_asking();
        match was_freed {
            true => self.free(),
            false => self.rouse(),
        }
    }

    /// Notes that an attempt has found the lock held, when the lock ends, if that is known, and what the store has said of it. This process
    /// holds `held` slots of the key. Gives whether another process has it.
    pub(in crate::waiting) fn refused(
        &mut self,
        free_at: Option<Instant>,
        busy: Option<(Instant, Busy)>,
        was_freed: bool,
        held: usize,
    ) -> bool {
        let now = self.fills(free_at);
        (self.heard, self.busy) = (Some(Ok(())), busy);
        // Another process has got the slot that was just freed, unless this one holds all of them.
        let has_rival = match self.wish.slots {
            None => true,
            Some(slots) => was_freed && held < slots.count().into(),
        };
        has_rival && self.hand_over.found_held(now)
    }

    /// Notes how the store has failed.
    pub(in crate::waiting) fn failed(&mut self, failure: Option<&Error>) {
        self.fills(None);
        self.heard = failure.cloned().map(Err);
    }

    /// Notes that an attempt has ended and leaves nothing for the next waiter, until `free_at` if that is known. Gives the time now.
    fn fills(&mut self, free_at: Option<Instant>) -> Instant {
        let now = Instant::now();
        self.ends_asking();
        (self.room, self.known, self.free_at) = (Room::Full, now, free_at);
        self.look_again_at = None;
        now
    }

    /// Notes that an attempt was granted, until `end`.
    pub(in crate::waiting) fn granted(&mut self, end: Instant) {
        (self.heard, self.busy) = (Some(Ok(())), None);
        if self.is_exclusive() {
            let now = self.fills(Some(end));
            self.hand_over.granted(now);
        } else if self.wish.is_shared {
            // All other readers can have it, too.
            self.ends_asking();
            self.room = Room::Open;
        } else {
            self.ends_asking();
            if let Room::Unknown { window } = &mut self.room {
                *window += 1;
            }
        }
        self.rouse();
    }

    /// Notes that the lock which stands in the way ends at that time, and not when it would have until now.
    pub(in crate::waiting) fn lasts(&mut self, end: Instant) {
        if self.is_exclusive() && self.room == Room::Full {
            self.free_at = Some(end);
            self.rouse();
        }
    }

    /// Notes that others may have freed something, or that a lock may have ended.
    pub(in crate::waiting) fn may_be_free(&mut self) {
        if self.room == Room::Full {
            self.room = Room::Unknown { window: 1 };
        }
    }

    /// Whether the store tells of releases at this moment.
    pub(in crate::waiting) fn is_told(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.is_listening())
    }

    /// Whether so many messages, which come now, tell of anything new.
    pub(in crate::waiting) fn is_news(&mut self, times: u64) -> bool {
        let now = Instant::now();
        if self.is_of_key() {
            return !self.hand_over.is_late(now);
        }
        let is_news = self.hand_over.news_of_slots(times, now) > 0;
        if !is_news {
            // A store may tell once of several releases. So one that is not expected may be among them.
            self.look_again_at.get_or_insert(now + LATE_MESSAGE);
        }
        is_news
    }

    /// Notes that this process has sent a release in this lane. If the first waiter asks in the same lane, its attempt comes after the release,
    /// so it need not wait for the end.
    pub(in crate::waiting) fn release_sent(&mut self, lane: Option<Lane>) {
        let now = Instant::now();
        self.hand_over.freed();
        if !self.is_told() || !self.hand_over.releases(now) {
            return;
        }
        if !self.is_of_key() {
            self.hand_over.slot_handed_over(now);
        }
        if lane.is_none() || lane != self.lane {
            self.awaited_releases += 1;
            return;
        }
        self.free();
    }

    /// Notes that a release by this process has ended.
    pub(in crate::waiting) fn release_ended(&mut self) {
        match self.awaited_releases.checked_sub(1) {
            Some(others) => self.awaited_releases = others,
            None if self.is_told() => return,
            None => {}
        }
        self.free();
    }

    /// Notes that a reader of this process has left. Where the store tells, it does so when the last reader of all has left.
    pub(in crate::waiting) fn reader_left(&mut self) {
        if self.is_exclusive() && !self.is_told() {
            self.free();
        }
    }

    /// Notes that a writer of this process has opened the gate, which kept readers out.
    pub(in crate::waiting) fn gate_opened(&mut self) {
        if self.wish.is_shared && !self.is_told() {
            self.free();
        }
    }

    /// Notes that this process has freed the lock, and lets the first waiter ask.
    fn free(&mut self) {
        self.freed = match self.is_of_key() {
            true => 1,
            false => self.freed + 1,
        };
        self.rouse();
    }
}

impl LineMember {
    pub(in crate::waiting) fn tell(&self) {
        self.news.notify_one();
    }
}
