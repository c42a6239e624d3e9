//! Recognises row level security that keeps locks from the role.
//!
//! What it hides looks as if it were not there: a held lock seems free. What it forbids has the SQLSTATE of a missing right.

use super::error::Failure;
use super::reply;
use super::statement::{Param, Statement, Transport};
use super::tables::{Tables, quoted};
use crate::text::error::{Error, ErrorKind};

/// Whether all rows are kept from the role: no policy for it shows any.
const IS_HIDDEN: &str = "NOT bool_or(polpermissive AND says <> 'false') OR bool_or(NOT polpermissive AND says = 'false')";

/// Whether rows may be kept from it: no policy for it says true, or one restricts it. Most such policies show all locks, as one that
/// names the role does.
const MAY_BE_HIDDEN: &str =
    "NOT bool_or(polpermissive AND says = 'true') OR bool_or(NOT polpermissive)";

/// The expression that gives the names of the tables that are kept from the role. `$1` and `$2` are those of the two
/// tables, quoted.
pub(super) fn hidden() -> String {
    tables_where(IS_HIDDEN)
}

/// The same, of those that may be kept from it.
pub(super) fn maybe_hidden() -> String {
    tables_where(MAY_BE_HIDDEN)
}

fn tables_where(found: &str) -> String {
    include_str!("row_security.sql").replace("{found}", found)
}

/// Asks whether locks are kept from the role.
#[derive(Debug)]
pub(super) struct RowSecurity {
    statement: Statement,
    tables: [String; 2],
}

impl RowSecurity {
    pub(super) fn new(tables: &Tables) -> Self {
        let sql = format!("SELECT {} AS hidden, {} AS maybe", hidden(), maybe_hidden());
        Self {
            statement: Statement::new(&sql, tables, &["hidden", "maybe"]),
            tables: [tables.locks(), tables.fences()].map(str::to_owned),
        }
    }

    /// # Errors
    /// `AuthFailed` if the role is known to see no rows, or to write none.
    pub(super) async fn check(&self, transport: &dyn Transport) -> Result<(), Error> {
        let [hidden, _] = self.ask(transport).await?;
        hidden.map_or(Ok(()), |tables| Err(refusal("keeps", &tables)))
    }

    /// What a missing right is due to.
    pub(super) async fn explain(&self, transport: &dyn Transport, failure: Failure) -> Failure {
        let refused = match self.ask(transport).await {
            Ok([Some(tables), _]) => refusal("keeps", &tables),
            Ok([None, Some(tables)]) => refusal("may keep", &tables),
            _ => return failure,
        };
        Failure::other(refused.with_source(Error::from(failure)))
    }

    /// The tables that are kept from the role, and those that may be.
    async fn ask(&self, transport: &dyn Transport) -> Result<[Option<String>; 2], Error> {
        let names = self.tables.each_ref().map(|name| quoted(name));
        let params = names.iter().map(|name| Param::Text(name)).collect();
        let row = transport.run(&self.statement.bind(params)).await?;
        Ok([
            self.known(reply::optional(row.as_ref(), 0)?),
            self.known(reply::optional(row.as_ref(), 1)?),
        ])
    }

    /// Only names that we know ourselves are shown.
    fn known(&self, names: Option<&str>) -> Option<String> {
        let names = names?;
        let is_named = |name: &&str| names.split(", ").any(|other| other == *name);
        let tables: Vec<_> = self.tables.iter().map(String::as_str).collect();
        let tables: Vec<_> = tables.into_iter().filter(is_named).collect();
        Some(tables.join(" and "))
    }
}

fn refusal(verb: &str, tables: &str) -> Error {
    let text = format!(
        "row level security {verb} rows of {tables} from this role: give it a policy for all rows (docs/postgres.md, \
         \"Row level security\")"
    );
    Error::new(ErrorKind::AuthFailed, text)
}
