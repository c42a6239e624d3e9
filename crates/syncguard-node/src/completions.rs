//! The operations of one environment, as JavaScript sees them.

use std::rc::Rc;

use napi::Env;
use napi::bindgen_prelude::{Float64ArraySlice, FnArgs, Function};
use napi_derive::napi;

use crate::bridge::{Rejection, parse};
use crate::completion::{WIDTH, write};
use crate::environment::Environment;
use crate::listener::Listener;
use crate::mailbox::Mailbox;

/// The operations of one environment, as JavaScript sees them.
#[napi]
pub struct Completions {
    pub(crate) environment: Rc<Environment>,
}

#[napi]
impl Completions {
    /// `on_ready` is called when finished operations wait to be drained.
    #[napi(constructor)]
    pub fn new(env: &Env, on_ready: Function<'_, (), ()>) -> napi::Result<Self> {
        let listener = Rc::new(Listener::new(&on_ready)?);
        let called = Rc::clone(&listener);
        let ready = env.create_function_from_closure::<(), (), _>("ready", move |call| {
            called.call(call.env);
            Ok(())
        })?;
        // Weak: waiting for nothing must not keep the process alive. `begin` and `drain` hold it
        // while operations are in flight.
        let wake = ready
            .build_threadsafe_function::<()>()
            .weak::<true>()
            .build()?;
        Ok(Self {
            environment: Rc::new(Environment::new(Mailbox::new(wake), listener)),
        })
    }

    /// A function that writes finished operations into an array, the count first, and returns their texts, one
    /// after the other. What does not fit stays for the next call.
    #[napi]
    pub fn drain<'env>(
        &self,
        env: &'env Env,
    ) -> napi::Result<Function<'env, FnArgs<(Float64ArraySlice<'env>,)>, String>> {
        let environment = Rc::clone(&self.environment);
        env.create_function_from_closure("drain", move |call| {
            // Given each time: the array is of a realm that nothing here must keep alive.
            let mut numbers: Float64ArraySlice<'_> = call.get(0)?;
            // SAFETY: JavaScript waits for this call to return, and nothing else has the array's memory
            // while it does: the array is `native/operations.ts`'s own and no other thread sees it.
            let numbers = unsafe { numbers.as_mut() };
            let room = numbers.len().saturating_sub(1) / WIDTH;
            Ok(environment.take(call.env, room, |batch| write(batch, numbers)))
        })
    }

    /// Cancels an operation if it has not finished.
    #[napi]
    pub fn cancel(&self, operation: u32) {
        self.environment.cancels.cancel(operation);
    }

    /// Brings a client's answer, in JSON, to the operation that asked for it.
    #[napi]
    pub fn answer(&self, question: u32, json: String) {
        self.environment.questions.answer(question, parse(&json));
    }

    /// Brings what a client's promise was rejected with to the operation that asked.
    #[napi]
    pub fn reject(&self, question: u32, name: String, code: Option<String>, message: String) {
        let rejection = Rejection {
            name,
            code,
            message,
        };
        self.environment.questions.answer(question, Err(rejection));
    }

    /// Sends no more heartbeats for a lock: it ends by itself, and nobody is told of it.
    #[napi]
    pub fn forget_holder(&self, number: u32) {
        self.environment.forgotten.add(number);
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.environment.end();
    }
}
