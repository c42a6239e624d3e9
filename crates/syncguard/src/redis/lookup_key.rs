//! The live lock on a key.

use super::plan::{Names, Plan, script, tolerance};
use crate::error::Error;
use crate::key::Key;

script!(SCRIPT, "lookup_key.lua");

/// What to send. [`record::outcome`](super::record::outcome) reads the reply.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key) -> Result<Plan, Error> {
    Ok(Plan {
        script: &SCRIPT,
        keys: vec![names.sent(names.lock_key(key)?)],
        args: vec![tolerance()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::plan::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::Theirs).unwrap();
        let plan = plan(&names, &Key::new("k").unwrap()).unwrap();
        assert_eq!(plan.keys, ["s:k"]);
        assert_eq!(plan.args, ["1000"]);
    }
}
