//! Whatever another program has written into the tables: each operation answers or fails, and destroys nothing that
//! is not its own. A column that may not be null is in tables that somebody has made differently.

use std::fmt::{self, Debug, Formatter};
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::option::weighted;
use proptest::prelude::*;
use serde_json::Value;
use syncguard::postgres::Tables;
use tokio_postgres::Client;

use crate::stage::{backend, server};
use crate::support::inputs::{KEY, LOCK_ID, OWNER, Operation, Verdict, any_text, call, for_each};
use crate::support::locks::recently;
use crate::support::suite::tests;

tests![whatever_is_in_the_tables_is_answered_and_kept];

/// A row of the table of locks. `None` is NULL.
#[derive(Debug, Clone)]
struct Row {
    is_at_key: bool,
    lock_id: Option<String>,
    expires_at_ms: Option<i64>,
    acquired_at_ms: Option<i64>,
    fence: Option<String>,
    user_key: Option<String>,
    owner: Option<String>,
}

/// Times far from now, so that it does not matter how long a test takes, and what is no time.
fn time() -> impl Strategy<Value = Option<i64>> {
    let time = prop_oneof![
        6 => Just(now_ms() + 600_000),
        3 => Just(now_ms() - 600_000),
        1 => prop::sample::select(&[i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX][..]),
        1 => any::<i64>(),
    ];
    weighted(0.95, time)
}

fn text(usual: &'static str) -> impl Strategy<Value = Option<String>> {
    let text = prop_oneof![4 => Just(usual.to_owned()), 1 => any_text()];
    weighted(0.95, text)
}

fn row() -> impl Strategy<Value = Row> {
    let id = prop_oneof![
        4 => text(LOCK_ID),
        1 => text("AAAAAAAAAAAAAAAAAAAAAA"),
    ];
    let owner = any_text().prop_map(|text| Some(format!("{LOCK_ID}%{text}")));
    let members = (
        weighted(0.9, Just(())),
        id,
        time(),
        time(),
        text("000000000000007"),
        text(KEY),
        prop_oneof![text(OWNER), owner],
    );
    members.prop_map(
        |(at_key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, owner)| Row {
            is_at_key: at_key.is_some(),
            lock_id,
            expires_at_ms,
            acquired_at_ms,
            fence,
            user_key,
            owner,
        },
    )
}

/// A row of the table of counters, if there is one, and what is in it.
fn counter() -> impl Strategy<Value = Option<Option<i64>>> {
    let numbers = [
        0,
        41,
        -1,
        i64::MIN,
        899_999_999_999_999,
        900_000_000_000_000,
        i64::MAX,
    ];
    weighted(0.7, weighted(0.9, prop::sample::select(numbers.to_vec())))
}

/// One more than the counter; `None` if no fence can be given.
fn next_fence(counter: Option<Option<i64>>) -> Option<u64> {
    match counter {
        None => Some(1),
        Some(Some(number @ 0..900_000_000_000_000)) => Some(number.unsigned_abs() + 1),
        Some(_) => None,
    }
}

struct Store {
    client: Client,
    tables: Tables,
}

impl Store {
    async fn write(&self, row: Option<&Row>, counter: Option<Option<i64>>) {
        let (locks, fences) = (self.tables.locks(), self.tables.fences());
        let clear = format!("DELETE FROM {locks}; DELETE FROM {fences}");
        self.client.batch_execute(&clear).await.unwrap();
        if let Some(row) = row {
            let key = if row.is_at_key { KEY } else { "another" };
            let insert = format!("INSERT INTO {locks} VALUES ($1, $2, $3, $4, $5, $6, $7)");
            let Row {
                lock_id,
                expires_at_ms,
                acquired_at_ms,
                fence,
                user_key,
                owner,
                ..
            } = row;
            self.client
                .execute(
                    &insert,
                    &[
                        &key,
                        lock_id,
                        expires_at_ms,
                        acquired_at_ms,
                        fence,
                        user_key,
                        owner,
                    ],
                )
                .await
                .unwrap();
        }
        if let Some(fence) = counter {
            let insert = format!("INSERT INTO {fences} VALUES ($1, $2)");
            let name = format!("fence:{KEY}");
            self.client
                .execute(&insert, &[&name, &fence])
                .await
                .unwrap();
        }
    }

    /// All locks and all counters, as JSON.
    async fn look(&self) -> [Value; 2] {
        let (locks, fences) = (self.tables.locks(), self.tables.fences());
        let sql = format!(
            "SELECT (SELECT coalesce(jsonb_object_agg(key, lock), '{{}}') FROM {locks} AS lock)::text, \
                    (SELECT coalesce(jsonb_object_agg(fence_key, fence), '{{}}') FROM {fences})::text"
        );
        let row = self.client.query_one(&sql, &[]).await.unwrap();
        [0, 1].map(|at| serde_json::from_str(row.get(at)).unwrap())
    }
}

