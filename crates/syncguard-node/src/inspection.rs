//! What administrators ask of a store, as JSON: `cli/` is what asks.

use std::sync::Arc;

use napi::Env;
use napi_derive::napi;
use serde_json::{Map, Value, json};
use syncguard::postgres::{Tables, schema_sql};
use syncguard::{Fact, Facts, LockPage, LockRecord, PageRequest, operation};

use crate::backend::NativeBackend;
use crate::completion::Completion;
use crate::error::{Code, thrown};

#[napi]
impl NativeBackend {
    /// Some of the live locks, from after a cursor on: a text with the JSON of a page.
    #[napi]
    pub fn list(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        after: Option<String>,
        limit: u32,
    ) {
        let backend = Arc::clone(&self.operations.backend);
        let page = PageRequest {
            after,
            limit: limit as usize,
        };
        self.operations
            .spawn(&env, operation, cancellable, |cancelled| async move {
                let page = operation::list(&backend, &page, cancelled).await?;
                Ok(Completion::Text(page_json(page).to_string()))
            });
    }

    /// How the store is set up: a text with the JSON of facts by name, for each node.
    #[napi]
    pub fn facts(&self, env: Env, operation: u32, cancellable: bool) {
        let backend = Arc::clone(&self.operations.backend);
        self.operations
            .spawn(&env, operation, cancellable, |cancelled| async move {
                let facts = operation::facts(&backend, cancelled).await?;
                let nodes: Value = facts.into_iter().map(facts_json).collect();
                Ok(Completion::Text(nodes.to_string()))
            });
    }
}

/// Whether anybody can still read what is written to stdout. Node.js finds out only when it writes.
#[napi]
pub fn stdout_has_reader() -> bool {
    #[cfg(unix)]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};

        let stdout = std::io::stdout();
        // These two are told without being asked for.
        let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let polled = poll(&mut ends, Some(&at_once));
        let gone = PollFlags::ERR | PollFlags::HUP;
        !(polled.is_ok() && ends.iter().any(|end| end.revents().intersects(gone)))
    }
    #[cfg(not(unix))]
    true
}

/// The statements that create the tables in PostgreSQL.
#[napi]
pub fn postgres_schema_sql(
    table_name: Option<String>,
    fence_table_name: Option<String>,
) -> napi::Result<String, Code> {
    let defaults = Tables::default();
    let locks = table_name.as_deref().unwrap_or(defaults.locks());
    let fences = fence_table_name.as_deref().unwrap_or(defaults.fences());
    let tables = Tables::new(locks, fences).map_err(thrown)?;
    schema_sql(&tables).map_err(thrown)
}

fn page_json(page: LockPage) -> Value {
    let locks: Vec<Value> = page.locks.iter().map(record_json).collect();
    json!({ "locks": locks, "next": page.next })
}

/// As `RawRecord` of `native/operations.ts`.
fn record_json(record: &LockRecord) -> Value {
    let mut json = json!({
        "key": record.key.as_str(),
        "lockId": record.lock_id.as_str(),
        "expiresAtMs": record.expires_at_ms,
        "acquiredAtMs": record.acquired_at_ms,
        "fence": record.fence.to_string(),
        "readAtMs": record.read_at_ms,
    });
    if let Some(owner) = &record.owner {
        json["owner"] = Value::from(owner.as_str());
    }
    json
}

fn facts_json(facts: Facts) -> Value {
    let facts_by_name: Map<String, Value> = facts
        .facts
        .into_iter()
        .map(|(name, fact)| (name.to_owned(), fact_json(fact)))
        .collect();
    json!({ "node": facts.node, "facts": facts_by_name })
}

fn fact_json(fact: Fact) -> Value {
    match fact {
        Fact::Text(text) => text.into(),
        Fact::Number(number) => number.into(),
        Fact::Flag(flag) => flag.into(),
    }
}
