//! What a lock may do: the sequential specification of a lease with a fence.
//!
//! A lock is held by at most one lock id. It is live until the tolerance past its end, and dead from then on; the store's
//! clock decides, which does not go back. It is granted only if none is live, with a larger fence than ever before. Only its
//! lock id releases and extends it, while it is live. Freed once, it never comes back.

use crate::history::{Call, Outcome};

/// A lock counts as live until this long after its end (docs/format.md).
pub const TOLERANCE_MS: i64 = 1000;

/// What is true of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// Who has the lock, dead or live; `None` after a release.
    pub holder: Option<Holder>,
    /// No fence that was granted is larger.
    pub last_fence: u64,
    /// Whether nothing is known of the holder: the store has lost what it knew, or something of it.
    pub is_any: bool,
    /// The store's clock has shown this time.
    pub clock_ms: i64,
}

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
}

impl Window {
    fn contains(self, ms: i64) -> bool {
        (self.from_ms..=self.to_ms).contains(&ms)
    }
}

impl Holder {
    fn may_be_live(&self, window: Window) -> bool {
        window.from_ms < self.ends_ms.1 + TOLERANCE_MS
    }

    /// This holder as somebody sees it, unless it is another one.
    fn seen(mut self, lock: Option<u64>, fence: u64, expires_at_ms: i64) -> Option<Self> {
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

impl State {
    fn may_have_live_lock(&self, window: Window) -> bool {
        self.holder.is_some_and(|holder| holder.may_be_live(window))
    }

    /// What is true once the lock on it, if there is one, is dead. `None`: it lives throughout `window`.
    fn once_dead(self, window: Window) -> Option<Self> {
        let Some(holder) = self.holder else {
            return Some(self);
        };
        let dead_ms = holder.ends_ms.0 + TOLERANCE_MS;
        (window.to_ms >= dead_ms).then(|| self.at(dead_ms))
    }

    /// The store's clock shows that time, or has shown a later one.
    fn at(self, ms: i64) -> Self {
        Self {
            clock_ms: self.clock_ms.max(ms),
            ..self
        }
    }

    /// The lock on it, if that one has it, dead or live.
    pub fn held_by(&self, lock: u64) -> Option<Holder> {
        self.holder.filter(|holder| holder.lock == Some(lock))
    }

    fn free(self) -> Self {
        Self {
            holder: None,
            ..self
        }
    }

    fn with(self, holder: Holder) -> Self {
        Self {
            holder: Some(holder),
            last_fence: self.last_fence.max(holder.fence.unwrap_or(0)),
            is_any: false,
            ..self
        }
    }

    /// What is true after `call`, if it can have that outcome now, at some moment in `window`. `None`: it cannot.
    #[expect(
        clippy::too_many_lines,
        reason = "a table: one arm per call and outcome"
    )]
    pub fn after(self, call: Call, outcome: Outcome, window: Window) -> Option<Self> {
        if self.is_later_than(window) {
            return None;
        }
        match (call, outcome) {
            (Call::Forget, _) => Some(Self {
                holder: None,
                is_any: true,
                ..self
            }),
            (Call::Sweep, _) => {
                self.holder?;
                self.once_dead(window).map(Self::free)
            }
            (
                Call::Acquire { lock, ttl_ms },
                Outcome::Acquired {
                    fence,
                    expires_at_ms,
                },
            ) => self.granted(lock, ttl_ms, fence, expires_at_ms, window),
            // Whatever is seen may be true, and what is done leads to something that may be true as well.
            _ if self.is_any => Some(self),
            (Call::Acquire { .. }, Outcome::Locked) | (Call::IsLocked, Outcome::Yes) => {
                self.may_have_live_lock(window).then_some(self)
            }
            (Call::IsLocked, Outcome::No) | (Call::LookUpKey, Outcome::NotFound) => {
                self.once_dead(window)
            }
            (Call::Release { lock }, Outcome::Released) => {
                let holder = self.held_by(lock)?;
                holder.may_be_live(window).then_some(self.free())
            }
            (Call::Extend { lock, ttl_ms }, Outcome::Extended { expires_at_ms }) => {
                self.extended(lock, ttl_ms, expires_at_ms, window)
            }
            (Call::Extend { lock, ttl_ms }, Outcome::ExtendedTogether { earliest_ms }) => {
                let ends_ms = (
                    earliest_ms.max(window.from_ms + ttl_ms),
                    window.to_ms + ttl_ms,
                );
                let mut holder = self.held_by(lock)?;
                let fits = holder.may_be_live(window) && ends_ms.0 <= ends_ms.1;
                holder.ends_ms = ends_ms;
                fits.then(|| self.with(holder).at(ends_ms.0 - ttl_ms))
            }
            (Call::Release { lock } | Call::Extend { lock, .. }, Outcome::Expired) => {
                self.held_by(lock)?;
                self.once_dead(window).map(Self::free)
            }
            (
                Call::Release { lock } | Call::Extend { lock, .. } | Call::LookUpLock { lock },
                Outcome::NotFound,
            ) => {
                // Stores forget dead locks.
                match self.held_by(lock) {
                    Some(_) => self.once_dead(window),
                    None => Some(self),
                }
            }
            (Call::LookUpUndone { lock }, Outcome::NotFound) => {
                self.held_by(lock).is_none().then_some(self)
            }
            (Call::ForceRelease, Outcome::Yes) => {
                self.may_have_live_lock(window).then_some(self.free())
            }
            (Call::ForceRelease, Outcome::No) => self.once_dead(window).map(Self::free),
            (
                Call::LookUpKey | Call::LookUpLock { .. },
                Outcome::Found {
                    lock,
                    fence,
                    expires_at_ms,
                },
            ) => {
                let asked = match call {
                    Call::LookUpLock { lock } => Some(lock),
                    _ => lock,
                };
                let seen = self.holder?.seen(asked, fence, expires_at_ms)?;
                seen.may_be_live(window).then(|| self.with(seen))
            }
            (_, Outcome::Unknown | Outcome::Undone | Outcome::Interrupted) => {
                self.after_unknown(call, window)
            }
            _ => None,
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what is known of the lock, and what was granted"
    )]
    fn granted(
        self,
        lock: u64,
        ttl_ms: i64,
        fence: u64,
        expires_at_ms: i64,
        window: Window,
    ) -> Option<Self> {
        let granted_ms = expires_at_ms - ttl_ms;
        let now = Window {
            from_ms: granted_ms,
            to_ms: granted_ms,
        };
        let free = self.once_dead(now)?.at(granted_ms);
        let fits = window.contains(granted_ms) && fence > self.last_fence;
        fits.then(|| {
            free.with(Holder {
                lock: Some(lock),
                unseen: None,
                fence: Some(fence),
                ends_ms: (expires_at_ms, expires_at_ms),
            })
        })
    }

