//! Structured queries: one collection, filters, order, limit, projection.

use std::cmp::Ordering;
use std::sync::Arc;

use tonic::Status;

use crate::path::{check_id, check_parent, field_path};
use crate::proto::structured_query::composite_filter::Operator as Joined;
use crate::proto::structured_query::field_filter::Operator as Compared;
use crate::proto::structured_query::filter::FilterType;
use crate::proto::structured_query::unary_filter::{OperandType, Operator as Unary};
use crate::proto::structured_query::{Direction, FieldReference, Filter, Projection};
use crate::proto::value::ValueType;
use crate::proto::{Document, DocumentMask, StructuredQuery, Value};
use crate::values::{self, Fields, compare, rank};
use crate::writes::Documents;

/// How many values `IN` takes.
const MOST_VALUES: usize = 30;

/// A query below a parent, checked: running it cannot fail.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    prefix: String,
    filters: Vec<Condition>,
    order: Vec<(Path, Direction)>,
    offset: usize,
    limit: Option<usize>,
    projection: Option<Vec<Path>>,
}

/// A field, or the document's name.
#[derive(Debug, Clone)]
enum Path {
    Name,
    Field(Vec<String>),
}

#[derive(Debug, Clone)]
enum Condition {
    Compare(Path, Compared, Value),
    Is(Path, Unary),
}

impl Query {
    /// Checks `query`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what makes no sense, `UNIMPLEMENTED` for what this emulator cannot do.
    pub(crate) fn new(parent: &str, query: &StructuredQuery) -> Result<Self, Status> {
        check_parent(parent)?;
        let [from] = query.from.as_slice() else {
            return Err(unimplemented("queries over other than one collection"));
        };
        check_id(&from.collection_id)?;
        if from.all_descendants {
            return Err(unimplemented("collection groups"));
        }
        if query.start_at.is_some() || query.end_at.is_some() || query.find_nearest.is_some() {
            return Err(unimplemented("cursors and vectors"));
        }
        let mut filters = Vec::new();
        if let Some(filter) = &query.r#where {
            add_conditions(filter, &mut filters)?;
        }
        let mut order = Vec::new();
        for by in &query.order_by {
            let direction = Direction::try_from(by.direction).unwrap_or(Direction::Unspecified);
            order.push((path(by.field.as_ref())?, direction));
        }
        if order.is_empty() {
            // Ranges are answered in the order of their field.
            order.extend(filters.iter().find_map(|condition| match condition {
                Condition::Compare(path, op, _)
                    if !matches!(op, Compared::Equal | Compared::In) =>
                {
                    Some((path.clone(), Direction::Ascending))
                }
                _ => None,
            }));
        }
        let limit = match query.limit {
            Some(limit) => Some(usize::try_from(limit).map_err(|_| negative("limit"))?),
            None => None,
        };
        Ok(Self {
            prefix: format!("{parent}/{}/", from.collection_id),
            filters,
            order,
            offset: usize::try_from(query.offset).map_err(|_| negative("offset"))?,
            limit,
            projection: query.select.as_ref().map(projection).transpose()?,
        })
    }

    /// Whether the document of that name can be in the result.
    pub(crate) fn covers(&self, name: &str) -> bool {
        name.strip_prefix(&self.prefix)
            .is_some_and(|id| !id.contains('/'))
    }

    /// The documents that fit, in order, with all their fields.
    pub(crate) fn run(&self, documents: &Documents) -> Vec<Arc<Document>> {
        let mut found: Vec<_> = documents
            .range(self.prefix.clone()..)
            .take_while(|(name, _)| name.starts_with(&self.prefix))
            .filter(|(name, document)| self.covers(name) && self.fits(document))
            .map(|(_, document)| Arc::clone(document))
            .collect();
        if !self.order.is_empty() {
            found.sort_by(|left, right| self.compare(left, right));
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        found.into_iter().skip(self.offset).take(limit).collect()
    }

    /// `document` with the fields that the query selects.
    pub(crate) fn project(&self, document: &Document) -> Document {
        match &self.projection {
            None => document.clone(),
            Some(paths) => {
                let fields = paths.iter().filter_map(|path| match path {
                    Path::Name => None,
                    Path::Field(path) => Some(path.as_slice()),
                });
                with_fields(document, fields)
            }
        }
    }

    fn fits(&self, document: &Document) -> bool {
        let ordered = self
            .order
            .iter()
            .all(|(path, _)| read(document, path).is_some());
        ordered
            && self
                .filters
                .iter()
                .all(|condition| condition.holds(document))
    }

    fn compare(&self, left: &Document, right: &Document) -> Ordering {
        for (path, direction) in &self.order {
            let order = match (read(left, path), read(right, path)) {
                (Some(left), Some(right)) => compare(&left, &right),
                (left, right) => left.is_some().cmp(&right.is_some()),
            };
            if order.is_ne() {
                return turned(order, *direction);
            }
        }
        // Ties are in the order of names, in the direction of the last field.
        let last = self
            .order
            .last()
            .map_or(Direction::Ascending, |(_, last)| *last);
        turned(left.name.cmp(&right.name), last)
    }
}

