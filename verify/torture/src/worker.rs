//! One process that works with locks and records what it sees.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Claim, Error, ErrorKind, ExtendOutcome, Extension,
    Grant, Key, LockId, LockOptions, LockRecord, Lookup, Operation, ReleaseOutcome, RetryPolicy,
    Ttl, Waiter,
};
use tokio::time::sleep;

mod gathering;
mod guarded;
mod observed;
mod recording;
pub(crate) mod sharing;
pub(crate) mod together;
mod trials;

use self::observed::Observed;
use self::recording::{absent, acquired, after_error, asked, number, outcome, refused, yes_or_no};
use crate::history::{Call, Outcome};
use crate::lease::TOLERANCE_MS;
use crate::record::{self, Recorder};
use crate::task::{AFTER_ERROR, Deadline, Failed, Task, Work};
use crate::writer::Writer;
use crate::{store, turns};

const CALL: CallOptions = CallOptions::DEFAULT;

/// Works until the time is over.
///
/// # Errors
/// It could not record, or the store could not be opened.
pub async fn work(task: Task) -> Result<(), Failed> {
    let backend = store::open(&task.url).await?;
    let recorder = Arc::new(Recorder::new(&task.history)?);
    if task.work == Work::Turns {
        turns::work(&task, &backend, &recorder).await?;
        backend.close().await;
        return Ok(());
    }
    let until = Deadline::after(task.run);
    let loops = (0..task.loops as u64).map(|number| {
        let one = Loop {
            backend: Arc::clone(&backend),
            recorder: Arc::clone(&recorder),
            random: fastrand::Rng::with_seed(task.seed.wrapping_add(number << 32)),
            keys: task.keys,
            waits: task.waits,
            is_spread: task.url.contains("cluster"),
            is_patient: task.waits && number < 2,
            gathers: task.waits && (2..6).contains(&number),
            until,
            cancelled: VecDeque::new(),
            ended: VecDeque::new(),
            pause: task.pause,
            has_failed: false,
        };
        let register = task.register.clone();
        tokio::spawn(async move { one.run(register).await })
    });
    let holders = guarded::holders(&task, &backend, &recorder);
    for ended in try_join_all(loops.chain(holders)).await? {
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
    /// Whether keys are on different servers: then several of them are not one step.
    is_spread: bool,
    /// Whether it is one of the few who wait for the same locks again and again.
    is_patient: bool,
    /// Whether it is one of those who want several things that others want one by one.
    gathers: bool,
    until: Deadline,
    /// Acquisitions that were cancelled, and when, the first one first.
    cancelled: VecDeque<(Instant, Key, LockId)>,
    /// Waiters that were cancelled, or granted what they wanted, and when, the first one first.
    ended: VecDeque<(Instant, Arc<Observed>)>,
    pause: Duration,
    has_failed: bool,
}

/// What an attempt has come to.
enum Found {
    Granted(Grant),
    /// Its end is past, and after this much more time it counts as free.
    Dying(Duration),
    Nothing,
}

const TOLERANCE: Duration = Duration::from_millis(TOLERANCE_MS.unsigned_abs());

impl Loop {
    async fn run(mut self, register: PathBuf) -> Result<(), Failed> {
        let mut register = Writer::connect(&register).await?;
        while !self.until.is_over() {
            if std::mem::take(&mut self.has_failed) {
                sleep(self.pause.max(AFTER_ERROR)).await;
            } else if !self.pause.is_zero() {
                sleep(self.pause).await;
            }
            self.check_undone().await?;
            self.check_given_back()?;
            if self.gathers && self.random.bool() {
                self.gather(&mut register).await?;
                continue;
            }
            if self.is_patient && self.random.bool() {
                self.wait_patiently(&mut register).await?;
                continue;
            }
            if self.random.u8(..6) == 0 {
                self.share(&mut register).await?;
                continue;
            }
            let key = Key::new(&format!("key:{}", self.random.usize(..self.keys)))?;
            if self.waits && self.random.u16(..300) == 0 {
                self.cancel(&key).await?;
                continue;
            }
            match self.random.u8(..100) {
                0..8 => self.look(&key).await?,
                8 => self.force(&key).await?,
                13..28 => self.work_together(&mut register).await?,
                9..13 if self.waits => {
                    let options = self.impatience()?;
                    if let Some(grant) = self.wait(&key, options).await? {
                        self.hold(&key, grant, &mut register).await?;
                    }
                }
                _ => {
                    let ttl = self.ttl()?;
                    match self.acquire(&key, ttl, pending()).await? {
                        Found::Granted(grant) => self.hold(&key, grant, &mut register).await?,
                        Found::Dying(rest) if self.random.u8(..4) == 0 => {
                            self.be_there(&key, rest, &mut register).await?;
                        }
                        _ => sleep(Duration::from_millis(self.random.u64(..3))).await,
                    }
                }
            }
        }
        Ok(())
    }

    /// Another who works with the same store at the same time.
    fn twin(&mut self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            recorder: Arc::clone(&self.recorder),
            random: self.random.fork(),
            cancelled: VecDeque::new(),
            ended: VecDeque::new(),
            ..*self
        }
    }

    fn ttl(&mut self) -> Result<Ttl, Error> {
        Ttl::from_millis(self.random.i64(20..500))
    }

    /// Does what holders do: works, extends, lets go in time, late or never.
    async fn hold(&mut self, key: &Key, grant: Grant, register: &mut Writer) -> Result<(), Failed> {
        let number = register.read(key, &grant).await?;
        let dead = Duration::from_millis(1700);
        match self.random.u8(..200) {
            // Forgets it: it ends by itself.
            0 => return Ok(()),
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
            4..6 => return self.let_go_late(key, &grant, register).await,
            6..30 => {
                let ttl = self.ttl()?;
                self.extend(key, &grant.lock_id, ttl).await?;
            }
            30..40 => sleep(Duration::from_millis(self.random.u64(..20))).await,
            40..60 => self.look_up_lock(key, &grant.lock_id).await?,
            _ => {}
        }
        register.write_after(key, &grant, number).await?;
        self.release(key, &grant.lock_id).await?;
        if self.random.u8(..20) == 0 {
            self.release(key, &grant.lock_id).await?;
        }
        Ok(())
    }

    /// Records how an operation has ended.
    fn end<T>(
        &mut self,
        running: u64,
        answer: &Result<T, Error>,
        outcome: Option<Outcome>,
    ) -> io::Result<()> {
        if let Err(error) = answer {
            // Not that somebody was faster.
            self.has_failed = error.kind() != ErrorKind::AcquisitionTimeout;
            self.recorder.failed(error)?;
        }
        self.recorder.end(running, outcome)
    }

    /// One attempt, until `cancelled` completes.
    async fn acquire(
        &mut self,
        key: &Key,
        ttl: Ttl,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Found, Failed> {
        self.ask(Claim::new(key.clone())?, ttl, cancelled).await
    }

    /// One attempt to get what is claimed.
    async fn ask(
        &mut self,
        claim: Claim,
        ttl: Ttl,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Found, Failed> {
        let key = claim.key.clone();
        let mut request = AcquireRequest::of([claim], ttl)?;
        // The lock id is what it stays: in a cluster, this changes it.
        self.backend.prepare(&mut request);
        let lock_id = request.claims[0].lock_id.clone();
        let call = asked(&request.claims[0], ttl);
        let running = self.recorder.start(key.as_str(), call)?;
        let answer = operation::run::<AcquireOutcome>(
            &self.backend,
            Operation::Acquire(request),
            CALL,
            cancelled,
        )
        .await;
        let outcome = outcome(&answer, |answer| match answer {
            AcquireOutcome::Acquired(grants) => acquired(&grants[0]),
            AcquireOutcome::Locked {
                is_shared, free_in, ..
            } => refused(*is_shared, *free_in),
            AcquireOutcome::Done(_) => Outcome::Locked,
        });
        self.end(running, &answer, outcome)?;
        Ok(match answer {
            Ok(AcquireOutcome::Acquired(mut grants)) => Found::Granted(grants.remove(0)),
            Ok(AcquireOutcome::Locked {
                free_in: Some(rest),
                ..
            }) if rest < TOLERANCE => Found::Dying(rest),
            Err(error) if error.kind() == ErrorKind::Aborted => {
                let known = (Instant::now(), key, lock_id);
                self.cancelled.push_back(known);
                Found::Nothing
            }
            _ => Found::Nothing,
        })
    }

    fn impatience(&mut self) -> Result<LockOptions, Error> {
        Ok(LockOptions {
            ttl: self.ttl()?,
            retry: RetryPolicy {
                retry_delay_ms: 20.0,
                timeout_ms: f64::from(self.random.u32(100..2500)),
                ..RetryPolicy::default()
            },
            ..LockOptions::default()
        })
    }

    async fn wait(&mut self, key: &Key, options: LockOptions) -> Result<Option<Grant>, Failed> {
        // Its lock id is known afterwards. If it gives up, an attempt may be granted and undone.
        let from = record::now();
        let unseen = |number| Call::AcquireUnseen {
            number,
            ttl_ms: options.ttl.as_millis(),
        };
        let call = unseen(self.random.u64(..));
        let running = self.recorder.started(key.as_str(), call, from)?;
        let request = AcquireRequest::new(key.clone(), options.ttl)?;
        let mut waiter = Waiter::new(&self.backend, request, options.retry)?;
        let granted = waiter.acquire(pending()).await;
        // So may those that were answered too late, before another was granted or the wait was over.
        let unanswered = waiter.attempts() - waiter.contended();
        for _ in 1..unanswered {
            let call = unseen(self.random.u64(..));
            let late = self.recorder.started(key.as_str(), call, from)?;
            self.recorder.end(late, Some(Outcome::Unknown))?;
        }
        let grant = match granted {
            Ok(mut granted) => granted.grants.remove(0),
            Err(error) => {
                self.end::<()>(running, &Err(error.clone()), after_error(&error))?;
                return Ok(None);
            }
        };
        let lock = number(&grant.lock_id);
        self.recorder.granted(running, lock, acquired(&grant))?;
        Ok(Some(grant))
    }

    async fn release(&mut self, key: &Key, lock_id: &LockId) -> io::Result<()> {
        let lock = number(lock_id);
        let running = self.recorder.start(key.as_str(), Call::Release { lock })?;
        let answer = operation::run::<ReleaseOutcome>(
            &self.backend,
            Operation::Release([lock_id.clone()].into()),
            CALL,
            pending(),
        )
        .await;
        let outcome = outcome(&answer, |answer| match answer {
            ReleaseOutcome::Released => Outcome::Released,
            ReleaseOutcome::Absent(absence) => absent(*absence),
        });
        self.end(running, &answer, outcome)
    }

    async fn extend(&mut self, key: &Key, lock_id: &LockId, ttl: Ttl) -> io::Result<()> {
        let call = Call::Extend {
            lock: number(lock_id),
            ttl_ms: ttl.as_millis(),
        };
        let running = self.recorder.start(key.as_str(), call)?;
        let answer = operation::run::<ExtendOutcome>(
            &self.backend,
            Operation::Extend(Extension::new([lock_id.clone()].into(), ttl)),
            CALL,
            pending(),
        )
        .await;
        let outcome = outcome(&answer, |answer| match *answer {
            ExtendOutcome::Extended { expires_at_ms } => Outcome::Extended { expires_at_ms },
            ExtendOutcome::Absent { absence, .. } => absent(absence),
        });
        self.end(running, &answer, outcome)
    }

    async fn force(&mut self, key: &Key) -> io::Result<()> {
        let running = self.recorder.start(key.as_str(), Call::ForceRelease)?;
        let answer = operation::run::<bool>(
            &self.backend,
            Operation::ForceRelease(key.clone()),
            CALL,
            pending(),
        )
        .await;
        self.end(running, &answer, outcome(&answer, yes_or_no))
    }

    async fn look(&mut self, key: &Key) -> io::Result<()> {
        if self.random.bool() {
            let running = self.recorder.start(key.as_str(), Call::IsLocked)?;
            let answer = operation::run::<bool>(
                &self.backend,
                Operation::IsLocked(key.clone()),
                CALL,
                pending(),
            )
            .await;
            return self.end(running, &answer, outcome(&answer, yes_or_no));
        }
        self.look_up(key, Call::LookUpKey, Lookup::Key(key.clone()))
            .await
    }

    async fn look_up_lock(&mut self, key: &Key, lock_id: &LockId) -> io::Result<()> {
        let lock = number(lock_id);
        let lookup = Lookup::LockId(lock_id.clone());
        self.look_up(key, Call::LookUpLock { lock }, lookup).await
    }

    async fn look_up(&mut self, key: &Key, call: Call, lookup: Lookup) -> io::Result<()> {
        let running = self.recorder.start(key.as_str(), call)?;
        let answer = operation::run::<Option<LockRecord>>(
            &self.backend,
            Operation::Lookup(lookup.clone()),
            CALL,
            pending(),
        )
        .await;
        let outcome = outcome(&answer, |found| match found {
            // Nobody owns the lock id of a group.
            Some(record) if record.is_shared && record.key.reader_id().is_none() => {
                Outcome::FoundGroup {
                    fence: record.fence.get(),
                    expires_at_ms: record.expires_at_ms,
                }
            }
            Some(record) => Outcome::Found {
                lock: Some(number(&record.lock_id)),
                fence: record.fence.get(),
                expires_at_ms: record.expires_at_ms,
            },
            None => Outcome::NotFound,
        });
        self.end(running, &answer, outcome)
    }
}