    fn extended(self, lock: u64, ttl_ms: i64, expires_at_ms: i64, window: Window) -> Option<Self> {
        let extended_ms = expires_at_ms - ttl_ms;
        let now = Window {
            from_ms: extended_ms,
            to_ms: extended_ms,
        };
        let mut holder = self.held_by(lock)?;
        let fits = window.contains(extended_ms) && holder.may_be_live(now);
        holder.ends_ms = (expires_at_ms, expires_at_ms);
        fits.then(|| self.with(holder).at(extended_ms))
    }

    /// What an operation has done that nobody saw, if it has done anything.
    fn after_unknown(self, call: Call, window: Window) -> Option<Self> {
        match call {
            Call::Acquire { lock, ttl_ms } => {
                self.granted_unknown(Some(lock), None, ttl_ms, window)
            }
            Call::AcquireUnseen { number, ttl_ms } => {
                self.granted_unknown(None, Some(number), ttl_ms, window)
            }
            Call::ReleaseUnseen { number } => {
                let holder = self.holder.filter(|holder| holder.unseen == Some(number));
                holder.map(|_| self.free())
            }
            Call::Release { lock } => self.held_by(lock).map(|_| self.free()),
            Call::Extend { lock, ttl_ms } => {
                let mut holder = self.held_by(lock)?;
                holder.ends_ms = (window.from_ms + ttl_ms, window.to_ms + ttl_ms);
                holder.may_be_live(window).then(|| self.with(holder))
            }
            Call::ForceRelease => Some(self.free()),
            Call::IsLocked
            | Call::LookUpKey
            | Call::LookUpLock { .. }
            | Call::LookUpUndone { .. }
            | Call::Forget
            | Call::Sweep => Some(self),
        }
    }

    fn granted_unknown(
        self,
        lock: Option<u64>,
        unseen: Option<u64>,
        ttl_ms: i64,
        window: Window,
    ) -> Option<Self> {
        let free = self.once_dead(window)?;
        Some(Self {
            holder: Some(Holder {
                lock,
                unseen,
                fence: None,
                ends_ms: (window.from_ms + ttl_ms, window.to_ms + ttl_ms),
            }),
            // At least one number was used.
            last_fence: self.last_fence + 1,
            is_any: false,
            ..free
        })
    }

    /// Whether the store's clock has shown a later time than it did in `window`. A store may have read it some time before the
    /// effect, and never after it.
    pub fn is_later_than(self, window: Window) -> bool {
        window.to_ms < self.clock_ms
    }

    /// Whether an operation that can have its outcome now leaves everything as it is.
    pub fn is_unchanged_by(call: Call, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Locked | Outcome::NotFound => true,
            Outcome::Yes | Outcome::No => {
                !matches!(call, Call::ForceRelease | Call::Forget | Call::Sweep)
            }
            _ => false,
        }
    }
}
