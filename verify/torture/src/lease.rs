//! What a lock may do: the sequential specification of a lease with a fence.
//!
//! A lock is held by at most one lock id. It is live until the tolerance past its end, and dead from then on; the store's
//! clock decides, which does not go back. It is granted only if none is live, with a larger fence than ever before. Only its
//! lock id releases and extends it, while it is live. Freed once, it never comes back.
//!
//! Or it is held by a group of readers, each under a lock id of its own. To the others the group is one lock: its fence is granted as any
//! other, and it is live while one of the readers is. It is freed when the last of them leaves.

use crate::history::{Call, Outcome};

mod group;
mod holder;

pub use self::group::{Reader, Readers};
pub use self::holder::{Holder, TOLERANCE_MS, Window};

/// What is true of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// Who has the lock alone, dead or live; `None` after a release.
    pub holder: Option<Holder>,
    /// Those who share it, dead or live. Then nobody has it alone.
    pub group: Option<Readers>,
    /// No fence that was granted is larger.
    pub last_fence: u64,
    /// Whether nothing is known of the holder: the store has lost what it knew, or something of it.
    pub is_any: bool,
    /// The store's clock has shown this time.
    pub clock_ms: i64,
}

impl State {
    fn may_have_live_lock(&self, window: Window) -> bool {
        self.is_held_alone(window) || self.is_shared(window)
    }

    fn is_held_alone(&self, window: Window) -> bool {
        self.holder.is_some_and(|holder| holder.may_be_live(window))
    }

    fn is_shared(&self, window: Window) -> bool {
        match &self.group {
            Some(group) => group.may_be_live(window),
            None => window.readers_ms.is_some() && self.clone().once_dead(window).is_some(),
        }
    }

    /// What is true once the lock on it, if there is one, is dead. `None`: it lives throughout `window`.
    fn once_dead(self, window: Window) -> Option<Self> {
        let holder = self.holder.map(|holder| holder.ends_ms.0);
        let group = self.group.as_ref().and_then(Readers::earliest_ms);
        let Some(ends_ms) = holder.max(group) else {
            return Some(self);
        };
        let dead_ms = ends_ms + TOLERANCE_MS;
        (window.to_ms >= dead_ms).then(|| self.at(dead_ms))
    }

    /// The store's clock shows that time, or has shown a later one.
    fn at(self, ms: i64) -> Self {
        Self {
            clock_ms: self.clock_ms.max(ms),
            ..self
        }
    }

    /// The lock on it, if that one has it or shares it, dead or live.
    pub fn held_by(&self, lock: u64) -> Option<Holder> {
        let reader = || self.group.as_ref().and_then(|group| group.held_by(lock));
        let alone = self.holder.filter(|holder| holder.lock == Some(lock));
        alone.or_else(reader)
    }

    fn free(self) -> Self {
        Self {
            holder: None,
            group: None,
            ..self
        }
    }

    /// What is true once that one has let go of the lock, within `window`.
    fn without(self, lock: u64, window: Window) -> Self {
        match self.group {
            Some(group) => Self {
                group: group.without(lock, window),
                ..self
            },
            None => self.free(),
        }
    }

