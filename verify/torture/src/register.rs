//! A protected value for each key: what a lock and its fence are for.
//!
//! Holders talk to it through a socket, a line for each request and one for each answer. What they do is what goes wrong
//! without a lock: they read a number, and later write one that is larger by one. If somebody else wrote in between, that
//! write is lost.
//!
//! - `read KEY FENCE` answers the number, and `write KEY FENCE NUMBER` answers `ok`. If the register checks fences, it answers
//!   `stale` where it has seen a larger one: the request comes from a holder whose time was over, and who did not know.
//! - `enter KEY` and `leave KEY` say that somebody works on what the lock protects, and are answered with `ok`; or with
//!   `taken`, if somebody else is in there. Whoever hangs up has left.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What the register does with fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fences {
    /// It refuses those that are smaller than one that it has seen.
    Checked,
    /// It does not look at them, and so shows what they are for.
    Ignored,
}

/// How it went.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Writes that were accepted.
    pub accepted: u64,
    /// Reads and writes with a fence that was too old.
    pub refused: u64,
    /// Accepted writes that somebody overwrote who had not seen them.
    pub lost: u64,
    /// How often somebody entered.
    pub entered: u64,
    /// How often somebody entered while another one was in there.
    pub overlaps: u64,
}

/// The values of all keys.
#[derive(Debug)]
pub struct Register {
    fences: Fences,
    state: Mutex<RegisterState>,
}

#[derive(Debug, Default)]
struct RegisterState {
    values: HashMap<String, Value>,
    /// Which connection is in there.
    inside: HashMap<String, u64>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Value {
    number: u64,
    newest_fence: u64,
}

impl Register {
    /// Serves at the socket `path` until the process ends.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn serve(path: &Path, fences: Fences) -> io::Result<Arc<Self>> {
        let register = Arc::new(Self {
            fences,
            state: Mutex::default(),
        });
        let listener = UnixListener::bind(path)?;
        let served = Arc::clone(&register);
        thread::spawn(move || {
            for (connection, stream) in (0..).zip(listener.incoming().flatten()) {
                let register = Arc::clone(&served);
                thread::spawn(move || {
                    let talked = register.talk(stream, connection);
                    let mut state = register.lock();
                    state.inside.retain(|_, inside| *inside != connection);
                    talked
                });
            }
        });
        Ok(register)
    }

    /// How it went until now.
    pub fn tally(&self) -> Tally {
        let state = self.lock();
        let written: u64 = state.values.values().map(|value| value.number).sum();
        Tally {
            lost: state.tally.accepted - written,
            ..state.tally
        }
    }

    fn talk(&self, stream: UnixStream, connection: u64) -> io::Result<()> {
        let mut answers = stream.try_clone()?;
        for line in BufReader::new(stream).lines() {
            let answer = self.answer(&line?, connection);
            answers.write_all(format!("{answer}\n").as_bytes())?;
        }
        Ok(())
    }

    fn answer(&self, line: &str, connection: u64) -> String {
        let words: Vec<_> = line.split(' ').collect();
        let mut state = self.lock();
        let done = match words.as_slice() {
            ["read", key, fence] => {
                let number = fence.parse().ok().map(|fence| state.read(self, key, fence));
                return number.flatten().map_or_else(stale, |one| one.to_string());
            }
            ["write", key, fence, number] => match (fence.parse(), number.parse()) {
                (Ok(fence), Ok(number)) => state.write(self, key, fence, number),
                _ => None,
            },
            ["enter", key] => return state.enter(key, connection).to_owned(),
            ["leave", key] => {
                state
                    .inside
                    .retain(|one, inside| one != key || *inside != connection);
                Some(())
            }
            _ => None,
        };
        done.map_or_else(stale, |()| "ok".to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, RegisterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stale() -> String {
    "stale".to_owned()
}

impl RegisterState {
    /// The value, unless `fence` is too old.
    fn value(&mut self, register: &Register, key: &str, fence: u64) -> Option<&mut Value> {
        let value = self.values.entry(key.to_owned()).or_default();
        let is_stale = fence < value.newest_fence;
        value.newest_fence = fence.max(value.newest_fence);
        if is_stale && register.fences == Fences::Checked {
            self.tally.refused += 1;
            return None;
        }
        Some(value)
    }

    fn read(&mut self, register: &Register, key: &str, fence: u64) -> Option<u64> {
        self.value(register, key, fence).map(|value| value.number)
    }

    fn write(&mut self, register: &Register, key: &str, fence: u64, number: u64) -> Option<()> {
        self.value(register, key, fence)?.number = number;
        self.tally.accepted += 1;
        Some(())
    }

    fn enter(&mut self, key: &str, connection: u64) -> &'static str {
        self.tally.entered += 1;
        match self.inside.insert(key.to_owned(), connection) {
            Some(other) if other != connection => {
                self.tally.overlaps += 1;
                "taken"
            }
            _ => "ok",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(fences: Fences) -> Register {
        Register {
            fences,
            state: Mutex::default(),
        }
    }

    #[test]
    fn a_late_write_is_refused_or_loses_what_others_wrote() {
        for (fences, late, lost) in [(Fences::Checked, "stale", 0), (Fences::Ignored, "ok", 1)] {
            let register = register(fences);
            assert_eq!(register.answer("read k 1", 0), "0");
            assert_eq!(register.answer("read k 2", 1), "0");
            assert_eq!(register.answer("write k 2 1", 1), "ok");
            assert_eq!(register.answer("write k 1 1", 0), late);
            assert_eq!(register.tally().lost, lost);
        }
    }

    #[test]
    fn two_in_one_place_are_counted() {
        let register = register(Fences::Checked);
        assert_eq!(register.answer("enter k", 0), "ok");
        assert_eq!(register.answer("enter other", 1), "ok");
        assert_eq!(register.answer("enter k", 1), "taken");
        assert_eq!(register.answer("leave k", 1), "ok");
        assert_eq!(register.answer("enter k", 0), "ok");
        let tally = register.tally();
        assert_eq!((tally.entered, tally.overlaps), (4, 1));
    }
}
