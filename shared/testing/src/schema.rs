//! Describes JSON Schemas in words, for the pages about the answers of the service and the output
//! of commands.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Makes a description a single line that can stand in a table.
pub fn line(description: &str) -> String {
    description.replace('\n', " ").replace('|', "\\|")
}

/// Returns the members of an object as a table, with `?` after those that may be absent. For any
/// other schema, returns its type in words.
pub fn table(schema: &Value) -> String {
    // If a value has one of several kinds, each with its own members, make a table for each kind.
    let variants = schema["oneOf"].as_array();
    if let Some(variants) = variants.filter(|all| all.iter().all(|it| it["properties"].is_object()))
    {
        let part = |variant: &Value| {
            let note = line(variant["description"].as_str().unwrap_or_default());
            format!("{note}\n\n{}", table(variant))
        };
        return variants.iter().map(part).collect::<Vec<_>>().join("\n");
    }
    let Some(members) = schema["properties"].as_object() else {
        return kind(schema);
    };
    let required = schema["required"].as_array();
    let mut table = "| member | type | meaning |\n|---|---|---|\n".to_owned();
    for (name, member) in members {
        let is_required = required.is_some_and(|names| names.contains(&json!(name)));
        let mark = if is_required { "" } else { "?" };
        let note = line(member["description"].as_str().unwrap_or_default());
        let words = type_words(member);
        let _ = writeln!(table, "| `{name}{mark}` | {words} | {note} |");
    }
    table
}

/// Returns the type of a schema without members as a paragraph outside of a table.
pub fn kind(schema: &Value) -> String {
    format!("Type: {}.\n", type_words(schema).replace("\\|", "|"))
}

/// Describes a type in words, with links to the types that it names: `text`, `number or null`,
/// `list of [Slug](#slug)`.
pub fn type_words(schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        let name = path.rsplit('/').next().unwrap_or(path);
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(word) = schema["const"].as_str() {
        return format!("`{word}`");
    }
    if let Some(words) = schema["enum"].as_array() {
        let word = |word: &Value| format!("`{}`", word.as_str().unwrap_or("null"));
        return joined(words.iter().map(word));
    }
    for union in ["anyOf", "oneOf"] {
        if let Some(kinds) = schema[union].as_array() {
            return joined(kinds.iter().map(type_words));
        }
    }
    match &schema["type"] {
        Value::String(kind) => named(schema, kind),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            joined(kinds.map(|kind| named(schema, kind)))
        }
        _ => "any".to_owned(),
    }
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" or ")
}

/// Describes one of the basic types of JSON, with its bounds.
fn named(schema: &Value, kind: &str) -> String {
    let bounds = |least: &str, most: &str| match (schema.get(least), schema.get(most)) {
        (Some(least), Some(most)) => format!(" ({least} to {most})"),
        (Some(least), None) if *least != 0 => format!(" (at least {least})"),
        (None, Some(most)) => format!(" (at most {most})"),
        _ => String::new(),
    };
    match kind {
        "string" => match schema["pattern"].as_str() {
            Some(pattern) => format!("text `{}`", line(pattern)),
            None => format!("text{}", bounds("minLength", "maxLength")),
        },
        "integer" => format!("number{}", bounds("minimum", "maximum")),
        "array" if schema["prefixItems"].is_array() => {
            let items = schema["prefixItems"].as_array().into_iter().flatten();
            let items: Vec<_> = items.map(type_words).collect();
            format!("({})", items.join(", "))
        }
        "array" => {
            let items = type_words(&schema["items"]);
            format!("list of {items}{}", bounds("minItems", "maxItems"))
        }
        "object" if schema["additionalProperties"].is_object() => {
            let members = type_words(&schema["additionalProperties"]);
            format!("object with {members} for each name")
        }
        kind => kind.to_owned(),
    }
}
