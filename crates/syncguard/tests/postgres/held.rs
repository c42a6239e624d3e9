//! When the time of a lock is over: for all statements at the same millisecond.

use std::sync::Arc;

use async_trait::async_trait;
use syncguard::postgres::{Failure, Param, Plan, PostgresBackend, Row, Tables, Transport};
use syncguard::{Backend, LockCheck, LockId, TIME_TOLERANCE_MS};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::stage::{backend, options, server};
use crate::support::held::{Question, done};
use crate::support::suite::tests;

tests![a_lock_is_over_for_all_statements_at_the_same_millisecond];

const NOW_MS: i64 = 1_900_000_000_000;

/// A client for whose statements the server's clock stands still.
#[derive(Debug)]
struct Still(Client);

impl Still {
    async fn ask(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Option<Row>, tokio_postgres::Error> {
        let sql = sql.replace("clock_timestamp()", "to_timestamp(1900000000)");
        let rows = self.0.query_typed(&sql, params).await?;
        let row = rows.first();
        Ok(row.map(|row| (0..row.len()).map(|column| row.get(column)).collect()))
    }

    /// Whether a transaction with this check could be committed.
    async fn passes(&self, check: LockCheck) -> bool {
        let values = check.values.iter().map(|value| (value as _, Type::TEXT));
        let params: Vec<(&(dyn ToSql + Sync), Type)> = values.collect();
        self.ask(&check.text, &params).await.is_ok()
    }
}

#[async_trait]
impl Transport for Still {
    async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        let params = plan.params.iter().map(|param| match param {
            Param::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
            Param::BigInt(number) => (number as _, Type::INT8),
        });
        let params: Vec<_> = params.collect();
        Ok(self.ask(plan.statement.sql(), &params).await.unwrap())
    }

    async fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.0.batch_execute(sql).await.unwrap();
        Ok(())
    }
}

/// Puts the two locks into the tables, which nothing else is in.
async fn store(still: &Still, tables: &Tables, [a, b]: &[LockId; 2], expires_at_ms: i64) {
    let (locks, fences) = (tables.locks(), tables.fences());
    let (a, b) = (a.as_str(), b.as_str());
    let rest = format!("{expires_at_ms}, 1, '000000000000001'");
    let sql = format!(
        "TRUNCATE {locks}, {fences}; INSERT INTO {locks} (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) \
         VALUES ('k', '{a}', {rest}, 'k'), ('s\u{37e}1', '{b}', {rest}, 's\u{37e}1')"
    );
    still.batch(&sql).await.unwrap();
}

async fn a_lock_is_over_for_all_statements_at_the_same_millisecond() {
    let (_, tables) = backend(server().unix()).await;
    let still = Arc::new(Still(server().client().await));
    let backend = PostgresBackend::with_transport(Arc::clone(&still) as _, options(&tables));
    let ids = [LockId::generate().unwrap(), LockId::generate().unwrap()];
    for (over_for_ms, is_held) in [(TIME_TOLERANCE_MS - 1, true), (TIME_TOLERANCE_MS, false)] {
        let end = NOW_MS - over_for_ms;
        for question in Question::ALL {
            store(&still, &tables, &ids, end).await;
            let found = question.ask(&backend, &ids).await;
            assert_eq!(found, is_held, "{question:?}, {over_for_ms} ms over");
        }
        store(&still, &tables, &ids, end).await;
        for (lock_ids, done) in [
            (&ids[..1], None),
            (&ids[..], None),
            (&ids[..1], Some(done())),
        ] {
            let check = backend.check(lock_ids, done.as_ref()).unwrap();
            let found = still.passes(check).await;
            assert_eq!(found, is_held, "a guard, {over_for_ms} ms over");
        }
    }
}
