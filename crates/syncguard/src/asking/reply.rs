//! The reply of a script, in one form for all transports.

use std::fmt;

/// The reply of a script. Each transport converts its own replies into this. A number may also come as text.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing: nil, null, or Lua's `false`.
    Nil,
    /// A whole number.
    Int(i64),
    /// Text or bytes, or a status.
    Bulk(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
    /// The words of an error inside an array. An error that is the whole answer is no reply: the script has failed then.
    Error(String),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("Nil"),
            Self::Int(number) => write!(f, "Int({number})"),
            Self::Bulk(bytes) => write!(f, "Bulk({} bytes)", bytes.len()),
            Self::Array(items) => f.debug_tuple("Array").field(items).finish(),
            Self::Error(words) => write!(f, "Error({} bytes)", words.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_text() {
        let words = Reply::Error("secret".to_owned());
        let reply = Reply::Array(vec![Reply::Bulk(b"secret".to_vec()), words]);
        assert!(!format!("{reply:?}").contains("secret"));
    }
}
