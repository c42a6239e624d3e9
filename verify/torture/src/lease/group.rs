//! Readers who share a lock.

use super::holder::{Holder, TOLERANCE_MS, Window};

/// What all readers of a key have together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Readers {
    /// Its fence; `None` if nobody has seen it.
    pub fence: Option<u64>,
    /// It does not end after this. It does not end before its readers.
    pub latest_ms: i64,
    /// Those who have not left, dead or live, by their numbers. None: only some of whom nobody knows whether they are there, or nobody,
    /// and the group is about to end.
    readers: Vec<Reader>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reader {
    /// Its lock id's number.
    pub lock: u64,
    /// When it ends, as for a [`Holder`].
    pub ends_ms: (i64, i64),
}

impl Readers {
    pub(super) fn new(reader: Reader, fence: Option<u64>, window: Window) -> Self {
        Self {
            fence,
            latest_ms: reader.ends_ms.1 + window.group_ms,
            readers: vec![reader],
        }
    }

    /// It does not end before this; `None` if it may have ended at any time.
    pub(super) fn earliest_ms(&self) -> Option<i64> {
        let ends = self.readers.iter().map(|reader| reader.ends_ms.0);
        ends.max()
    }

    pub(super) fn may_be_live(&self, window: Window) -> bool {
        let until_ms = window.readers_ms.unwrap_or(i64::MIN);
        window.from_ms < until_ms.max(self.latest_ms + TOLERANCE_MS)
    }

    pub(super) fn held_by(&self, lock: u64) -> Option<Holder> {
        let reader = self.readers.iter().find(|reader| reader.lock == lock)?;
        Some(Holder {
            lock: Some(lock),
            unseen: None,
            fence: self.fence,
            ends_ms: reader.ends_ms,
        })
    }

    pub(super) fn joined(mut self, reader: Reader, fence: Option<u64>, window: Window) -> Self {
        self.fence = fence;
        let latest_ms = reader.ends_ms.1 + window.group_ms;
        self.latest_ms = self.latest_ms.max(latest_ms);
        let place = self.readers.partition_point(|one| one.lock < reader.lock);
        match self.readers.get_mut(place) {
            Some(one) if one.lock == reader.lock => *one = reader,
            _ => self.readers.insert(place, reader),
        }
        self
    }

    /// With this one of its readers as it is now.
    pub(super) fn with(self, holder: Holder, window: Window) -> Self {
        let fence = holder.fence.or(self.fence);
        let Some(lock) = holder.lock else {
            return self;
        };
        let ends_ms = holder.ends_ms;
        self.joined(Reader { lock, ends_ms }, fence, window)
    }

    /// What is left when that reader has let go within `window`: nothing, if all others are dead, or a group that nobody belongs to. Until
    /// then, the dead stay: one of them may have left while it was live, by a release that is still under way.
    pub(super) fn without(mut self, lock: u64, window: Window) -> Option<Self> {
        let may_be_live = |reader: &Reader| window.from_ms < reader.ends_ms.1 + TOLERANCE_MS;
        self.readers.retain(|reader| reader.lock != lock);
        if !self.readers.iter().any(may_be_live) {
            self.readers.clear();
            let of_others = |until_ms| until_ms - TOLERANCE_MS + window.group_ms;
            let of_itself = || window.to_ms - TOLERANCE_MS;
            let of_itself = window.is_left_in_steps.then(of_itself);
            self.latest_ms = window.readers_ms.map(of_others).max(of_itself)?;
        }
        Some(self)
    }

    /// The group as somebody sees it, unless it is another one.
    pub(super) fn seen(mut self, fence: u64, expires_at_ms: i64, window: Window) -> Option<Self> {
        let is_it = self.fence.is_none_or(|known| known == fence);
        let of_others = |until_ms| until_ms - TOLERANCE_MS + window.group_ms;
        let latest_ms = window.readers_ms.map_or(self.latest_ms, of_others);
        let fits = is_it && expires_at_ms <= latest_ms.max(self.latest_ms);
        self.fence = Some(fence);
        fits.then_some(self)
    }

    /// Whether somebody is left when that reader, which is one of them, has let go within `window`.
    pub(super) fn outlives(&self, lock: u64, window: Window) -> bool {
        let mut others = self.readers.iter().filter(|reader| reader.lock != lock);
        others.any(|reader| window.to_ms < reader.ends_ms.0 + TOLERANCE_MS)
    }
}
