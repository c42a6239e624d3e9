//! Histories in files: two lines for each operation, so that one is known of also if its process is killed.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use syncguard::{Error, ErrorKind};

use crate::history::{Call, Moment, Operation, Outcome};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Start {
        number: u64,
        key: String,
        call: Call,
        at: Moment,
    },
    End {
        number: u64,
        outcome: Outcome,
        at: Moment,
        /// The lock id's number, of an acquisition that did not know it before.
        lock: Option<u64>,
    },
    /// It certainly had no effect.
    Nothing { number: u64 },
    /// What a user was told of an operation that failed.
    Error { kind: String, message: String },
    /// Several things were gathered, and granted or given back.
    Gathered { is_granted: bool },
    /// A guard was there for longer than its lock, and said so.
    Outlived,
    /// A promise was not kept.
    Broken { promise: String },
}

/// What processes have seen.
#[derive(Debug, Default)]
pub struct Recorded {
    /// What they asked, except for what certainly had no effect.
    pub operations: Vec<Operation>,
    /// The errors, by their kinds.
    pub errors: BTreeMap<String, Seen>,
    /// How often several things were gathered.
    pub gathered: Gathered,
    /// How many guards have said that their locks were over, after their process had stood still.
    pub outlived: usize,
    /// Promises that were not kept, of which no history of one key tells.
    pub broken: Vec<String>,
}

/// How often somebody gathered several things.
#[derive(Debug, Default, Clone, Copy)]
pub struct Gathered {
    /// And was granted them.
    pub granted: usize,
    /// And gave back what it had.
    pub in_vain: usize,
}

/// Errors of one kind.
#[derive(Debug, Default)]
pub struct Seen {
    /// How many.
    pub count: usize,
    /// The message of one of them.
    pub message: String,
}

impl Recorded {
    /// Adds what another process has seen.
    pub fn add(&mut self, other: Self) {
        self.operations.extend(other.operations);
        for (kind, seen) in other.errors {
            let sum = self.errors.entry(kind).or_default();
            sum.count += seen.count;
            sum.message = seen.message;
        }
        self.gathered.granted += other.gathered.granted;
        self.gathered.in_vain += other.gathered.in_vain;
        self.outlived += other.outlived;
        self.broken.extend(other.broken);
    }
}

/// What one process records.
pub struct Recorder {
    file: Mutex<File>,
    next: AtomicU64,
}

impl Recorder {
    /// Records into a new file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: Mutex::new(File::create_new(path)?),
            next: AtomicU64::new(0),
        })
    }

    /// An operation starts. Gives its number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(&self, key: &str, call: Call) -> io::Result<u64> {
        self.started(key, call, now())
    }

    /// An operation has started then, as is known only now. Gives its number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn started(&self, key: &str, call: Call, at: Moment) -> io::Result<u64> {
        let number = self.next.fetch_add(1, Relaxed);
        let key = key.to_owned();
        self.write(&Line::Start {
            number,
            key,
            call,
            at,
        })?;
        Ok(number)
    }

    /// An operation has ended. `None`: it certainly had no effect.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(&self, number: u64, outcome: Option<Outcome>) -> io::Result<()> {
        match outcome {
            Some(outcome) => self.ended(number, outcome, None),
            None => self.write(&Line::Nothing { number }),
        }
    }

    /// An operation has failed, and the user is told so.
    ///
    /// # Errors
    /// The file cannot be written. The operation was invalid: whoever asks so tests nothing.
    pub fn failed(&self, error: &Error) -> io::Result<()> {
        if error.kind() == ErrorKind::InvalidArgument {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error.clone()));
        }
        self.write(&Line::Error {
            kind: error.kind().to_string(),
            message: error.to_string(),
        })
    }

    /// Somebody has gathered several things, which it was granted, or has given back.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn gathered(&self, is_granted: bool) -> io::Result<()> {
        self.write(&Line::Gathered { is_granted })
    }

    /// A guard has said that its lock is over, after its process had stood still.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn outlived(&self) -> io::Result<()> {
        self.write(&Line::Outlived)
    }

    /// A promise was not kept.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn broken(&self, promise: &str) -> io::Result<()> {
        let promise = promise.to_owned();
        self.write(&Line::Broken { promise })
    }

    /// An acquisition has been granted the lock with that number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn granted(&self, number: u64, lock: u64, outcome: Outcome) -> io::Result<()> {
        self.ended(number, outcome, Some(lock))
    }

    fn ended(&self, number: u64, outcome: Outcome, lock: Option<u64>) -> io::Result<()> {
        let at = now();
        self.write(&Line::End {
            number,
            outcome,
            at,
            lock,
        })
    }

    fn write(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        let mut file = self.file.lock().map_err(|_| io::Error::other("poisoned"))?;
        file.write_all(text.as_bytes())
    }
}

/// What the process `process` has recorded.
///
/// # Errors
/// The file cannot be read, or is none of a recorder's.
pub fn read(path: &Path, process: u32) -> io::Result<Recorded> {
    let mut recorded = Recorded::default();
    let mut operations: HashMap<u64, Operation> = HashMap::new();
    let mut last = None;
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        // A process that was killed may have left half a line.
        let Ok(line) = serde_json::from_str(&line) else {
            continue;
        };
        match line {
            Line::Start {
                number,
                key,
                call,
                at,
            } => {
                last = last.max(Some(at));
                let operation = Operation {
                    process,
                    key,
                    call,
                    start: at,
                    end: at,
                    outcome: Outcome::Interrupted,
                };
                operations.insert(number, operation);
            }
            Line::End {
                number,
                outcome,
                at,
                lock,
            } => {
                last = last.max(Some(at));
                if let Some(operation) = operations.get_mut(&number) {
                    (operation.outcome, operation.end) = (outcome, at);
                    if let (Some(lock), Call::AcquireUnseen { ttl_ms, .. }) = (lock, operation.call)
                    {
                        operation.call = Call::Acquire { lock, ttl_ms };
                    }
                }
            }
            Line::Nothing { number } => {
                operations.remove(&number);
            }
            Line::Error { kind, message } => {
                let seen = recorded.errors.entry(kind).or_default();
                seen.count += 1;
                seen.message = message;
            }
            Line::Gathered { is_granted: true } => recorded.gathered.granted += 1,
            Line::Gathered { is_granted: false } => recorded.gathered.in_vain += 1,
            Line::Outlived => recorded.outlived += 1,
            Line::Broken { promise } => recorded.broken.push(promise),
        }
    }
    let mut operations: Vec<_> = operations.into_values().collect();
    for cut in &mut operations {
        if let (Outcome::Interrupted, Some(last)) = (cut.outcome, last) {
            cut.end = last;
        }
    }
    recorded.operations = operations;
    Ok(recorded)
}

/// Microseconds since the Unix epoch, from the kernel itself, as [`now`].
pub fn now_us() -> i64 {
    micros(ClockId::Realtime)
}

/// What the clocks of the machine show: asked of the system itself, because the C library may be told to lie
/// (libfaketime).
pub fn now() -> Moment {
    Moment {
        order_us: micros(ClockId::Monotonic).unsigned_abs(),
        wall_ms: now_us() / 1000,
    }
}

fn micros(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}