async fn whatever_is_in_the_tables_is_answered_and_kept() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    for column in [
        "lock_id",
        "expires_at_ms",
        "acquired_at_ms",
        "fence",
        "user_key",
    ] {
        let allow = format!(
            "ALTER TABLE {} ALTER COLUMN {column} DROP NOT NULL",
            tables.locks()
        );
        client.batch_execute(&allow).await.unwrap();
    }
    let allow = format!(
        "ALTER TABLE {} ALTER COLUMN fence DROP NOT NULL",
        tables.fences()
    );
    client.batch_execute(&allow).await.unwrap();
    let store = Store { client, tables };
    for_each(
        60,
        &(weighted(0.9, row()), counter()),
        async |(row, counter)| {
            for operation in Operation::ALL {
                store.write(row.as_ref(), counter).await;
                let before = store.look().await;
                let told = call(&backend, operation).await;
                let after = store.look().await;
                let seen = Seen {
                    row: row.clone(),
                    counter,
                    told,
                    before,
                    after,
                };
                assert!(seen.is_right(operation), "{operation:?} {seen:?}");
            }
        },
    );
}

struct Seen {
    row: Option<Row>,
    counter: Option<Option<i64>>,
    told: Verdict,
    before: [Value; 2],
    after: [Value; 2],
}

impl Debug for Seen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            told,
            before,
            after,
            ..
        } = self;
        write!(f, "{told:?}\nbefore {before:?}\nafter {after:?}")
    }
}

impl Seen {
    fn is_right(&self, operation: Operation) -> bool {
        // A counter never goes back.
        let number = |counters: &Value| counters[format!("fence:{KEY}")].as_i64();
        if operation != Operation::Acquire && self.before[1] != self.after[1]
            || number(&self.before[1]) > number(&self.after[1])
        {
            return false;
        }
        let at_key = self.row.as_ref().filter(|row| row.is_at_key);
        let owned = |row: &&Row| row.lock_id.as_deref() == Some(LOCK_ID);
        match operation {
            Operation::Acquire => self.is_right_acquisition(),
            Operation::IsLocked | Operation::LookUpKey => self.is_right_look(at_key),
            Operation::LookUpLock => self.is_right_look(self.row.as_ref().filter(owned)),
            Operation::ForceRelease => match at_key {
                None => self.told == Verdict::No && self.is_kept(),
                Some(row) => self.is_gone() && (self.told == Verdict::Yes) == row.is_live(),
            },
            Operation::Release => match self.row.as_ref().filter(owned) {
                None => self.told == Verdict::No && self.is_kept(),
                Some(row) if row.is_live() => self.told == Verdict::Yes && self.is_gone(),
                Some(_) => self.told == Verdict::Expired && self.is_gone(),
            },
            Operation::Extend => match self.row.as_ref().filter(owned) {
                Some(row) if row.is_live() => self.told == Verdict::Yes && self.is_only_extended(),
                Some(Row {
                    expires_at_ms: Some(_),
                    ..
                }) => self.told == Verdict::Expired && self.is_gone(),
                _ => self.told == Verdict::No && self.is_kept(),
            },
        }
    }

    fn is_kept(&self) -> bool {
        self.before[0] == self.after[0]
    }

    fn is_gone(&self) -> bool {
        self.after[0] == serde_json::json!({})
    }

    fn is_only_extended(&self) -> bool {
        let without_expiry = |locks: &Value| {
            let mut locks = locks.clone();
            for lock in locks.as_object_mut().unwrap().values_mut() {
                lock["expires_at_ms"].take();
            }
            locks
        };
        !self.is_gone() && without_expiry(&self.before[0]) == without_expiry(&self.after[0])
    }

    fn is_right_look(&self, row: Option<&Row>) -> bool {
        let is_told = match self.told {
            Verdict::Yes => row.is_some_and(Row::is_live),
            Verdict::No => !row.is_some_and(Row::is_live),
            // The row makes no sense.
            _ => row.is_some(),
        };
        is_told && self.is_kept()
    }

    fn is_right_acquisition(&self) -> bool {
        let has_refused = self.told == Verdict::Failed && self.before == self.after;
        let granted = match next_fence(self.counter) {
            Some(next) => {
                self.told.is_granted_after(next, &recently())
                    && self.after[0][KEY]["lock_id"] == LOCK_ID
            }
            // Without a fence, nothing is written.
            None => matches!(self.told, Verdict::Failed | Verdict::No) && self.before == self.after,
        };
        match &self.row {
            None => granted,
            // Another lock has this lock id, as no lock that was ever granted.
            Some(row) if !row.is_at_key && row.lock_id.as_deref() == Some(LOCK_ID) => {
                has_refused || (granted && next_fence(self.counter).is_none())
            }
            Some(row) if !row.is_at_key => granted,
            Some(row) if row.is_live() => {
                let is_ours = row.lock_id.as_deref() == Some(LOCK_ID);
                let is_told = match self.told {
                    Verdict::No => true,
                    Verdict::Acquired(_) => is_ours,
                    // No such time can be told, or such a fence.
                    _ => is_ours || row.expires_at_ms > Some(i64::MAX / 2),
                };
                // A number may be skipped for a lock of the caller's that has none.
                let may_count = is_ours && row.fence.is_none();
                is_told && self.is_kept() && (may_count || self.before == self.after)
            }
            // Without an end, it never ends.
            Some(Row {
                expires_at_ms: None,
                ..
            }) => matches!(self.told, Verdict::No | Verdict::Failed) && self.is_kept(),
            Some(_) => granted,
        }
    }
}

impl Row {
    fn is_live(&self) -> bool {
        self.expires_at_ms.is_some_and(|at| at > now_ms() - 1000)
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}
