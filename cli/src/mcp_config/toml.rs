//! TOML: a table of its own at the end of the file, and away again by its lines.

use serde_json::{Map, Value};

use super::{EditError, line_of};

/// The members of the file, as JSON values; times become texts.
pub fn read(text: &str) -> Result<Map<String, Value>, EditError> {
    let table: toml::Table =
        text.trim_start_matches('\u{feff}')
            .parse()
            .map_err(|error: toml::de::Error| EditError::Syntax {
                line: error.span().map_or(1, |span| line_of(text, span.start)),
                reason: error.message().to_owned(),
            })?;
    match serde_json::to_value(table) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err(EditError::Entangled),
    }
}

/// Adds the table at the end of the file. One of the name that is there is taken out first.
pub fn put(text: &str, path: &[&str], name: &str, value: &Value) -> String {
    let mut text = take(text, path, name);
    let line_end = if text.contains("\r\n") && !text.replace("\r\n", "").contains('\n') {
        "\r\n"
    } else {
        "\n"
    };
    if !text.is_empty() {
        if !text.ends_with('\n') {
            text.push_str(line_end);
        }
        text.push_str(line_end);
    }
    let header: Vec<&str> = path.iter().copied().chain([name]).collect();
    text.push_str(&table(&header, value).replace('\n', line_end));
    text
}

fn table(header: &[&str], value: &Value) -> String {
    let mut text = format!(
        "[{}]\n",
        header
            .iter()
            .map(|part| key(part))
            .collect::<Vec<_>>()
            .join(".")
    );
    let mut inner = Vec::new();
    for (name, value) in value.as_object().map(super::in_order).into_iter().flatten() {
        match value {
            Value::Object(_) => inner.push((name, value)),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(Value::to_string).collect();
                text.push_str(&format!("{} = [{}]\n", key(name), items.join(", ")));
            }
            other => text.push_str(&format!("{} = {other}\n", key(name))),
        }
    }
    for (name, value) in inner {
        let header: Vec<&str> = header.iter().copied().chain([name.as_str()]).collect();
        text.push('\n');
        text.push_str(&table(&header, value));
    }
    text
}

/// A bare key, or one in quotes. JSON's escapes are TOML's.
fn key(name: &str) -> String {
    let bare = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if bare {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

/// Takes out the lines of the table and of the tables in it. The caller reads the result and compares: text that only looks like a
/// header is found out there.
pub fn take(text: &str, path: &[&str], name: &str) -> String {
    let wanted: Vec<&str> = path.iter().copied().chain([name]).collect();
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    // Comments and empty lines go with the table when more of it follows, and stay for what comes next when not.
    let mut waiting = String::new();
    for line in text.split_inclusive('\n') {
        if let Some(header) = header(line) {
            inside = header.starts_with(
                &wanted
                    .iter()
                    .map(|part| (*part).to_owned())
                    .collect::<Vec<_>>(),
            );
            if !inside {
                out.push_str(&waiting);
            }
            waiting.clear();
        }
        let trimmed = line.trim();
        if !inside {
            out.push_str(line);
        } else if trimmed.is_empty() || trimmed.starts_with('#') {
            waiting.push_str(line);
        } else {
            waiting.clear();
        }
    }
    out.push_str(&waiting);
    // The empty line that was put before it.
    if out.len() < text.len() && text.starts_with(&*out) && out.ends_with("\n\n") {
        out.pop();
    } else if out.len() < text.len() && text.starts_with(&*out) && out.ends_with("\r\n\r\n") {
        out.truncate(out.len() - 2);
    }
    out
}

/// The parts of a line `[a.b."c"]`; nothing for any other line.
fn header(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start_matches('\u{feff}').trim();
    if !line.starts_with('[') || line.starts_with("[[") {
        return None;
    }
    // Whatever stands in the brackets is read as TOML reads it.
    let end = line.rfind(']')?;
    let table: toml::Table = line[..=end].parse().ok()?;
    let mut parts = Vec::new();
    let mut table = &table;
    while let Some((key, value)) = table.iter().next() {
        parts.push(key.clone());
        table = value.as_table()?;
    }
    Some(parts)
}
