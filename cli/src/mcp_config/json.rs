//! JSON with the freedoms that configuration files take: comments, and a comma after the last member.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{EditError, line_of};

/// How deep values may be nested.
const DEPTH: usize = 128;

/// The members of the object that the text is.
pub fn read(text: &str) -> Result<Map<String, Value>, EditError> {
    let text = if is_blank(text) { "{}" } else { text };
    match parse(text)?.value {
        Value::Object(members) => Ok(members),
        _ => Err(EditError::Syntax {
            line: 1,
            reason: "the file is no object".to_owned(),
        }),
    }
}

fn is_blank(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim().is_empty()
}

/// A value and where it stands.
struct Node {
    span: Range<usize>,
    value: Value,
    members: Vec<Member>,
}

struct Member {
    key: String,
    start: usize,
    node: Node,
    /// Where the comma after it stands.
    comma: Option<usize>,
}

fn parse(text: &str) -> Result<Node, EditError> {
    let mut parser = Parser { text, at: 0 };
    if text.starts_with('\u{feff}') {
        parser.at = '\u{feff}'.len_utf8();
    }
    let node = parser.value(0)?;
    parser.space()?;
    if parser.at < text.len() {
        return Err(parser.wrong("there is more after the end"));
    }
    Ok(node)
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn wrong(&self, reason: impl Into<String>) -> EditError {
        EditError::Syntax {
            line: line_of(self.text, self.at),
            reason: reason.into(),
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Passes over white space and comments.
    fn space(&mut self) -> Result<(), EditError> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                let end = trimmed
                    .find("*/")
                    .ok_or_else(|| self.wrong("a comment has no end"))?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, EditError> {
        if depth > DEPTH {
            return Err(self.wrong("values are nested too deep"));
        }
        self.space()?;
        let start = self.at;
        match self.rest().bytes().next() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let value = Value::String(self.string()?);
                Ok(self.plain(start, value))
            }
            Some(_) => {
                let length = self
                    .rest()
                    .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')))
                    .unwrap_or(self.rest().len());
                let word = &self.rest()[..length];
                let value =
                    serde_json::from_str(word).map_err(|_| self.wrong("a value is expected"))?;
                self.at += length;
                Ok(self.plain(start, value))
            }
            None => Err(self.wrong("a value is expected, and the file ends")),
        }
    }

    fn plain(&self, start: usize, value: Value) -> Node {
        Node {
            span: start..self.at,
            value,
            members: Vec::new(),
        }
    }

    fn string(&mut self) -> Result<String, EditError> {
        let bytes = self.rest().as_bytes();
        let mut end = 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => return Err(self.wrong("a text has no end")),
            }
        }
        let text = serde_json::from_str(&self.rest()[..=end])
            .map_err(|error| self.wrong(error.to_string()))?;
        self.at += end + 1;
        Ok(text)
    }

    fn array(&mut self, depth: usize) -> Result<Node, EditError> {
        let start = self.at;
        self.at += 1;
        let mut values = Vec::new();
        loop {
            self.space()?;
            if self.rest().starts_with(']') {
                self.at += 1;
                return Ok(self.plain(start, Value::Array(values)));
            }
            values.push(self.value(depth + 1)?.value);
            self.space()?;
            if self.rest().starts_with(',') {
                self.at += 1;
            } else if !self.rest().starts_with(']') {
                return Err(self.wrong("`,` or `]` is expected"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node, EditError> {
        let start = self.at;
        self.at += 1;
        let mut members: Vec<Member> = Vec::new();
        let mut values = Map::new();
        loop {
            self.space()?;
            if self.rest().starts_with('}') {
                self.at += 1;
                return Ok(Node {
                    span: start..self.at,
                    value: Value::Object(values),
                    members,
                });
            }
            if !self.rest().starts_with('"') {
                return Err(self.wrong("a name in quotes or `}` is expected"));
            }
            let key_at = self.at;
            let key = self.string()?;
            self.space()?;
            if !self.rest().starts_with(':') {
                return Err(self.wrong("`:` is expected"));
            }
            self.at += 1;
            let node = self.value(depth + 1)?;
            if values.insert(key.clone(), node.value.clone()).is_some() {
                return Err(self.wrong(format!("`{key}` stands there twice")));
            }
            self.space()?;
            let comma = self.rest().starts_with(',').then_some(self.at);
            if comma.is_some() {
                self.at += 1;
            } else if !self.rest().starts_with('}') {
                return Err(self.wrong("`,` or `}` is expected"));
            }
            members.push(Member {
                key,
                start: key_at,
                node,
                comma,
            });
        }
    }
}

/// Adds the entry, or puts it in the place of the one that is there.
pub fn put(text: &str, path: &[&str], name: &str, value: &Value) -> Result<String, EditError> {
    let text = if is_blank(text) { "{}\n" } else { text };
    let root = parse(text)?;
    let mut table = &root;
    for (at, part) in path.iter().enumerate() {
        match table.members.iter().find(|member| member.key == *part) {
            Some(member) if member.node.value.is_object() => table = &member.node,
            Some(_) => return Err(EditError::NotATable((*part).to_owned())),
            None => {
                let mut value = Value::Object(Map::from_iter([(name.to_owned(), value.clone())]));
                for inner in path[at + 1..].iter().rev() {
                    value = Value::Object(Map::from_iter([((*inner).to_owned(), value)]));
                }
                return Ok(insert(text, &root, table, part, &value));
            }
        }
    }
    if let Some(member) = table.members.iter().find(|member| member.key == name) {
        let style = Style::of(text, &root);
        let many_lines = text[table.span.clone()].contains('\n');
        let new = style.print(value, &indent_at(text, member.start), many_lines);
        let mut changed = text.to_owned();
        changed.replace_range(member.node.span.clone(), &new);
        return Ok(changed);
    }
    Ok(insert(text, &root, table, name, value))
}

/// How the file is laid out.
struct Style {
    /// One step of indentation.
    step: String,
    line_end: &'static str,
}

impl Style {
    fn of(text: &str, root: &Node) -> Self {
        let step = root
            .members
            .first()
            .map(|member| indent_at(text, member.start))
            .filter(|step| !step.is_empty())
            .unwrap_or_else(|| "  ".to_owned());
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Self { step, line_end }
    }

    /// A value whose line is indented like this. Lists stay on their line.
    fn print(&self, value: &Value, indent: &str, many_lines: bool) -> String {
        match value {
            Value::Object(members) if !members.is_empty() => {
                let inner = format!("{indent}{}", self.step);
                let items: Vec<String> = super::in_order(members)
                    .into_iter()
                    .map(|(key, value)| {
                        format!(
                            "{}: {}",
                            Value::from(key.as_str()),
                            self.print(value, &inner, many_lines)
                        )
                    })
                    .collect();
                if many_lines {
                    let between = format!(",{}{inner}", self.line_end);
                    format!(
                        "{{{end}{inner}{}{end}{indent}}}",
                        items.join(&between),
                        end = self.line_end
                    )
                } else {
                    format!("{{{}}}", items.join(", "))
                }
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(Value::to_string).collect();
                format!("[{}]", items.join(", "))
            }
            other => other.to_string(),
        }
    }
}

/// The white space before this place, when nothing else stands before it on its line.
fn indent_at(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let before = &text[line..at];
    if before.trim().is_empty() {
        before.to_owned()
    } else {
        String::new()
    }
}

/// The white space at the beginning of the line of this place.
fn line_indent(text: &str, at: usize) -> &str {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let rest = &text[line..];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

fn insert(text: &str, root: &Node, table: &Node, name: &str, value: &Value) -> String {
    let style = Style::of(text, root);
    let name = Value::from(name);
    let mut changed = text.to_owned();
    let Some(last) = table.members.last() else {
        let inside = table.span.start + 1..table.span.end - 1;
        let outer = line_indent(text, table.span.start).to_owned();
        let indent = format!("{outer}{}", style.step);
        let entry = format!(
            "{end}{indent}{name}: {}",
            style.print(value, &indent, true),
            end = style.line_end
        );
        if text[inside.clone()].trim().is_empty() {
            changed.replace_range(inside, &format!("{entry}{}{outer}", style.line_end));
        } else {
            changed.insert_str(inside.start, &entry);
        }
        return changed;
    };
    let (after_last, had_comma) = match last.comma {
        Some(comma) => (comma + 1, true),
        None => (last.node.span.end, false),
    };
    // What else stands on that line, a comment, belongs to the member before.
    let line_end = text[after_last..]
        .find('\n')
        .map_or(text.len(), |end| after_last + end);
    let line_end = if text[..line_end].ends_with('\r') {
        line_end - 1
    } else {
        line_end
    };
    let own_line = line_end < table.span.end - 1 && !indent_at(text, last.start).is_empty();
    if own_line {
        let indent = indent_at(text, last.start);
        let tail = if had_comma { "," } else { "" };
        let entry = format!(
            "{}{indent}{name}: {}{tail}",
            style.line_end,
            style.print(value, &indent, true)
        );
        changed.insert_str(line_end, &entry);
        if !had_comma {
            changed.insert(after_last, ',');
        }
    } else {
        let lead = if had_comma { " " } else { ", " };
        changed.insert_str(
            after_last,
            &format!("{lead}{name}: {}", style.print(value, "", false)),
        );
    }
    changed
}

/// Takes the entry out, with the comma that it needed.
pub fn take(text: &str, path: &[&str], name: &str) -> Result<String, EditError> {
    let root = parse(text)?;
    let mut table = &root;
    for part in path {
        let Some(member) = table.members.iter().find(|member| member.key == *part) else {
            return Ok(text.to_owned());
        };
        table = &member.node;
    }
    let Some(at) = table.members.iter().position(|member| member.key == name) else {
        return Ok(text.to_owned());
    };
    let member = &table.members[at];
    let mut changed = text.to_owned();
    let mut start = member.start;
    let line = text[..start].rfind('\n').unwrap_or(0);
    if text[line..start].trim().is_empty() && line > table.span.start {
        start = if text[..line].ends_with('\r') {
            line - 1
        } else {
            line
        };
    }
    let mut end = member.comma.map_or(member.node.span.end, |comma| comma + 1);
    if member.comma.is_some() && start == member.start {
        // On a line with others: the space after the comma goes too.
        end += text[end..].len() - text[end..].trim_start_matches([' ', '\t']).len();
    }
    let before = at.checked_sub(1).map(|before| &table.members[before]);
    changed.replace_range(start..end, "");
    if member.comma.is_none()
        && let Some(comma) = before.and_then(|before| before.comma)
    {
        let between = if text[comma + 1..start].trim().is_empty() {
            comma..start
        } else {
            comma..comma + 1
        };
        changed.replace_range(between, "");
    }
    if table.members.len() == 1 {
        let after = table.span.end - (text.len() - changed.len());
        let inside = table.span.start + 1..after - 1;
        if changed[inside.clone()].trim().is_empty() {
            changed.replace_range(inside, "");
        }
    }
    Ok(changed)
}
