//! What administrators ask of a store, as JSON: `cli/` is what asks.

use napi_derive::napi;
use serde_json::{Map, Value, json};
use syncguard::postgres::{Tables, schema_sql};
use syncguard::{Fact, Facts, LockPage, LockRecord};

use crate::convert::error::{Code, thrown};

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

pub(crate) fn page_json(page: &LockPage) -> Value {
    let locks: Vec<Value> = page.locks.iter().map(record_json).collect();
    json!({ "locks": locks, "next": page.next })
}

/// The key that JavaScript is shown: of a slot with its number, and the user's own of one that is shared.
pub(crate) fn shown_key(record: &LockRecord) -> &str {
    match record.is_shared {
        true => record.key.base(),
        false => record.key.as_str(),
    }
}

/// As `RawRecord` of `native/outcome.ts`.
fn record_json(record: &LockRecord) -> Value {
    let mut json = json!({
        "key": shown_key(record),
        "lockId": record.lock_id.as_str(),
        "expiresAtMs": record.expires_at_ms,
        "acquiredAtMs": record.acquired_at_ms,
        "fence": record.fence.to_string(),
        "readAtMs": record.read_at_ms,
    });
    if record.is_shared {
        json["isShared"] = true.into();
    }
    for (name, text) in record.labels.iter() {
        json[name] = text.into();
    }
    json
}

/// Facts by name, for each node.
pub(crate) fn facts_json(nodes: &[Facts]) -> Value {
    let facts_of = |facts: &Facts| -> Map<String, Value> {
        let facts = facts.facts.iter();
        facts
            .map(|(name, fact)| ((*name).to_owned(), fact_json(fact)))
            .collect()
    };
    let nodes = nodes.iter();
    nodes
        .map(|facts| json!({ "node": facts.node, "facts": facts_of(facts) }))
        .collect()
}

fn fact_json(fact: &Fact) -> Value {
    match fact {
        Fact::Text(text) => text.as_str().into(),
        Fact::Number(number) => (*number).into(),
        Fact::Flag(flag) => (*flag).into(),
    }
}
