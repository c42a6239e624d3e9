//! The server's replies, in one form for all transports.

use crate::error::{Error, ErrorKind};
pub use crate::reply::Reply;

impl Reply {
    /// The number, if it is one.
    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bulk(bytes) => {
                let text = std::str::from_utf8(bytes).ok()?;
                let digits = text.strip_prefix('-').unwrap_or(text);
                // Only what Redis writes: Rust would also parse "+1".
                let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                plain.then(|| text.parse().ok()).flatten()
            }
            Self::Nil | Self::Array(_) | Self::Error(_) => None,
        }
    }
}

/// The error for a reply that the script of `operation` never gives: whether it has run is not known.
pub(super) fn malformed(operation: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("redis gave a malformed reply to {operation}"),
    )
    .with_unknown_outcome()
}

/// Whether it is that of a script that has done nothing, because other keys than those it was given belong to the lock.
pub(super) fn is_elsewhere(reply: &Reply) -> bool {
    reply.integer() == Some(-4)
}

/// Whether it is the answer to `PING`.
pub(super) fn is_pong(reply: &Reply) -> bool {
    matches!(reply, Reply::Bulk(text) if text == b"PONG")
}

/// Whether it is the answer to a command that has nothing to tell.
pub(super) fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Bulk(text) if text == b"OK")
}

/// Whether it is a number of replicas.
pub(super) fn is_count(reply: &Reply) -> bool {
    reply.integer().is_some_and(|count| count >= 0)
}

/// Whether it is a text or nothing.
pub(super) fn is_text(reply: &Reply) -> bool {
    matches!(reply, Reply::Nil | Reply::Bulk(_))
}

/// Whether it is a list.
pub(super) fn is_list(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_come_as_text() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        assert_eq!(Reply::Int(-2).integer(), Some(-2));
        assert_eq!(bulk("-2").integer(), Some(-2));
        assert_eq!(bulk("000000000000012").integer(), Some(12));
        for bad in ["", "-", "+1", "1.5", "1e3", " 1", "9223372036854775808"] {
            assert_eq!(bulk(bad).integer(), None, "{bad}");
        }
        assert_eq!(Reply::Nil.integer(), None);
        assert_eq!(Reply::Array(vec![Reply::Int(1)]).integer(), None);
    }
}
