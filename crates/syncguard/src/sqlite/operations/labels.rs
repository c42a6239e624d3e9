//! The columns of labels.

use rusqlite::Row;

use crate::values::labels::Labels;

/// Writes the columns of labels into a statement: their names for `{labels}`, the parameters after the six others for
/// `{label_values}`, and for `{label_updates}` that a lock that is replaced loses its own.
pub(super) fn write_into(sql: &str) -> String {
    let list = |each: &dyn Fn(usize, &str) -> String| {
        let names = Labels::NAMES.iter().enumerate();
        let texts: Vec<_> = names.map(|(at, name)| each(at, name)).collect();
        texts.join(", ")
    };
    sql.replace("{labels}", &Labels::NAMES.join(", "))
        .replace("{label_values}", &list(&|at, _| format!("?{}", at + 7)))
        .replace(
            "{label_updates}",
            &list(&|_, name| format!("{name} = excluded.{name}")),
        )
}

/// The labels in a row that has their columns.
pub(super) fn read(row: &Row<'_>) -> Labels {
    Labels::read(|name| row.get::<_, Option<String>>(name).ok().flatten())
}
