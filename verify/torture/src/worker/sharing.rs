//! Readers of a few keys, and writers among them.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::{
    AcquireRequest, Backend, Claim, Error, ErrorKind, Grant, Key, LockId, LockOptions, Ttl, Waiter,
};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::observed::Observed;
use super::{Failed, Found, Loop};
use crate::lease::TOLERANCE_MS;
use crate::store::LONGEST_MS;
use crate::writer::Writer;

/// What the keys that are shared begin with.
pub(crate) const PREFIX: &str = "shared:";
/// How many keys are shared.
const KEYS: usize = 8;
/// How many more are shared so seldom that a reader mostly is alone.
const RARE: usize = 64;

/// The keys that are shared.
pub(crate) fn shared() -> impl Iterator<Item = Result<Key, Error>> {
    let rarely = (0..RARE).map(rarely_shared_key);
    (0..KEYS).map(shared_key).chain(rarely)
}

fn shared_key(number: usize) -> Result<Key, Error> {
    Key::new(&format!("{PREFIX}{number}"))
}

fn rarely_shared_key(number: usize) -> Result<Key, Error> {
    Key::new(&format!("{PREFIX}rarely:{number}"))
}

/// Whether readers and writers share that key.
pub(super) fn is_shared(key: &Key) -> bool {
    key.as_str().starts_with(PREFIX)
}

impl Loop {
    /// A key to share for one who wants others as well. Where these are on different servers, a reader who is refused may have been there:
    /// of the keys that are shared all the time, too little would be known.
    pub(super) fn key_for_set(&mut self) -> Result<Key, Error> {
        match self.is_spread {
            true => rarely_shared_key(self.random.usize(..RARE)),
            false => shared_key(self.random.usize(..KEYS)),
        }
    }

    /// Reads under a key, or writes.
    pub(super) async fn share(&mut self, register: &mut Writer) -> Result<(), Failed> {
        let key = shared_key(self.random.usize(..KEYS))?;
        match self.random.u8(..100) {
            0..8 => self.look(&key).await?,
            8 => self.force(&key).await?,
            9..24 => {
                let ttl = self.ttl()?;
                if let Found::Granted(grant) = self.acquire(&key, ttl, pending()).await? {
                    self.hold(&key, grant, register).await?;
                }
            }
            // Readers are in the way of nearly all who do not wait.
            24..30 if self.waits => {
                let options = self.impatience()?;
                let claim = Claim::new(key.clone())?;
                if let Some(grant) = self.wait_among_readers(claim, options).await? {
                    self.hold(&key, grant, register).await?;
                }
            }
            30..36 if self.waits => {
                let options = self.impatience()?;
                let claim = Claim::shared(key.clone())?;
                if let Some(grant) = self.wait_among_readers(claim, options).await? {
                    self.read(&key, grant, register).await?;
                }
            }
            36..39 if self.waits => self.cancel_join(&key).await?,
            39 if self.waits && self.random.u8(..8) == 0 => self.come_late().await?,
            _ => {
                let (claim, ttl) = (Claim::shared(key.clone())?, self.ttl()?);
                match self.ask(claim, ttl, pending()).await? {
                    Found::Granted(grant) => self.read(&key, grant, register).await?,
                    _ => sleep(Duration::from_millis(self.random.u64(..3))).await,
                }
            }
        }
        Ok(())
    }

    /// Does what readers do: extends, leaves in time, late or never.
    async fn read(&mut self, key: &Key, grant: Grant, register: &mut Writer) -> Result<(), Failed> {
        register.read(key, &grant).await?;
        let dead = Duration::from_millis(1700);
        match self.random.u8(..200) {
            // Forgets it: it ends by itself. Where a clock may be set back, that is late, and nobody else frees the lock of a reader.
            0 if self.waits => return Ok(()),
            // Comes back when its time is over.
            1 => {
                sleep(dead).await;
                if self.random.bool() {
                    let ttl = self.ttl()?;
                    self.extend(key, &grant.lock_id, ttl).await?;
                }
            }
            // Comes back in the millisecond in which its time is over.
            2 | 3 => self.outlive(grant.expires_at_ms + TOLERANCE_MS).await,
            4..8 => self.be_freed(key, &grant.lock_id).await?,
            8..34 => {
                let ttl = self.ttl()?;
                self.extend(key, &grant.lock_id, ttl).await?;
            }
            34..60 => sleep(Duration::from_millis(self.random.u64(..30))).await,
            60..80 => self.look_up_lock(key, &grant.lock_id).await?,
            _ => {}
        }
        self.release(key, &grant.lock_id).await?;
        if self.random.u8(..20) == 0 {
            self.release(key, &grant.lock_id).await?;
        }
        Ok(())
    }

