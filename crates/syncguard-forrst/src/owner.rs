//! Owner tokens: who may release a lock from another process.
//!
//! A token is stored as the lock's label. A lock that is taken without an owner has the label `host:pid`, which anybody can
//! guess, so a label of that form is no token. A token that has that form is stored with a colon behind it.

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

/// What ends the label of a token that would be taken for `host:pid` without it.
const END: char = ':';

/// The label that is stored for a token.
///
/// # Errors
/// `InvalidArgument` when it is too long.
pub fn label_of(token: &Owner) -> Result<Owner, Error> {
    let token = token.as_str();
    if Owner::names_process(token.trim_end_matches(END)) {
        return Owner::new(format!("{token}{END}"));
    }
    Owner::new(token)
}

/// The token for which that label is stored; `None` if the label may be that of a lock without an owner.
pub(super) fn token_of(label: &str) -> Option<&str> {
    if Owner::names_process(label.trim_end_matches(END)) {
        return label.strip_suffix(END);
    }
    Some(label)
}

/// Whether `claimed` is the token stored with a lock, whose label is `stored`. The comparison takes the same time wherever the two differ, so
/// that a token cannot be guessed piece by piece.
pub(super) fn owns(stored: Option<&str>, claimed: &str) -> bool {
    let token = stored.and_then(token_of);
    token.is_some_and(|token| token.as_bytes().ct_eq(claimed.as_bytes()).into())
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

    #[test]
    fn the_label_of_a_process_is_nobodys_token() {
        for claimed in ["web-3:4711", "web-3:4711:", "web-3", ""] {
            assert!(!owns(Some("web-3:4711"), claimed));
        }
    }

    #[test]
    fn each_token_comes_back_from_its_label() {
        for token in [
            "x",
            ":",
            "x:",
            "worker:5",
            "worker:5:",
            "worker:5::",
            "a\0b:1",
        ] {
            let label = label_of(&Owner::new(token).unwrap()).unwrap();
            assert!(!Owner::names_process(label.as_str()), "{token}");
            assert_eq!(token_of(label.as_str()), Some(token));
            assert!(owns(Some(label.as_str()), token));
        }
        let longest = "x".repeat(253) + ":1";
        assert!(label_of(&Owner::new(longest).unwrap()).is_ok());
    }
}
