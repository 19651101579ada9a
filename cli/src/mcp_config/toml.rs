//! Edits of TOML configuration files. An entry is a table of its own (`[path.name]`) at the end of
//! the file.

use std::ops::Range;

use serde_json::{Map, Value};
use toml_edit::{Document, DocumentMut, Item, Table};

use super::{EditError, in_order};
use crate::text::line_of;

/// Returns the members of the file as JSON values. Dates become objects.
pub fn read_members(text: &str) -> Result<Map<String, Value>, EditError> {
    let syntax = |error: toml::de::Error| EditError::Syntax {
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        reason: error.message().to_owned(),
    };
    let table: toml::Table = text
        .trim_start_matches('\u{feff}')
        .parse()
        .map_err(syntax)?;
    match serde_json::to_value(table) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err(EditError::WouldChangeOtherEntries),
    }
}

/// Returns `text` without the entry of this name, if any, and with the new one as the last table of
/// the file.
pub fn put_entry(
    text: &str,
    path: &[&str],
    name: &str,
    value: &Value,
) -> Result<String, EditError> {
    let mut item = Item::Table(to_table(value)?);
    // Only the entry gets a header line: the tables of its path are implicit.
    for part in [name].into_iter().chain(path.iter().rev().copied()) {
        let mut outer = Table::new();
        outer.set_implicit(true);
        outer.insert(part, item);
        item = Item::Table(outer);
    }
    let mut entry = DocumentMut::new();
    *entry.as_item_mut() = item;
    let mut text = remove_entry(text, path, name)?;
    if !text.is_empty() {
        let missing = if text.ends_with('\n') { "\n" } else { "\n\n" };
        text.push_str(&with_line_ends_of(&text, missing));
    }
    text.push_str(&with_line_ends_of(&text, entry.to_string().trim_start()));
    Ok(text)
}

fn with_line_ends_of(text: &str, lines: &str) -> String {
    // A file that mixes line ends has no convention to follow.
    if text.contains("\r\n") && !text.replace("\r\n", "").contains('\n') {
        lines.replace('\n', "\r\n")
    } else {
        lines.to_owned()
    }
}

fn to_table(value: &Value) -> Result<Table, EditError> {
    let mut table = Table::new();
    for (name, value) in value.as_object().map(in_order).into_iter().flatten() {
        let item = if value.is_object() {
            Item::Table(self::to_table(value)?)
        } else {
            // JSON strings, numbers and arrays are also valid TOML.
            let mut value: toml_edit::Value = value
                .to_string()
                .parse()
                .map_err(|_| EditError::WouldChangeOtherEntries)?;
            // The parsed list still has the spacing of JSON.
            if let Some(list) = value.as_array_mut() {
                list.fmt();
            }
            Item::Value(value)
        };
        table.insert(name, item);
    }
    Ok(table)
}

/// Returns `text` without the lines of the entry's table and of its nested tables. Comments after
/// its last value stay, because they belong to what follows.
pub fn remove_entry(text: &str, path: &[&str], name: &str) -> Result<String, EditError> {
    let document = Document::parse(text).map_err(|_| EditError::WouldChangeOtherEntries)?;
    let mut item = document.as_item();
    for part in path.iter().chain([&name]) {
        let Some(inner) = item.get(part) else {
            return Ok(text.to_owned());
        };
        item = inner;
    }
    let table = item.as_table().ok_or(EditError::WouldChangeOtherEntries)?;
    let mut ranges = Vec::new();
    collect_spans(table, &mut ranges);
    ranges.sort_by_key(|range| range.start);
    let mut out = text.to_owned();
    // Remove from the end, so that the ranges before stay valid.
    for range in ranges.into_iter().rev() {
        let line_end = out[range.end..].find('\n');
        let end = line_end.map_or(out.len(), |at| range.end + at + 1);
        out.replace_range(range.start..end, "");
    }
    // Adding an entry puts a blank line before its table, so remove that line too.
    if out.len() < text.len() && text.starts_with(&out) {
        for blank in ["\r\n\r\n", "\n\n"] {
            if out.ends_with(blank) {
                out.truncate(out.len() - blank.len() / 2);
            }
        }
    }
    Ok(out)
}

/// Collects the byte ranges of the table's header and values, and of its nested tables.
fn collect_spans(table: &Table, ranges: &mut Vec<Range<usize>>) {
    let values = table.get_values().into_iter();
    let ends = values.filter_map(|(_, value)| Some(value.span()?.end));
    if let Some(header) = table.span() {
        ranges.push(header.start..ends.max().unwrap_or(header.end));
    }
    let inner = table.iter().filter_map(|(_, item)| item.as_table());
    // Dotted tables are lines of the outer table, whose range includes them.
    for table in inner.filter(|table| !table.is_dotted()) {
        collect_spans(table, ranges);
    }
}
