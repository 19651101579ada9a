//! Transforms: an owner's changes to a skill for one agent (frontmatter fields to set, text to
//! append), and the variant of SKILL.md that results.
//!
//! The text is changed line by line. A line that no transform names stays as it is, byte for byte.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;

use super::yaml::{self, Node, Value};
use super::{Parts, decode_document, in_file, split_frontmatter};
use vault_format::hash::Digest;
use vault_format::manifest::AppliedTransform;
use vault_format::name::{AgentId, BadName, SkillName};
use vault_format::text::Position;

/// Largest file of a transform, in bytes.
pub const MAX_TRANSFORM_BYTES: u64 = 64 * 1024;
/// The priority of a transform that states none.
pub const DEFAULT_PRIORITY: i64 = 50;

/// One transform: its agents, the fields that it sets, and the text that it appends.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Transform {
    /// Its name: that of its file without `.md`.
    pub name: SkillName,
    /// SHA-256 of its file.
    pub sha256: Digest,
    /// Agents that it is for; empty means all.
    pub agents: Vec<AgentId>,
    /// Order of application: lower priorities first, equal ones by name.
    pub priority: i64,
    #[serde(skip)]
    set: Vec<(String, Json)>,
    #[serde(skip)]
    body: String,
}

/// The error for a transform that is malformed, or that cannot be applied to a skill.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}{message}", .at.map(|at| format!("{}:{}: ", at.line, at.column)).unwrap_or_default())]
pub struct TransformError {
    /// The problem, in one sentence without a full stop.
    pub message: String,
    /// Position in the transform's file; `None` if it is not known.
    pub at: Option<Position>,
}

fn transform_error(at: Option<Position>, message: impl Into<String>) -> TransformError {
    TransformError {
        message: message.into(),
        at,
    }
}

impl Transform {
    /// Reads the file of a transform. Fails with the position of the first fault.
    pub fn parse(name: SkillName, bytes: &[u8]) -> Result<Self, TransformError> {
        if bytes.len() as u64 > MAX_TRANSFORM_BYTES {
            let message = format!(
                "a transform has at most {MAX_TRANSFORM_BYTES} bytes; this one has {}",
                bytes.len()
            );
            return Err(transform_error(None, message));
        }
        let read = decode_document(bytes).and_then(|text| Ok((text, split_frontmatter(text)?)));
        let (text, Parts { yaml, body }) = read.map_err(|error| {
            let finding = error.findings().first();
            transform_error(
                finding.and_then(crate::finding::Finding::position),
                finding.map_or_else(String::new, |finding| {
                    // `decode_document` and `split_frontmatter` are made for SKILL.md and name it
                    // in their messages.
                    finding.message.replace("SKILL.md", "the transform")
                }),
            )
        })?;
        // Only vault reads transforms, so there is no need for the tolerance with which SKILL.md is
        // read.
        let root = yaml::parse_yaml(yaml).map_err(|error| {
            transform_error(
                error.at.map(in_file),
                format!("the frontmatter is not valid YAML: {}", error.message),
            )
        })?;
        let mut transform = Self {
            name,
            sha256: Digest::of(bytes),
            agents: Vec::new(),
            priority: DEFAULT_PRIORITY,
            set: Vec::new(),
            body: text[body..].to_owned(),
        };
        transform.read_members(&root)?;
        if transform.set.is_empty() && transform.body.trim().is_empty() {
            return Err(transform_error(
                None,
                "the transform changes nothing: it has no `set` and no text",
            ));
        }
        Ok(transform)
    }

    fn read_members(&mut self, root: &Node) -> Result<(), TransformError> {
        let members = match &root.value {
            Value::Map(members) => members,
            Value::Null => return Ok(()),
            _ => {
                let message = format!("the frontmatter is {}, not a map", root.kind());
                return Err(transform_error(Some(in_file(root.at)), message));
            }
        };
        for member in members {
            let at = Some(in_file(member.node.at));
            let kind = member.node.kind();
            match (member.key.as_str(), &member.node.value) {
                ("agents", Value::List(items)) => {
                    for item in items {
                        let Value::Text(text) = &item.value else {
                            let message = format!("an agent is {}, not text", item.kind());
                            return Err(transform_error(Some(in_file(item.at)), message));
                        };
                        let agent = AgentId::named(text).map_err(|error| {
                            let message = match error {
                                BadName::AnyAgent => format!(
                                    "{text} is no agent; without `agents` a transform is for \
                                     every one"
                                ),
                                error => error.to_string(),
                            };
                            transform_error(Some(in_file(item.at)), message)
                        })?;
                        self.agents.push(agent);
                    }
                }
                ("agents", _) => {
                    return Err(transform_error(
                        at,
                        format!("`agents` is {kind}, not a list"),
                    ));
                }
                ("priority", Value::Number(number)) => {
                    self.priority = number
                        .as_i64()
                        .filter(|number| (0..=1_000).contains(number))
                        .ok_or_else(|| {
                            transform_error(at, "`priority` is a whole number from 0 to 1000")
                        })?;
                }
                ("priority", _) => {
                    return Err(transform_error(
                        at,
                        format!("`priority` is {kind}, not a number"),
                    ));
                }
                ("set", Value::Map(members)) => {
                    for member in members {
                        let at = Some(in_file(member.key_at));
                        self.set
                            .push((check_field_name(&member.key, at)?, member.node.to_json()));
                    }
                }
                ("set", _) => {
                    return Err(transform_error(at, format!("`set` is {kind}, not a map")));
                }
                (other, _) => {
                    let message = format!(
                        "unknown key `{}`; a transform has agents, priority and set",
                        vault_format::text::printable(other)
                    );
                    return Err(transform_error(Some(in_file(member.key_at)), message));
                }
            }
        }
        Ok(())
    }

