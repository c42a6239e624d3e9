//! What Firestore answers: documents of any shape, and failures with any code.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arbitrary::{Arbitrary as _, Result, Unstructured};
use async_trait::async_trait;
use syncguard::firestore::{
    Document, Documents, Failure, Field, FirestoreBackend, FirestoreConfig, ReadSet, ServerTime,
    StartedTransaction, Transport, Write, code_from_name,
};

use crate::input::{
    LIMIT, SECRET, assert_discreet, call_all, checked, text_with_secrets, within_limit,
};

type Read = std::result::Result<Documents, Failure>;

/// Answers with these documents, and refuses to write what no operation may write.
struct ScriptedDocuments(Mutex<VecDeque<Read>>);

impl std::fmt::Debug for ScriptedDocuments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedDocuments")
    }
}

#[async_trait]
impl Transport for ScriptedDocuments {
    async fn read(&self, _: &ReadSet) -> Read {
        tokio::task::yield_now().await;
        let next = self.0.lock().unwrap().pop_front();
        next.unwrap_or_else(|| Ok(Documents::default()))
    }

    async fn begin(
        &self,
        what: &ReadSet,
        _: Vec<u8>,
    ) -> std::result::Result<StartedTransaction, Failure> {
        let found = self.read(what).await?;
        Ok(StartedTransaction {
            transaction: vec![1],
            found,
        })
    }

    async fn more(&self, _: &[u8], what: &ReadSet) -> Read {
        self.read(what).await
    }

    async fn commit(&self, _: &[u8], writes: Vec<Write>) -> std::result::Result<(), Failure> {
        for write in writes {
            // Its fields can be made, whatever was read.
            if let Write::SetLock { lock, .. } = write {
                let _ = lock.fields();
            }
        }
        Ok(())
    }

    fn abandon(self: Arc<Self>, _: Vec<u8>) {}
}

/// Documents with any fields, of any type.
pub fn firestore_documents(data: &[u8]) {
    let _ = firestore_documents_of(&mut Unstructured::new(data));
}

fn firestore_documents_of(input: &mut Unstructured<'_>) -> Result<()> {
    let mut answers = VecDeque::new();
    while !input.is_empty() && answers.len() < 16 {
        answers.push_back(match input.int_in_range(0..=8)? {
            0 => Err(Failure::from_code(i32::arbitrary(input)?)),
            _ => Ok(documents(input)?),
        });
    }
    let name = text(input)?;
    let _ = code_from_name(&name);
    let config = FirestoreConfig {
        operation_timeout: LIMIT,
        cleanup_in_is_locked: true,
        on_warning: Some(Arc::new(|warning| assert_discreet(&format!("{warning:?}")))),
        ..FirestoreConfig::default()
    };
    let transport = Arc::new(ScriptedDocuments(Mutex::new(answers)));
    within_limit(async {
        let backend = checked(FirestoreBackend::over(transport, config)).expect("good settings");
        call_all(&backend).await;
    });
    Ok(())
}

fn documents(input: &mut Unstructured<'_>) -> Result<Documents> {
    let mut some = |most| {
        let count = input.int_in_range(0..=most)?;
        (0..count).map(|_| document(input)).collect::<Result<_>>()
    };
    Ok(Documents {
        locks: some(3)?,
        counters: some(2)?,
        read_at_ms: Option::arbitrary(input)?,
        server_time: Option::arbitrary(input)?.map(|at_ms| ServerTime {
            at_ms,
            asked: Instant::now(),
            own_ms: None,
        }),
        ..Documents::default()
    })
}

fn document(input: &mut Unstructured<'_>) -> Result<Document> {
    const NAMES: [&str; 6] = [
        "lockId",
        "expiresAtMs",
        "acquiredAtMs",
        "key",
        "fence",
        "owner",
    ];
    let mut fields = Vec::new();
    for name in NAMES {
        let value = match input.int_in_range(0..=7)? {
            0 => continue,
            1 => Field::Number(f64::arbitrary(input)?),
            2 => Field::Number(input.int_in_range(-3..=3_i64)? as f64),
            3 => Field::Text(SECRET.to_owned()),
            4 => Field::Text("000000000000007".to_owned()),
            5 => Field::Number(1.7e12),
            _ => Field::Text(text(input)?),
        };
        fields.push((name.to_owned(), value));
    }
    Ok(Document {
        id: text(input)?,
        fields,
    })
}

fn text(input: &mut Unstructured<'_>) -> Result<String> {
    let length = input.int_in_range(0..=40)?;
    let length = length.min(input.len());
    Ok(text_with_secrets(input.bytes(length)?).unwrap_or_default())
}
