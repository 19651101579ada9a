//! Edits of JSON configuration files, which may have comments and trailing commas. `path` is the
//! list of member names from the top-level object to the table of entries.

use jsonc_parser::{
    CollectOptions, ParseOptions, ast,
    cst::{CstInputValue, CstRootNode},
    parse_to_ast,
};
use serde_json::{Map, Value};

use super::{EditError, in_order};

const BOM: char = '\u{feff}';

/// Comments and trailing commas are the only accepted extensions of JSON.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Returns the members of the top-level object, or none for an empty file.
pub fn read_members(text: &str) -> Result<Map<String, Value>, EditError> {
    match parse_root(text)?.to_serde_value() {
        None => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members),
        Some(_) => Err(EditError::Syntax {
            line: 1,
            reason: "the file is not an object".to_owned(),
        }),
    }
}

fn parse_root(text: &str) -> Result<CstRootNode, EditError> {
    // The parser does not accept a byte order mark, which some editors write.
    CstRootNode::parse(text.trim_start_matches(BOM), &OPTIONS).map_err(|error| EditError::Syntax {
        line: u32::try_from(error.line_display()).unwrap_or(u32::MAX),
        reason: error.kind().to_string(),
    })
}

/// Returns `text` with this entry added to the table at `path`, or in place of the entry of the
/// same name. Missing tables on the path are created.
pub fn put_entry(
    text: &str,
    path: &[&str],
    name: &str,
    value: &Value,
) -> Result<String, EditError> {
    let root = parse_root(text)?;
    let mut table = root
        .object_value_or_create()
        .ok_or(EditError::WouldChangeOtherEntries)?;
    for part in path {
        table = table
            .object_value_or_create(part)
            .ok_or_else(|| EditError::NotATable((*part).to_owned()))?;
    }
    if let Some(property) = table.get(name) {
        property.set_value(to_input(value));
    } else if let Some(at) = end_of_one_line_table(text, path) {
        let (before, after) = text.split_at(at);
        let (name, value) = (Value::from(name), one_line(value));
        return Ok(format!("{before}, {name}: {value}{after}"));
    } else {
        table.append(name, to_input(value));
    }
    Ok(print_with_mark(text, &root))
}

/// Returns the byte offset of the end of the table's last member if the whole table is on one line.
/// `CstObject::append` would spread such a table over several lines.
fn end_of_one_line_table(text: &str, path: &[&str]) -> Option<usize> {
    let bom = text.len() - text.trim_start_matches(BOM).len();
    let parsed = parse_to_ast(&text[bom..], &CollectOptions::default(), &OPTIONS).ok()?;
    let ast::Value::Object(root) = parsed.value? else {
        return None;
    };
    let mut table = &root;
    for part in path {
        table = table.get_object(part)?;
    }
    let lines = &text[bom..][table.range.start..table.range.end];
    let last = table.properties.last()?;
    (!lines.contains('\n')).then_some(bom + last.range.end)
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, _)| {
                format!("{}: {}", Value::from(name.as_str()), one_line(value))
            };
            let members: Vec<_> = in_order(members).into_iter().map(member).collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(one_line).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns `text` without the entry and its comma.
pub fn remove_entry(text: &str, path: &[&str], name: &str) -> Result<String, EditError> {
    let root = parse_root(text)?;
    let mut table = root.object_value();
    for part in path {
        table = table.and_then(|table| table.object_value(part));
    }
    if let Some(property) = table.and_then(|table| table.get(name)) {
        property.remove();
    }
    Ok(print_with_mark(text, &root))
}

fn print_with_mark(before: &str, root: &CstRootNode) -> String {
    // The byte order mark is part of the rest of the file, which must not change.
    let mark = before.chars().next().filter(|first| *first == BOM);
    format!("{}{root}", mark.map_or_else(String::new, String::from))
}

fn to_input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        // Use the number's own text, so that a conversion does not change its digits.
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(to_input).collect()),
        Value::Object(members) => {
            let members = in_order(members).into_iter();
            let members = members.map(|(name, value)| (name.clone(), to_input(value)));
            CstInputValue::Object(members.collect())
        }
    }
}
