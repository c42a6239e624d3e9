//! Where the lock of a lock id is: its index entry leads there, and in a cluster, and on some other servers, both are to be declared.

use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_text, malformed};
use crate::text::error::Error;
use crate::values::lock_id::LockId;

script!(SCRIPT, "locate.lua", is_text);

/// What to send.
///
/// # Errors
/// `InvalidArgument` when the prefix leaves no room.
pub fn plan(names: &Names, lock_id: &LockId) -> Result<Plan, Error> {
    let index_key = names.index_key(lock_id)?;
    Ok(Plan::new(&SCRIPT)
        .key(names, &index_key)
        .bare(names, &index_key))
}

/// The lock's name without the client's prefix, if there is such a lock.
///
/// # Errors
/// `Internal` for a reply that makes no sense, and for an entry that leads to another slot.
pub fn outcome(names: &Names, lock_id: &LockId, reply: Reply) -> Result<Option<String>, Error> {
    let lock_key = match reply {
        Reply::Nil => return Ok(None),
        Reply::Bulk(bytes) => String::from_utf8(bytes).ok(),
        Reply::Int(_) | Reply::Array(_) | Reply::Error(_) => None,
    };
    let lock_key = lock_key.filter(|lock_key| names.fits(lock_key, lock_id));
    lock_key.map(Some).ok_or_else(|| malformed("locate"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;

    const ID: &str = "f4-_AAAAAAAAAAAAAAAAAA";

    #[test]
    fn keys_and_arguments_stand_in_the_agreed_order() {
        let id = LockId::parse(ID).unwrap();
        let index = format!("{{s:7f}}:id:{ID}");
        for (prefix, key, bare) in [
            (ClientPrefix::None, index.clone(), None),
            (ClientPrefix::Theirs, index.clone(), Some(&*index)),
            (
                ClientPrefix::Ours("c:".into()),
                format!("c:{index}"),
                Some(&*index),
            ),
        ] {
            let plan = plan(&Names::in_cluster("s", prefix).unwrap(), &id).unwrap();
            assert!(plan.keys().eq([key]));
            assert!(plan.args().eq(bare));
        }
    }

    #[test]
    fn only_a_name_of_the_same_shard_is_one() {
        let names = Names::in_cluster("s", ClientPrefix::None).unwrap();
        let id = LockId::parse(ID).unwrap();
        let read = |text: &str| outcome(&names, &id, Reply::Bulk(text.as_bytes().to_vec()));
        assert_eq!(read("{s:7f}:k").unwrap().unwrap(), "{s:7f}:k");
        assert_eq!(outcome(&names, &id, Reply::Nil).unwrap(), None);
        for bad in ["", "s:k", "{s:80}:k"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(outcome(&names, &id, Reply::Int(1)).is_err());
    }
}