    /// What is true with this lock, which is a new one, or one that is there as it is now.
    fn with(self, holder: Holder, window: Window) -> Self {
        let last_fence = self.last_fence.max(holder.fence.unwrap_or(0));
        match self.group {
            Some(group) => Self {
                group: Some(group.with(holder, window)),
                last_fence,
                ..self
            },
            None => Self {
                holder: Some(holder),
                last_fence,
                is_any: false,
                ..self
            },
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
                is_any: true,
                ..self.free()
            }),
            (Call::Sweep, _) => {
                let is_there = self.holder.is_some() || self.group.is_some();
                let dead = self.once_dead(window).filter(|_| is_there);
                dead.map(Self::free)
            }
            (
                Call::Acquire { lock, ttl_ms },
                Outcome::Acquired {
                    fence,
                    expires_at_ms,
                },
            ) => self.granted(lock, ttl_ms, fence, expires_at_ms, window),
            (
                Call::Join { lock, ttl_ms },
                Outcome::Acquired {
                    fence,
                    expires_at_ms,
                },
            ) => self.joined(lock, ttl_ms, fence, expires_at_ms, window),
            // Whatever is seen may be true, and what is done leads to something that may be true as well.
            _ if self.is_any => Some(self),
            (Call::IsLocked, Outcome::Yes) => self.may_have_live_lock(window).then_some(self),
            (Call::Acquire { .. } | Call::Join { .. }, Outcome::Locked) => {
                self.is_held_alone(window).then_some(self)
            }
            (Call::Acquire { .. } | Call::Join { .. }, Outcome::LockedBySomebody) => {
                self.may_have_live_lock(window).then_some(self)
            }
            (Call::Acquire { .. }, Outcome::LockedByReaders) => {
                self.is_shared(window).then_some(self)
            }
            (Call::IsLocked, Outcome::No) | (Call::LookUpKey, Outcome::NotFound) => {
                self.once_dead(window)
            }
            (Call::Release { lock }, Outcome::Released) => {
                let holder = self.held_by(lock)?;
                let is_live = holder.may_be_live(window);
                is_live.then(|| self.without(lock, window))
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
                fits.then(|| self.with(holder, window).at(ends_ms.0 - ttl_ms))
            }
            (Call::Lose { lock }, _) => match self.held_by(lock) {
                Some(_) => Some(self.without(lock, window)),
                None => Some(self),
            },
            (Call::Release { lock } | Call::Extend { lock, .. }, Outcome::Expired) => {
                let after = self.once_over(lock, window)?;
                Some(after.without(lock, window))
            }
            (
                Call::Release { lock } | Call::Extend { lock, .. } | Call::LookUpLock { lock },
                Outcome::NotFound,
            ) => {
                // Stores forget dead locks.
                match self.held_by(lock) {
                    Some(_) => self.once_over(lock, window),
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
                let found = match call {
                    Call::LookUpLock { lock } => self.held_by(lock),
                    _ => self.holder,
                };
                let seen = found?.seen(asked, fence, expires_at_ms)?;
                seen.may_be_live(window).then(|| self.with(seen, window))
            }
            (
                Call::LookUpKey,
                Outcome::FoundGroup {
                    fence,
                    expires_at_ms,
                },
            ) => {
                let group = self.group.clone();
                let Some(group) = group.and_then(|one| one.seen(fence, expires_at_ms, window))
                else {
                    // It is one that nobody knows.
                    let may_be = window.readers_ms.is_some() && fence >= self.last_fence;
                    return self.once_dead(window).filter(|_| may_be);
                };
                let last_fence = self.last_fence.max(fence);
                group.may_be_live(window).then_some(Self {
                    group: Some(group),
                    last_fence,
                    ..self
                })
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
        let now = window.at(granted_ms);
        let free = self.once_dead(now)?.at(granted_ms).free();
        let fits = window.contains(granted_ms) && fence > free.last_fence;
        fits.then(|| {
            let holder = Holder {
                lock: Some(lock),
                unseen: None,
                fence: Some(fence),
                ends_ms: (expires_at_ms, expires_at_ms),
            };
            free.with(holder, window)
        })
    }

    /// What is true once that lock is dead, which is there, and possibly readers beside it. `None`: it lives throughout `window`.
    fn once_over(self, lock: u64, window: Window) -> Option<Self> {
        let dead_ms = self.held_by(lock)?.ends_ms.0 + TOLERANCE_MS;
        (window.to_ms >= dead_ms).then(|| self.at(dead_ms))
    }

    /// Whoever joins a live group has its fence, and whoever makes one a larger one than ever.
    #[expect(
        clippy::too_many_arguments,
        reason = "what is known of the lock, and what was granted"
    )]
    fn joined(
        self,
        lock: u64,
        ttl_ms: i64,
        fence: u64,
        expires_at_ms: i64,
        window: Window,
    ) -> Option<Self> {
        let granted_ms = expires_at_ms - ttl_ms;
        if !window.contains(granted_ms) {
            return None;
        }
        let last_fence = self.last_fence.max(fence);
        if self.is_any {
            // Readers may be there of whom nobody knows.
            let after = Self { last_fence, ..self };
            return Some(after.at(granted_ms));
        }
        let now = window.at(granted_ms);
        let reader = Reader {
            lock,
            ends_ms: (expires_at_ms, expires_at_ms),
        };
        let joins = self.group.as_ref().filter(|group| {
            let is_of_it = match group.fence {
                Some(known) => fence == known,
                None => fence >= self.last_fence,
            };
            is_of_it && group.may_be_live(now)
        });
        if let Some(group) = joins {
            let group = Some(group.clone().joined(reader, Some(fence), window));
            let after = Self {
                group,
                last_fence,
                ..self
            };
            return Some(after.at(granted_ms));
        }
        let is_larger = fence > self.last_fence;
        let free = self.once_dead(now).filter(|_| is_larger)?.free();
        let after = Self {
            group: Some(Readers::new(reader, Some(fence), window)),
            last_fence,
            ..free
        };
        Some(after.at(granted_ms))
    }

    fn extended(self, lock: u64, ttl_ms: i64, expires_at_ms: i64, window: Window) -> Option<Self> {
        let extended_ms = expires_at_ms - ttl_ms;
        let now = window.at(extended_ms);
        let mut holder = self.held_by(lock)?;
        let fits = window.contains(extended_ms) && holder.may_be_live(now);
        holder.ends_ms = (expires_at_ms, expires_at_ms);
        fits.then(|| self.with(holder, window).at(extended_ms))
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
            Call::Release { lock } => {
                self.held_by(lock)?;
                Some(self.without(lock, window))
            }
            Call::Extend { lock, ttl_ms } => {
                let mut holder = self.held_by(lock)?;
                holder.ends_ms = (window.from_ms + ttl_ms, window.to_ms + ttl_ms);
                holder
                    .may_be_live(window)
                    .then(|| self.with(holder, window))
            }
            Call::ForceRelease => Some(self.free()),
            Call::IsLocked
            | Call::LookUpKey
            | Call::LookUpLock { .. }
            | Call::LookUpUndone { .. }
            | Call::Join { .. }
            | Call::Lose { .. }
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
        let free = self.once_dead(window)?.free();
        Some(Self {
            holder: Some(Holder {
                lock,
                unseen,
                fence: None,
                ends_ms: (window.from_ms + ttl_ms, window.to_ms + ttl_ms),
            }),
            // At least one number was used.
            last_fence: free.last_fence + 1,
            is_any: false,
            ..free
        })
    }

    /// Whether the store's clock has shown a later time than it did in `window`. A store may have read it some time before the
    /// effect, and never after it.
    pub fn is_later_than(&self, window: Window) -> bool {
        window.to_ms < self.clock_ms
    }

    /// What is true after a reader's operation, if it may as well have its effect now as later: while it is under way, the group that it
    /// joins or belongs to cannot end, and others cannot tell when it came.
    pub fn after_reader(&self, call: Call, outcome: Outcome, window: Window) -> Option<Self> {
        let group = self.group.as_ref()?;
        let is_early = match (call, outcome) {
            (Call::Join { .. }, Outcome::Acquired { fence, .. }) => group.fence == Some(fence),
            (Call::Extend { lock, .. }, Outcome::Extended { .. }) => group.held_by(lock).is_some(),
            _ => false,
        };
        let after = self.clone().after(call, outcome, window);
        let after = after.filter(|after| {
            let fence = after.group.as_ref().and_then(|after| after.fence);
            is_early && fence == group.fence
        })?;
        Some(Self {
            clock_ms: self.clock_ms,
            ..after
        })
    }

    /// Whether the release of a reader may as well have its effect now as later: others stay.
    pub fn is_left_by_one(&self, call: Call, outcome: Outcome, window: Window) -> bool {
        match (call, outcome, &self.group) {
            (Call::Lose { .. }, ..) => true,
            (Call::Release { lock }, Outcome::Released, Some(group)) => {
                group.held_by(lock).is_some() && group.outlives(lock, window)
            }
            _ => false,
        }
    }

    /// Whether an operation that can have its outcome now leaves everything as it is.
    pub fn is_unchanged_by(call: Call, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Locked
            | Outcome::LockedByReaders
            | Outcome::LockedBySomebody
            | Outcome::NotFound
            | Outcome::Found { .. }
            | Outcome::FoundGroup { .. } => true,
            Outcome::Yes | Outcome::No => {
                !matches!(call, Call::ForceRelease | Call::Forget | Call::Sweep)
            }
            _ => false,
        }
    }
}