    /// Tells whether the transform applies to this agent.
    pub fn is_for(&self, agent: &AgentId) -> bool {
        self.agents.is_empty() || self.agents.contains(agent)
    }

    /// Returns the entry for this transform in a variant's manifest.
    pub fn to_manifest_entry(&self) -> AppliedTransform {
        AppliedTransform {
            name: self.name.to_string(),
            sha256: self.sha256,
        }
    }

    /// Returns the names of the fields that it sets, in the order in which it lists them.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.set.iter().map(|(key, _)| key.as_str())
    }
}

/// Checks the name of a field to set: letters, digits, `-` and `_`, and not `name`, which only the
/// skill itself states.
fn check_field_name(key: &str, at: Option<Position>) -> Result<String, TransformError> {
    // The key is written into the frontmatter without quotes, so no character of YAML's syntax may
    // stand in it.
    let plain = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !plain {
        let message = "a field to set is written with letters, digits, `-` and `_` only";
        return Err(transform_error(at, message));
    }
    if key == "name" {
        return Err(transform_error(
            at,
            "a variant keeps the name of its skill: `name` is not set",
        ));
    }
    Ok(key.to_owned())
}

/// Returns the transforms for an agent in the order of application: by priority, then by name.
pub fn in_order<'t>(
    transforms: impl IntoIterator<Item = &'t Transform>,
    agent: &AgentId,
) -> Vec<&'t Transform> {
    let mut chosen: Vec<_> = transforms
        .into_iter()
        .filter(|transform| transform.is_for(agent))
        .collect();
    chosen.sort_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
    chosen
}

/// Renders the SKILL.md of a variant. Fails if a field to replace has a value of more than one
/// line, or if `base` cannot be read.
pub fn render_variant(base: &[u8], transforms: &[&Transform]) -> Result<Vec<u8>, TransformError> {
    let mut text = decode_document(base)
        .map_err(|error| transform_error(None, error.to_string()))?
        .to_owned();
    for transform in transforms {
        for (key, value) in &transform.set {
            text = set_field(&text, key, value)?;
        }
    }
    for transform in transforms {
        let body = transform.body.trim_matches(['\n', '\r']);
        if body.trim().is_empty() {
            continue;
        }
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        text.push_str("\n\n");
        text.push_str(body);
        text.push('\n');
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text.into_bytes())
}

