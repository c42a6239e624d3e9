//! Inputs from bytes, and what is checked of every result.

use std::cell::OnceCell;
use std::error::Error as _;
use std::fmt::Debug;
use std::time::Duration;

use syncguard::{AcquireRequest, Backend, Error, Extension, Key, LockId, Lookup, Operation, Ttl};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Stands for what is private: a key, a lock id, an owner, a password. A lock id, and so long and
/// without sense that a text which contains it has it from the input.
pub(crate) const SECRET: &str = "Zq7xK9wPvM2rT4bN8cJdLg";

/// Where this byte is, an input has the secret: so fuzzers can put it anywhere.
const SECRET_BYTE: u8 = 1;

/// How long an operation may take that has a time limit of [`LIMIT`], on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time limit of operations.
pub(crate) const LIMIT: Duration = Duration::from_millis(40);

/// The bytes with the secret in its places.
pub(crate) fn with_secrets(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len());
    for byte in data {
        match *byte {
            SECRET_BYTE => bytes.extend_from_slice(SECRET.as_bytes()),
            other => bytes.push(other),
        }
    }
    bytes
}

/// The same as text, if it is one.
pub(crate) fn text_with_secrets(data: &[u8]) -> Option<String> {
    String::from_utf8(with_secrets(data)).ok()
}

/// Fails if the text shows the secret.
pub(crate) fn assert_discreet(text: &str) {
    assert!(
        !text.contains(SECRET),
        "a text shows what is private: {text}"
    );
}

/// Fails if the error shows the secret, in whatever way it is printed.
pub(crate) fn assert_discreet_error(error: &Error) {
    assert_discreet(error.message());
    assert_discreet(&format!("{error} {error:?}"));
    let mut source = error.source();
    while let Some(cause) = source {
        assert_discreet(&format!("{cause} {cause:?}"));
        source = cause.source();
    }
}

/// Checks a result, and gives what it holds.
pub(crate) fn checked<T>(result: Result<T, Error>) -> Option<T> {
    result.map_err(|error| assert_discreet_error(&error)).ok()
}

/// Checks a result, and that what it holds does not show the secret to a log either.
pub(crate) fn checked_debug<T: Debug>(result: Result<T, Error>) -> Option<T> {
    let value = checked(result)?;
    assert_discreet(&format!("{value:?}"));
    Some(value)
}

/// Runs it, and fails if it does not come to an end.
pub(crate) fn within_limit<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        let runtime = runtime.get_or_init(|| {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime")
        });
        runtime.block_on(async { timeout(PATIENCE, future).await.expect("a hang") })
    })
}

/// The key that operations are called with.
pub(crate) fn key() -> Key {
    Key::new(&format!("job:{SECRET}")).unwrap()
}

/// The lock id that operations are called with: private like a key.
pub(crate) fn lock_id() -> LockId {
    LockId::parse(SECRET).unwrap()
}

/// A request of that key by that lock id.
pub(crate) fn request() -> AcquireRequest {
    let mut request = AcquireRequest::new(key(), Ttl::DEFAULT).unwrap();
    request.claims[0].lock_id = lock_id();
    request
}

/// Calls every operation of the backend, one after the other.
pub(crate) async fn call_all(backend: &dyn Backend) {
    let (key, lock_id) = (key(), lock_id());
    let mut asked = request();
    backend.prepare(&mut asked);
    for operation in [
        Operation::Acquire(asked),
        Operation::Release([lock_id.clone()].into()),
        Operation::Extend(Extension::new([lock_id.clone()].into(), Ttl::DEFAULT)),
        Operation::IsLocked(key.clone()),
        Operation::Lookup(Lookup::Key(key.clone())),
        Operation::Lookup(Lookup::LockId(lock_id)),
        Operation::ForceRelease(key),
    ] {
        checked(backend.run(&operation).await);
    }
    assert_discreet(&format!("{backend:?}"));
}