    /// Sends a heartbeat after somebody has freed the key by force. A writer may have it by then, or new readers, and the heartbeat must not
    /// bring back the lock.
    async fn be_freed(&mut self, key: &Key, lock_id: &LockId) -> Result<(), Failed> {
        self.force(key).await?;
        let (has_writer, has_readers) = (self.random.u8(..4) > 0, self.random.bool());
        let mut writer = None;
        if has_writer {
            writer = self.try_once(Claim::new(key.clone())?).await?;
        }
        let mut reader = None;
        if has_readers {
            if let Some(grant) = writer.take() {
                self.release(key, &grant.lock_id).await?;
            }
            reader = self.try_once(Claim::shared(key.clone())?).await?;
        }
        let ttl = self.ttl()?;
        self.extend(key, lock_id, ttl).await?;
        for grant in writer.into_iter().chain(reader) {
            self.release(key, &grant.lock_id).await?;
        }
        Ok(())
    }

    /// Shares a key that hardly anybody wants until the group has expired. A writer overwrites it then, who may be of another library, or a
    /// reader.
    async fn come_late(&mut self) -> Result<(), Failed> {
        let key = rarely_shared_key(self.random.usize(..RARE))?;
        let shared = Claim::shared(key.clone())?;
        let Some(old) = self.try_once(shared).await? else {
            return Ok(());
        };
        self.outlive(old.expires_at_ms + TOLERANCE_MS).await;
        let claim = match self.random.u8(..3) {
            0 => Claim::shared(key.clone())?,
            _ => Claim::new(key.clone())?,
        };
        let new = self.try_once(claim).await?;
        let ttl = self.ttl()?;
        self.extend(&key, &old.lock_id, ttl).await?;
        for grant in new.into_iter().chain([old]) {
            self.release(&key, &grant.lock_id).await?;
        }
        Ok(())
    }

    async fn try_once(&mut self, claim: Claim) -> Result<Option<Grant>, Failed> {
        let ttl = self.ttl()?;
        Ok(match self.ask(claim, ttl, pending()).await? {
            Found::Granted(grant) => Some(grant),
            _ => None,
        })
    }

    /// Waits as a reader, or as a writer, who takes the gate.
    async fn wait_among_readers(
        &mut self,
        claim: Claim,
        options: LockOptions,
    ) -> Result<Option<Grant>, Failed> {
        let request = AcquireRequest::of([claim], options.ttl)?;
        let observed = Observed::new(&self.backend, &self.recorder, self.is_spread, 1);
        let backend: Arc<dyn Backend> = observed.clone();
        let mut waiter = Waiter::new(&backend, request, options.retry)?;
        match waiter.acquire(pending()).await {
            Ok(mut granted) => {
                observed.was_granted(&granted.grants, options.ttl)?;
                self.ended.push_back((Instant::now(), observed));
                Ok(Some(granted.grants.remove(0)))
            }
            Err(error) => {
                self.recorder.failed(&error)?;
                self.has_failed = error.kind() != ErrorKind::AcquisitionTimeout;
                observed.has_ended()?;
                Ok(None)
            }
        }
    }

    /// Cancels a join on its way. Were it not undone, no writer would get the lock for long.
    async fn cancel_join(&mut self, key: &Key) -> Result<(), Failed> {
        let ttl = Ttl::from_millis(LONGEST_MS)?;
        let turns = self.random.u32(..20);
        let cancelled = async move {
            for _ in 0..turns {
                yield_now().await;
            }
        };
        let claim = Claim::shared(key.clone())?;
        if let Found::Granted(grant) = self.ask(claim, ttl, cancelled).await? {
            self.release(key, &grant.lock_id).await?;
        }
        Ok(())
    }
}
