//! Whether somebody holds a key.

use super::plan::{Names, Plan, script};
use super::reply::{Reply, malformed};
use crate::error::Error;
use crate::key::Key;
use crate::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "is_locked.lua");

/// What to send. With `cleanup`, a lock that expired more than two seconds ago is removed.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key, cleanup: bool) -> Result<Plan, Error> {
    let lock_key = names.lock_key(key)?;
    Ok(Plan::new(&SCRIPT)
        .key(names, &lock_key)
        .arg(names.key_prefix())
        .number(TIME_TOLERANCE_MS)
        .arg(if cleanup { "true" } else { "false" })
        .bare(names, &lock_key))
}

/// What the reply means.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: &Reply) -> Result<bool, Error> {
    match reply.integer() {
        Some(1) => Ok(true),
        Some(0) => Ok(false),
        _ => Err(malformed("isLocked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::redis::plan::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let key = Key::new("k").unwrap();
        let plain = plan(&names, &key, false).unwrap();
        assert!(plain.keys().eq(["s:k"]));
        assert!(plain.args().eq(["s", "1000", "false"]));
        let cleaning = plan(&names, &key, true).unwrap();
        assert_eq!(cleaning.args().nth(2), Some("true"));
    }

    #[test]
    fn replies_have_one_meaning_each() {
        assert!(outcome(&Reply::Int(1)).unwrap());
        assert!(!outcome(&Reply::Int(0)).unwrap());
        for reply in [Reply::Nil, Reply::Int(2), Reply::Int(-1)] {
            assert_eq!(outcome(&reply).unwrap_err().kind(), ErrorKind::Internal);
        }
    }
}
