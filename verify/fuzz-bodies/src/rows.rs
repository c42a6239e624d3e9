//! What PostgreSQL answers, over connections of ours and over clients of the application: rows of any shape.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use arbitrary::{Arbitrary as _, Result, Unstructured};
use async_trait::async_trait;
use syncguard::Backend as _;
use syncguard::postgres::operations::{
    acquire_all_outcome, acquire_outcome, extend_outcome, force_release_outcome, is_locked_outcome,
    lookup_outcome, release_outcome, release_outcomes,
};
use syncguard::postgres::{
    Failure, Fault, Plan, PostgresBackend, PostgresOptions, Row, Transport, classify,
};

use crate::input::{
    LIMIT, SECRET, assert_discreet, assert_discreet_error, call_all, checked, lock_id, request,
    text_with_secrets, within_limit,
};

type Answer = std::result::Result<Option<Row>, Failure>;

struct ScriptedRows(Mutex<VecDeque<Answer>>);

impl std::fmt::Debug for ScriptedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedRows")
    }
}

#[async_trait]
impl Transport for ScriptedRows {
    async fn run(&self, _: &Plan<'_>) -> Answer {
        tokio::task::yield_now().await;
        self.0.lock().unwrap().pop_front().unwrap_or(Ok(None))
    }

    async fn batch(&self, _: &str) -> std::result::Result<(), Failure> {
        Ok(())
    }
}

/// Rows with any number of columns and any text, and failures with any SQLSTATE.
pub fn postgres_rows(data: &[u8]) {
    let _ = postgres_rows_of(&mut Unstructured::new(data));
}

fn postgres_rows_of(input: &mut Unstructured<'_>) -> Result<()> {
    let mut answers = VecDeque::new();
    while !input.is_empty() && answers.len() < 32 {
        answers.push_back(match input.int_in_range(0..=8)? {
            0 => Ok(None),
            1 => Err(failure(input)?),
            _ => Ok(Some(row(input)?)),
        });
    }
    for row in answers.iter().flatten() {
        outcomes(row.as_ref());
    }
    let options = PostgresOptions {
        operation_timeout: LIMIT,
        cleanup_in_is_locked: true,
        ..PostgresOptions::default()
    };
    let transport = Arc::new(ScriptedRows(Mutex::new(answers)));
    within_limit(async {
        let backend = PostgresBackend::with_transport(transport, options);
        call_all(&backend).await;
        checked(backend.setup_schema().await);
        backend.shut_down().await;
    });
    Ok(())
}

fn row(input: &mut Unstructured<'_>) -> Result<Row> {
    let columns = input.int_in_range(0..=8)?;
    (0..columns).map(|_| column(input)).collect()
}

fn column(input: &mut Unstructured<'_>) -> Result<Option<String>> {
    const WORDS: [&str; 11] = [
        "acquired",
        "again",
        "locked",
        "exhausted",
        "released",
        "expired",
        "extended",
        "free",
        "true",
        SECRET,
        "000000000000007",
    ];
    Ok(match input.int_in_range(0..=5)? {
        0 => None,
        1 => Some(i64::arbitrary(input)?.to_string()),
        2 | 3 => Some((*input.choose(&WORDS)?).to_owned()),
        4 => Some(format!("{SECRET} {}", text(input)?)),
        _ => Some(text(input)?),
    })
}

fn text(input: &mut Unstructured<'_>) -> Result<String> {
    let length = input.int_in_range(0..=40)?;
    let length = length.min(input.len());
    Ok(text_with_secrets(input.bytes(length)?).unwrap_or_default())
}

fn failure(input: &mut Unstructured<'_>) -> Result<Failure> {
    let state = text(input)?;
    let _ = classify(Fault::State(&state));
    let severity = Option::<u8>::arbitrary(input)?.map(|_| "FATAL");
    let failure = Failure::reported(&state, severity, None);
    assert_discreet_error(failure.error());
    Ok(failure)
}

fn outcomes(row: Option<&Row>) {
    checked(acquire_outcome(&request().claims[0], row));
    checked(release_outcome(&lock_id(), row));
    checked(acquire_all_outcome(&request().claims, row));
    checked(release_outcomes(&[lock_id()], row));
    checked(extend_outcome(&[lock_id()], row));
    checked(is_locked_outcome(row));
    checked(force_release_outcome(row));
    for owner in [None, Some(lock_id())] {
        if let Some(Some(found)) = checked(lookup_outcome(row, owner.as_ref())) {
            let _ = found.is_live();
            assert_discreet(&format!("{found:?}"));
        }
    }
}
