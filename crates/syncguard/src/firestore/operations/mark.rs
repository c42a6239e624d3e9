//! For which period of a key something was done last.

use crate::firestore::decision::{Decision, Write};
use crate::firestore::ids::DocumentIds;
use crate::firestore::transport::{Documents, ReadSet};
use crate::text::error::Error;
use crate::values::due::{DoneMark, MarkChange};
use crate::values::key::Key;
use crate::values::lock_id::LockId;

/// What shows it.
pub(in crate::firestore) fn mark_of(key: &Key) -> Result<ReadSet, Error> {
    Ok(ReadSet::Named {
        locks: Vec::new(),
        counters: vec![DocumentIds::of(key)?.mark()],
    })
}

/// What is stored, and what to store in its place. `now_ms` is the time of the attempt.
pub(in crate::firestore) fn decide(
    key: &Key,
    change: &MarkChange,
    found: &Documents,
    now_ms: i64,
) -> Result<Decision<Option<DoneMark>>, Error> {
    let document_id = DocumentIds::of(key)?.mark();
    let mut decision = Decision::answer(found.mark_of(&document_id)?);
    let mark = match change {
        MarkChange::Keep => return Ok(decision),
        MarkChange::Clear if decision.answer.is_none() => return Ok(decision),
        MarkChange::Clear => None,
        MarkChange::Set(due) => Some(DoneMark {
            due: due.clone(),
            done_at_ms: now_ms,
            lock_id: LockId::generate()?,
        }),
    };
    decision.writes.push(Write::SetMark {
        document_id,
        mark,
        key: key.clone(),
    });
    Ok(decision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firestore::documents::MarkDocument;
    use crate::firestore::transport::Document;
    use crate::values::due::Due;

    #[test]
    fn a_mark_is_set_and_cleared_whatever_was_before() {
        let key = Key::new("k").unwrap();
        let due = Due::new("v42").unwrap();
        let run = |change, found: &Documents| {
            let mut decision = decide(&key, &change, found, 7).unwrap();
            (decision.answer, decision.writes.pop())
        };
        let nothing = Documents::default();
        assert_eq!(run(MarkChange::Keep, &nothing).0, None);
        assert!(run(MarkChange::Clear, &nothing).1.is_none());
        let (
            None,
            Some(Write::SetMark {
                document_id, mark, ..
            }),
        ) = run(MarkChange::Set(due.clone()), &nothing)
        else {
            panic!("not set");
        };
        let fields = MarkDocument::fields(mark.as_ref(), &key).into_iter();
        let stored = Documents {
            counters: vec![Document {
                id: document_id,
                fields: fields
                    .map(|(name, field)| (name.to_owned(), field))
                    .collect(),
            }],
            ..Documents::default()
        };
        let (found, write) = run(MarkChange::Keep, &stored);
        assert!(found == mark && write.is_none());
        assert_eq!(mark.map(|mark| (mark.due, mark.done_at_ms)), Some((due, 7)));
        let (_, Some(Write::SetMark { mark: None, .. })) = run(MarkChange::Clear, &stored) else {
            panic!("not cleared");
        };
    }
}
