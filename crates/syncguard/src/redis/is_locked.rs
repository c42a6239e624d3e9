//! Whether somebody holds a key.

use super::plan::{Names, Plan, script, tolerance};
use super::reply::{Reply, malformed};
use crate::error::Error;
use crate::key::Key;

script!(SCRIPT, "is_locked.lua");

/// What to send. With `cleanup`, a lock that expired more than two seconds ago is removed.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key, cleanup: bool) -> Result<Plan, Error> {
    let lock_key = names.lock_key(key)?;
    let cleanup = if cleanup { "true" } else { "false" };
    let mut args = vec![names.key_prefix(), tolerance(), cleanup.into()];
    args.extend(names.bare(&lock_key));
    Ok(Plan {
        script: &SCRIPT,
        keys: vec![names.sent(lock_key)],
        args,
    })
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
        assert_eq!(plain.keys, ["s:k"]);
        assert_eq!(plain.args, ["s", "1000", "false"]);
        assert_eq!(plan(&names, &key, true).unwrap().args[2], "true");
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
