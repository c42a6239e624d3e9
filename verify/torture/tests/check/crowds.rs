//! Long histories, and such in which much is under way at once.

use fastrand::Rng;

use super::*;

/// A lock that keeps its promises, driven at random: what it gives is always fine.
#[test]
fn histories_of_a_sound_lock_are_fine() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now: i64 = 0;
        let (mut held, mut fence, mut next_lock) = (None, 0, 0);
        let mut history = Vec::new();
        for _ in 0..200 {
            now += random.i64(1..4);
            if random.u8(..) < 3 {
                now += TTL_MS + TOLERANCE_MS;
            }
            let live = held.filter(|(_, ends): &(u64, i64)| now < ends + TOLERANCE_MS);
            let (call, outcome) = match random.u8(0..4) {
                0 => {
                    next_lock += 1;
                    let call = Call::Acquire {
                        lock: next_lock,
                        ttl_ms: TTL_MS,
                    };
                    if live.is_some() {
                        (call, Outcome::Locked)
                    } else {
                        fence += 1;
                        held = Some((next_lock, now + TTL_MS));
                        (
                            call,
                            Outcome::Acquired {
                                fence,
                                expires_at_ms: now + TTL_MS,
                            },
                        )
                    }
                }
                1 => match (held, live) {
                    (Some((lock, _)), live) => {
                        held = None;
                        let outcome = if live.is_some() {
                            Outcome::Released
                        } else {
                            Outcome::Expired
                        };
                        (Call::Release { lock }, outcome)
                    }
                    (None, _) => (Call::Release { lock: next_lock }, Outcome::NotFound),
                },
                2 => match live {
                    Some((lock, _)) => {
                        held = Some((lock, now + TTL_MS));
                        let expires_at_ms = now + TTL_MS;
                        (
                            Call::Extend {
                                lock,
                                ttl_ms: TTL_MS,
                            },
                            Outcome::Extended { expires_at_ms },
                        )
                    }
                    None => (Call::IsLocked, Outcome::No),
                },
                _ => match live {
                    Some((_, ends)) => (Call::LookUpKey, found(fence, ends)),
                    None => (Call::LookUpKey, Outcome::NotFound),
                },
            };
            // As wide as several processes would see it.
            let (before, after) = (random.i64(0..20).min(now), random.i64(0..20));
            history.push(operation(now - before, now + after, call, outcome));
        }
        assert_fine(history);
    }
}

#[test]
fn more_orders_than_can_be_tried_are_told() {
    let call = |number| Call::AcquireUnseen {
        number,
        ttl_ms: TTL_MS,
    };
    let unknown = |number| operation(0, 10, call(number), Outcome::Unknown);
    let violations = check((0..200).map(unknown).collect(), BOUNDS).unwrap_err();
    assert!(violations[0].is_undecided);
    assert!(violations[0].to_string().contains("too many orders"));
}

/// A lock for which so many ask at once that some two dozen calls are under way at any time, while thirty-two acquisitions that were
/// given up may still be carried out. Some of those are, and others see them, until they are undone.
#[derive(Default)]
struct Crowd {
    random: Rng,
    history: Vec<Operation>,
    now: i64,
    locks: u64,
    given_up: u64,
    held: Option<Held>,
}

#[derive(Clone, Copy)]
struct Held {
    lock: u64,
    fence: u64,
    ends_ms: i64,
    /// When it is undone, if it was given up.
    undone_ms: Option<i64>,
}

impl Crowd {
    const GIVEN_UP: u64 = 32;

    fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            ..Self::default()
        }
    }

    /// One in which somebody has the lock who knows it.
    fn with_holder(seed: u64) -> (Self, Held) {
        let mut crowd = Self::new(seed);
        crowd.go_on(300);
        let holder = crowd.go_on_until_held();
        (crowd, holder)
    }

    /// Has its effect now, and began and ended at most two milliseconds from it.
    fn tell(&mut self, call: Call, outcome: Outcome) {
        let (before, after) = (self.random.i64(0..=2), self.random.i64(0..=2));
        let now = self.now;
        self.history
            .push(operation(now - before, now + after, call, outcome));
    }

    fn next_lock(&mut self) -> u64 {
        self.locks += 1;
        self.locks
    }

    /// A new lock, which will be undone then if it was given up.
    fn grant(&mut self, undone_ms: Option<i64>) -> Held {
        let lock = self.next_lock();
        let held = Held {
            lock,
            fence: lock,
            ends_ms: self.now + TTL_MS,
            undone_ms,
        };
        self.held = Some(held);
        held
    }

    fn acquire(lock: u64) -> Call {
        let ttl_ms = TTL_MS;
        Call::Acquire { lock, ttl_ms }
    }

    fn acquired(&mut self) {
        let held = self.grant(None);
        self.granted(held);
    }

    fn granted(&mut self, held: Held) {
        let outcome = Outcome::Acquired {
            fence: held.fence,
            expires_at_ms: self.now + TTL_MS,
        };
        self.held = Some(held);
        self.tell(Self::acquire(held.lock), outcome);
    }

    /// An acquisition is given up. It is carried out if the lock is free.
    fn give_up(&mut self) {
        self.given_up += 1;
        let lock = match self.held {
            Some(_) => self.next_lock(),
            None => {
                let undone_ms = self.now + self.random.i64(1..4);
                self.grant(Some(undone_ms)).lock
            }
        };
        let call = match self.random.bool() {
            true => Self::acquire(lock),
            false => Call::AcquireUnseen {
                number: lock,
                ttl_ms: TTL_MS,
            },
        };
        self.tell(call, Outcome::Unknown);
    }

    fn one(&mut self) {
        if self.given_up < Self::GIVEN_UP && self.random.u8(0..12) == 0 {
            return self.give_up();
        }
        let Some(held) = self.held else {
            return match self.random.u8(0..3) {
                0 => self.tell(Call::IsLocked, Outcome::No),
                1 => self.tell(Call::LookUpKey, Outcome::NotFound),
                _ => self.acquired(),
            };
        };
        match self.random.u8(0..8) {
            0 => self.tell(Call::IsLocked, Outcome::Yes),
            1 => {
                let outcome = Outcome::Found {
                    lock: Some(held.lock),
                    fence: held.fence,
                    expires_at_ms: held.ends_ms,
                };
                self.tell(Call::LookUpKey, outcome);
            }
            2..4 if held.undone_ms.is_none() => {
                self.held = None;
                self.tell(Call::Release { lock: held.lock }, Outcome::Released);
            }
            _ => {
                let call = Self::acquire(self.next_lock());
                self.tell(call, Outcome::Locked);
            }
        }
    }

    /// As it goes on, until that many calls were made.
    fn go_on(&mut self, calls: usize) {
        while self.history.len() < calls {
            // Eight in a millisecond.
            self.now = 10 + i64::try_from(self.history.len() / 8).unwrap();
            let is_due = |held: Held| held.undone_ms.is_some_and(|at| at <= self.now);
            if self.held.is_some_and(is_due) {
                self.held = None;
            }
            self.one();
        }
    }

    /// Until somebody has the lock who knows it.
    fn go_on_until_held(&mut self) -> Held {
        loop {
            match self.held {
                Some(held) if held.undone_ms.is_none() => return held,
                _ => self.go_on(self.history.len() + 1),
            }
        }
    }
}

/// Whether an order explains it. It is an error if too many may.
#[track_caller]
fn is_fine(crowd: Crowd) -> bool {
    match check(crowd.history, BOUNDS) {
        Ok(_) => true,
        Err(violations) => {
            assert!(!violations[0].is_undecided, "{}", violations[0]);
            false
        }
    }
}

#[test]
fn a_crowd_at_a_sound_lock_is_fine() {
    for seed in 0..4 {
        let mut crowd = Crowd::new(seed);
        crowd.go_on(600);
        assert!(is_fine(crowd), "seed {seed}");
    }
}

#[test]
fn two_holders_in_a_crowd_are_wrong() {
    for seed in 0..4 {
        let (mut crowd, first) = Crowd::with_holder(seed);
        crowd.acquired();
        crowd.go_on(400);
        crowd.tell(Call::Release { lock: first.lock }, Outcome::Released);
        crowd.go_on(600);
        assert!(!is_fine(crowd), "seed {seed}");
    }
}

#[test]
fn a_fence_that_is_granted_twice_in_a_crowd_is_wrong() {
    for seed in 0..4 {
        let (mut crowd, first) = Crowd::with_holder(seed);
        crowd.held = None;
        crowd.tell(Call::Release { lock: first.lock }, Outcome::Released);
        let lock = crowd.next_lock();
        let held = Held { lock, ..first };
        crowd.granted(held);
        crowd.go_on(600);
        assert!(!is_fine(crowd), "seed {seed}");
    }
}
