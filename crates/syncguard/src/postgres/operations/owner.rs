//! Owner labels, in a column that older writers do not know.

use crate::error::Error;
use crate::lock_id::LockId;
use crate::owner::Owner;

/// The label as it is stored: `lock id:label`.
///
/// A writer that does not know the column leaves its old value in place when it takes over a row. The lock id
/// shows whether a label belongs to the current lock or is such a left-over. PostgreSQL's texts cannot hold
/// U+0000: a label that contains it is escaped, and then has a `%` in place of the `:`.
pub(in crate::postgres) fn stored(lock_id: &LockId, owner: &Owner) -> String {
    format!("{}{}", lock_id.as_str(), after_id(owner))
}

/// What of it stands behind the lock id.
pub(in crate::postgres) fn after_id(owner: &Owner) -> String {
    let label = owner.as_str();
    if label.contains('\0') {
        let escaped = label.replace('%', "%25").replace('\0', "%00");
        return format!("%{escaped}");
    }
    format!(":{label}")
}

/// The label in the stored value, if it belongs to `lock_id`.
pub(super) fn shown(lock_id: &LockId, stored: Option<&str>) -> Result<Option<Owner>, Error> {
    let Some(rest) = stored.and_then(|text| text.strip_prefix(lock_id.as_str())) else {
        return Ok(None);
    };
    if let Some(escaped) = rest.strip_prefix('%') {
        return Owner::new(escaped.replace("%00", "\0").replace("%25", "%")).map(Some);
    }
    rest.strip_prefix(':').map(Owner::new).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_shown_for_its_own_lock_only() {
        let owner = Owner::new("host:1").unwrap();
        let (mine, other) = (LockId::generate().unwrap(), LockId::generate().unwrap());
        let text = stored(&mine, &owner);
        assert_eq!(shown(&mine, Some(&text)).unwrap(), Some(owner));
        assert_eq!(shown(&other, Some(&text)).unwrap(), None);
        assert_eq!(shown(&mine, Some("left over")).unwrap(), None);
        assert_eq!(shown(&mine, None).unwrap(), None);
    }

    #[test]
    fn any_text_can_be_a_label() {
        let lock_id = LockId::generate().unwrap();
        for label in ["\0", "a\0b%00c%25", "%00", ":%", "%2500\0"] {
            let owner = Owner::new(label).unwrap();
            let text = stored(&lock_id, &owner);
            assert!(!text.contains('\0'));
            assert_eq!(shown(&lock_id, Some(&text)).unwrap(), Some(owner));
        }
    }
}
