//! Recognises row level security that keeps locks from the role.
//!
//! What it hides looks as if it were not there: a held lock seems free. What it forbids has the SQLSTATE of a missing right.

use super::error::Failure;
use super::reply;
use super::statement::{Param, Statement, Transport};
use super::tables::{Tables, quoted};
use crate::text::error::{Error, ErrorKind};

/// The expression that gives the names of the tables that are kept from the role. `$1` and `$2` are those of the two
/// tables, quoted.
pub(super) const HIDDEN: &str = include_str!("row_security.sql");

/// Asks whether locks are kept from the role.
#[derive(Debug)]
pub(super) struct RowSecurity {
    statement: Statement,
    tables: [String; 2],
}

impl RowSecurity {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            statement: Statement::new(&format!("SELECT {HIDDEN} AS hidden"), tables, &["hidden"]),
            tables: [tables.locks(), tables.fences()].map(str::to_owned),
        }
    }

    /// # Errors
    /// `AuthFailed` if the role does not see all rows, or may not write them.
    pub(super) async fn check(&self, transport: &dyn Transport) -> Result<(), Error> {
        let names = self.tables.each_ref().map(|name| quoted(name));
        let params = names.iter().map(|name| Param::Text(name)).collect();
        let row = transport.run(&self.statement.bind(params)).await?;
        let hidden: Option<&str> = reply::optional(row.as_ref(), 0)?;
        let Some(hidden) = hidden else {
            return Ok(());
        };
        // Only names that we know ourselves are shown.
        let is_hidden = |name: &&str| hidden.split(", ").any(|other| other == *name);
        let tables: Vec<_> = self.tables.iter().map(String::as_str).collect();
        let tables: Vec<_> = tables.into_iter().filter(is_hidden).collect();
        Err(Error::new(
            ErrorKind::AuthFailed,
            format!(
                "row level security keeps rows of {} from this role: give it a policy for all rows (docs/postgres.md, \
                 \"Row level security\")",
                tables.join(" and ")
            ),
        ))
    }

    /// What a missing right is due to.
    pub(super) async fn explain(&self, transport: &dyn Transport, failure: Failure) -> Failure {
        match self.check(transport).await {
            Err(error) if error.kind() == ErrorKind::AuthFailed => {
                Failure::other(error.with_source(Error::from(failure)))
            }
            _ => failure,
        }
    }
}
