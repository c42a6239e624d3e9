//! The part of libuv that a socket on JavaScript's own event loop needs.
//!
//! Its functions are looked up in the program that has loaded the addon: Node.js and Electron have them. Those of Bun end
//! the process when they are called, and those of Deno are its own, which do not tell when a socket can be read.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};

use napi::bindgen_prelude::JsObjectValue;
use napi::{Env, sys};
use syncguard::event_loop::{Interest, RawSocket, Readiness};

use crate::mutex::lock;

type RawLoop = *mut c_void;
type RawHandle = *mut c_void;
type CloseCallback = unsafe extern "C" fn(RawHandle);
type PollCallback = unsafe extern "C" fn(RawHandle, c_int, c_int);
type AsyncCallback = unsafe extern "C" fn(RawHandle);

/// `uv_handle_type`.
const ASYNC: c_int = 1;
const POLL: c_int = 8;
/// `uv_poll_event`.
const READABLE: c_int = 1;
const WRITABLE: c_int = 2;
/// No type of C needs more.
const ALIGNMENT: usize = 16;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn look_up() -> Option<Self> {
                #[cfg(unix)]
                let program = libloading::os::unix::Library::this();
                #[cfg(windows)]
                let program = libloading::os::windows::Library::this().ok()?;
                // SAFETY: the types are those of uv.h, which are the same in all releases of libuv 1.
                Some(unsafe { Self { $($name: *program.get(stringify!($name).as_bytes()).ok()?,)* } })
            }
        }
    };
}

functions! {
    uv_async_init: fn(RawLoop, RawHandle, AsyncCallback) -> c_int;
    uv_async_send: fn(RawHandle) -> c_int;
    uv_poll_init_socket: fn(RawLoop, RawHandle, RawSocket) -> c_int;
    uv_poll_start: fn(RawHandle, c_int, PollCallback) -> c_int;
    uv_unref: fn(RawHandle);
    uv_close: fn(RawHandle, CloseCallback);
    uv_handle_size: fn(c_uint) -> usize;
    uv_handle_set_data: fn(RawHandle, *mut c_void);
    uv_handle_get_data: fn(RawHandle) -> *mut c_void;
}

/// libuv's functions; `None` unless the program has all of them.
fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(Functions::look_up).as_ref()
}

/// The loop of one environment, until [`close`](Self::close). Handles keep no process alive.
pub(crate) struct Uv {
    functions: &'static Functions,
    raw: RawLoop,
    /// Keeps the environment from ending before all handles are closed.
    hook: RefCell<Option<Rc<Hook>>>,
}

/// What is called when the environment ends, for as long as there are handles.
struct Hook {
    raw: Cell<sys::napi_async_cleanup_hook_handle>,
    on_end: RefCell<Box<dyn Fn()>>,
}

impl Uv {
    /// `None` where JavaScript does not run on libuv.
    pub(crate) fn of(env: &Env) -> Option<Self> {
        let global = env.get_global().ok()?;
        for without in ["Bun", "Deno"] {
            if global.has_named_property(without).ok()? {
                return None;
            }
        }
        let functions = functions()?;
        let mut raw = ptr::null_mut();
        // SAFETY: this runs inside a call from JavaScript, on the thread of its environment.
        let status = unsafe { sys::napi_get_uv_event_loop(env.raw(), &mut raw) };
        if status != sys::Status::napi_ok || raw.is_null() {
            return None;
        }
        let hook = Rc::new(Hook {
            raw: Cell::new(ptr::null_mut()),
            on_end: RefCell::new(Box::new(|| ())),
        });
        let argument = Rc::as_ptr(&hook).cast_mut().cast();
        let mut handle = ptr::null_mut();
        // SAFETY: as above. `hook` removes it when it is dropped, so that it is never called with what is gone.
        let status = unsafe {
            sys::napi_add_async_cleanup_hook(
                env.raw(),
                Some(on_end_of_environment),
                argument,
                &mut handle,
            )
        };
        if status != sys::Status::napi_ok {
            return None;
        }
        hook.raw.set(handle);
        Some(Self {
            functions,
            raw: raw.cast(),
            hook: RefCell::new(Some(hook)),
        })
    }

    /// Calls `on_end` when the environment ends: then all handles must be dropped.
    pub(crate) fn on_end(&self, on_end: impl Fn() + 'static) {
        if let Some(hook) = &*self.hook.borrow() {
            *hook.on_end.borrow_mut() = Box::new(on_end);
        }
    }

    /// Calls `on_ready` when the socket can be read or written, or is broken: then it is watched no more until
    /// [`Poll::watch`].
    pub(crate) fn poll(
        &self,
        socket: RawSocket,
        on_ready: impl Fn(Readiness) + 'static,
    ) -> Option<Poll> {
        let handle = self.handle(POLL, Callback::Poll(Box::new(on_ready)), |raw| {
            // SAFETY: the memory is that of such a handle, and the loop is that of this thread.
            unsafe { (self.functions.uv_poll_init_socket)(self.raw, raw, socket) }
        })?;
        Some(Poll(handle))
    }

    /// Calls `on_wake` some time after each call of [`Sender::send`].
    pub(crate) fn wake(&self, on_wake: impl Fn() + 'static) -> Option<(Wake, Sender)> {
        let handle = self.handle(ASYNC, Callback::Wake(Box::new(on_wake)), |raw| {
            // SAFETY: as in `poll`.
            unsafe { (self.functions.uv_async_init)(self.raw, raw, on_async) }
        })?;
        let sender = Sender(Arc::new(Mutex::new(Some(Sending {
            send: self.functions.uv_async_send,
            raw: handle.raw,
        }))));
        Some((Wake(handle, sender.clone()), sender))
    }

