//! Owner labels in a column that older writers do not know.

use crate::backend::Owner;
use crate::error::Error;
use crate::lock_id::LockId;

/// The label as it is stored: after its owner's lock id.
///
/// A writer that does not know the column leaves it as it is when it takes over a row. The lock id
/// tells such a left-over from the label of the lock.
pub(super) fn stored(lock_id: &LockId, owner: &Owner) -> String {
    format!("{}:{}", lock_id.as_str(), owner.as_str())
}

/// The label in what is stored, if it is that of `lock_id`.
pub(super) fn shown(lock_id: &LockId, stored: Option<&str>) -> Result<Option<Owner>, Error> {
    stored
        .and_then(|text| text.strip_prefix(lock_id.as_str())?.strip_prefix(':'))
        .map(Owner::new)
        .transpose()
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
}
