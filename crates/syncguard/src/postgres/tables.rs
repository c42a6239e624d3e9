//! The names of the two tables.

use crate::text::error::Error;

/// PostgreSQL truncates longer names.
pub(super) const MAX_NAME_BYTES: usize = 63;

/// The table of locks and the table of fence counters. Fence counters are never deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    locks: String,
    fences: String,
}

impl Tables {
    /// Takes the names of the two tables.
    ///
    /// # Errors
    /// `InvalidArgument` unless each is a plain identifier (`[A-Za-z_][A-Za-z0-9_]*`, at most 63
    /// bytes), and both differ.
    pub fn new(locks: &str, fences: &str) -> Result<Self, Error> {
        check("tableName", locks)?;
        check("fenceTableName", fences)?;
        if locks == fences {
            return Err(Error::invalid(
                "Fence counter table must differ from lock table: cleaning up locks must never delete fence counters",
            ));
        }
        Ok(Self {
            locks: locks.to_owned(),
            fences: fences.to_owned(),
        })
    }

    /// The table of locks.
    pub fn locks(&self) -> &str {
        &self.locks
    }

    /// The table of fence counters.
    pub fn fences(&self) -> &str {
        &self.fences
    }

    /// `sql` with `{locks}` and `{fences}` replaced by the quoted names.
    pub(super) fn write_into(&self, sql: &str) -> String {
        sql.replace("{locks}", &quoted(&self.locks))
            .replace("{fences}", &quoted(&self.fences))
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            locks: "syncguard_locks".to_owned(),
            fences: "syncguard_fence_counters".to_owned(),
        }
    }
}

/// A plain identifier as it stands in SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn check(field: &str, name: &str) -> Result<(), Error> {
    let mut bytes = name.bytes();
    let starts_well = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !(starts_well && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')) {
        return Err(Error::invalid(format!(
            "{field} must be an SQL identifier: a letter or underscore, then letters, digits or underscores"
        )));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::invalid(format!(
            "{field} must not exceed {MAX_NAME_BYTES} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    #[test]
    fn only_two_different_plain_names_are_taken() {
        assert!(Tables::new("_a1", "B").is_ok());
        assert!(Tables::new(&"a".repeat(63), "b").is_ok());
        for (locks, fences, message) in [
            ("", "b", "tableName must be"),
            ("a", "", "fenceTableName must be"),
            ("1a", "b", "tableName must be"),
            ("a; DROP TABLE b", "b", "tableName must be"),
            ("a", "b\"", "fenceTableName must be"),
            ("public.a", "b", "tableName must be"),
            ("é", "b", "tableName must be"),
            ("a", "a", "Fence counter table must differ from lock table"),
        ] {
            let error = Tables::new(locks, fences).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with(message), "{error}");
        }
        assert!(Tables::new(&"a".repeat(64), "b").is_err());
    }
}
