//! Frees a key whoever holds it.

use super::plan::{Names, Plan, script};
use super::reply::{Reply, malformed};
use crate::error::Error;
use crate::key::Key;
use crate::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "force_release.lua");

/// What to send.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key) -> Result<Plan, Error> {
    let lock_key = names.lock_key(key)?;
    Ok(Plan::new(&SCRIPT)
        .key(names, &lock_key)
        .arg(names.key_prefix())
        .number(TIME_TOLERANCE_MS)
        .bare(names, &lock_key))
}

/// Whether somebody held it.
///
/// # Errors
/// `Internal` for a reply that makes no sense.
pub fn outcome(reply: &Reply) -> Result<bool, Error> {
    match reply.integer() {
        Some(1) => Ok(true),
        Some(0) => Ok(false),
        _ => Err(malformed("forceRelease")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::redis::plan::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_order() {
        let names = Names::new("s:", ClientPrefix::Ours("x".into())).unwrap();
        let plan = plan(&names, &Key::new("k").unwrap()).unwrap();
        assert!(plan.keys().eq(["xs:k"]));
        assert!(plan.args().eq(["s:", "1000", "s:k"]));
    }

    #[test]
    fn replies_have_one_meaning_each() {
        assert!(outcome(&Reply::Int(1)).unwrap());
        assert!(!outcome(&Reply::Int(0)).unwrap());
        assert_eq!(
            outcome(&Reply::Nil).unwrap_err().kind(),
            ErrorKind::Internal
        );
    }
}
