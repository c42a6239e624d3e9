//! The statements of this backend as data: their text, their parameters and the rows they give.
//!
//! A [`Transport`] runs them: the connection pool of this crate, or a client that the caller brings. The
//! statements and the meaning of their rows are the same for both.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use async_trait::async_trait;

use super::error::Failure;
use super::held;
use super::tables::Tables;
use super::wakeups::notify;
use crate::asking::sending::Sending;
use crate::mutex::lock;
use crate::network::switches::SwitchListener;

/// One statement for given tables. Each operation declares its own.
#[derive(Clone)]
pub struct Statement {
    sql: Arc<str>,
    columns: &'static [&'static str],
    slot: usize,
    /// The same without waking those who wait, for a statement that does.
    silent: Option<Arc<Statement>>,
    is_urgent: bool,
}

impl Statement {
    /// Writes the tables' names, which [`Tables`] has checked, and what counts as held into `template`. `columns` are the names of
    /// the columns of its row, in order; all of them are text.
    pub(super) fn new(template: &str, tables: &Tables, columns: &'static [&'static str]) -> Self {
        let sql: Arc<str> = tables.write_into(&held::write_into(template)).into();
        Self {
            slot: slot_of(&sql),
            sql,
            columns,
            silent: None,
            is_urgent: false,
        }
    }

    /// A statement that frees locks: one that wakes those who wait in place of `{tell}`.
    pub(super) fn telling(
        template: &str,
        tables: &Tables,
        columns: &'static [&'static str],
    ) -> Self {
        let silent = Self::new(&template.replace("{tell}", "NULL"), tables, columns);
        Self {
            silent: Some(Arc::new(silent)),
            ..Self::new(&notify::telling(template), tables, columns)
        }
    }

    /// The same for what keeps or frees a lock that is held: see [`is_urgent`](Self::is_urgent).
    pub(super) fn urgent(self) -> Self {
        let silent = self.silent.map(|silent| silent.as_ref().clone().urgent());
        Self {
            silent: silent.map(Arc::new),
            is_urgent: true,
            ..self
        }
    }

    /// Whether it keeps or frees a lock that is held, and so goes before all others that wait for a connection.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Its text, with `$1`, `$2` … for the parameters.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Names of the columns of its row, in order. All of them are text.
    pub fn columns(&self) -> &'static [&'static str] {
        self.columns
    }

    /// The index of this text in a cache of prepared statements: the same in the whole process, and small.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The statement with these parameters.
    pub(super) fn bind<'a>(&'a self, params: Vec<Param<'a>>) -> Plan<'a> {
        Plan {
            statement: self,
            params,
            sending: Sending::default(),
        }
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Statement({})", self.slot)
    }
}

/// Each new text gets the next number. There are few, because a process uses few tables.
fn slot_of(sql: &Arc<str>) -> usize {
    static SLOTS: LazyLock<Mutex<HashMap<Arc<str>, usize>>> = LazyLock::new(Mutex::default);
    // Nothing panics while it is held.
    let mut slots = lock(&SLOTS);
    let next = slots.len();
    *slots.entry(Arc::clone(sql)).or_insert(next)
}

/// A parameter of a statement. The statements cast the numbers, so a client may send them as text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Param<'a> {
    /// `text`
    Text(&'a str),
    /// `bigint`
    BigInt(i64),
}

impl fmt::Debug for Param<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Keys, lock ids and labels stay out of logs.
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::BigInt(number) => write!(f, "BigInt({number})"),
        }
    }
}

/// What to send for an operation: one statement with its parameters, to be run in one round trip, in a
/// transaction of its own at isolation level READ COMMITTED. (The server's own query plan is another thing.)
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The statement.
    pub statement: &'a Statement,
    /// Its parameters.
    pub params: Vec<Param<'a>>,
    sending: Sending,
}

impl Plan<'_> {
    /// Notes there when it is sent.
    pub(super) fn noted_in(self, sending: &Sending) -> Self {
        Self {
            sending: sending.clone(),
            ..self
        }
    }

    pub(super) fn sending(&self) -> &Sending {
        &self.sending
    }

    /// The same without waking those who wait, if it does.
    pub(super) fn silent(&self) -> Option<Self> {
        let statement = self.statement.silent.as_deref()?;
        let params = self.params.clone();
        Some(Plan {
            statement,
            params,
            sending: self.sending.clone(),
        })
    }
}

/// The row that a statement gave: the columns of [`Statement::columns`] as text, `None` for NULL.
pub type Row = Vec<Option<String>>;

/// Runs statements. Connections that it has made itself end when it is dropped.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Runs one statement and gives its only row, if there is one.
    ///
    /// It must give the row only after the transaction has committed. The future may be dropped at any point:
    /// a connection whose reply is still outstanding must then not be used for anything else.
    async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure>;

    /// Runs a statement that is made only once there is a connection for it, so that it can include what
    /// arrived during the wait. A transport in which statements wait for connections should override this.
    /// `is_urgent` is that of the statement.
    async fn run_late<'a>(
        &self,
        is_urgent: bool,
        plan: &(dyn Fn() -> Plan<'a> + Send + Sync),
    ) -> Result<Option<Row>, Failure> {
        let _ = is_urgent;
        self.run(&plan()).await
    }

    /// Runs a statement that looks at what the others wait for, and so must not wait for a connection until they are done.
    async fn run_beside(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        self.run(plan).await
    }

    /// How many statements it can run at a time, before further ones have to wait; `None` if that is unknown.
    fn connections(&self) -> Option<usize> {
        None
    }

    /// Calls `listener`, for as long as it lives, each time that another server may keep the locks from now on: another host has
    /// become the primary, or a connection that was lost has been made again.
    fn on_switch(&self, listener: Weak<SwitchListener>) {
        let _ = listener;
    }

    /// Runs several statements without parameters as one transaction.
    async fn batch(&self, sql: &str) -> Result<(), Failure>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_slot_in_the_process() {
        let [mine, others] = ["mine", "others"].map(|name| Tables::new(name, "fences").unwrap());
        let statement = |tables| Statement::new("SELECT 1 FROM {locks}", tables, &["a"]);
        assert_eq!(statement(&mine).sql(), "SELECT 1 FROM \"mine\"");
        assert_eq!(statement(&mine).slot(), statement(&mine).slot());
        assert_ne!(statement(&mine).slot(), statement(&others).slot());
    }
}
