//! Holders who ask their guards whether they have their locks, on a machine that is suspended at times.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::{
    AutoExtend, Backend, ErrorKind, Key, LockGuard, LockOptions, RetryPolicy, Ttl, lock,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::record::{self, Recorder};
use crate::task::{AFTER_ERROR, Deadline, Failed, Task};

/// How many there are in each process, and how many keys for those of all processes.
const HOLDERS: u64 = 8;
const KEYS: u64 = 32;
const TTL_MS: i64 = 500;
/// In part beyond the TTL.
const WORK_MS: std::ops::Range<u64> = 0..600;
/// Nobody has a lock any more who has stood still for so long: its TTL, the tolerance, and as much as somebody may be interrupted who
/// reads two clocks.
const OVER: Duration = Duration::from_millis(2_000);

const HELD_ON: &str = "a lock was held that had ended while the machine was suspended";

struct GuardUser {
    backend: Arc<dyn Backend>,
    recorder: Arc<Recorder>,
    random: fastrand::Rng,
    until: Deadline,
    began: Reading,
}

/// Of a clock that goes on while the machine is suspended, and of one that does not.
#[derive(Clone, Copy)]
struct Reading {
    order_us: u64,
    awake: Instant,
}

impl Reading {
    fn now() -> Self {
        let order_us = record::now().order_us;
        let awake = Instant::now();
        Self { order_us, awake }
    }

    /// For how long the machine was suspended since then, at least.
    fn suspended(self) -> Duration {
        let now = Self::now();
        let past = Duration::from_micros(now.order_us.saturating_sub(self.order_us));
        past.saturating_sub(now.awake.saturating_duration_since(self.awake))
    }
}

/// Starts them, if the task has any.
pub(super) fn holders(
    task: &Task,
    backend: &Arc<dyn Backend>,
    recorder: &Arc<Recorder>,
) -> Vec<JoinHandle<Result<(), Failed>>> {
    let count = if task.guards { HOLDERS } else { 0 };
    let start = |number| {
        let user = GuardUser {
            backend: Arc::clone(backend),
            recorder: Arc::clone(recorder),
            random: fastrand::Rng::with_seed(!task.seed.wrapping_add(number)),
            until: Deadline::after(task.run),
            began: Reading::now(),
        };
        tokio::spawn(user.work())
    };
    (0..count).map(start).collect()
}

impl GuardUser {
    async fn work(mut self) -> Result<(), Failed> {
        while !self.until.is_over() {
            let key = Key::new(&format!("guarded:{}", self.random.u64(..KEYS)))?;
            let extends = self.random.bool();
            let options = LockOptions {
                ttl: Ttl::from_millis(TTL_MS)?,
                auto_extend: extends.then(AutoExtend::default),
                retry: RetryPolicy {
                    timeout_ms: self.until.left().as_secs_f64() * 1000.0,
                    ..RetryPolicy::default()
                },
                ..LockOptions::default()
            };
            match lock(&self.backend, &key, &options).await {
                Ok(guard) => self.hold(guard).await?,
                Err(error) if error.kind() == ErrorKind::AcquisitionTimeout => {}
                Err(error) => {
                    self.recorder.failed(&error)?;
                    sleep(AFTER_ERROR).await;
                }
            }
        }
        Ok(())
    }

    /// Works under the lock, and looks before each step whether it has it.
    async fn hold(&mut self, guard: LockGuard) -> io::Result<()> {
        let before = self.began.suspended();
        let end = Instant::now() + Duration::from_millis(self.random.u64(WORK_MS));
        while Instant::now() < end {
            // Looked at first: what happens afterwards is not the guard's fault.
            let is_over = self.began.suspended().saturating_sub(before) >= OVER;
            match (guard.assert_held(), is_over) {
                (Ok(()), true) => return self.recorder.broken(HELD_ON),
                (Err(_), true) => return self.recorder.outlived(),
                (Err(_), false) => return Ok(()),
                (Ok(()), false) => sleep(Duration::from_millis(1)).await,
            }
        }
        match guard.release().await {
            Err(error) if error.kind() != ErrorKind::LockLost => self.recorder.failed(&error),
            _ => Ok(()),
        }
    }
}
