//! Those who want several of a few things that others want one by one, in other processes as well: they get them by gathering.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::{
    AcquireRequest, Backend, Claim, ErrorKind, Granted, Key, RetryPolicy, Slots, Ttl, Waiter,
};
use tokio::time::{sleep, timeout};

use super::observed::Observed;
use super::together::{Locks, with_keys};
use super::{Failed, Loop};
use crate::store::LIMIT;
use crate::writer::Writer;

/// Of each group: how many keys there are, and slots of one more.
const KEYS: u64 = 4;
const SLOTS: u16 = 3;

/// A few things that are wanted by many.
#[derive(Clone, Copy)]
struct Group {
    name: &'static str,
    /// For how long they are held, and waited for, in milliseconds.
    held_ms: (u64, u64),
    patience_ms: (u64, u64),
}

/// Where a window is mostly long enough, and where it has to grow.
const GROUPS: [Group; 2] = [
    Group {
        name: "near",
        held_ms: (1, 60),
        patience_ms: (500, 8_000),
    },
    Group {
        name: "far",
        held_ms: (300, 4_000),
        patience_ms: (5_000, 40_000),
    },
];

impl Loop {
    /// Waits for one or several of the things that many want, holds them, and lets go.
    pub(super) async fn gather(&mut self, register: &mut Writer) -> Result<(), Failed> {
        // Who holds for long is seldom done: fewer wait there.
        let group = GROUPS[usize::from(self.random.u8(..8) == 0)];
        let claims = self.wanted(group)?;
        let (least, most) = group.held_ms;
        let held = Duration::from_millis(self.random.u64(least..most));
        let ttl = Ttl::from_millis(i64::try_from(held.as_millis())? + self.random.i64(300..3_000))?;
        let Some(granted) = self.wait_for(claims, ttl, group).await? else {
            return Ok(());
        };
        let mut numbers = Vec::new();
        for (key, grant) in &granted {
            numbers.push(register.read(key, grant).await?);
        }
        sleep(held).await;
        match self.random.u8(..100) {
            // Forgets them: they end by themselves.
            0 => return Ok(()),
            1 => self.force(&granted[0].0).await?,
            2..20 => self.extend_together(&granted, ttl).await?,
            _ => {}
        }
        for ((key, grant), number) in granted.iter().zip(numbers) {
            register.write_after(key, grant, number).await?;
        }
        Ok(self.release_together(&granted).await?)
    }

    /// One thing or several, in any order.
    fn wanted(&mut self, group: Group) -> Result<Vec<Claim>, Failed> {
        let name = group.name;
        let mut keys: Vec<_> = (0..KEYS).collect();
        self.random.shuffle(&mut keys);
        let (keys_wanted, slots_wanted) = match self.random.u8(..10) {
            0..4 => (1, 0),
            4 => (0, 1),
            5..8 => (self.random.usize(2..=keys.len()), 0),
            8 => (0, self.random.u16(2..=SLOTS)),
            _ => (1, self.random.u16(1..=2)),
        };
        let mut claims = Vec::new();
        for number in keys.into_iter().take(keys_wanted) {
            claims.push(Claim::new(Key::new(&format!("{name}:{number}"))?)?);
        }
        for _ in 0..slots_wanted {
            let key = Key::new(&format!("{name}:slots"))?;
            claims.push(Claim::slot(key, Slots::new(SLOTS)?)?);
        }
        Ok(claims)
    }

    async fn wait_for(
        &mut self,
        claims: Vec<Claim>,
        ttl: Ttl,
        group: Group,
    ) -> Result<Option<Locks>, Failed> {
        let left = self.until.left();
        let (least, most) = group.patience_ms;
        let limit = Duration::from_millis(self.random.u64(least..most)).min(left);
        // Some are cancelled, at any moment.
        let patience = match self.random.u8(..10) {
            0 => Duration::from_millis(self.random.u64(..least * 4)),
            _ => 2 * limit + LIMIT * 4,
        };
        let policy = RetryPolicy {
            retry_delay_ms: 20.0,
            max_retry_delay_ms: 200.0,
            timeout_ms: limit.as_secs_f64() * 1000.0,
            ..RetryPolicy::default()
        };
        let request = AcquireRequest::of(claims, ttl)?;
        let claims = request.claims.clone();
        let observed = Observed::new(
            &self.backend,
            &self.recorder,
            self.is_spread,
            request.claims.len(),
        );
        let backend: Arc<dyn Backend> = observed.clone();
        let mut waiter = Waiter::new(&backend, request, policy)?;
        match timeout(patience, waiter.acquire(pending())).await {
            Ok(Ok(Granted { grants, .. })) => {
                observed.was_granted(&grants, ttl)?;
                self.ended.push_back((Instant::now(), observed));
                Ok(Some(with_keys(&claims, grants)))
            }
            Ok(Err(error)) => {
                self.recorder.failed(&error)?;
                self.has_failed = error.kind() != ErrorKind::AcquisitionTimeout;
                observed.has_ended()?;
                Ok(None)
            }
            Err(_) => {
                self.ended.push_back((Instant::now(), observed));
                Ok(None)
            }
        }
    }

    /// Looks whether those who were cancelled have let go of what they had gathered, and those who were granted it of gates.
    pub(super) fn check_given_back(&mut self) -> io::Result<()> {
        let is_old = |(at, _): &mut (Instant, _)| at.elapsed() > LIMIT * 3;
        while let Some((_, observed)) = self.ended.pop_front_if(is_old) {
            observed.has_ended()?;
        }
        Ok(())
    }
}
