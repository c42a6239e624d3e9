//! The live lock on a key.

use super::record;
use crate::error::Error;
use crate::key::Key;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::time::TIME_TOLERANCE_MS;

script!(
    SCRIPT,
    ["get.lua", "read.lua", "lookup_key.lua"],
    record::fits
);

/// What to send. [`record::outcome`] reads the reply.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room for the key.
pub fn plan(names: &Names, key: &Key) -> Result<Plan, Error> {
    Ok(Plan::new(&SCRIPT)
        .key(names, &names.lock_key(key)?)
        .number(TIME_TOLERANCE_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::Theirs).unwrap();
        let plan = plan(&names, &Key::new("k").unwrap()).unwrap();
        assert!(plan.keys().eq(["s:k"]));
        assert!(plan.args().eq(["1000"]));
    }
}
