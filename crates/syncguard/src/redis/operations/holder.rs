//! The lock id of the lock on a key, whose index entry is to be declared in a cluster, and on some other servers.

use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_text, malformed};
use crate::text::error::Error;
use crate::values::key::Key;

script!(SCRIPT, "holder.lua", is_text);

/// What to send.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key) -> Result<Plan, Error> {
    Ok(Plan::new(&SCRIPT).key(names, &names.lock_key(key)?))
}

/// The lock id, in whatever form, if there is a lock, live or not.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: Reply) -> Result<Option<String>, Error> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Bulk(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| malformed("holder")),
        Reply::Int(_) | Reply::Array(_) | Reply::Error(_) => Err(malformed("holder")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_one_meaning_each() {
        assert_eq!(outcome(Reply::Nil).unwrap(), None);
        assert_eq!(outcome(Reply::Bulk(b"x".to_vec())).unwrap().unwrap(), "x");
        assert!(outcome(Reply::Bulk(vec![0xff])).is_err());
        assert!(outcome(Reply::Int(0)).is_err());
    }
}
