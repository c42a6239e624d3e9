//! Stores and reads labels. Each has a column of its own, which older writers may not know.

use serde_json::{Map, Value};

use crate::postgres::statement::{Param, Plan, Statement};
use crate::postgres::tables::Tables;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

/// Labels as a statement stores them.
///
/// A writer that does not know a column leaves its old value in place when it takes over a row. Therefore a label
/// is stored as `lock id:label`: the lock id shows whether it belongs to the current lock or is such a left-over.
/// PostgreSQL's texts cannot hold U+0000: a label that contains it is escaped, and then has a `%` in place of the `:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLabels {
    /// Which labels are given, as bits in the order of [`Labels::NAMES`].
    set: usize,
    texts: Vec<String>,
}

impl StoredLabels {
    /// Writes `labels` behind the lock id. Without one, only what follows it is written.
    pub(in crate::postgres) fn of(labels: &Labels, lock_id: Option<&LockId>) -> Self {
        let optional_texts = labels.texts();
        let set = optional_texts
            .iter()
            .rev()
            .fold(0, |set, text| set << 1 | usize::from(text.is_some()));
        let lock_id = lock_id.map_or("", LockId::as_str);
        let texts = optional_texts.into_iter().flatten();
        Self {
            set,
            texts: texts
                .map(|text| lock_id.to_owned() + &after_id(text))
                .collect(),
        }
    }

    /// Adds them by their names to what one of a group asks for.
    pub(super) fn add_to(&self, members: &mut Map<String, Value>) {
        let names = Labels::NAMES.iter().enumerate();
        let given = names.filter(|(at, _)| self.set >> at & 1 == 1);
        for ((_, name), text) in given.zip(&self.texts) {
            members.insert((*name).to_owned(), text.as_str().into());
        }
    }
}

/// `sql` of a group, with the columns of all labels, or with none of them.
pub(super) fn of_group(sql: &str, labelled: bool) -> String {
    let each = |text: &dyn Fn(&str) -> String| -> String {
        let names = Labels::NAMES.iter().filter(|_| labelled);
        names.map(|name| text(name)).collect()
    };
    sql.replace("{label_params}", &each(&|name| format!(", {name} text")))
        .replace("{label_columns}", &each(&|name| format!(", {name}")))
        .replace("{label_values}", &each(&|name| format!(", call.{name}")))
}

fn after_id(label: &str) -> String {
    if label.contains('\0') {
        let escaped = label.replace('%', "%25").replace('\0', "%00");
        return format!("%{escaped}");
    }
    format!(":{label}")
}

/// The labels in a row whose columns `stored` gives, as far as they belong to `lock_id`.
pub(super) fn shown<'a>(lock_id: &LockId, stored: impl Fn(&str) -> Option<&'a str>) -> Labels {
    Labels::read(|name| {
        let rest = stored(name)?.strip_prefix(lock_id.as_str())?;
        match rest.strip_prefix('%') {
            Some(escaped) => Some(escaped.replace("%00", "\0").replace("%25", "%")),
            None => rest.strip_prefix(':').map(str::to_owned),
        }
    })
}

/// A statement that acquires locks, with a variant for each set of labels. A variant names the columns of its own labels
/// alone, because older tables lack some.
#[derive(Debug)]
pub(super) struct Labelled(Vec<Statement>);