impl Condition {
    fn holds(&self, document: &Document) -> bool {
        match self {
            Self::Compare(path, Compared::In, wanted) => {
                read(document, path).is_some_and(|value| {
                    items(wanted)
                        .iter()
                        .any(|it| is(&value, Compared::Equal, it))
                })
            }
            Self::Compare(path, op, wanted) => {
                read(document, path).is_some_and(|value| is(&value, *op, wanted))
            }
            Self::Is(path, op) => read(document, path).is_some_and(|value| {
                matches!(
                    (op, &value.value_type),
                    (Unary::IsNull, Some(ValueType::NullValue(_)))
                ) || matches!(
                    (op, &value.value_type),
                    (Unary::IsNan, Some(ValueType::DoubleValue(number))) if number.is_nan()
                )
            }),
        }
    }
}

fn is(value: &Value, op: Compared, wanted: &Value) -> bool {
    let order = compare(value, wanted);
    rank(value) == rank(wanted)
        && match op {
            Compared::LessThan => order.is_lt(),
            Compared::LessThanOrEqual => order.is_le(),
            Compared::GreaterThan => order.is_gt(),
            Compared::GreaterThanOrEqual => order.is_ge(),
            _ => order.is_eq(),
        }
}

/// The items of an array; none of anything else.
fn items(value: &Value) -> &[Value] {
    match &value.value_type {
        Some(ValueType::ArrayValue(array)) => &array.values,
        _ => &[],
    }
}

/// `document` with only the fields that `mask` names.
pub(crate) fn masked(document: &Document, mask: Option<&DocumentMask>) -> Result<Document, Status> {
    let Some(mask) = mask else {
        return Ok(document.clone());
    };
    let paths = mask
        .field_paths
        .iter()
        .map(|text| field_path(text))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(with_fields(document, paths.iter().map(Vec::as_slice)))
}

fn with_fields<'a>(document: &Document, paths: impl Iterator<Item = &'a [String]>) -> Document {
    let mut fields = Fields::new();
    for path in paths {
        if let Some(value) = values::get(&document.fields, path) {
            values::set(&mut fields, path, value.clone());
        }
    }
    Document {
        name: document.name.clone(),
        fields,
        create_time: document.create_time,
        update_time: document.update_time,
    }
}

fn read(document: &Document, path: &Path) -> Option<Value> {
    match path {
        Path::Name => Some(Value {
            value_type: Some(ValueType::ReferenceValue(document.name.clone())),
        }),
        Path::Field(path) => values::get(&document.fields, path).cloned(),
    }
}

fn turned(order: Ordering, direction: Direction) -> Ordering {
    match direction {
        Direction::Descending => order.reverse(),
        Direction::Ascending | Direction::Unspecified => order,
    }
}

fn path(field: Option<&FieldReference>) -> Result<Path, Status> {
    let text = field.map_or("", |field| field.field_path.as_str());
    match text {
        "__name__" => Ok(Path::Name),
        _ => field_path(text).map(Path::Field),
    }
}

fn projection(select: &Projection) -> Result<Vec<Path>, Status> {
    let paths = select.fields.iter().map(|field| path(Some(field)));
    paths.collect()
}

fn add_conditions(filter: &Filter, into: &mut Vec<Condition>) -> Result<(), Status> {
    match &filter.filter_type {
        Some(FilterType::CompositeFilter(all)) if all.op == Joined::And as i32 => all
            .filters
            .iter()
            .try_for_each(|part| add_conditions(part, into)),
        Some(FilterType::FieldFilter(filter)) => {
            let op = Compared::try_from(filter.op).unwrap_or(Compared::Unspecified);
            if !matches!(
                op,
                Compared::Equal
                    | Compared::LessThan
                    | Compared::LessThanOrEqual
                    | Compared::GreaterThan
                    | Compared::GreaterThanOrEqual
                    | Compared::In
            ) {
                return Err(unimplemented("this comparison"));
            }
            let value = filter.value.clone().unwrap_or_default();
            if op == Compared::In && !(1..=MOST_VALUES).contains(&items(&value).len()) {
                return Err(Status::invalid_argument(format!(
                    "'IN' requires an array of 1 to {MOST_VALUES} values"
                )));
            }
            into.push(Condition::Compare(path(filter.field.as_ref())?, op, value));
            Ok(())
        }
        Some(FilterType::UnaryFilter(filter)) => {
            let op = Unary::try_from(filter.op).unwrap_or(Unary::Unspecified);
            if !matches!(op, Unary::IsNull | Unary::IsNan) {
                return Err(unimplemented("this filter"));
            }
            let field = filter
                .operand_type
                .as_ref()
                .map(|OperandType::Field(field)| field);
            into.push(Condition::Is(path(field)?, op));
            Ok(())
        }
        _ => Err(unimplemented("this filter")),
    }
}

fn unimplemented(what: &str) -> Status {
    Status::unimplemented(format!("this emulator does not do {what}"))
}

fn negative(field: &str) -> Status {
    Status::invalid_argument(format!("{field} is negative"))
}
