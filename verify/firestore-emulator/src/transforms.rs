//! Field transforms: what a write computes from the value that is stored.

use tonic::Status;

use crate::path::field_path;
use crate::proto::document_transform::FieldTransform;
use crate::proto::document_transform::field_transform::{ServerValue, TransformType};
use crate::proto::value::ValueType;
use crate::proto::{ArrayValue, Value};
use crate::time::{Micros, timestamp};
use crate::values::{self, Fields, compare};

/// Applies `transform` to `fields` and returns its result, as the reply to the write lists it.
pub(crate) fn apply(
    fields: &mut Fields,
    transform: &FieldTransform,
    commit_time: Micros,
) -> Result<Value, Status> {
    let path = field_path(&transform.field_path)?;
    let stored = values::get(fields, &path);
    let kind = transform
        .transform_type
        .as_ref()
        .ok_or_else(|| Status::invalid_argument("transform without a type"))?;
    let (value, result) = match kind {
        TransformType::SetToServerValue(server_value) => {
            if *server_value != ServerValue::RequestTime as i32 {
                return Err(Status::invalid_argument("unknown server value"));
            }
            same(of(ValueType::TimestampValue(timestamp(commit_time))))
        }
        TransformType::Increment(by) => same(increment(stored, by)?),
        TransformType::Maximum(other) => same(extreme(stored, other, |order| order.is_lt())?),
        TransformType::Minimum(other) => same(extreme(stored, other, |order| order.is_gt())?),
        TransformType::AppendMissingElements(added) => {
            let mut elements = elements(stored);
            for value in &added.values {
                if !elements.iter().any(|known| compare(known, value).is_eq()) {
                    elements.push(value.clone());
                }
            }
            (array(elements), of(ValueType::NullValue(0)))
        }
        TransformType::RemoveAllFromArray(removed) => {
            let mut elements = elements(stored);
            elements.retain(|known| !removed.values.iter().any(|out| compare(known, out).is_eq()));
            (array(elements), of(ValueType::NullValue(0)))
        }
    };
    values::set(fields, &path, value);
    Ok(result)
}

fn same(value: Value) -> (Value, Value) {
    (value.clone(), value)
}

fn of(value_type: ValueType) -> Value {
    Value {
        value_type: Some(value_type),
    }
}

fn array(values: Vec<Value>) -> Value {
    of(ValueType::ArrayValue(ArrayValue { values }))
}

/// Integers saturate, as Firestore's do; anything that is no number counts as missing.
fn increment(stored: Option<&Value>, by: &Value) -> Result<Value, Status> {
    use ValueType::{DoubleValue, IntegerValue};
    number(by)?;
    let sum = match (
        stored.and_then(|value| value.value_type.as_ref()),
        &by.value_type,
    ) {
        (Some(IntegerValue(a)), Some(IntegerValue(b))) => IntegerValue(a.saturating_add(*b)),
        (Some(IntegerValue(a)), Some(DoubleValue(b))) => DoubleValue(*a as f64 + b),
        (Some(DoubleValue(a)), Some(IntegerValue(b))) => DoubleValue(a + *b as f64),
        (Some(DoubleValue(a)), Some(DoubleValue(b))) => DoubleValue(a + b),
        _ => return Ok(by.clone()),
    };
    Ok(of(sum))
}

/// `other` where there is no number yet or `replaces` says so of the order of the two.
fn extreme(
    stored: Option<&Value>,
    other: &Value,
    replaces: impl FnOnce(std::cmp::Ordering) -> bool,
) -> Result<Value, Status> {
    number(other)?;
    match stored {
        Some(value) if number(value).is_ok() && !replaces(compare(value, other)) => {
            Ok(value.clone())
        }
        _ => Ok(other.clone()),
    }
}

fn number(value: &Value) -> Result<(), Status> {
    match value.value_type {
        Some(ValueType::IntegerValue(_) | ValueType::DoubleValue(_)) => Ok(()),
        _ => Err(Status::invalid_argument("transform needs a number")),
    }
}

fn elements(stored: Option<&Value>) -> Vec<Value> {
    match stored.and_then(|value| value.value_type.as_ref()) {
        Some(ValueType::ArrayValue(array)) => array.values.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stored: Option<i64>, kind: TransformType) -> Value {
        let mut fields = Fields::new();
        if let Some(number) = stored {
            fields.insert("n".into(), of(ValueType::IntegerValue(number)));
        }
        let transform = FieldTransform {
            field_path: "n".into(),
            transform_type: Some(kind),
        };
        apply(&mut fields, &transform, 1).unwrap();
        fields.remove("n").unwrap()
    }

    #[test]
    fn numbers_are_added_and_bounded() {
        let seven = || of(ValueType::IntegerValue(7));
        assert_eq!(run(None, TransformType::Increment(seven())), seven());
        assert_eq!(
            run(Some(i64::MAX), TransformType::Increment(seven())),
            of(ValueType::IntegerValue(i64::MAX))
        );
        assert_eq!(run(Some(5), TransformType::Maximum(seven())), seven());
        assert_eq!(
            run(Some(5), TransformType::Minimum(seven())),
            of(ValueType::IntegerValue(5))
        );
    }

    #[test]
    fn elements_are_added_once_and_removed_everywhere() {
        let one = || of(ValueType::IntegerValue(1));
        let list = |values| ArrayValue { values };
        assert_eq!(
            run(
                None,
                TransformType::AppendMissingElements(list(vec![one(), one()]))
            ),
            array(vec![one()])
        );
        assert_eq!(
            run(None, TransformType::RemoveAllFromArray(list(vec![one()]))),
            array(vec![])
        );
    }
}
