//! The live lock that a lock id owns.

use super::plan::{Names, Plan, script, tolerance};
use crate::error::Error;
use crate::lock_id::LockId;

script!(SCRIPT, "lookup_lock_id.lua");

/// What to send. [`record::outcome`](super::record::outcome) reads the reply.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room.
pub fn plan(names: &Names, lock_id: &LockId) -> Result<Plan, Error> {
    let index_key = names.index_key(lock_id)?;
    let mut args = vec![lock_id.as_str().to_owned().into(), tolerance()];
    args.extend(names.bare(&index_key));
    Ok(Plan {
        script: &SCRIPT,
        keys: vec![names.sent(index_key)],
        args,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::plan::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let plan = plan(&names, &id).unwrap();
        assert_eq!(plan.keys, ["s:id:AAAAAAAAAAAAAAAAAAAAAA"]);
        assert_eq!(plan.args, ["AAAAAAAAAAAAAAAAAAAAAA", "1000"]);
    }
}
