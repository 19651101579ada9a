//! Converts a write of a commit to an action of a DynamoDB transaction.
//!
//! Each action carries the condition of the write. A put or deletion also requires that its new
//! revision is above the existing one, whatever the clock shows. A `Count` has two forms, because
//! DynamoDB has no "create or add" with bounds: the adapter first tries to change a live record,
//! and creates one in the next round if there is none.

use std::ops::RangeInclusive;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Put, ReturnValuesOnConditionCheckFailure as OnFailure,
    TransactWriteItem, Update,
};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::item::{
    self, DOCUMENT, EXPIRES, Item, NOT_COUNTERS, PARTITION_KEY, REVISION, StoredItem,
};

const IS_ALIVE: &str = "attribute_exists(#d) AND (attribute_not_exists(#e) OR #e > :now)";
const IS_DEAD: &str = "(attribute_not_exists(#d) OR #e <= :now)";

/// The table and the time of a commit. The time tells live records from expired ones, and new
/// revisions are made from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) table: &'a str,
    pub(super) now: Timestamp,
    pub(super) first_revision: u64,
}

/// What earlier rounds of the same commit have found out about a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyKnowledge {
    /// The smallest revision that the key may get, one above the existing one.
    floor: u64,
    /// Whether no live record was found, so that a `Count` has to create one.
    is_dead: bool,
}

impl KeyKnowledge {
    /// Takes over the revision and the liveness of the item that a failed condition returned;
    /// `None` if there is no item.
    pub(super) fn learn_from(&mut self, held: Option<&StoredItem>) {
        self.floor = held.map_or(0, |held| held.revision.saturating_add(1));
        self.is_dead = held.is_none_or(|held| held.record.is_none());
    }
}

/// A part of a transaction, and the revision that a `Put` gives its record.
#[derive(Debug)]
pub(super) struct Action {
    pub(super) item: TransactWriteItem,
    pub(super) revision: Option<u64>,
}

/// Creates the action for `write`; `None` for a write that changes nothing and has no condition.
/// Fails with `Invalid` for an invalid document.
pub(super) fn build_action(
    write: &Write,
    known: KeyKnowledge,
    moment: Moment<'_>,
) -> Result<Option<Action>, StoreError> {
    let floor = known.floor.max(moment.first_revision);
    let action = match write {
        Write::Check {
            when: When::Any, ..
        } => return Ok(None),
        Write::Check { key, when } => Action {
            item: build_check(key, *when, moment)?,
            revision: None,
        },
        Write::Put {
            key,
            document,
            expires_at,
            when,
        } => {
            let revision = new_revision(*when, floor);
            let item = item::record_item(key, revision, document, *expires_at, moment.now)?;
            Action {
                item: build_put(item, *when, revision, moment)?,
                revision: Some(revision),
            }
        }
        Write::Delete { key, when } => {
            let revision = new_revision(*when, floor);
            let item = item::tombstone_item(key, revision, moment.now);
            Action {
                item: build_put(item, *when, revision, moment)?,
                revision: None,
            }
        }
        Write::Count {
            key,
            field,
            by,
            expires_at,
            ..
        // An earlier round has found no live record, so create it. The bounds were checked when
        // that round's answer was evaluated.
        } if known.is_dead => {
            let document = Document::from_value(&serde_json::json!({ field.as_str(): by }))?;
            let item = item::record_item(key, floor, &document, *expires_at, moment.now)?;
            Action {
                item: build_put(item, When::Absent, floor, moment)?,
                revision: None,
            }
        }
        Write::Count {
            key,
            field,
            by,
            min,
            max,
            ..
        } => Action {
            item: build_count(key, field, *by, *min..=*max, moment)?,
            revision: None,
        },
    };
    Ok(Some(action))
}

/// Returns the revision that the record gets. It is above the revision in the condition, if there
/// is one.
fn new_revision(when: When, floor: u64) -> u64 {
    match when {
        When::At(revision) => floor.max(revision.saturating_add(1)),
        When::Absent | When::Any => floor,
    }
}

