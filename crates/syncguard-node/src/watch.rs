//! Locks that JavaScript waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use napi_derive::napi;
use syncguard::Key;

use crate::backend::NativeBackend;
use crate::completion::{Completion, Completions};
use crate::io_thread;
use crate::mailbox::Mailbox;

/// A watched lock. No object of JavaScript's own: a thousand who wait would pay for a thousand of them.
pub(crate) struct Watched {
    teller: Arc<Teller>,
    watch: syncguard::Watch,
}

#[napi]
impl NativeBackend {
    /// Watches the lock on `key` under `number`, which JavaScript chooses. It is no operation: it does not keep the
    /// process alive. After each call of [`Completions::next_freed`], when the lock may have been freed, JavaScript
    /// finds [`Tag::Freed`](crate::completion::Tag::Freed) with `number` once. `false`: the store cannot tell.
    #[napi]
    pub fn watch(&self, number: u32, key: String) -> bool {
        let key = Key::new(&key).ok();
        let watch = key.and_then(|key| self.operations.backend.watch(&key));
        let (Some(watch), Ok(runtime)) = (watch, io_thread::runtime()) else {
            return false;
        };
        let _on_it = runtime.enter();
        let teller = Arc::new(Teller {
            mailbox: Arc::clone(self.operations.mailbox()),
            number,
            state: AtomicU8::new(IDLE),
        });
        let told = Arc::clone(&teller);
        watch.on_freed(move || told.freed());
        let watched = Watched { teller, watch };
        self.operations.watches().insert(number, watched);
        true
    }
}

#[napi]
impl Completions {
    /// Asks to be told once of the watched lock.
    #[napi]
    pub fn next_freed(&self, number: u32) {
        if let Some(watched) = self.environment.watches.borrow().get(&number) {
            watched.teller.next();
        }
    }

    /// Whether the store tells of the watched lock at this moment.
    #[napi]
    pub fn is_listening(&self, number: u32) -> bool {
        let watches = self.environment.watches.borrow();
        let watched = watches.get(&number);
        watched.is_some_and(|watched| watched.watch.is_listening())
    }

    /// Ends the watch.
    #[napi]
    pub fn unwatch(&self, number: u32) {
        let watched = self.environment.watches.borrow_mut().remove(&number);
        drop(watched);
    }
}

/// JavaScript does not want to be told, and there is nothing to tell.
const IDLE: u8 = 0;
/// JavaScript wants to be told.
const ASKED: u8 = 1;
/// There is something to tell.
const FREED: u8 = 2;

/// Tells JavaScript, once each time that it asks.
struct Teller {
    mailbox: Arc<Mailbox>,
    number: u32,
    state: AtomicU8,
}

impl Teller {
    fn freed(&self) {
        self.meet(ASKED, FREED);
    }

    fn next(&self) {
        self.meet(FREED, ASKED);
    }

    /// Tells if the other side has come, else leaves word.
    fn meet(&self, other: u8, own: u8) {
        let meet = |state| Some(if state == other { IDLE } else { own });
        if self.state.fetch_update(SeqCst, SeqCst, meet) == Ok(other) {
            self.mailbox.put(self.number, Completion::Freed);
        }
    }
}
