//! One process that works with locks and records what it sees.

use std::future::pending;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use syncguard::operation::{self, CallOptions};
use syncguard::{
    Absence, AcquireOutcome, AcquireRequest, Backend, Error, ErrorKind, ExtendOutcome, Grant, Key,
    LockId, LockOptions, Lookup, ReleaseOutcome, RetryPolicy, Ttl, lock,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::sleep;

use crate::history::{Call, Outcome};
use crate::record::Recorder;
use crate::store;

/// What a worker is told, as JSON in an argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// The store.
    pub url: String,
    /// Where to record.
    pub history: PathBuf,
    /// The socket of the register.
    pub register: PathBuf,
    /// Decides all that is random.
    pub seed: u64,
    /// How long to work.
    pub run: Duration,
    /// How many operations may run at a time.
    pub loops: usize,
    /// How many keys there are.
    pub keys: usize,
    /// Whether some wait for locks. Not where the store fails: how many attempts of a wait had an effect is unknown then.
    pub waits: bool,
}

/// Why a worker has ended early.
type Failed = Box<dyn std::error::Error + Send + Sync>;

const CALL: CallOptions = CallOptions { timeout: None };

/// Works until the time is over.
///
/// # Errors
/// It could not record, or the store could not be opened.
pub async fn work(task: Task) -> Result<(), Failed> {
    let backend = store::open(&task.url).await?;
    let recorder = Arc::new(Recorder::new(&task.history)?);
    let until = Instant::now() + task.run;
    let loops = (0..task.loops as u64).map(|number| {
        let one = Loop {
            backend: Arc::clone(&backend),
            recorder: Arc::clone(&recorder),
            random: fastrand::Rng::with_seed(task.seed.wrapping_add(number << 32)),
            keys: task.keys,
            waits: task.waits,
        };
        let register = task.register.clone();
        tokio::spawn(async move { one.run(until, register).await })
    });
    for ended in try_join_all(loops).await? {
        ended?;
    }
    backend.close().await;
    Ok(())
}

/// One who works.
struct Loop {
    backend: Arc<dyn Backend>,
    recorder: Arc<Recorder>,
    random: fastrand::Rng,
    keys: usize,
    waits: bool,
}

impl Loop {
    async fn run(mut self, until: Instant, register: PathBuf) -> Result<(), Failed> {
        let mut register = BufReader::new(UnixStream::connect(register).await?);
        while Instant::now() < until {
            let key = Key::new(&format!("key:{}", self.random.usize(..self.keys)))?;
            match self.random.u8(..100) {
                0..8 => self.look(&key).await?,
                8 => self.force(&key).await?,
                9..13 if self.waits => {
                    if let Some(grant) = self.wait(&key).await? {
                        self.hold(&key, grant, &mut register).await?;
                    }
                }
                _ => {
                    let ttl = self.ttl()?;
                    if let Some(grant) = self.acquire(&key, ttl).await? {
                        self.hold(&key, grant, &mut register).await?;
                    } else {
                        sleep(Duration::from_millis(self.random.u64(..3))).await;
                    }
                }
            }
        }
        Ok(())
    }

    fn ttl(&mut self) -> Result<Ttl, Error> {
        Ttl::from_millis(self.random.i64(20..500))
    }

    /// Does what holders do: works, extends, lets go in time, late or never.
    async fn hold(
        &mut self,
        key: &Key,
        grant: Grant,
        register: &mut BufReader<UnixStream>,
    ) -> io::Result<()> {
        let dead = Duration::from_millis(1700);
        match self.random.u8(..200) {
            // Forgets it: it ends by itself.
            0 => return Ok(()),
            // Comes back when its time is over.
            1 => sleep(dead).await,
            2..30 => {
                let ttl = self.ttl().map_err(io::Error::other)?;
                self.extend(key, &grant.lock_id, ttl).await?;
            }
            30..40 => sleep(Duration::from_millis(self.random.u64(..20))).await,
            40..60 => self.look_up_lock(key, &grant.lock_id).await?,
            _ => {}
        }
        let line = format!("{} {}\n", key.as_str(), grant.fence.get());
        register.get_mut().write_all(line.as_bytes()).await?;
        register.read_line(&mut String::new()).await?;
        self.release(key, &grant.lock_id).await?;
        if self.random.u8(..20) == 0 {
            self.release(key, &grant.lock_id).await?;
        }
        Ok(())
    }

    async fn acquire(&self, key: &Key, ttl: Ttl) -> Result<Option<Grant>, Failed> {
        let request = AcquireRequest::new(key.clone(), ttl)?;
        let call = Call::Acquire {
            lock: number(&request.lock_id),
            ttl_ms: ttl.as_millis(),
        };
        let running = self.recorder.start(key.as_str(), call)?;
        let answer = operation::acquire(&self.backend, request, CALL, pending()).await;
        let outcome = outcome(&answer, |answer| match answer {
            AcquireOutcome::Acquired(grant) => acquired(grant),
            AcquireOutcome::Locked { .. } => Outcome::Locked,
        });
        self.recorder.end(running, outcome)?;
        Ok(match answer {
            Ok(AcquireOutcome::Acquired(grant)) => Some(grant),
            _ => None,
        })
    }