    /// No handle can be made any more. Those that there are must be dropped.
    pub(crate) fn close(&self) {
        self.hook.take();
    }

    fn handle(
        &self,
        kind: c_int,
        callback: Callback,
        init: impl FnOnce(RawHandle) -> c_int,
    ) -> Option<Handle> {
        let hook = self.hook.borrow().clone()?;
        // SAFETY: the kind is one that libuv knows.
        let size = unsafe { (self.functions.uv_handle_size)(kind as c_uint) };
        let layout = Layout::from_size_align(size, ALIGNMENT).ok()?;
        // SAFETY: libuv's handles are never empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(raw) = NonNull::new(memory.cast::<c_void>()) else {
            handle_alloc_error(layout)
        };
        if init(raw.as_ptr()) != 0 {
            // SAFETY: it was allocated above, and libuv has not taken it.
            unsafe { dealloc(memory, layout) };
            return None;
        }
        let data = Box::new(Data {
            layout,
            callback,
            _hook: hook,
        });
        // SAFETY: the handle is initialized. `on_close` takes the data and the memory.
        unsafe {
            (self.functions.uv_handle_set_data)(raw.as_ptr(), Box::into_raw(data).cast());
            (self.functions.uv_unref)(raw.as_ptr());
        }
        Some(Handle {
            functions: self.functions,
            raw,
        })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // SAFETY: it was added in `Uv::of`, and is removed once, on the thread of its environment. If the environment is
        // ending, this lets it go on.
        unsafe { sys::napi_remove_async_cleanup_hook(self.raw.get()) };
    }
}

unsafe extern "C" fn on_end_of_environment(
    _: sys::napi_async_cleanup_hook_handle,
    hook: *mut c_void,
) {
    // SAFETY: the hook is removed before this is gone.
    let hook = unsafe { &*hook.cast::<Hook>() };
    let on_end = hook.on_end.replace(Box::new(|| ()));
    guarded(on_end);
}

/// Calls what must not end the user's process, whatever defect it has.
fn guarded(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

enum Callback {
    Poll(Box<dyn Fn(Readiness)>),
    Wake(Box<dyn Fn()>),
}

/// What belongs to a handle until it is closed.
struct Data {
    layout: Layout,
    callback: Callback,
    _hook: Rc<Hook>,
}

/// The data of a handle that is not closed yet.
fn data(raw: RawHandle) -> *mut Data {
    match functions() {
        // SAFETY: libuv calls nobody with anything else than the handle.
        Some(functions) => unsafe { (functions.uv_handle_get_data)(raw).cast() },
        None => unreachable!("there is no handle without them"),
    }
}

/// A handle, which is closed when this is dropped.
struct Handle {
    functions: &'static Functions,
    raw: NonNull<c_void>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody else closes it, and this is not `Send`, so that it runs on the thread of the loop.
        unsafe { (self.functions.uv_close)(self.raw.as_ptr(), on_close) };
    }
}

unsafe extern "C" fn on_close(raw: RawHandle) {
    let data = data(raw);
    // SAFETY: `Uv::handle` has set the data and allocated the memory, and libuv is done with both.
    unsafe {
        let data = Box::from_raw(data);
        dealloc(raw.cast(), data.layout);
    }
}

/// A watched socket.
pub(crate) struct Poll(Handle);

impl Poll {
    /// What to watch for from now on.
    pub(crate) fn watch(&self, interest: Interest) {
        let events = match interest {
            Interest::Read => READABLE,
            Interest::ReadAndWrite => READABLE | WRITABLE,
            Interest::Nothing => return,
        };
        let Handle { functions, raw } = &self.0;
        // SAFETY: the handle is not closed yet. It fails only for handles that are closing.
        unsafe { (functions.uv_poll_start)(raw.as_ptr(), events, on_poll) };
    }
}

unsafe extern "C" fn on_poll(raw: RawHandle, status: c_int, events: c_int) {
    // SAFETY: `Uv::handle` has set the data, which lives until the handle is closed.
    let data = unsafe { &*data(raw) };
    if let Callback::Poll(on_ready) = &data.callback {
        let readiness = match events & READABLE {
            // libuv has stopped watching it. What is wrong with it is found out by reading it.
            _ if status != 0 => Readiness::Broken,
            0 => Readiness::Unknown,
            _ => Readiness::Readable,
        };
        guarded(|| on_ready(readiness));
    }
}

/// What wakes the loop; it does no more once this is dropped.
pub(crate) struct Wake(#[allow(dead_code, reason = "it is dropped")] Handle, Sender);

impl Drop for Wake {
    fn drop(&mut self) {
        // Before the handle is closed.
        lock(&self.1.0).take();
    }
}

/// Wakes the loop from any thread.
#[derive(Clone)]
pub(crate) struct Sender(Arc<Mutex<Option<Sending>>>);

struct Sending {
    send: unsafe extern "C" fn(RawHandle) -> c_int,
    raw: NonNull<c_void>,
}

// SAFETY: `uv_async_send` may be called from any thread, and nothing else is done with the handle there.
unsafe impl Send for Sending {}

impl Sender {
    pub(crate) fn send(&self) {
        // Under the lock: nobody closes the handle meanwhile.
        let sending = lock(&self.0);
        if let Some(Sending { send, raw }) = &*sending {
            // SAFETY: `Wake` takes it from here before the handle is closed.
            unsafe { send(raw.as_ptr()) };
        }
    }
}

unsafe extern "C" fn on_async(raw: RawHandle) {
    // SAFETY: as in `on_poll`.
    let data = unsafe { &*data(raw) };
    if let Callback::Wake(on_wake) = &data.callback {
        guarded(on_wake);
    }
}