impl Labelled {
    /// Makes the variants of `sql`, which has `others` parameters beside the labels. `value` is the SQL for what a column
    /// gets, with `{}` in place of the label's parameter.
    pub(super) fn new(
        [sql, value]: [&str; 2],
        others: usize,
        tables: &Tables,
        columns: &'static [&'static str],
    ) -> Self {
        let sets = 0..1 << Labels::NAMES.len();
        let statement = |set: usize| {
            let names = Labels::NAMES.iter().enumerate();
            let in_set = names.filter(|(at, _)| set >> at & 1 == 1);
            let numbered: Vec<_> = (others + 1..).zip(in_set.map(|(_, name)| *name)).collect();
            let each = |text: &dyn Fn(usize, &str) -> String| -> String {
                numbered
                    .iter()
                    .map(|(param, name)| text(*param, name))
                    .collect()
            };
            let stored = |param: usize| value.replace("{}", &format!("${param}"));
            let sql = sql
                .replace(
                    "{label_params}",
                    &each(&|param, name| format!("   ${param} {name}")),
                )
                .replace("{label_columns}", &each(&|_, name| format!(", {name}")))
                .replace(
                    "{label_values}",
                    &each(&|param, _| format!(", {}", stored(param))),
                )
                .replace(
                    "{label_updates}",
                    &each(&|_, name| format!(", {name} = excluded.{name}")),
                );
            Statement::new(&sql, tables, columns)
        };
        Self(sets.map(statement).collect())
    }

    /// The statement that stores these labels, whose columns the table must have.
    pub(super) fn bind<'a>(
        &'a self,
        mut params: Vec<Param<'a>>,
        labels: Option<&'a StoredLabels>,
    ) -> Plan<'a> {
        let texts = labels.map_or(&[][..], |labels| &labels.texts);
        params.extend(texts.iter().map(|text| Param::Text(text)));
        self.0[labels.map_or(0, |labels| labels.set)].bind(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::readers::variant;
    use crate::values::owner::Owner;

    fn labels(owner: &str) -> Labels {
        Owner::new(owner).unwrap().into()
    }

    /// The labels with that lock id that are stored for `other`.
    fn shown_of(labels: &Labels, lock_id: &LockId, other: &LockId) -> Labels {
        let StoredLabels { texts, .. } = StoredLabels::of(labels, Some(lock_id));
        assert!(texts.iter().all(|text| !text.contains('\0')));
        shown(other, |_| texts.first().map(String::as_str))
    }

    #[test]
    fn a_label_is_shown_for_its_own_lock_only() {
        let (mine, other) = (LockId::generate().unwrap(), LockId::generate().unwrap());
        let host = labels("host:1");
        assert_eq!(shown_of(&host, &mine, &mine), host);
        assert!(shown_of(&host, &mine, &other).is_empty());
        assert!(shown(&mine, |_| Some("left over")).is_empty());
        assert!(shown(&mine, |_| None).is_empty());
    }

    #[test]
    fn any_text_can_be_a_label() {
        let lock_id = LockId::generate().unwrap();
        for label in ["\0", "a\0b%00c%25", "%00", ":%", "%2500\0"] {
            assert_eq!(shown_of(&labels(label), &lock_id, &lock_id), labels(label));
        }
    }

    #[test]
    fn a_group_has_the_columns_of_labels_or_names_none() {
        let sql = include_str!("acquire_group.sql");
        let (labelled, plain) = (of_group(sql, true), of_group(sql, false));
        for name in Labels::NAMES {
            assert!(labelled.contains(&format!("user_key, {name})")));
            assert!(labelled.contains(&format!("call.key, call.{name}")));
            assert!(!plain.contains(&format!(", {name}")));
        }
        let mut members = Map::new();
        StoredLabels::of(&labels("host:1"), None).add_to(&mut members);
        let expected = serde_json::json!({ "owner": ":host:1" });
        assert_eq!(Value::Object(members), expected);
    }

    #[test]
    fn only_a_statement_with_labels_names_their_columns() {
        fn of(sql: &str, value: &str) -> Vec<Statement> {
            Labelled::new([sql, value], 5, &Tables::default(), &[]).0
        }
        let plain = super::super::acquire::of_due(include_str!("acquire.sql"), None);
        let single = of(&plain, "{}");
        let [alone, shared] = [false, true].map(|is_shared| {
            let sql = variant(include_str!("acquire_all.sql"), is_shared);
            of(&sql, "id || {}")
        });
        let each = [single, alone, shared];
        for (set, statement) in each.iter().flat_map(|each| each.iter().enumerate()) {
            let sql = statement.sql();
            for (at, name) in Labels::NAMES.iter().enumerate() {
                let is_named = set >> at & 1 == 1;
                assert_eq!(sql.contains(&format!("user_key, {name})")), is_named);
                assert_eq!(sql.contains(name), is_named);
            }
            assert!(!sql.contains('{') && !sql.contains('}'), "{sql}");
        }
    }
}
