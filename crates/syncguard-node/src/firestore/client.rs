//! Firestore through a client in JavaScript. A transaction takes two questions.
//!
//! `open` starts the client's transaction, which reads and then waits. `more` makes it read more. `commit` makes it write and end, `rollback`
//! makes it end without writes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use syncguard::firestore::{
    CounterDocument, Document, Documents, EXPIRES_AT_FIELD, Failure, Field, FirestoreConfig,
    LOCK_ID_FIELD, MOST_VALUES, MarkDocument, ReadSet, ServerTime, StartedTransaction, Transport,
    Write, code_from_name,
};
use syncguard::{Error, ErrorKind};

use crate::clients::bridge::{Bridge, Rejection};

/// Uses a client's own transactions and reads.
pub(crate) struct FirestoreClient {
    bridge: Arc<Bridge>,
    collection: String,
    fence_collection: String,
    /// After this time, JavaScript ends a transaction for which neither `commit` nor `rollback` came.
    limit: Duration,
    next: AtomicU32,
}

impl FirestoreClient {
    pub(crate) fn new(bridge: Arc<Bridge>, config: &FirestoreConfig) -> Self {
        Self {
            bridge,
            collection: config.collection.clone(),
            fence_collection: config.fence_collection.clone(),
            limit: config.operation_timeout + Duration::from_secs(1),
            next: AtomicU32::new(0),
        }
    }

    fn reads(&self, what: &ReadSet) -> Value {
        let lock = |id: &str| json!({ "collection": self.collection, "id": id });
        match what {
            ReadSet::Named { locks, counters } => {
                let counter = |id| json!({ "collection": self.fence_collection, "id": id });
                let locks = locks.iter().map(|id| lock(id));
                let all: Vec<_> = locks.chain(counters.iter().map(counter)).collect();
                json!({ "documents": all })
            }
            ReadSet::Owned { lock_ids } => {
                let sets: Vec<_> = lock_ids.chunks(MOST_VALUES).collect();
                json!({ "collection": self.collection, "field": LOCK_ID_FIELD, "oneOf": sets })
            }
            ReadSet::Between {
                from,
                before,
                limit,
            } => {
                let collection = &self.collection;
                json!({ "collection": collection, "from": from, "before": before, "limit": limit })
            }
        }
    }

    fn write(&self, write: Write) -> Value {
        let lock = |id: &str| json!({ "collection": self.collection, "id": id });
        match write {
            Write::SetLock {
                document_id,
                lock: it,
            } => {
                json!({ "set": lock(&document_id), "fields": fields(it.fields()) })
            }
            Write::SetCounter {
                document_id,
                fence,
                key,
            } => json!({
                "set": { "collection": self.fence_collection, "id": document_id },
                "fields": fields(CounterDocument::fields(fence, &key)),
            }),
            Write::SetMark {
                document_id,
                mark,
                key,
            } => json!({
                "set": { "collection": self.fence_collection, "id": document_id },
                "fields": fields(MarkDocument::fields(mark.as_ref(), &key)),
            }),
            Write::ExtendLock {
                document_id,
                expires_at_ms,
            } => json!({
                "update": lock(&document_id), "fields": { EXPIRES_AT_FIELD: expires_at_ms }
            }),
            Write::DeleteLock { document_id } => json!({ "delete": lock(&document_id) }),
        }
    }
}

#[async_trait]
impl Transport for FirestoreClient {
    async fn read(&self, what: &ReadSet) -> Result<Documents, Failure> {
        let request = json!({ "read": self.reads(what) });
        documents(what, self.bridge.ask(&request).await.map_err(failure)?)
    }

    async fn begin(
        &self,
        what: &ReadSet,
        _repeats: Vec<u8>,
    ) -> Result<StartedTransaction, Failure> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let limit_ms = self.limit.as_millis() as u64;
        let request = json!({ "open": number, "read": self.reads(what), "limitMs": limit_ms });
        let opening = Opening {
            bridge: &self.bridge,
            number,
            abandoned: true,
        };
        let answer = self.bridge.ask(&request).await.map_err(failure)?;
        let found = documents(what, answer)?;
        opening.succeeded();
        Ok(StartedTransaction {
            transaction: number.to_be_bytes().to_vec(),
            found,
        })
    }

    async fn more(&self, transaction: &[u8], what: &ReadSet) -> Result<Documents, Failure> {
        let request = json!({ "more": number_of(transaction), "read": self.reads(what) });
        documents(what, self.bridge.ask(&request).await.map_err(failure)?)
    }

    async fn commit(&self, transaction: &[u8], writes: Vec<Write>) -> Result<(), Failure> {
        let writes: Vec<Value> = writes.into_iter().map(|it| self.write(it)).collect();
        let request = json!({ "commit": number_of(transaction), "writes": writes });
        self.bridge.ask(&request).await.map(drop).map_err(failure)
    }

    fn abandon(self: Arc<Self>, transaction: Vec<u8>) {
        // Sent immediately, so that the process does not end before.
        rollback(&self.bridge, number_of(&transaction));
    }
}

impl fmt::Debug for FirestoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirestoreClient")
    }
}

/// A transaction that JavaScript is opening. If it is dropped before that succeeded, it is rolled back.
struct Opening<'a> {
    bridge: &'a Bridge,
    number: u32,
    abandoned: bool,
}

