//! Locks that JavaScript waits for.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use napi_derive::napi;
use syncguard::Key;

use crate::backend::NativeBackend;
use crate::completion::Completion;
use crate::io_thread;
use crate::mailbox::Mailbox;

/// Hears when a lock may have been freed. It is no operation: it does not keep the process alive.
#[napi]
pub struct Watch {
    teller: Arc<Teller>,
    /// `None` when it is closed.
    watch: RefCell<Option<syncguard::Watch>>,
}

#[napi]
impl NativeBackend {
    /// Watches the lock on `key`. After each call of [`Watch::next`], when the lock may have been freed, JavaScript
    /// finds [`Tag::Freed`](crate::completion::Tag::Freed) with `number` once. `null`: the store cannot tell.
    #[napi]
    pub fn watch(&self, number: u32, key: String) -> Option<Watch> {
        let watch = self.operations.backend.watch(&Key::new(&key).ok()?)?;
        let runtime = io_thread::runtime().ok()?;
        let _on_it = runtime.enter();
        let teller = Arc::new(Teller {
            mailbox: Arc::clone(self.operations.mailbox()),
            number,
            state: AtomicU8::new(IDLE),
        });
        let told = Arc::clone(&teller);
        watch.on_freed(move || told.freed());
        Some(Watch {
            teller,
            watch: RefCell::new(Some(watch)),
        })
    }
}

#[napi]
impl Watch {
    /// Asks to be told once.
    #[napi]
    pub fn next(&self) {
        self.teller.next();
    }

    /// Whether the store tells at this moment.
    #[napi(getter)]
    pub fn is_listening(&self) -> bool {
        let watch = self.watch.borrow();
        watch.as_ref().is_some_and(syncguard::Watch::is_listening)
    }

    /// Ends it.
    #[napi]
    pub fn close(&self) {
        self.watch.take();
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
