//! Reads the values of fields as the types that the fields need.

use super::{Capabilities, Secret, member_of};
use crate::document::MAX_ARGS;
use crate::document::yaml::{Node, Value};
use crate::finding::is_hidden;
use std::collections::BTreeSet;
use vault_format::name::{AgentId, is_deceptive};
use vault_format::text::{Position, quoted};

/// The error for a value of the wrong type. `wanted` is the expected type as messages name it.
pub(super) struct TypeMismatch {
    pub(super) wanted: String,
    pub(super) at: Position,
}

impl TypeMismatch {
    pub(super) fn new(wanted: impl Into<String>, node: &Node) -> Self {
        Self {
            wanted: wanted.into(),
            at: node.at,
        }
    }
}

pub(super) fn text(node: &Node) -> Result<String, TypeMismatch> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(TypeMismatch::new(
            format!("text, not {}", node.kind()),
            node,
        )),
    }
}

/// Reads a text that will be shown or run: one line, not empty, without invisible characters.
pub(super) fn read_visible_line(node: &Node) -> Result<String, TypeMismatch> {
    let text = text(node)?;
    if text.is_empty() || text.chars().any(is_unseen) {
        return Err(TypeMismatch::new(
            "one line of text without control characters",
            node,
        ));
    }
    Ok(text)
}

/// Tells whether a character is forbidden in names and arguments: hidden ones and all that a
/// manifest rejects. Zero-width characters are among them, even between emoji.
pub(super) fn is_unseen(character: char) -> bool {
    is_hidden(character) || is_deceptive(character)
}

pub(super) fn read_boolean(node: &Node) -> Result<bool, TypeMismatch> {
    match node.value {
        Value::Bool(value) => Ok(value),
        _ => Err(TypeMismatch::new("`true` or `false`", node)),
    }
}

pub(super) fn text_list(node: &Node) -> Result<Vec<String>, TypeMismatch> {
    let Value::List(items) = &node.value else {
        return Err(TypeMismatch::new(
            format!("a list of texts, not {}", node.kind()),
            node,
        ));
    };
    let item = |item: &Node| {
        text(item).map_err(|_| {
            TypeMismatch::new(
                format!("a list of texts, and this is {}", item.kind()),
                item,
            )
        })
    };
    items.iter().map(item).collect()
}

pub(super) fn argument_list(node: &Node) -> Result<Vec<String>, TypeMismatch> {
    let args = text_list(node)?;
    if args.len() > MAX_ARGS {
        return Err(TypeMismatch::new(
            format!("a list of at most {MAX_ARGS} texts"),
            node,
        ));
    }
    // People see the arguments before an action runs, and a hidden character would change what they
    // see.
    if args.iter().any(|arg| arg.chars().any(is_unseen)) {
        return Err(TypeMismatch::new(
            "a list of texts without control characters",
            node,
        ));
    }
    Ok(args)
}

pub(super) fn text_or_list(node: &Node) -> Result<String, TypeMismatch> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::List(_) => Ok(text_list(node)?.join(", ")),
        _ => Err(TypeMismatch::new(
            format!("text or a list of texts, not {}", node.kind()),
            node,
        )),
    }
}

/// Reads a list, or text split at commas. Items are trimmed, empty and repeated ones left out.
pub(super) fn comma_list(node: &Node) -> Result<Vec<String>, TypeMismatch> {
    let items = match &node.value {
        Value::Text(text) => text.split(',').map(str::to_owned).collect(),
        _ => text_list(node)?,
    };
    let mut seen = BTreeSet::new();
    Ok(items
        .iter()
        .map(|item| item.trim().to_owned())
        .filter(|item| !item.is_empty() && seen.insert(item.clone()))
        .collect())
}

/// Reads a list, or text split at white space and commas outside of brackets: `Bash(git add:*)` is
/// one tool.
pub(super) fn tool_list(node: &Node) -> Result<Vec<String>, TypeMismatch> {
    let Value::Text(text) = &node.value else {
        return text_list(node);
    };
    let mut tools = vec![String::new()];
    let mut depth = 0_usize;
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (character.is_whitespace() || character == ',') {
            tools.push(String::new());
        } else if let Some(tool) = tools.last_mut() {
            tool.push(character);
        }
    }
    tools.retain(|tool| !tool.is_empty());
    Ok(tools)
}

pub(super) fn agent_list(node: &Node) -> Result<Vec<AgentId>, TypeMismatch> {
    let agent = |id: String| {
        id.parse().map_err(|_| {
            TypeMismatch::new(
                format!("a list of agent ids, and {} is none", quoted(&id)),
                node,
            )
        })
    };
    comma_list(node)?.into_iter().map(agent).collect()
}

const SECRETS: &str = "a list of variables: names, or `{ name, description, required }`";

pub(super) fn read_secrets(node: &Node) -> Result<Vec<Secret>, TypeMismatch> {
    if matches!(node.value, Value::Text(_)) {
        let names = comma_list(node)?;
        if !names.iter().all(|name| is_variable(name)) {
            return Err(TypeMismatch::new(SECRETS, node));
        }
        let secret = |name| Secret {
            name,
            description: None,
            required: true,
        };
        return Ok(names.into_iter().map(secret).collect());
    }
    let Value::List(items) = &node.value else {
        return Err(TypeMismatch::new(SECRETS, node));
    };
    items.iter().map(read_secret).collect()
}

/// Reads a variable: only its name, or a map with details.
fn read_secret(node: &Node) -> Result<Secret, TypeMismatch> {
    if let Value::Text(name) = &node.value
        && is_variable(name)
    {
        return Ok(Secret {
            name: name.clone(),
            description: None,
            required: true,
        });
    }
    let Value::Map(members) = &node.value else {
        return Err(TypeMismatch::new(SECRETS, node));
    };
    let Some(member) = member_of(members, "name") else {
        return Err(TypeMismatch::new(
            "a list in which each entry has a `name`",
            node,
        ));
    };
    let name = text(&member.node)?;
    if !is_variable(&name) {
        return Err(TypeMismatch::new(
            "a list in which each `name` can be an environment variable",
            &member.node,
        ));
    }
    Ok(Secret {
        name,
        description: member_of(members, "description")
            .map(|member| text(&member.node))
            .transpose()?,
        required: member_of(members, "required")
            .map_or(Ok(true), |member| read_boolean(&member.node))?,
    })
}

pub(super) fn is_variable(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn read_capabilities(node: &Node) -> Result<Capabilities, TypeMismatch> {
    let Value::Map(members) = &node.value else {
        return Err(TypeMismatch::new(
            format!("a map, not {}", node.kind()),
            node,
        ));
    };
    let part = |key| member_of(members, key).map(|member| &member.node);
    Ok(Capabilities {
        network: part("network").map(read_boolean).transpose()?,
        filesystem: part("filesystem").map(text).transpose()?,
        tools: part("tools")
            .map(tool_list)
            .transpose()?
            .unwrap_or_default(),
    })
}