impl Opening<'_> {
    fn succeeded(mut self) {
        self.abandoned = false;
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if self.abandoned {
            rollback(self.bridge, self.number);
        }
    }
}

fn rollback(bridge: &Bridge, number: u32) {
    bridge.tell(&json!({ "rollback": number }));
}

/// The number of a transaction, as `begin` has chosen it.
fn number_of(transaction: &[u8]) -> u32 {
    transaction.try_into().map_or(u32::MAX, u32::from_be_bytes)
}

pub(crate) fn fields(fields: Vec<(&'static str, Field)>) -> Map<String, Value> {
    let json = |field| match field {
        Field::Text(text) => json!(text),
        // Times are whole and exact in JavaScript.
        Field::Number(number) => json!(number as i64),
    };
    let fields = fields.into_iter();
    fields
        .map(|(name, field)| (name.to_owned(), json(field)))
        .collect()
}

/// JavaScript's answer to a read: the documents in the order in which they were requested, or all that a query has
/// found.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    now_ms: f64,
    documents: Vec<Option<Found>>,
    server: Option<Server>,
}

/// What the client's answer says of Firestore's clock, and how the client's own stood when it came.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    time_ms: f64,
    own_ms: f64,
    waited_ms: f64,
}

impl Server {
    fn time(self) -> Option<ServerTime> {
        let waited = Duration::try_from_secs_f64(self.waited_ms / 1000.0).ok()?;
        Some(ServerTime {
            at_ms: self.time_ms as i64,
            asked: Instant::now().checked_sub(waited)?,
            own_ms: Some(self.own_ms as i64),
        })
    }
}

#[derive(Deserialize)]
struct Found {
    id: String,
    fields: Map<String, Value>,
}

fn documents(what: &ReadSet, answer: Value) -> Result<Documents, Failure> {
    let malformed = || {
        let text = "the client gave a malformed answer";
        Failure::other(Error::new(ErrorKind::Internal, text))
    };
    let answer: Answer = serde_json::from_value(answer).map_err(|_| malformed())?;
    let mut found = answer.documents.into_iter().map(|it| it.map(document));
    let mut documents = Documents {
        read_at_ms: Some(answer.now_ms as i64),
        server_time: answer.server.and_then(Server::time),
        ..Documents::default()
    };
    match what {
        ReadSet::Owned { .. } | ReadSet::Between { .. } => {
            documents.locks = found.flatten().collect();
        }
        ReadSet::Named { locks, counters } => {
            // A document that does not exist is null; a missing item makes the answer malformed.
            if found.len() < locks.len() + counters.len() {
                return Err(malformed());
            }
            documents.locks = found.by_ref().take(locks.len()).flatten().collect();
            documents.counters = found.take(counters.len()).flatten().collect();
        }
    }
    Ok(documents)
}

/// A field of a document, if it is of a type that locks use.
pub(crate) fn field(value: Value) -> Option<Field> {
    match value {
        Value::String(text) => Some(Field::Text(text)),
        Value::Number(number) => number.as_f64().map(Field::Number),
        _ => None,
    }
}

fn document(found: Found) -> Document {
    let fields = found.fields.into_iter();
    Document {
        id: found.id,
        fields: fields
            .filter_map(|(name, value)| Some((name, field(value)?)))
            .collect(),
    }
}

/// The failure for a rejection. Only its code counts: clients give the number of the gRPC status, mocks its name, and
/// Node its own codes for connections.
fn failure(rejection: Rejection) -> Failure {
    let code = rejection.code.as_deref().unwrap_or_default();
    if let Some(number) = code.parse().ok().or_else(|| code_from_name(code)) {
        return Failure::from_code(number);
    }
    if NODE_CODES.contains(&code) {
        return Failure::unreachable(None);
    }
    Failure::other(Error::new(
        ErrorKind::Internal,
        "the client failed with an error of its own",
    ))
}

const NODE_CODES: [&str; 9] = [
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTFOUND",
    "EPIPE",
    "ERR_HTTP2_STREAM_CANCEL",
    "ETIMEDOUT",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> ReadSet {
        ReadSet::Named {
            locks: vec!["l".into()],
            counters: vec!["c".into()],
        }
    }

    #[test]
    fn answers_become_documents() {
        let counter = json!({ "id": "c", "fields": { "fence": "1", "at": 2.5, "odd": [] } });
        let answer = json!({ "nowMs": 17, "documents": [null, counter] });
        let Ok(mut found) = documents(&both(), answer) else {
            panic!("refused");
        };
        assert!(found.locks.is_empty());
        assert_eq!(found.read_at_ms, Some(17));
        let [counter] = &mut found.counters[..] else {
            panic!("no counter");
        };
        let fields = &mut counter.fields;
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        assert_eq!(
            *fields,
            [
                ("at".to_owned(), Field::Number(2.5)),
                ("fence".to_owned(), Field::Text("1".into())),
            ]
        );
    }

    #[test]
    fn what_was_not_answered_is_not_taken_for_missing() {
        for bad in [
            json!(null),
            json!([]),
            json!({ "nowMs": 1, "documents": [] }),
            json!({ "nowMs": 1, "documents": [null] }),
            json!({ "documents": [null, null] }),
            json!({ "nowMs": 1, "documents": [null, { "id": "c" }] }),
        ] {
            assert!(documents(&both(), bad.clone()).is_err(), "{bad}");
        }
    }
}