    async fn wait(&mut self, key: &Key) -> Result<Option<Grant>, Failed> {
        let options = LockOptions {
            ttl: self.ttl()?,
            retry: RetryPolicy {
                retry_delay_ms: 20.0,
                timeout_ms: f64::from(self.random.u32(100..2500)),
                ..RetryPolicy::default()
            },
            ..LockOptions::default()
        };
        // Its lock id is known afterwards. If it gives up, an attempt may be granted and undone.
        let unseen = Call::AcquireUnseen {
            number: self.random.u64(..),
            ttl_ms: options.ttl.as_millis(),
        };
        let running = self.recorder.start(key.as_str(), unseen)?;
        let grant = match lock(&self.backend, key, &options).await {
            Ok(guard) => guard.keep(),
            Err(error) => {
                self.recorder.end(running, after_error(&error))?;
                return Ok(None);
            }
        };
        let lock = number(&grant.lock_id);
        self.recorder.granted(running, lock, acquired(&grant))?;
        Ok(Some(grant))
    }

    async fn release(&self, key: &Key, lock_id: &LockId) -> io::Result<()> {
        let lock = number(lock_id);
        let running = self.recorder.start(key.as_str(), Call::Release { lock })?;
        let answer = operation::release(&self.backend, lock_id, CALL, pending()).await;
        let outcome = outcome(&answer, |answer| match answer {
            ReleaseOutcome::Released => Outcome::Released,
            ReleaseOutcome::Absent(absence) => absent(*absence),
        });
        self.recorder.end(running, outcome)
    }

    async fn extend(&self, key: &Key, lock_id: &LockId, ttl: Ttl) -> io::Result<()> {
        let call = Call::Extend {
            lock: number(lock_id),
            ttl_ms: ttl.as_millis(),
        };
        let running = self.recorder.start(key.as_str(), call)?;
        let answer = operation::extend(&self.backend, lock_id, ttl, CALL, pending()).await;
        let outcome = outcome(&answer, |answer| match *answer {
            ExtendOutcome::Extended { expires_at_ms } => Outcome::Extended { expires_at_ms },
            ExtendOutcome::Absent(absence) => absent(absence),
        });
        self.recorder.end(running, outcome)
    }

    async fn force(&self, key: &Key) -> io::Result<()> {
        let running = self.recorder.start(key.as_str(), Call::ForceRelease)?;
        let answer = operation::force_release(&self.backend, key, CALL, pending()).await;
        self.recorder.end(running, outcome(&answer, yes_or_no))
    }

    async fn look(&mut self, key: &Key) -> io::Result<()> {
        if self.random.bool() {
            let running = self.recorder.start(key.as_str(), Call::IsLocked)?;
            let answer = operation::is_locked(&self.backend, key, CALL, pending()).await;
            return self.recorder.end(running, outcome(&answer, yes_or_no));
        }
        self.look_up(key, Call::LookUpKey, Lookup::Key(key.clone()))
            .await
    }

    async fn look_up_lock(&self, key: &Key, lock_id: &LockId) -> io::Result<()> {
        let lock = number(lock_id);
        let lookup = Lookup::LockId(lock_id.clone());
        self.look_up(key, Call::LookUpLock { lock }, lookup).await
    }

    async fn look_up(&self, key: &Key, call: Call, lookup: Lookup) -> io::Result<()> {
        let running = self.recorder.start(key.as_str(), call)?;
        let answer = operation::lookup(&self.backend, &lookup, CALL, pending()).await;
        let outcome = outcome(&answer, |found| match found {
            Some(record) => Outcome::Found {
                lock: Some(number(&record.lock_id)),
                fence: record.fence.get(),
                expires_at_ms: record.expires_at_ms,
            },
            None => Outcome::NotFound,
        });
        self.recorder.end(running, outcome)
    }
}

/// What is known of an operation's effect; `None` if it certainly had none.
fn outcome<T>(answer: &Result<T, Error>, read: impl FnOnce(&T) -> Outcome) -> Option<Outcome> {
    match answer {
        Ok(answer) => Some(read(answer)),
        Err(error) => after_error(error),
    }
}

fn after_error(error: &Error) -> Option<Outcome> {
    let may_have_been_sent = error.is_outcome_unknown()
        || matches!(
            error.kind(),
            // The last attempt of a wait is cut short.
            ErrorKind::NetworkTimeout | ErrorKind::AcquisitionTimeout
        )
        || error.message().starts_with("Operation timed out");
    may_have_been_sent.then_some(Outcome::Unknown)
}

fn acquired(grant: &Grant) -> Outcome {
    Outcome::Acquired {
        fence: grant.fence.get(),
        expires_at_ms: grant.expires_at_ms,
    }
}

fn absent(absence: Absence) -> Outcome {
    match absence {
        Absence::Expired => Outcome::Expired,
        Absence::NotFound => Outcome::NotFound,
    }
}

fn yes_or_no(answer: &bool) -> Outcome {
    if *answer { Outcome::Yes } else { Outcome::No }
}

fn number(lock_id: &LockId) -> u64 {
    let mut hasher = DefaultHasher::new();
    lock_id.as_str().hash(&mut hasher);
    hasher.finish()
}
