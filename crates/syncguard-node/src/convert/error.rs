//! Turns core errors into JavaScript errors.

use std::error::Error as _;

use syncguard::{Error, ErrorKind};

/// A core error kind as the `code` of a JavaScript error.
pub struct Code(ErrorKind);

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        self.0.as_str()
    }
}

/// The error that a synchronous function throws.
pub(crate) type ThrownError = napi::Error<Code>;

pub(crate) fn thrown(error: Error) -> ThrownError {
    napi::Error::new(Code(error.kind()), error.message())
}

/// The messages of the causes of `error`, nearest first.
pub(crate) fn causes(error: &Error) -> Vec<String> {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts
}
