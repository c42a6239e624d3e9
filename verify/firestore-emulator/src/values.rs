//! Values: their order, and how to reach them inside a document.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::proto::value::ValueType;
use crate::proto::{MapValue, Value};

/// The fields of a document or of a map.
pub(crate) type Fields = HashMap<String, Value>;

/// Firestore's order over all values: first by type, then by value.
pub(crate) fn compare(left: &Value, right: &Value) -> Ordering {
    use ValueType::*;
    let (Some(a), Some(b)) = (&left.value_type, &right.value_type) else {
        return left.value_type.is_some().cmp(&right.value_type.is_some());
    };
    rank(left).cmp(&rank(right)).then_with(|| match (a, b) {
        (BooleanValue(a), BooleanValue(b)) => a.cmp(b),
        (IntegerValue(a), IntegerValue(b)) => a.cmp(b),
        (IntegerValue(a), DoubleValue(b)) => integer_to_double(*a, *b),
        (DoubleValue(a), IntegerValue(b)) => integer_to_double(*b, *a).reverse(),
        (DoubleValue(a), DoubleValue(b)) => doubles(*a, *b),
        (TimestampValue(a), TimestampValue(b)) => (a.seconds, a.nanos).cmp(&(b.seconds, b.nanos)),
        (StringValue(a), StringValue(b)) => a.cmp(b),
        (BytesValue(a), BytesValue(b)) => a.cmp(b),
        (ReferenceValue(a), ReferenceValue(b)) => a.split('/').cmp(b.split('/')),
        (GeoPointValue(a), GeoPointValue(b)) => a
            .latitude
            .total_cmp(&b.latitude)
            .then(a.longitude.total_cmp(&b.longitude)),
        (ArrayValue(a), ArrayValue(b)) => lists(a.values.iter(), b.values.iter()),
        (MapValue(a), MapValue(b)) => maps(&a.fields, &b.fields),
        _ => Ordering::Equal,
    })
}

/// Types in their order; numbers of both kinds are one type.
pub(crate) fn rank(value: &Value) -> u8 {
    use ValueType::*;
    match &value.value_type {
        None => 0,
        Some(NullValue(_)) => 1,
        Some(BooleanValue(_)) => 2,
        Some(IntegerValue(_) | DoubleValue(_)) => 3,
        Some(TimestampValue(_)) => 4,
        Some(StringValue(_)) => 5,
        Some(BytesValue(_)) => 6,
        Some(ReferenceValue(_)) => 7,
        Some(GeoPointValue(_)) => 8,
        Some(ArrayValue(_)) => 9,
        Some(MapValue(_)) => 10,
        Some(_) => 11,
    }
}

/// The value at `path`.
pub(crate) fn get<'a>(fields: &'a Fields, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = fields.get(first)?;
    match (&value.value_type, rest) {
        (_, []) => Some(value),
        (Some(ValueType::MapValue(map)), _) => get(&map.fields, rest),
        _ => None,
    }
}

/// Puts `value` at `path`; what stands in the way and is no map is replaced by one.
pub(crate) fn set(fields: &mut Fields, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            fields.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let inner = fields.entry(first.clone()).or_default();
            if !matches!(inner.value_type, Some(ValueType::MapValue(_))) {
                inner.value_type = Some(ValueType::MapValue(MapValue::default()));
            }
            if let Some(ValueType::MapValue(map)) = &mut inner.value_type {
                set(&mut map.fields, rest, value);
            }
        }
    }
}

/// Takes away what is at `path`.
pub(crate) fn remove(fields: &mut Fields, path: &[String]) {
    match path {
        [] => {}
        [last] => {
            fields.remove(last);
        }
        [first, rest @ ..] => {
            if let Some(Value {
                value_type: Some(ValueType::MapValue(map)),
            }) = fields.get_mut(first)
            {
                remove(&mut map.fields, rest);
            }
        }
    }
}

/// Not-a-number comes before all other numbers, and the two zeros are equal.
fn doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Exact where a conversion would round.
fn integer_to_double(integer: i64, double: f64) -> Ordering {
    if double.is_nan() {
        return Ordering::Greater;
    }
    // The cast saturates; a double past the range of integers is decided by the first comparison.
    let whole = double.trunc() as i64;
    doubles(integer as f64, double)
        .then_with(|| integer.cmp(&whole))
        .then_with(|| doubles(0.0, double.fract()))
}

fn lists<'a>(
    mut left: impl Iterator<Item = &'a Value>,
    mut right: impl Iterator<Item = &'a Value>,
) -> Ordering {
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (a, b) => match (a, b) {
                (Some(a), Some(b)) if compare(a, b).is_eq() => {}
                (Some(a), Some(b)) => return compare(a, b),
                (a, b) => return a.is_some().cmp(&b.is_some()),
            },
        }
    }
}

fn maps(left: &Fields, right: &Fields) -> Ordering {
    let sorted = |fields: &Fields| {
        let mut entries: Vec<_> = fields.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries
    };
    let (left, right) = (sorted(left), sorted(right));
    for ((a_name, a), (b_name, b)) in left.iter().zip(&right) {
        let order = a_name.cmp(b_name).then_with(|| compare(a, b));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(value_type: ValueType) -> Value {
        Value {
            value_type: Some(value_type),
        }
    }

    #[test]
    fn values_are_ordered_by_type_and_then_by_value() {
        use ValueType::*;
        let ascending = [
            value(NullValue(0)),
            value(BooleanValue(false)),
            value(BooleanValue(true)),
            value(DoubleValue(f64::NAN)),
            value(DoubleValue(-1.5)),
            value(IntegerValue(-1)),
            value(IntegerValue(9_007_199_254_740_992)),
            value(IntegerValue(9_007_199_254_740_993)),
            value(DoubleValue(1e300)),
            value(StringValue("a".into())),
            value(StringValue("b".into())),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
        assert!(compare(&value(IntegerValue(1)), &value(DoubleValue(1.0))).is_eq());
        assert!(compare(&value(DoubleValue(1.5)), &value(IntegerValue(1))).is_gt());
    }

    #[test]
    fn nested_fields_are_set_and_removed() {
        let path = ["a".to_owned(), "b".to_owned()];
        let mut fields = Fields::new();
        set(&mut fields, &path, value(ValueType::IntegerValue(1)));
        assert!(get(&fields, &path).is_some());
        remove(&mut fields, &path);
        assert!(get(&fields, &path).is_none());
        assert!(fields.contains_key("a"));
    }
}
