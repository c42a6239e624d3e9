//! Converts documents and writes to and from Firestore's messages.

use std::collections::HashMap;
use std::time::Instant;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::precondition::ConditionType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_query_request::QueryType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::field_filter::Operator;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::filter::FilterType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::{
    CollectionSelector, CompositeFilter, Direction, FieldFilter, FieldReference, Filter, Order,
    composite_filter,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    self as api, ArrayValue, Document, DocumentMask, Precondition, StructuredQuery, Value,
};

use crate::firestore::config::FirestoreConfig;
use crate::firestore::decision::Write;
use crate::firestore::documents::{
    CounterDocument, EXPIRES_AT_FIELD, Field, LOCK_ID_FIELD, LockState, MarkDocument,
};
use crate::firestore::transport::ServerTime;
use crate::firestore::transport::{self, Documents, MOST_VALUES};
use crate::text::error::Error;

/// What queries call a document's name.
const NAME_FIELD: &str = "__name__";

/// The resource names of the documents.
pub(super) struct ResourceNames {
    database: String,
    collection: String,
    /// What the names of all locks start with.
    locks: String,
    /// What the names of all counters start with.
    counters: String,
}

impl ResourceNames {
    pub(super) fn new(database: String, config: &FirestoreConfig) -> Self {
        Self {
            locks: format!("{database}/documents/{}/", config.collection),
            counters: format!("{database}/documents/{}/", config.fence_collection),
            collection: config.collection.clone(),
            database,
        }
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// The parent of the collections.
    pub(super) fn documents(&self) -> String {
        format!("{}/documents", self.database)
    }

    /// The name of the lock of that id.
    pub(super) fn lock(&self, id: &str) -> String {
        format!("{}{id}", self.locks)
    }

    /// The name of the counter of that id.
    pub(super) fn counter(&self, id: &str) -> String {
        format!("{}{id}", self.counters)
    }

    /// The query for locks in the order of their ids, from after that id on.
    pub(super) fn page(&self, after: Option<&str>, limit: usize) -> QueryType {
        let after = after.map(|id| compared(Operator::GreaterThan, self.lock(id)));
        QueryType::StructuredQuery(StructuredQuery {
            limit: Some(in_query(limit)),
            ..in_order(&self.collection, after)
        })
    }

    /// The query for the first `limit` locks whose ids are from `from` on, before `before`.
    pub(super) fn between(&self, from: &str, before: &str, limit: Option<usize>) -> QueryType {
        let query = between(&self.collection, self.lock(from), self.lock(before));
        QueryType::StructuredQuery(StructuredQuery {
            limit: limit.map(in_query),
            ..query
        })
    }

    /// The queries for all locks with these lock ids, without a limit, to notice when there are several of one
    /// (docs/format.md, "Duplicate lock ids").
    pub(super) fn by_lock_ids(&self, lock_ids: &[String]) -> impl Iterator<Item = QueryType> {
        lock_ids.chunks(MOST_VALUES).map(|lock_ids| {
            let text = |lock_id: &String| ValueType::StringValue(lock_id.clone());
            let (op, wanted) = match lock_ids {
                [only] => (Operator::Equal, text(only)),
                several => {
                    let values = several.iter().map(text).map(of_type).collect();
                    (Operator::In, ValueType::ArrayValue(ArrayValue { values }))
                }
            };
            let filter = filter(LOCK_ID_FIELD, op, wanted);
            QueryType::StructuredQuery(query(&self.collection, Some(filter)))
        })
    }

    /// `write` as a message.
    pub(super) fn write(&self, write: Write) -> api::Write {
        match write {
            Write::SetLock { document_id, lock } => {
                update(document(self.lock(&document_id), lock.fields()))
            }
            Write::SetCounter {
                document_id,
                fence,
                key,
            } => update(document(
                self.counter(&document_id),
                CounterDocument::fields(fence, &key),
            )),
            Write::SetMark {
                document_id,
                mark,
                key,
            } => update(document(
                self.counter(&document_id),
                MarkDocument::fields(mark.as_ref(), &key),
            )),
            Write::ExtendLock {
                document_id,
                expires_at_ms,
            } => {
                let end = vec![(EXPIRES_AT_FIELD, Field::Number(expires_at_ms as f64))];
                api::Write {
                    update_mask: Some(DocumentMask {
                        field_paths: vec![EXPIRES_AT_FIELD.to_owned()],
                    }),
                    current_document: Some(Precondition {
                        condition_type: Some(ConditionType::Exists(true)),
                    }),
                    ..update(document(self.lock(&document_id), end))
                }
            }
            Write::DeleteLock { document_id } => api::Write {
                operation: Some(Operation::Delete(self.lock(&document_id))),
                ..api::Write::default()
            },
        }
    }
}

fn in_query(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

/// The query for the documents of a collection whose names are from `from` on, before `before`.
pub(super) fn between(collection: &str, from: String, before: String) -> StructuredQuery {
    let filters = vec![
        compared(Operator::GreaterThanOrEqual, from),
        compared(Operator::LessThan, before),
    ];
    let op = composite_filter::Operator::And.into();
    let both = FilterType::CompositeFilter(CompositeFilter { op, filters });
    let filter = Filter {
        filter_type: Some(both),
    };
    in_order(collection, Some(filter))
}

/// In the order of their names, by which Firestore finds documents without an index of the user's.
fn in_order(collection: &str, filter: Option<Filter>) -> StructuredQuery {
    StructuredQuery {
        order_by: vec![Order {
            field: Some(field_named(NAME_FIELD)),
            direction: Direction::Ascending.into(),
        }],
        ..query(collection, filter)
    }
}

fn query(collection: &str, filter: Option<Filter>) -> StructuredQuery {
    StructuredQuery {
        from: vec![CollectionSelector {
            collection_id: collection.to_owned(),
            all_descendants: false,
        }],
        r#where: filter,
        ..StructuredQuery::default()
    }
}

/// What compares the names of documents with that one.
fn compared(op: Operator, name: String) -> Filter {
    filter(NAME_FIELD, op, ValueType::ReferenceValue(name))
}

/// The documents that a read has found, and the transaction that it has started.
#[derive(Default)]
pub(super) struct ReadReply {
    /// Its id; empty if there is none.
    pub(super) transaction: Vec<u8>,
    pub(super) found: Documents,
}

impl ReadReply {
    pub(super) fn begun(&mut self, transaction: Vec<u8>) {
        if !transaction.is_empty() {
            self.transaction = transaction;
        }
    }

    /// Notes the time on Firestore's clock that a part of the answer says, to a read whose first request was sent then.
    pub(super) fn note_time(&mut self, at_ms: Option<i64>, asked: Instant) {
        let Some(at_ms) = at_ms else {
            return;
        };
        let first = ServerTime {
            at_ms,
            asked,
            own_ms: None,
        };
        let known = self.found.server_time.get_or_insert(first);
        known.at_ms = known.at_ms.max(at_ms);
    }

    pub(super) fn add(&mut self, layout: &ResourceNames, found: Document) {
        let fields = fields(found.fields);
        if let Some(id) = found.name.strip_prefix(&layout.locks) {
            let id = id.to_owned();
            self.found.locks.push(transport::Document { id, fields });
        } else if let Some(id) = found.name.strip_prefix(&layout.counters) {
            let id = id.to_owned();
            self.found.counters.push(transport::Document { id, fields });
        }
    }
}

/// A time in an answer, in milliseconds since the Unix epoch.
pub(super) fn milliseconds(seconds: i64, nanos: i32) -> i64 {
    let ms = i64::from(nanos) / 1_000_000;
    seconds.saturating_mul(1000).saturating_add(ms)
}

/// The lock in a document.
pub(super) fn lock_state(found: Document) -> Result<LockState, Error> {
    let fields = fields(found.fields);
    let id = found.name;
    transport::Document { id, fields }.state()
}

fn fields(found: HashMap<String, Value>) -> Vec<(String, Field)> {
    let found = found.into_iter();
    found
        .filter_map(|(name, value)| Some((name, field(value)?)))
        .collect()
}

fn field(value: Value) -> Option<Field> {
    match value.value_type? {
        ValueType::StringValue(text) => Some(Field::Text(text)),
        // Exact as a double, for all times and fences.
        ValueType::IntegerValue(number) => Some(Field::Number(number as f64)),
        ValueType::DoubleValue(number) => Some(Field::Number(number)),
        _ => None,
    }
}

fn value(field: Field) -> Value {
    of_type(match field {
        Field::Text(text) => ValueType::StringValue(text),
        Field::Number(number) => ValueType::IntegerValue(number as i64),
    })
}

fn of_type(value: ValueType) -> Value {
    Value {
        value_type: Some(value),
    }
}

fn filter(field: &str, op: Operator, value: ValueType) -> Filter {
    Filter {
        filter_type: Some(FilterType::FieldFilter(FieldFilter {
            field: Some(field_named(field)),
            op: op.into(),
            value: Some(of_type(value)),
        })),
    }
}

fn field_named(name: &str) -> FieldReference {
    FieldReference {
        field_path: name.to_owned(),
    }
}

fn document(name: String, fields: Vec<(&'static str, Field)>) -> Document {
    let fields = fields.into_iter();
    Document {
        name,
        fields: fields
            .map(|(name, field)| (name.to_owned(), value(field)))
            .collect(),
        ..Document::default()
    }
}

fn update(document: Document) -> api::Write {
    api::Write {
        operation: Some(Operation::Update(document)),
        ..api::Write::default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The document of a lock that ends then.
    pub(in super::super) fn lock_document(expires_at_ms: i64) -> Document {
        let fields = vec![
            (LOCK_ID_FIELD, Field::Text("l".to_owned())),
            (EXPIRES_AT_FIELD, Field::Number(expires_at_ms as f64)),
        ];
        document("k".to_owned(), fields)
    }

    #[test]
    fn documents_go_to_their_collections() {
        let layout = ResourceNames::new(
            "projects/p/databases/d".into(),
            &FirestoreConfig::project("p"),
        );
        let mut reply = ReadReply::default();
        let fields = vec![("fence", Field::Text("1".into()))];
        reply.add(&layout, document(layout.lock("k"), Vec::new()));
        reply.add(&layout, document(layout.counter("fence:k"), fields));
        reply.add(&layout, document("elsewhere".into(), Vec::new()));
        let ids = |found: &[transport::Document]| found.iter().map(|it| it.id.clone()).collect();
        let locks: Vec<String> = ids(&reply.found.locks);
        assert_eq!(locks, ["k"]);
        let counters: Vec<String> = ids(&reply.found.counters);
        assert_eq!(counters, ["fence:k"]);
        assert_eq!(
            reply.found.counters[0].fields,
            [("fence".to_owned(), Field::Text("1".into()))]
        );
    }
}
