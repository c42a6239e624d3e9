//! The processes that work.

use std::fs::File;
use std::io;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, kill_process, prlimit, waitpid,
};

use crate::plan::Plan;
use crate::record::{self, Recorded, now};
use crate::register::{Register, Tally};
use crate::task::Task;

/// Processes that work, each with a seed and a file of its own.
pub struct Workers<'a> {
    plan: &'a Plan<'a>,
    register: &'a Register,
    until: Instant,
    workers: Vec<Worker>,
    ended: Ended,
}

struct Worker {
    child: Child,
    number: usize,
}

/// What is known of processes that have ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// How many were stopped for a while.
    pub stopped: usize,
    /// How many were killed.
    pub killed: usize,
    /// From when to when each of them lived, in microseconds.
    pub lives: Vec<(u64, u64)>,
    /// What they wrote to their standard error.
    pub complaints: String,
}

impl<'a> Workers<'a> {
    pub(crate) fn start(plan: &'a Plan<'a>, register: &'a Register) -> io::Result<Self> {
        let mut workers = Self {
            plan,
            register,
            until: Instant::now() + plan.task.run,
            workers: Vec::new(),
            ended: Ended::default(),
        };
        for _ in 0..plan.processes {
            let worker = workers.start_one()?;
            workers.workers.push(worker);
        }
        Ok(workers)
    }

    /// When they stop working.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// How it goes at the register.
    pub fn tally(&self) -> Tally {
        self.register.tally()
    }

    /// What they are told.
    pub fn task(&self) -> &Task {
        &self.plan.task
    }

    /// Whether one of them has not ended yet.
    ///
    /// # Errors
    /// The system's.
    pub fn is_working(&mut self) -> io::Result<bool> {
        for worker in &mut self.workers {
            if worker.child.try_wait()?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn start_one(&mut self) -> io::Result<Worker> {
        let number = self.ended.lives.len();
        let task = Task {
            history: self.plan.folder.join(number.to_string()),
            seed: self.plan.task.seed.wrapping_add((number as u64) << 48),
            run: self.until.saturating_duration_since(Instant::now()),
            ..self.plan.task.clone()
        };
        let complaints = File::create(self.plan.folder.join(format!("{number}.err")))?;
        let child = (self.plan.command)()
            .arg(serde_json::to_string(&task)?)
            .stdin(Stdio::null())
            .stderr(complaints)
            .spawn()?;
        self.ended.lives.push((now().order_us, u64::MAX));
        Ok(Worker { child, number })
    }

    /// Stops one of them for that long.
    ///
    /// # Errors
    /// It has ended.
    pub fn stop_one(&mut self, random: &mut fastrand::Rng, time: Duration) -> io::Result<()> {
        if let Some(worker) = random.choice(&mut self.workers) {
            let pid = pid(&worker.child)?;
            kill_process(pid, Signal::STOP)?;
            sleep(time);
            kill_process(pid, Signal::CONT)?;
            self.ended.stopped += 1;
        }
        Ok(())
    }

    /// Stops every second of them for that long, as if their machine were suspended. `wake` is told how long they have stood still at
    /// least, before they go on.
    ///
    /// # Errors
    /// One has ended; or as `wake` says.
    pub fn suspend_half(
        &mut self,
        time: Duration,
        wake: impl FnOnce(Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let chosen = self.workers.iter().filter(|one| one.number % 2 == 0);
        let chosen = chosen.map(|one| pid(&one.child));
        let chosen: Vec<_> = chosen.collect::<io::Result<_>>()?;
        for pid in &chosen {
            kill_process(*pid, Signal::STOP)?;
            // Its last thread has stopped only then.
            waitpid(Some(*pid), WaitOptions::UNTRACED)?;
        }
        let since = Instant::now();
        sleep(time);
        wake(since.elapsed())?;
        for pid in &chosen {
            kill_process(*pid, Signal::CONT)?;
        }
        self.ended.stopped += chosen.len();
        Ok(())
    }

    /// Kills one of them. Another takes its place.
    ///
    /// # Errors
    /// The other cannot be started.
    pub fn kill_one(&mut self, random: &mut fastrand::Rng) -> io::Result<()> {
        self.end_one(random)?;
        let worker = self.start_one()?;
        self.workers.push(worker);
        Ok(())
    }

    /// Kills one of them, and none takes its place.
    ///
    /// # Errors
    /// The system's.
    pub fn end_one(&mut self, random: &mut fastrand::Rng) -> io::Result<()> {
        if self.workers.is_empty() {
            return Ok(());
        }
        let mut worker = self.workers.swap_remove(random.usize(..self.workers.len()));
        worker.child.kill()?;
        worker.child.wait()?;
        self.ended.killed += 1;
        if let Some(life) = self.ended.lives.get_mut(worker.number) {
            life.1 = now().order_us;
        }
        Ok(())
    }

    /// Lets them have that many files, or as many as at the start.
    ///
    /// # Errors
    /// It has ended.
    pub fn limit_files(&mut self, files: Option<u64>) -> io::Result<()> {
        // They have inherited it.
        let own = getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: files.or(own.current),
            ..own
        };
        for worker in &self.workers {
            prlimit(Some(pid(&worker.child)?), Resource::Nofile, limit)?;
        }
        Ok(())
    }

    pub(crate) fn end(mut self) -> io::Result<(Recorded, Ended)> {
        for worker in &mut self.workers {
            let status = worker.child.wait()?;
            if let Some(life) = self.ended.lives.get_mut(worker.number) {
                life.1 = now().order_us;
            }
            if !status.success() {
                let text = self.plan.folder.join(format!("{}.err", worker.number));
                let text = std::fs::read_to_string(text)?;
                return Err(io::Error::other(format!(
                    "a worker has failed: {status}: {text}"
                )));
            }
        }
        self.workers.clear();
        let mut seen = Recorded::default();
        for number in 0..self.ended.lives.len() {
            let folder = &self.plan.folder;
            let path = folder.join(number.to_string());
            // A worker that was killed at once has recorded nothing.
            if path.exists() {
                let process = u32::try_from(number).map_err(io::Error::other)?;
                seen.add(record::read(&path, process)?);
            }
            let text = std::fs::read_to_string(folder.join(format!("{number}.err")))?;
            self.ended.complaints.push_str(&text);
        }
        Ok((seen, std::mem::take(&mut self.ended)))
    }
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        // Only where something has failed is anyone left.
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

fn pid(worker: &Child) -> io::Result<Pid> {
    let id = i32::try_from(worker.id()).map_err(io::Error::other)?;
    Pid::from_raw(id).ok_or_else(|| io::Error::other("no process"))
}
