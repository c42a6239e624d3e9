//! The server's replies, in one form for all transports.

pub use crate::asking::reply::Reply;
use crate::text::error::{Error, ErrorKind};
use crate::values::lock_id::LockId;

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

/// The lock id of a call, of several the first. Replies that give something to a lock id end with it, to show to which call they
/// belong.
#[derive(Clone)]
pub(super) struct Tag(LockId);

impl Tag {
    pub(super) fn of(lock_id: &LockId) -> Self {
        Self(lock_id.clone())
    }

    /// Whether a reply may belong to the call of this tag. One without any comes from a mock of a client, or from a script of
    /// which replies have none.
    pub(super) fn may_be_of(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Array(items) => {
                tag_of(items).is_none_or(|tag| tag == self.0.as_str().as_bytes())
            }
            _ => true,
        }
    }
}

fn tag_of(items: &[Reply]) -> Option<&[u8]> {
    // A number that is told as text is shorter, and JSON begins with a brace.
    match items.last()? {
        Reply::Bulk(text) if text.len() == LockId::LENGTH && !text.starts_with(b"{") => Some(text),
        _ => None,
    }
}

/// What a reply says besides its tag.
pub(super) fn untagged(items: &[Reply]) -> &[Reply] {
    match items.split_last() {
        Some((_, others)) if tag_of(items).is_some() => others,
        _ => items,
    }
}

/// The error for a reply that belongs to another call: what the server has done with this one is not known.
pub(super) fn misplaced() -> Error {
    let message = "redis gave a reply that belongs to another call: something between it and this process mixes them up";
    Error::new(ErrorKind::Internal, message).with_unknown_outcome()
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

    #[test]
    fn a_tag_tells_to_which_call_a_reply_belongs() {
        let [own, another] = ["AAAAAAAAAAAAAAbcdefghi", "AAAAAAAAAAAAAAbcdefghj"]
            .map(|id| Tag::of(&LockId::parse(id).unwrap()));
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let tagged = [Reply::Int(1), bulk("AAAAAAAAAAAAAAbcdefghi")];
        assert_eq!(untagged(&tagged), [Reply::Int(1)]);
        let tagged = Reply::Array(tagged.to_vec());
        assert!(own.may_be_of(&tagged) && !another.may_be_of(&tagged));
        // Those of mocks have none.
        for items in [vec![], vec![Reply::Int(1), bulk("1700000000000")]] {
            assert_eq!(untagged(&items), items);
            assert!(own.may_be_of(&Reply::Array(items)));
        }
        assert!(own.may_be_of(&Reply::Int(1)) && own.may_be_of(&bulk("AAAAAAAAAAAAAAbcdefghj")));
    }
}
