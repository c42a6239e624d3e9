//! What an ordinary user of locks seldom does, and what shows defects that an ordinary use hides.

use std::future::pending;
use std::io;
use std::time::{Duration, Instant};

use syncguard::{Backoff, Grant, Key, LockOptions, Lookup, RetryPolicy, Ttl};
use tokio::join;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::recording::number;
use super::{Failed, Found, Loop};
use crate::history::Call;
use crate::lease::TOLERANCE_MS;
use crate::record;
use crate::store::LIMIT;
use crate::takeover;
use crate::writer::Writer;

impl Loop {
    /// Cancels an acquisition on its way. Were it not undone, nobody would get the lock for long.
    pub(super) async fn cancel(&mut self, key: &Key) -> Result<(), Failed> {
        let ttl = Ttl::from_millis(20_000)?;
        // Half of them are on keys on which nobody forces a release, which would hide that there was no undo.
        let key = match self.random.bool() {
            true => key.clone(),
            false => Key::new(&format!("cancelled:{}", self.random.usize(..self.keys)))?,
        };
        let patience = Duration::from_micros(self.random.u64(..1500));
        let turns = self.random.u32(..20);
        let is_patient = self.random.bool();
        let cancelled = async move {
            if is_patient {
                return sleep(patience).await;
            }
            // Too short for a timer: stores on the same machine have answered before.
            for _ in 0..turns {
                yield_now().await;
            }
        };
        if let Found::Granted(grant) = self.acquire(&key, ttl, cancelled).await? {
            self.release(&key, &grant.lock_id).await?;
        }
        Ok(())
    }

    /// Looks whether what was cancelled is undone.
    pub(super) async fn check_undone(&mut self) -> io::Result<()> {
        let is_old = |(at, _, _): &mut (Instant, _, _)| at.elapsed() > LIMIT * 3;
        while let Some((_, key, lock_id)) = self.cancelled.pop_front_if(is_old) {
            let lock = number(&lock_id);
            let lookup = Lookup::LockId(lock_id);
            self.look_up(&key, Call::LookUpUndone { lock }, lookup)
                .await?;
        }
        Ok(())
    }

    /// Waits until the clock shows that time, exactly: longer than the runtime's timers need not be right.
    pub(super) async fn outlive(&mut self, ends_ms: i64) {
        let us = self.random.i64(..1000);
        loop {
            let left_us = ends_ms * 1000 + us - record::now_us();
            match u64::try_from(left_us) {
                Err(_) => return,
                // A lock cannot last so long: the clocks do not agree.
                Ok(left) if left > 3_000_000 => return,
                Ok(left) if left > 3000 => sleep(Duration::from_micros(left - 2000)).await,
                Ok(_) => yield_now().await,
            }
        }
    }

    /// Takes a lock, of which `rest` is left, in the millisecond in which it dies.
    pub(super) async fn be_there(
        &mut self,
        key: &Key,
        rest: Duration,
        register: &mut Writer,
    ) -> Result<(), Failed> {
        sleep(rest.saturating_sub(Duration::from_millis(2))).await;
        for _ in 0..20 {
            let ttl = self.ttl()?;
            if let Found::Granted(grant) = self.acquire(key, ttl, pending()).await? {
                return self.hold(key, grant, register).await;
            }
            if self.has_failed {
                break;
            }
        }
        Ok(())
    }

    /// Lets go of a lock that has died while it is being taken over. What the store read of the old lock must not be
    /// done to the new one.
    pub(super) async fn let_go_late(
        &mut self,
        key: &Key,
        old: &Grant,
        register: &mut Writer,
    ) -> Result<(), Failed> {
        self.outlive(old.expires_at_ms + TOLERANCE_MS).await;
        let ttl = self.ttl()?;
        let then = Instant::now() + Duration::from_micros(self.random.u64(..3000));
        let mut other = self.twin();
        let letting_go = async {
            // More exact than the runtime's timers.
            while Instant::now() < then {
                yield_now().await;
            }
            other.release(key, &old.lock_id).await
        };
        let (found, released) = join!(self.acquire(key, ttl, pending()), letting_go);
        released?;
        if let Found::Granted(grant) = found? {
            let number = register.read(key, &grant).await?;
            register.write_after(key, &grant, number).await?;
            self.release(key, &grant.lock_id).await?;
        }
        Ok(())
    }

    /// Waits for a lock that is free only for moments, and would not come by again if nobody told of its release.
    pub(super) async fn wait_patiently(&mut self, register: &mut Writer) -> Result<(), Failed> {
        // For some of them all wait, and a waiter hears of what it has missed when others come by. For each of the others, seldom
        // more than one waits: it begins to listen while the lock is being released.
        let number = match self.random.bool() {
            true => self.random.u8(..2),
            false => self.random.u8(2..8),
        };
        let key = Key::new(&format!("{}{number}", takeover::PREFIX))?;
        let left = self.until.left();
        let limit = (left + Duration::from_secs(1)).min(Duration::from_secs(12));
        let options = LockOptions {
            ttl: Ttl::from_millis(8_000)?,
            retry: RetryPolicy {
                backoff: Backoff::Fixed,
                retry_delay_ms: 60_000.0,
                timeout_ms: limit.as_secs_f64() * 1000.0,
                ..RetryPolicy::default()
            },
            ..LockOptions::default()
        };
        if let Some(grant) = self.wait(&key, options).await? {
            let number = register.read(&key, &grant).await?;
            sleep(Duration::from_millis(self.random.u64(..20))).await;
            register.write_after(&key, &grant, number).await?;
            self.release(&key, &grant.lock_id).await?;
        }
        Ok(())
    }
}