fn set_field(text: &str, key: &str, value: &Json) -> Result<String, TransformError> {
    let unreadable = || transform_error(None, "the frontmatter of SKILL.md can't be read");
    // Parse the frontmatter for each field again, because the field before may have moved the
    // lines.
    let parts = split_frontmatter(text).map_err(|_| unreadable())?;
    let root = yaml::parse_yaml(parts.yaml).map_err(|_| unreadable())?;
    let Value::Map(members) = &root.value else {
        return Err(unreadable());
    };
    let start = text.find(parts.yaml).ok_or_else(unreadable)?;
    let mut lines: Vec<String> = parts
        .yaml
        .split_inclusive('\n')
        .map(str::to_owned)
        .collect();
    let ending = if parts.yaml.contains("\r\n") {
        "\r\n"
    } else {
        "\n"
    };
    // The value is JSON, which is YAML too and never holds a raw line break: no value can add a
    // line of its own.
    let line = format!("{key}: {value}{ending}");
    let existing = members.iter().position(|member| member.key == key);
    match existing {
        None => lines.push(line),
        Some(at) => {
            let row = |position: Position| position.line as usize - 1;
            let first = row(members[at].key_at);
            let after = members
                .get(at + 1)
                .map_or(lines.len(), |next| row(next.key_at));
            let more = lines
                .get(first + 1..after)
                .unwrap_or_default()
                .iter()
                .any(|line| {
                    let line = line.trim_start();
                    !line.is_empty() && !line.starts_with('#')
                });
            // The second condition holds if two keys stand on one line, as in a map in flow style.
            if more || after <= first {
                let message = format!(
                    "`{key}` has a value of more than one line in SKILL.md, which can't be replaced"
                );
                return Err(transform_error(None, message));
            }
            *lines.get_mut(first).ok_or_else(unreadable)? = line;
        }
    }
    let end = start + parts.yaml.len();
    Ok([&text[..start], &lines.concat(), &text[end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transform(name: &str, text: &str) -> Transform {
        Transform::parse(name.parse().unwrap(), text.as_bytes()).unwrap()
    }

    const BASE: &str = "---\nname: pdf\ndescription: Old. # why\ntags:\n  - a\n---\nBody.\n\n\n";

    fn rendered(transforms: &[&Transform]) -> String {
        String::from_utf8(render_variant(BASE.as_bytes(), transforms).unwrap()).unwrap()
    }

    #[test]
    fn fields_are_replaced_or_added_and_texts_appended() {
        let a = transform(
            "a",
            "---\nagents: [codex]\nset: {description: 'New: \"x\"', model: null, list: [1, b]}\n---\n\nFirst.\n\n",
        );
        let b = transform("b", "---\npriority: 10\n---\nSecond.");
        assert_eq!(
            rendered(&[&a, &b]),
            "---\nname: pdf\ndescription: \"New: \\\"x\\\"\"\ntags:\n  - a\nmodel: null\nlist: [1,\"b\"]\n---\nBody.\n\nFirst.\n\nSecond.\n"
        );
        let codex: AgentId = "codex".parse().unwrap();
        let names = |agent: &AgentId| {
            in_order([&a, &b], agent)
                .iter()
                .map(|transform| transform.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&codex), ["b", "a"]);
        assert_eq!(names(&"cursor".parse().unwrap()), ["b"]);
    }

    #[test]
    fn what_is_rendered_is_read_again() {
        let a = transform("a", "---\nset: {description: \"a: b\\n# c\"}\n---\n");
        let text = rendered(&[&a]);
        let document = super::super::Document::parse(text.as_bytes()).unwrap();
        assert_eq!(document.frontmatter().description, "a: b\n# c");
        let windows = BASE.replace('\n', "\r\n");
        let text = String::from_utf8(render_variant(windows.as_bytes(), &[&a]).unwrap()).unwrap();
        assert!(text.contains("description: \"a: b\\n# c\"\r\ntags:\r\n"));
    }

    #[test]
    fn a_value_of_several_lines_is_not_replaced() {
        for (base, key) in [
            (BASE, "tags"),
            (
                "---\nname: x\ndescription: >-\n  long\n  text\n---\n",
                "description",
            ),
            ("---\nname: x\ndescription: a\n  b\n---\n", "description"),
        ] {
            let a = transform("a", &format!("---\nset: {{{key}: x}}\n---\n"));
            let refused = render_variant(base.as_bytes(), &[&a]).unwrap_err();
            assert!(refused.message.contains("more than one line"), "{refused}");
        }
    }

    #[test]
    fn faults_have_line_and_column() {
        for (text, said) in [
            ("no frontmatter", "1:1: "),
            (
                "---\nagents: codex\n---\nx",
                "2:9: `agents` is text, not a list",
            ),
            ("---\nagents: [Codex!]\n---\nx", "2:10: agent id must"),
            (
                "---\nagents: [any-agent]\n---\nx",
                "2:10: any-agent is no agent",
            ),
            ("---\npriority: high\n---\nx", "2:11: `priority` is text"),
            (
                "---\npriority: 1.5\n---\nx",
                "2:11: `priority` is a whole number",
            ),
            ("---\nset: [a]\n---\nx", "2:6: `set` is a list, not a map"),
            (
                "---\nset: {name: y}\n---\nx",
                "2:7: a variant keeps the name",
            ),
            ("---\nset: {\"a b\": y}\n---\nx", "2:7: a field to set"),
            ("---\nagent: [codex]\n---\nx", "2:1: unknown key `agent`"),
            ("---\n- a\n---\nx", "2:1: the frontmatter is a list"),
            ("---\n---\n\n", "the transform changes nothing"),
            (
                "---\na: b: c\n---\nx",
                "2:5: the frontmatter is not valid YAML",
            ),
        ] {
            let refused = Transform::parse("t".parse().unwrap(), text.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(refused.starts_with(said), "{text:?}: {refused}");
        }
    }
}
