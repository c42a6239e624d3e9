//! The live lock that a lock id owns.

use super::record;
use crate::error::Error;
use crate::lock_id::LockId;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::is_elsewhere;
use crate::time::TIME_TOLERANCE_MS;

script!(
    SCRIPT,
    bare = 3,
    ["find.lua", "read.lua", "lookup_lock_id.lua"],
    |reply| { is_elsewhere(reply) || record::fits(reply) }
);

/// What to send. In a cluster, `lock_key` is the name of the lock, else `None`.
/// [`record::outcome`] reads the reply.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room.
pub fn plan(names: &Names, lock_id: &LockId, lock_key: Option<&str>) -> Result<Plan, Error> {
    let index_key = names.index_key(lock_id)?;
    Ok(Plan::new(&SCRIPT)
        .key(names, &index_key)
        .keys_of(names, lock_key)
        .arg(lock_id.as_str())
        .number(TIME_TOLERANCE_MS)
        .bare(names, &index_key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let plan = plan(&names, &id, None).unwrap();
        assert!(plan.keys().eq(["s:id:AAAAAAAAAAAAAAAAAAAAAA"]));
        assert!(plan.args().eq(["AAAAAAAAAAAAAAAAAAAAAA", "1000"]));
    }
}
