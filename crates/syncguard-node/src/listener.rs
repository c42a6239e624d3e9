//! The function of JavaScript that is called when something has finished.

use std::cell::Cell;
use std::ptr;

use napi::bindgen_prelude::Function;
use napi::{Env, JsValue, check_status, sys};

/// Keeps the function alive only while something is under way.
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
