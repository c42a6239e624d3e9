//! Converts documents and writes to and from Firestore's messages.

use std::collections::HashMap;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::precondition::ConditionType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_query_request::QueryType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::field_filter::Operator;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::filter::FilterType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::{
    CollectionSelector, Direction, FieldFilter, FieldReference, Filter, Order,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    self as api, Document, DocumentMask, Precondition, StructuredQuery, Value,
};

use crate::error::Error;
use crate::firestore::config::FirestoreConfig;
use crate::firestore::decision::Write;
use crate::firestore::documents::{
    CounterDocument, EXPIRES_AT_FIELD, Field, LOCK_ID_FIELD, LockState,
};
use crate::firestore::transport::{self, Documents};

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
        let name = || FieldReference {
            field_path: "__name__".to_owned(),
        };
        let filter = |id| Filter {
            filter_type: Some(FilterType::FieldFilter(FieldFilter {
                field: Some(name()),
                op: Operator::GreaterThan.into(),
                value: Some(Value {
                    value_type: Some(ValueType::ReferenceValue(self.lock(id))),
                }),
            })),
        };
        QueryType::StructuredQuery(StructuredQuery {
            from: vec![CollectionSelector {
                collection_id: self.collection.clone(),
                all_descendants: false,
            }],
            r#where: after.map(filter),
            order_by: vec![Order {
                field: Some(name()),
                direction: Direction::Ascending.into(),
            }],
            limit: Some(i32::try_from(limit).unwrap_or(i32::MAX)),
            ..StructuredQuery::default()
        })
    }

    /// The query for all locks with a lock id, without a limit, to notice when there are several (docs/format.md,
    /// "Duplicate lock ids").
    pub(super) fn by_lock_id(&self, lock_id: &str) -> QueryType {
        QueryType::StructuredQuery(StructuredQuery {
            from: vec![CollectionSelector {
                collection_id: self.collection.clone(),
                all_descendants: false,
            }],
            r#where: Some(Filter {
                filter_type: Some(FilterType::FieldFilter(FieldFilter {
                    field: Some(FieldReference {
                        field_path: LOCK_ID_FIELD.to_owned(),
                    }),
                    op: Operator::Equal.into(),
                    value: Some(value(Field::Text(lock_id.to_owned()))),
                })),
            }),
            ..StructuredQuery::default()
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

    pub(super) fn add(&mut self, layout: &ResourceNames, found: Document) {
        let fields = fields(found.fields);
        if let Some(id) = found.name.strip_prefix(&layout.locks) {
            let id = id.to_owned();
            self.found.locks.push(transport::Document { id, fields });
        } else if let Some(id) = found.name.strip_prefix(&layout.counters) {
            let id = id.to_owned();
            self.found.counter = Some(transport::Document { id, fields });
        }
    }
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
    Value {
        value_type: Some(match field {
            Field::Text(text) => ValueType::StringValue(text),
            Field::Number(number) => ValueType::IntegerValue(number as i64),
        }),
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
        let counter = reply.found.counter.unwrap();
        assert_eq!(counter.id, "fence:k");
        assert_eq!(
            counter.fields,
            [("fence".to_owned(), Field::Text("1".into()))]
        );
    }
}
