//! Reads the text of office documents, which stands between XML tags, and of notebooks, which are
//! JSON.

use super::ContainerContent;
use crate::rule::{position, replace};

/// Tells whether a part of an office document holds text that readers see, or code of its macros.
pub(super) fn is_office_text(name: &[u8]) -> bool {
    let begins = [
        b"word/".as_slice(),
        b"xl/",
        b"ppt/",
        b"content.xml",
        b"oebps/",
        b"docprops/",
    ];
    let name = name.to_ascii_lowercase();
    name.ends_with(b".xml") && begins.iter().any(|begin| name.starts_with(begin))
}

/// Adds the cells of a notebook as parts: text as Markdown, code as Python, outputs as plain text.
/// Returns `None` if the bytes are not a notebook.
pub(super) fn add_notebook(bytes: &[u8], content: &mut ContainerContent) -> Option<()> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    for (number, cell) in value.get("cells")?.as_array()?.iter().enumerate() {
        let ending = match cell.get("cell_type").and_then(|kind| kind.as_str()) {
            Some("code") => "py",
            _ => "md",
        };
        let source = cell.get("source").map(joined_lines).unwrap_or_default();
        let mut parts = vec![(format!("cell-{number}.{ending}"), source)];
        // An agent reads outputs too, and their author can write them without running any code.
        let outputs = cell.get("outputs").and_then(|outputs| outputs.as_array());
        let outputs: String = outputs.into_iter().flatten().map(output_text).collect();
        if !outputs.is_empty() {
            parts.push((format!("output-{number}.md"), outputs));
        }
        for (name, text) in parts {
            if content.add_part(name.as_bytes(), text.as_bytes()).is_none() {
                return Some(());
            }
        }
    }
    Some(())
}

/// Returns the text of an output: that of a stream, or all of its data that is text.
fn output_text(output: &serde_json::Value) -> String {
    let mut text = output.get("text").map(joined_lines).unwrap_or_default();
    let data = output.get("data").and_then(|data| data.as_object());
    for (kind, data) in data.into_iter().flatten() {
        if kind.starts_with("text/") {
            text.push_str(&joined_lines(data));
            text.push('\n');
        }
    }
    text
}

/// Returns a text that the notebook may store as a list of lines.
fn joined_lines(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(lines) => lines.iter().filter_map(|line| line.as_str()).collect(),
        _ => String::new(),
    }
}

/// Removes the tags from XML. The end of a paragraph, a row or an element of text becomes a line
/// break. Comments stay as they are.
pub(super) fn strip_tags(xml: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(xml.len() / 2);
    let mut rest = xml;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        // The result is read as Markdown, which marks comments as hidden from people.
        if rest.starts_with(b"<!--") {
            let end = position(rest, "-->");
            let end = end.map_or(rest.len(), |end| end + 3);
            text.push(b'\n');
            text.extend_from_slice(&rest[..end]);
            text.push(b'\n');
            rest = &rest[end..];
            continue;
        }
        let end = rest
            .iter()
            .position(|byte| *byte == b'>')
            .map_or(rest.len(), |end| end + 1);
        let tag = &rest[..end];
        let name: Vec<u8> = tag
            .iter()
            .copied()
            .skip(1)
            .take_while(|byte| *byte == b'/' || byte.is_ascii_alphanumeric() || *byte == b':')
            .collect();
        if [
            b"/w:p".as_slice(),
            b"/a:p",
            b"/si",
            b"/text",
            b"/desc",
            b"/title",
            b"/metadata",
            b"/p",
            b"w:br",
            b"/row",
            b"/text:p",
        ]
        .contains(&name.as_slice())
        {
            text.push(b'\n');
        }
        rest = &rest[end..];
    }
    text.extend_from_slice(rest);
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ];
    // `&amp;` comes last, since otherwise `&amp;lt;` would be decoded twice.
    for (entity, plain) in entities {
        text = replace(&text, entity, plain);
    }
    text
}
