//! Those of this process who wait for the same: for a key, or for as many of the same slots of one.

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

/// What is wanted of a key: the key itself, alone or with others, or so many of its slots. That one of them was refused says nothing of another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::waiting) struct Wish {
    pub(in crate::waiting) slots: Option<Slots>,
    pub(in crate::waiting) take: usize,
    pub(in crate::waiting) is_shared: bool,
}

/// One who waits.
pub(in crate::waiting) struct LineMember {
    /// The larger, the later it came.
    pub(in crate::waiting) number: u64,
    pub(in crate::waiting) since: Instant,
    pub(in crate::waiting) policy: RetryPolicy,
    /// Tells it that something has changed.
    pub(in crate::waiting) news: Arc<Notify>,
}

/// Those who wait for one wish, and what is known of it. Only the first of them watches it, and asks.
pub(in crate::waiting) struct Line {
    pub(in crate::waiting) wish: Wish,
    /// In the order in which they came. Those who ask stand in no line.
    members: VecDeque<LineMember>,
    /// How many ask at this moment for this, and perhaps for more.
    pub(in crate::waiting) asking: usize,
    room: Room,
    /// How often this process has freed it, and nobody has found out yet what came of that.
    freed: usize,
    /// Of how many releases that are under way the first is to hear once they have ended.
    hears_of_ends: usize,
    pub(in crate::waiting) hand_over: HandOver,
    /// In which lane the first asks.
    pub(in crate::waiting) lane: Option<Lane>,
    /// Hears what the store tells; there once it was needed.
    pub(in crate::waiting) watch: Option<Arc<Watch>>,
    /// When the store last said something of it, or it was granted.
    pub(in crate::waiting) known: Instant,
    /// When that ends by itself which stood in the way, as far as is known.
    pub(in crate::waiting) taken: Option<Instant>,
    /// When to ask for a slot again, because what the store has told may have been news.
    pub(in crate::waiting) look_again_at: Option<Instant>,
    /// Whether the store has answered when it was last asked of this, or how it failed; `None` before the first time.
    pub(in crate::waiting) heard: Option<Result<(), Error>>,
    /// What the store has last said of a lock that is held, and when.
    pub(in crate::waiting) busy: Option<(Instant, Busy)>,
    /// Tells those whose time is over that one who asks has ended.
    over: Vec<Arc<Notify>>,
}

