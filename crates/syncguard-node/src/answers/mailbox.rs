//! What has finished and waits for one environment of JavaScript, and the function that is called then.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use std::{mem, ptr};

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, JsValue, Status, check_status, sys};
use syncguard::Backend;

use crate::answers::busy::BusyBackends;
use crate::answers::completion::Completion;
use crate::io_thread;
use crate::mutex::lock;

pub(crate) type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

#[derive(Default)]
struct Finished {
    operations: Vec<(u32, Completion)>,
    /// Whether JavaScript has been woken and has not looked yet.
    is_announced: bool,
    /// When JavaScript has looked last.
    looked: Option<Instant>,
    /// Set when JavaScript has lost its side: nobody will fetch anything any more.
    abandoned: bool,
}

/// Where finished operations wait until JavaScript fetches all that there are.
pub(crate) struct Mailbox {
    finished: Mutex<Finished>,
    pub(crate) wake: Wake,
    pub(crate) busy: BusyBackends,
}

impl Mailbox {
    /// `wake` calls what drains the finished operations.
    pub(crate) fn new(wake: Wake) -> Self {
        Self {
            finished: Mutex::default(),
            wake,
            busy: BusyBackends::default(),
        }
    }

    /// Whether there are finished operations.
    pub(crate) fn has_finished(&self) -> bool {
        !lock(&self.finished).operations.is_empty()
    }

    /// Moves the finished operations into `batch`, which is empty: at most `room` of them.
    pub(crate) fn take(&self, room: usize, batch: &mut Vec<(u32, Completion)>) {
        let mut finished = lock(&self.finished);
        finished.looked = Some(Instant::now());
        if finished.operations.len() > room {
            batch.extend(finished.operations.drain(..room));
        } else {
            finished.is_announced = false;
            mem::swap(&mut finished.operations, batch);
        }
    }

    /// Puts a finished operation where JavaScript will find it, and wakes JavaScript, unless it has been woken.
    pub(crate) fn put(&self, operation: u32, completion: Completion) {
        self.keep(operation, completion);
        self.announce();
    }

    /// Puts a finished operation where JavaScript will find it. Where there is no JavaScript any more, a
    /// lock that was granted is given back.
    pub(crate) fn keep(&self, operation: u32, completion: Completion) {
        let mut finished = lock(&self.finished);
        if finished.abandoned {
            // Giving a lock back starts a task, which must not happen under this lock.
            drop(finished);
            drop(completion);
            return;
        }
        finished.operations.push((operation, completion));
    }

    /// When JavaScript has looked last. It looks when its event loop turns after [`announce`](Self::announce).
    pub(crate) fn looked(&self) -> Option<Instant> {
        lock(&self.finished).looked
    }

    /// Wakes JavaScript, unless it has been woken.
    pub(crate) fn announce(&self) {
        let was_announced = mem::replace(&mut lock(&self.finished).is_announced, true);
        if !was_announced {
            self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Keeps the environment alive, as an operation in flight does, until what `backend` does in the
    /// background is done. To be called before the outcome that it is left over from is delivered.
    pub(crate) fn live_for_background_of(self: &Arc<Self>, backend: &Arc<dyn Backend>) {
        if !backend.work().is_in_background() || !self.busy.add(backend) {
            return;
        }
        let (mailbox, backend) = (Arc::clone(self), Arc::clone(backend));
        // It runs: whatever is in the background is there.
        let Ok(runtime) = io_thread::runtime() else {
            return;
        };
        runtime.spawn(async move {
            backend.work().background_done().await;
            mailbox.busy.remove(&backend);
            // JavaScript sees in `drain` whether there is anything left to live for.
            mailbox
                .wake
                .call((), ThreadsafeFunctionCallMode::NonBlocking);
        });
    }

    /// Whether the environment has ended, so that nobody will fetch anything any more.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.finished).abandoned || self.wake.aborted()
    }

    /// Gives back what nobody will fetch.
    pub(crate) fn abandon(&self) {
        let left = {
            let mut finished = lock(&self.finished);
            finished.abandoned = true;
            mem::take(&mut finished.operations)
        };
        drop(left);
    }
}

/// The function of JavaScript that is called when something has finished. It is kept alive only while something is under way.
///
/// The function leads to everything of its realm, also to what leads back here. A reference that always kept it alive would
/// keep alive each realm that has ever loaded the addon: contexts of `node:vm`, in which Jest runs each file of tests.
pub(crate) struct Listener {
    env: sys::napi_env,
    reference: sys::napi_ref,
    is_held: Cell<bool>,
}

impl Listener {
    /// Does not hold the function yet.
    pub(crate) fn new(function: &Function<'_, (), ()>) -> napi::Result<Self> {
        let value = function.value();
        let mut reference = ptr::null_mut();
        // SAFETY: the function was just given to a call from JavaScript, and this runs on its thread.
        check_status!(unsafe {
            sys::napi_create_reference(value.env, value.value, 0, &mut reference)
        })?;
        Ok(Self {
            env: value.env,
            reference,
            is_held: Cell::new(false),
        })
    }

    /// Keeps the function alive, or lets it go.
    pub(crate) fn hold(&self, is_held: bool) {
        if self.is_held.replace(is_held) == is_held {
            return;
        }
        let mut count = 0;
        // SAFETY: this is not `Send`, so that it runs on the thread of its environment, which lives as long as this. The
        // reference is counted up before it is counted down.
        unsafe {
            if is_held {
                sys::napi_reference_ref(self.env, self.reference, &mut count);
            } else {
                sys::napi_reference_unref(self.env, self.reference, &mut count);
            }
        }
    }

    /// Calls the function, unless its realm is gone. What it throws goes on to whoever called this.
    pub(crate) fn call(&self, env: &Env) {
        let (mut function, mut this) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: this runs inside a call from JavaScript, on the thread of its environment.
        unsafe {
            sys::napi_get_reference_value(env.raw(), self.reference, &mut function);
            sys::napi_get_undefined(env.raw(), &mut this);
            if !function.is_null() {
                let none = ptr::null();
                sys::napi_call_function(env.raw(), this, function, 0, none, ptr::null_mut());
            }
        }
    }

    /// [`call`](Self::call) from the event loop, where no JavaScript runs: what is resolved by it goes on before this
    /// returns.
    pub(crate) fn call_from_loop(&self, env: sys::napi_env) {
        let (mut scope, mut function, mut this) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: this runs on the thread of its environment, which has not ended: then nothing calls it any more.
        unsafe {
            if sys::napi_open_handle_scope(env, &mut scope) != sys::Status::napi_ok {
                return;
            }
            sys::napi_get_reference_value(env, self.reference, &mut function);
            sys::napi_get_global(env, &mut this);
            if !function.is_null() {
                // No asynchronous context of its own: those of the promises count.
                let (none, mut result) = (ptr::null_mut(), ptr::null_mut());
                let status =
                    sys::napi_make_callback(env, none, this, function, 0, ptr::null(), &mut result);
                if status == sys::Status::napi_pending_exception {
                    let mut error = ptr::null_mut();
                    sys::napi_get_and_clear_last_exception(env, &mut error);
                    sys::napi_fatal_exception(env, error);
                }
            }
            sys::napi_close_handle_scope(env, scope);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: whoever drops this is a finalizer of JavaScript, so that its environment is alive, on its thread.
        unsafe { sys::napi_delete_reference(self.env, self.reference) };
    }
}
