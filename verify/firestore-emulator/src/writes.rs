//! One write, applied to a set of documents: preconditions, masks, transforms.

use std::sync::Arc;

use imbl::OrdMap;
use tonic::Status;

use crate::path::{check_document_name, field_path};
use crate::proto::precondition::ConditionType;
use crate::proto::write::Operation;
use crate::proto::{Document, DocumentMask, Precondition, Write, WriteResult};
use crate::time::{Micros, timestamp};
use crate::transforms;
use crate::values::{self, Fields};

/// All documents of all databases by full name. Copies share what they have in common, so a
/// snapshot costs nothing.
pub(crate) type Documents = OrdMap<String, Arc<Document>>;

/// The full name of the document that `write` is for.
pub(crate) fn target(write: &Write) -> Result<&str, Status> {
    let name = match &write.operation {
        Some(Operation::Update(document)) => &document.name,
        Some(Operation::Delete(name)) => name,
        Some(Operation::Transform(transform)) => &transform.document,
        None => return Err(Status::invalid_argument("write without an operation")),
    };
    check_document_name(name)?;
    Ok(name)
}

/// Applies `write`. On an error, `documents` is as it was.
pub(crate) fn apply(
    documents: &mut Documents,
    write: &Write,
    commit_time: Micros,
) -> Result<WriteResult, Status> {
    let name = target(write)?;
    let stored = documents.get(name).cloned();
    check_precondition(name, stored.as_deref(), write.current_document.as_ref())?;
    let (mut fields, transforms) = match &write.operation {
        Some(Operation::Update(update)) => {
            let fields = updated(stored.as_deref(), update, write.update_mask.as_ref())?;
            (fields, &write.update_transforms)
        }
        Some(Operation::Transform(transform)) => {
            let fields = stored.as_ref().map(|known| known.fields.clone());
            (fields.unwrap_or_default(), &transform.field_transforms)
        }
        Some(Operation::Delete(_)) | None => {
            documents.remove(name);
            return Ok(result(commit_time, Vec::new()));
        }
    };
    let results = transforms
        .iter()
        .map(|transform| transforms::apply(&mut fields, transform, commit_time))
        .collect::<Result<_, _>>()?;
    if let Some(known) = stored.as_deref()
        && known.fields == fields
    {
        // A write that changes nothing keeps the time of the last change.
        return Ok(WriteResult {
            update_time: known.update_time,
            transform_results: results,
        });
    }
    let created = stored.as_deref().and_then(|known| known.create_time);
    let document = Document {
        name: name.to_owned(),
        fields,
        create_time: created.or(Some(timestamp(commit_time))),
        update_time: Some(timestamp(commit_time)),
    };
    documents.insert(name.to_owned(), Arc::new(document));
    Ok(result(commit_time, results))
}

fn result(commit_time: Micros, transform_results: Vec<crate::proto::Value>) -> WriteResult {
    WriteResult {
        update_time: Some(timestamp(commit_time)),
        transform_results,
    }
}

/// The fields after an update: all new ones, or the stored ones with those of the mask replaced.
fn updated(
    stored: Option<&Document>,
    update: &Document,
    mask: Option<&DocumentMask>,
) -> Result<Fields, Status> {
    let Some(mask) = mask else {
        return Ok(update.fields.clone());
    };
    let mut fields = stored.map(|known| known.fields.clone()).unwrap_or_default();
    for text in &mask.field_paths {
        let path = field_path(text)?;
        match values::get(&update.fields, &path) {
            Some(value) => values::set(&mut fields, &path, value.clone()),
            None => values::remove(&mut fields, &path),
        }
    }
    Ok(fields)
}

fn check_precondition(
    name: &str,
    stored: Option<&Document>,
    precondition: Option<&Precondition>,
) -> Result<(), Status> {
    match precondition.and_then(|precondition| precondition.condition_type.as_ref()) {
        Some(ConditionType::Exists(true)) if stored.is_none() => {
            Err(Status::not_found(format!("No document to update: {name}")))
        }
        Some(ConditionType::Exists(false)) if stored.is_some() => Err(Status::already_exists(
            format!("Document already exists: {name}"),
        )),
        Some(ConditionType::UpdateTime(asked)) => match stored {
            Some(known) if known.update_time.as_ref() == Some(asked) => Ok(()),
            _ => Err(Status::failed_precondition(
                "the stored version does not match the required base version",
            )),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Value;
    use crate::proto::value::ValueType;
    use tonic::Code;

    const NAME: &str = "projects/p/databases/d/documents/c/a";

    fn update(fields: &[(&str, i64)]) -> Write {
        let fields = fields.iter().map(|(name, number)| {
            let value_type = Some(ValueType::IntegerValue(*number));
            ((*name).to_owned(), Value { value_type })
        });
        Write {
            operation: Some(Operation::Update(Document {
                name: NAME.to_owned(),
                fields: fields.collect(),
                ..Document::default()
            })),
            ..Write::default()
        }
    }

    fn on(condition: ConditionType, mut write: Write) -> Write {
        write.current_document = Some(Precondition {
            condition_type: Some(condition),
        });
        write
    }

    #[test]
    fn preconditions_have_their_own_codes() {
        let mut documents = Documents::new();
        let code = |documents: &mut Documents, write: Write| {
            apply(documents, &write, 2).map_err(|status| status.code())
        };
        let exists = ConditionType::Exists;
        assert_eq!(
            code(&mut documents, on(exists(true), update(&[]))),
            Err(Code::NotFound)
        );
        apply(&mut documents, &on(exists(false), update(&[("a", 1)])), 1).unwrap();
        assert_eq!(
            code(&mut documents, on(exists(false), update(&[]))),
            Err(Code::AlreadyExists)
        );
        let version = |micros| ConditionType::UpdateTime(timestamp(micros));
        assert_eq!(
            code(&mut documents, on(version(9), update(&[]))),
            Err(Code::FailedPrecondition)
        );
        assert!(code(&mut documents, on(version(1), update(&[("a", 2)]))).is_ok());
    }

    #[test]
    fn masks_replace_and_remove_only_what_they_name() {
        let mut documents = Documents::new();
        apply(&mut documents, &update(&[("a", 1), ("b", 2), ("c", 3)]), 1).unwrap();
        let mut masked = update(&[("a", 9), ("c", 9)]);
        masked.update_mask = Some(DocumentMask {
            field_paths: vec!["a".into(), "b".into()],
        });
        apply(&mut documents, &masked, 2).unwrap();
        let Some(Operation::Update(expected)) = update(&[("a", 9), ("c", 3)]).operation else {
            panic!("an update");
        };
        assert_eq!(documents.get(NAME).unwrap().fields, expected.fields);
    }

    #[test]
    fn a_write_without_effect_keeps_the_update_time() {
        let mut documents = Documents::new();
        apply(&mut documents, &update(&[("a", 1)]), 1).unwrap();
        let result = apply(&mut documents, &update(&[("a", 1)]), 2).unwrap();
        assert_eq!(result.update_time, Some(timestamp(1)));
        assert_eq!(documents.get(NAME).unwrap().update_time, Some(timestamp(1)));
    }
}