/// What is known of what can be had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Nobody was refused: of slots, and of a key that is shared, all ask beside each other.
    Open,
    /// Something may have been freed by others: how much is unknown. So many may ask at the same time: at first one, and
    /// one more for each grant.
    Unknown { window: usize },
    /// The last who asked was refused, has the lock itself, or met a store that fails.
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
            hears_of_ends: 0,
            hand_over: HandOver::default(),
            lane: None,
            watch: None,
            known: now,
            taken: None,
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
        self.is_of_key() && !self.wish.is_shared
    }

    pub(in crate::waiting) fn is_idle(&self) -> bool {
        self.members.is_empty() && self.asking == 0
    }

    /// The number of the first.
    pub(in crate::waiting) fn first(&self) -> Option<u64> {
        self.members.front().map(|first| first.number)
    }

    pub(in crate::waiting) fn members(&self) -> impl Iterator<Item = &LineMember> {
        self.members.iter()
    }

    /// Whether one more may ask beside those who do: all of these have been granted what they want, as far as is known, or
    /// so much was freed. For a key itself, one asks at a time.
    pub(in crate::waiting) fn has_room(&self) -> bool {
        let is_beside = !self.is_exclusive() || self.asking == 0;
        let has_room = match self.room {
            Room::Open => true,
            Room::Unknown { window } => self.asking < window,
            Room::Full => false,
        };
        is_beside && (has_room || self.freed > 0)
    }

    /// Whether the one of that number may ask for this, whether it stands in this line or not.
    pub(in crate::waiting) fn lets(&self, number: u64) -> bool {
        self.has_room() && self.first().is_none_or(|first| first >= number)
    }

    /// Takes one in, behind those who came before.
    pub(in crate::waiting) fn insert(&mut self, member: LineMember) {
        let place = self
            .members
            .partition_point(|one| one.number < member.number);
        self.members.insert(place, member);
        // Whoever watches may have become the second, or asks more often for one more.
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

    /// Tells the first that it may ask, or watch.
    pub(in crate::waiting) fn rouse(&self) {
        if self.asking == 0 || self.has_room() {
            self.members.iter().take(1).for_each(LineMember::tell);
        }
    }

    /// Notes that one more asks. Gives whether it does because this was freed.
    pub(in crate::waiting) fn asks(&mut self) -> bool {
        self.asking += 1;
        let was_freed = self.freed > 0;
        self.freed = match self.is_of_key() {
            true => 0,
            false => self.freed.saturating_sub(self.wish.take),
        };
        was_freed
    }

    /// Whether one whose time is over has to hear what another asks at this moment. Then `news` tells it once that has ended.
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

    /// Notes that one who has asked has learned nothing of this: another may ask in its place.
    pub(in crate::waiting) fn asked_in_vain(&mut self, was_freed: bool) {
        self.ends_asking();
        match was_freed {
            true => self.free(),
            false => self.rouse(),
        }
    }

    /// Notes that somebody holds it, until that time if it is known, and what the store has said of him. `held` slots of the
    /// key are held by this process.
    pub(in crate::waiting) fn refused(
        &mut self,
        free_at: Option<Instant>,
        busy: Option<(Instant, Busy)>,
        was_freed: bool,
        held: usize,
    ) {
        let now = self.fills(free_at);
        (self.heard, self.busy) = (Some(Ok(())), busy);
        // Somebody else has got a slot that was just freed, unless this process itself holds all of them.
        let has_rival = match self.wish.slots {
            None => true,
            Some(slots) => was_freed && held < slots.count().into(),
        };
        if has_rival {
            self.hand_over.found_held(now);
        }
    }

    /// Notes how the store has failed.
    pub(in crate::waiting) fn failed(&mut self, failure: Option<&Error>) {
        self.fills(None);
        self.heard = failure.cloned().map(Err);
    }

    /// Notes that one who asked leaves nothing for the next, until that time if it is known. Gives the time now.
    fn fills(&mut self, until: Option<Instant>) -> Instant {
        let now = Instant::now();
        self.ends_asking();
        (self.room, self.known, self.taken) = (Room::Full, now, until);
        self.look_again_at = None;
        now
    }

    /// Notes that one who asked was granted this, until that time.
    pub(in crate::waiting) fn granted(&mut self, end: Instant) {
        (self.heard, self.busy) = (Some(Ok(())), None);
        if self.is_exclusive() {
            let now = self.fills(Some(end));
            self.hand_over.granted(now);
        } else if self.wish.is_shared {
            // All others can share it, too.
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

    /// Notes that something may have been freed by others, or by itself.
    pub(in crate::waiting) fn may_be_free(&mut self) {
        if self.room == Room::Full {
            self.room = Room::Unknown { window: 1 };
        }
    }

    /// Whether the store tells at this moment that the lock was freed.
    pub(in crate::waiting) fn is_told(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.is_listening())
    }

    /// Whether what the store tells now, so many times, is news.
    pub(in crate::waiting) fn is_news(&mut self, times: u64) -> bool {
        let now = Instant::now();
        if self.is_of_key() {
            return !self.hand_over.is_late(now);
        }
        let is_news = self.hand_over.news_of_slots(times, now) > 0;
        if !is_news {
            // A store may tell once of several releases, and then this was another one.
            self.look_again_at.get_or_insert(now + LATE_MESSAGE);
        }
        is_news
    }

    /// This process has sent a release in that lane: what is asked in the same lane comes after it.
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
            self.hears_of_ends += 1;
            return;
        }
        self.free();
    }

    /// That release has ended.
    pub(in crate::waiting) fn release_ended(&mut self) {
        match self.hears_of_ends.checked_sub(1) {
            Some(others) => self.hears_of_ends = others,
            None if self.is_told() => return,
            None => {}
        }
        self.free();
    }

    /// This process has released the lock of one who shares the key. The store tells when the last one has.
    pub(in crate::waiting) fn reader_left(&mut self) {
        if self.is_exclusive() && !self.is_told() {
            self.free();
        }
    }

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
