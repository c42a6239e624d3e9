//! Tells how the server and the tables are set up.

use crate::asking::inspection::{Fact, Facts};
use crate::postgres::row_security::{hidden, maybe_hidden};
use crate::postgres::schema::IndexNames;
use crate::postgres::statement::{Param, Row, Statement, Transport};
use crate::postgres::tables::Tables;
use crate::text::error::Error;

const COLUMNS: &[&str] = &[
    "version",
    "versionNumber",
    "serverTimeMs",
    "isStandby",
    "readOnly",
    "fsync",
    "fullPageWrites",
    "synchronousStandbys",
    "synchronousCommit",
    "standbys",
    "confirmingStandbys",
    "maxConnections",
    "connections",
    "ownSession",
    "locksTable",
    "fencesTable",
    "locksColumnsMissing",
    "fencesColumnsMissing",
    "ownerColumn",
    "doneColumns",
    "lockIdIndex",
    "expiresIndex",
    "readersIndex",
    "locksRightsMissing",
    "fencesRightsMissing",
    "rowSecurity",
    "rowPolicies",
    "mayNotify",
];

pub(in crate::postgres) async fn facts(
    transport: &dyn Transport,
    tables: &Tables,
) -> Result<Facts, Error> {
    let sql = include_str!("facts.sql")
        .replace("{row_security}", &hidden())
        .replace("{row_policies}", &maybe_hidden());
    let statement = Statement::new(&sql, tables, COLUMNS);
    let names = IndexNames::new(tables)?.quoted();
    let params = names.iter().map(|name| Param::Text(name)).collect();
    let row = transport.run(&statement.bind(params)).await?;
    Ok(read(&row.unwrap_or_default()))
}

/// Makes a fact of each column that is not NULL.
fn read(row: &Row) -> Facts {
    let mut facts = Facts::default();
    for (name, value) in COLUMNS.iter().zip(row) {
        if let Some(text) = value {
            facts.add(name, fact(text));
        }
    }
    facts
}

fn fact(text: &str) -> Fact {
    match text {
        "true" | "on" => Fact::Flag(true),
        "false" | "off" => Fact::Flag(false),
        _ => text.parse().map_or_else(|_| Fact::from(text), Fact::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_have_their_types_and_what_is_null_is_left_out() {
        let texts = [
            Some("15.8 (Debian)"),
            Some("150008"),
            Some("1700"),
            Some("false"),
            None,
        ];
        let row = texts.map(|text| text.map(str::to_owned)).to_vec();
        let expected = [
            ("version", Fact::from("15.8 (Debian)")),
            ("versionNumber", Fact::Number(150_008)),
            ("serverTimeMs", Fact::Number(1700)),
            ("isStandby", Fact::Flag(false)),
        ];
        assert_eq!(read(&row).facts, expected);
    }

    #[test]
    fn the_statement_gives_each_column_under_its_name() {
        let sql = include_str!("facts.sql");
        let mut at = 0;
        for name in COLUMNS {
            let found = [format!(" AS {name},"), format!(" AS \"{name}\"")]
                .iter()
                .find_map(|text| sql[at..].find(text));
            at += found.unwrap_or_else(|| panic!("{name} is missing, or out of order"));
        }
    }
}
