//! Who has a lock, and when something may have happened to it.

/// A lock counts as live until this long after its end (docs/format.md).
pub const TOLERANCE_MS: i64 = 1000;

/// A granted lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its lock id's number; `None` if nobody has seen it.
    pub lock: Option<u64>,
    /// The number of the acquisition, if its caller has not seen the lock id.
    pub unseen: Option<u64>,
    /// Its fence; `None` if nobody has seen it.
    pub fence: Option<u64>,
    /// When it ends: not before the first and not after the second, which are equal if somebody has seen it.
    pub ends_ms: (i64, i64),
}

/// When an operation may have had its effect, on the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Not before.
    pub from_ms: i64,
    /// Not after.
    pub to_ms: i64,
    /// Until when there may be readers of whom nobody knows whether they have joined or left.
    pub readers_ms: Option<i64>,
    /// For how much longer than its readers a group may last.
    pub group_ms: i64,
    /// Whether a group that nobody belongs to any more may stay until the release of its last reader has ended.
    pub is_left_in_steps: bool,
}

impl Window {
    /// This very millisecond of it.
    pub(super) fn at(self, ms: i64) -> Self {
        Self {
            from_ms: ms,
            to_ms: ms,
            ..self
        }
    }

    pub(super) fn contains(self, ms: i64) -> bool {
        (self.from_ms..=self.to_ms).contains(&ms)
    }
}

impl Holder {
    pub(super) fn may_be_live(&self, window: Window) -> bool {
        window.from_ms < self.ends_ms.1 + TOLERANCE_MS
    }

    /// This holder as somebody sees it, unless it is another one.
    pub(super) fn seen(
        mut self,
        lock: Option<u64>,
        fence: u64,
        expires_at_ms: i64,
    ) -> Option<Self> {
        let (earliest, latest) = self.ends_ms;
        let is_it = lock.is_none() || self.lock.is_none() || lock == self.lock;
        let fits = is_it
            && self.fence.is_none_or(|known| known == fence)
            && (earliest..=latest).contains(&expires_at_ms);
        self.lock = self.lock.or(lock);
        self.fence = Some(fence);
        self.ends_ms = (expires_at_ms, expires_at_ms);
        fits.then_some(self)
    }
}
