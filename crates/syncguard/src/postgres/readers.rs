//! Tells statements for shared locks from the others, so that who shares nothing pays nothing.

use crate::values::claim::{Claim, ClaimKind};
use crate::values::lock_id::LockId;

/// The first byte of the lock id of each reader. A release or an extension sees by it that it must change the group, too.
const READER: u8 = 0xff;

/// The first byte of the lock id of each group.
const GROUP: u8 = 0;

/// Marks the lock ids of readers, and no others, before anything is sent, and lets those of one key begin alike. An id that another library
/// made may begin as one of theirs, and does no harm.
pub(super) fn mark_readers(claims: &mut [Claim]) {
    for claim in claims {
        let lock_id = &claim.lock_id;
        claim.lock_id = match (claim.kind, lock_id.first_byte()) {
            (ClaimKind::Shared, _) => lock_id.clone().beginning_as(&first_of(claim.key.as_str())),
            (_, byte @ (READER | GROUP)) => lock_id.clone().with_first_byte(byte ^ 1 << 7),
            _ => continue,
        };
    }
}

/// A lock id that begins as those of the readers of this key do.
pub(super) fn first_of(key: &str) -> LockId {
    LockId::group(key).with_first_byte(READER)
}

/// How this reader's lock id begins, and hardly ever that of a reader of another key; `None` if it is no reader's.
pub(super) fn beginning(lock_id: &LockId) -> Option<&str> {
    is_marked(lock_id).then(|| lock_id.beginning())
}

/// Whether this lock id is marked as that of a reader.
pub(super) fn is_marked(lock_id: &LockId) -> bool {
    lock_id.first_byte() == READER
}

/// Whether this may be the lock id of a reader, or of a group.
pub(super) fn may_be_shared(lock_id: &LockId) -> bool {
    [READER, GROUP].contains(&lock_id.first_byte())
}

/// The statement in `sql` for shared locks, or for those of which none is. The lines that begin with `{shared}` are for the first alone, and
/// those that begin with `{alone}` for the second.
pub(super) fn variant(sql: &str, is_shared: bool) -> String {
    let (kept, left_out) = match is_shared {
        true => ("{shared}", "{alone}"),
        false => ("{alone}", "{shared}"),
    };
    let lines = sql.split_inclusive('\n');
    let lines = lines.filter(|line| !line.starts_with(left_out));
    lines
        .map(|line| line.strip_prefix(kept).unwrap_or(line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::Key;

    #[test]
    fn readers_have_ids_that_no_others_have() {
        let (key, like_these) = (|| Key::new("k").unwrap(), first_of("k"));
        for first_byte in 0..=255 {
            let mut claims = [Claim::shared(key()), Claim::new(key())].map(Result::unwrap);
            for claim in &mut claims {
                claim.lock_id = claim.lock_id.clone().with_first_byte(first_byte);
            }
            mark_readers(&mut claims);
            for (claim, is_readers) in claims.iter().zip([true, false]) {
                assert_eq!(is_marked(&claim.lock_id), is_readers);
                assert_eq!(may_be_shared(&claim.lock_id), is_readers);
                let begins = is_readers.then(|| beginning(&like_these)).flatten();
                assert_eq!(beginning(&claim.lock_id), begins);
            }
        }
        assert_ne!(beginning(&like_these), beginning(&first_of("another")));
        let group = LockId::group("k");
        assert!(may_be_shared(&group) && !is_marked(&group));
    }

    #[test]
    fn a_line_is_for_one_kind_or_for_both() {
        let sql = "a\n{shared}b\n{alone}c\nd {shared}\n";
        assert_eq!(variant(sql, true), "a\nb\nd {shared}\n");
        assert_eq!(variant(sql, false), "a\nc\nd {shared}\n");
    }
}
