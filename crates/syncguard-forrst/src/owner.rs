//! Owner tokens: who may release a lock from another process.

use rand::TryRng as _;
use rand::rngs::SysRng;
use subtle::ConstantTimeEq;
use uuid::Builder;

use syncguard::Owner;
use syncguard::{Error, ErrorKind};

/// A new owner token: a UUID of version 4.
///
/// # Errors
/// `Internal` when the operating system has no random numbers to give.
pub fn generate_owner() -> Result<Owner, Error> {
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| {
        let what = "the operating system gave no random numbers";
        Error::new(ErrorKind::Internal, what).with_source(error)
    })?;
    let uuid = Builder::from_random_bytes(bytes).into_uuid();
    Owner::new(uuid.hyphenated().to_string())
}

/// Whether `claimed` is the owner stored with a lock. The comparison takes the same time wherever the two differ, so
/// that a token cannot be guessed piece by piece.
pub(super) fn owns(stored: Option<&str>, claimed: &str) -> bool {
    stored.is_some_and(|stored| stored.as_bytes().ct_eq(claimed.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn owners_are_uuids_of_version_4() {
        let owners: HashSet<String> = (0..1000)
            .map(|_| generate_owner().unwrap().as_str().to_owned())
            .collect();
        assert_eq!(owners.len(), 1000);
        for owner in owners {
            assert_eq!(owner.len(), 36);
            for (index, character) in owner.char_indices() {
                let fits = match index {
                    8 | 13 | 18 | 23 => character == '-',
                    14 => character == '4',
                    19 => matches!(character, '8' | '9' | 'a' | 'b'),
                    _ => matches!(character, '0'..='9' | 'a'..='f'),
                };
                assert!(fits, "{owner}");
            }
        }
    }

    #[test]
    fn only_the_same_token_owns() {
        assert!(owns(Some("token"), "token"));
        for claimed in ["", "t", "tokem", "tokens", "TOKEN", "token\0"] {
            assert!(!owns(Some("token"), claimed));
        }
        assert!(!owns(None, ""));
        assert!(!owns(None, "token"));
    }
}
