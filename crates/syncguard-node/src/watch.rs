//! Locks that JavaScript waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use crate::completion::Completion;
use crate::mailbox::Mailbox;

/// A watched lock. No object of JavaScript's own: a thousand who wait would pay for a thousand of them.
pub(crate) struct Watched {
    teller: Arc<Teller>,
    watch: syncguard::Watch,
}

impl Watched {
    /// Watches the lock under `number`, which JavaScript has chosen. It finds [`Tag::Freed`](crate::completion::Tag::Freed)
    /// with `number` once after each call of [`next`](Self::next), when the lock may have been freed.
    pub(crate) fn new(watch: syncguard::Watch, number: u32, mailbox: &Arc<Mailbox>) -> Self {
        let teller = Arc::new(Teller {
            mailbox: Arc::clone(mailbox),
            number,
            state: AtomicU8::new(IDLE),
        });
        let told = Arc::clone(&teller);
        watch.on_freed(move || told.freed());
        Self { teller, watch }
    }

    /// Asks to be told once.
    pub(crate) fn next(&self) {
        self.teller.next();
    }

    /// Whether the store tells at this moment.
    pub(crate) fn is_listening(&self) -> bool {
        self.watch.is_listening()
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