fn build_put(
    item: Item,
    when: When,
    revision: u64,
    moment: Moment<'_>,
) -> Result<TransactWriteItem, StoreError> {
    let put = Put::builder()
        .set_item(Some(item))
        .expression_attribute_names("#r", REVISION);
    // `#r < :new` keeps revisions rising if this clock is behind the one that wrote the item. If it
    // does not hold, the transaction is cancelled, and the next round uses a higher revision.
    let condition = match when {
        When::Any => "attribute_not_exists(#r) OR #r < :new".to_owned(),
        When::Absent => format!("attribute_not_exists(#r) OR (#r < :new AND {IS_DEAD})"),
        When::At(_) => format!("#r = :held AND {IS_ALIVE}"),
    };
    let put = match when {
        When::At(held) => put.expression_attribute_values(":held", item::number_value(held)),
        _ => put.expression_attribute_values(":new", item::number_value(revision)),
    };
    let put = match when {
        // DynamoDB refuses a name or a value that no expression uses.
        When::Any => put,
        _ => put
            .expression_attribute_names("#d", DOCUMENT)
            .expression_attribute_names("#e", EXPIRES)
            .expression_attribute_values(":now", item::number_value(moment.now.unix())),
    };
    let put = put
        .condition_expression(condition)
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    Ok(TransactWriteItem::builder()
        .put(put.table_name(moment.table).build().map_err(build_error)?)
        .build())
}

fn build_check(
    key: &RecordKey,
    when: When,
    moment: Moment<'_>,
) -> Result<TransactWriteItem, StoreError> {
    let check = ConditionCheck::builder()
        .set_key(Some(item::key_attributes(key)))
        .expression_attribute_names("#d", DOCUMENT)
        .expression_attribute_names("#e", EXPIRES)
        .expression_attribute_values(":now", item::number_value(moment.now.unix()))
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    let check = match when {
        When::At(held) => check
            .condition_expression(format!("#r = :held AND {IS_ALIVE}"))
            .expression_attribute_names("#r", REVISION)
            .expression_attribute_values(":held", item::number_value(held)),
        // `Absent` must accept an expired record or a tombstone, whose items still exist.
        When::Absent | When::Any => check
            .condition_expression(format!("attribute_not_exists(#pk) OR {IS_DEAD}"))
            .expression_attribute_names("#pk", PARTITION_KEY),
    };
    Ok(TransactWriteItem::builder()
        .condition_check(
            check
                .table_name(moment.table)
                .build()
                .map_err(build_error)?,
        )
        .build())
}

/// Creates the action that adds to the counter of a live record if the sum stays within the bounds.
fn build_count(
    key: &RecordKey,
    field: &str,
    by: i64,
    bounds: RangeInclusive<i64>,
    moment: Moment<'_>,
) -> Result<TransactWriteItem, StoreError> {
    // A condition cannot compute a sum, so the bounds are shifted by the step and compared with the
    // old value. All values are within 2^53, so the differences do not overflow.
    let (low, high) = (bounds.start() - by, bounds.end() - by);
    let mut within = "#n BETWEEN :low AND :high".to_owned();
    let mut update = Update::builder();
    // An absent counter counts as 0, so it may only be absent if 0 is within the shifted bounds.
    if (low..=high).contains(&0) {
        // `x` lists the members with a counter's name that hold no integer. Such a member must fail
        // the condition.
        within.push_str(" OR (attribute_not_exists(#n) AND NOT contains(#x, :name))");
        update = update
            .expression_attribute_names("#x", NOT_COUNTERS)
            .expression_attribute_values(":name", AttributeValue::S(format!(" {field} ")));
    }
    let update = update
        .set_key(Some(item::key_attributes(key)))
        .update_expression(
            "SET #n = if_not_exists(#n, :zero) + :by, #r = if_not_exists(#r, :zero) + :one",
        )
        .condition_expression(format!("{IS_ALIVE} AND ({within})"))
        .expression_attribute_names("#n", item::counter_attribute(field))
        .expression_attribute_names("#r", REVISION)
        .expression_attribute_names("#d", DOCUMENT)
        .expression_attribute_names("#e", EXPIRES)
        .expression_attribute_values(":zero", item::number_value(0))
        .expression_attribute_values(":one", item::number_value(1))
        .expression_attribute_values(":by", item::number_value(by))
        .expression_attribute_values(":low", item::number_value(low))
        .expression_attribute_values(":high", item::number_value(high))
        .expression_attribute_values(":now", item::number_value(moment.now.unix()))
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    Ok(TransactWriteItem::builder()
        .update(
            update
                .table_name(moment.table)
                .build()
                .map_err(build_error)?,
        )
        .build())
}

fn build_error(error: BuildError) -> StoreError {
    StoreError::unavailable(error)
}
