//! The fields of the frontmatter, read from the tree of `yaml`.
//!
//! The vault's own keys may stand at top level or under `metadata`; top level wins. A key of a
//! wrong type is a finding and counts as absent, but a wrong `bin` is an error: a program that
//! starts wrongly is worse than one that is missing. Unknown keys are left alone.

use super::yaml::{Member, Node, Value};
use super::{
    DocumentError, MAX_ARGS, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, Places, SKILL_MD, in_file,
};
use crate::finding::is_hidden;
use crate::finding::{Finding, Level};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use vault_format::name::{ActionName, AgentId, SkillName, is_deceptive};
use vault_format::text::{Position, quoted};

/// The fields that the vault reads, absent ones empty.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Frontmatter {
    /// The author's name for the skill, 1 to 256 characters; not always fit to be a name in a
    /// vault.
    pub name: String,
    /// What the skill does and when to use it, 1 to 4,096 characters.
    pub description: String,
    /// Licence, as the author states it.
    pub license: Option<String>,
    /// What the skill needs around it; a list is joined by `, `.
    pub compatibility: Option<String>,
    /// Tools that the skill asks to use; text is split at white space and commas outside brackets.
    pub allowed_tools: Vec<String>,
    /// Everything under `metadata`, as JSON.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Tags, in the author's order.
    pub tags: Vec<String>,
    /// Categories, in the author's order.
    pub categories: Vec<String>,
    /// When an agent should take this skill.
    pub when_to_use: Option<String>,
    /// When an agent should not.
    pub when_not_to_use: Option<String>,
    /// Agents that the skill is meant for; empty means any.
    pub agents: Vec<AgentId>,
    /// Declared actions by name.
    pub actions: BTreeMap<ActionName, Action>,
    /// Names of secrets that the skill's actions read from their environment.
    pub requires_secrets: Vec<Secret>,
    /// What the skill says it will touch.
    pub capabilities: Option<Capabilities>,
}

/// One declared action, as written; whether its command exists is for the gate to say.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "DeclaredAction")]
pub struct Action {
    /// A file of the skill or a bare program name.
    pub command: String,
    /// Arguments that always come first; at most 64.
    pub args: Vec<String>,
    /// Directory of the skill in which the command runs; `.` when not given.
    pub cwd: String,
    /// What the action does.
    pub description: Option<String>,
    /// Whether the command wants a terminal.
    pub requires_tty: bool,
    /// Where the action's name stands.
    #[serde(skip)]
    pub at: Position,
}

/// A secret that an action wants in its environment; the value is never stored.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "EnvironmentVariable")]
pub struct Secret {
    /// Name of the environment variable, `[A-Za-z_][A-Za-z0-9_]*`.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Whether the action fails without it; true when not given.
    pub required: bool,
}

/// Whether an environment variable is one of vault's own settings, some of which are secrets. No
/// skill may declare it and no action gets it.
pub fn is_reserved_variable(name: &str) -> bool {
    const PREFIX: &str = "VAULT_";
    // Windows ignores the case of variables.
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// What a skill says it will touch; a claim, not a measurement.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "DeclaredCapabilities")]
pub struct Capabilities {
    /// Whether it uses the network; `None` when not said.
    pub network: Option<bool>,
    /// How it uses files, for example `readonly`; `None` when not said.
    pub filesystem: Option<String>,
    /// Tools that it uses.
    pub tools: Vec<String>,
}

/// What reading the tree gave.
pub(super) struct Outcome {
    pub frontmatter: Frontmatter,
    pub places: Places,
    pub findings: Vec<Finding>,
}

/// Reads the fields; fails when name, description or `bin` are not as they must be. Where there is
/// no name, `known` stands for it.
pub(super) fn read(root: &Node, known: Option<&SkillName>) -> Result<Outcome, DocumentError> {
    let none = Vec::new();
    let top = match &root.value {
        Value::Map(members) => members,
        Value::Null => &none,
        _ => {
            let message = format!(
                "the frontmatter is {}, not a list of `key: value` lines",
                root.kind()
            );
            let hint = "write `name: ...` and `description: ...`";
            return Err(super::unreadable(
                "frontmatter-yaml",
                message,
                Some(in_file(root.at)),
                hint,
            ));
        }
    };
    let mut reader = Reader::new(top);
    let (name, name_at) = reader.name(known);
    let (description, description_at) =
        reader.required("description", "skill_description", "description-missing");
    reader.check_name(&name, name_at);
    reader.check_description(&description, description_at);
    let actions = reader.actions();
    let frontmatter = Frontmatter {
        name,
        description,
        license: reader.standard("license", text),
        compatibility: reader.standard("compatibility", text_or_list),
        allowed_tools: reader
            .standard("allowed-tools", tool_list)
            .unwrap_or_default(),
        metadata: reader.metadata(),
        tags: reader.own(&["tags"], comma_list).unwrap_or_default(),
        categories: reader
            .own(&["categories", "category"], comma_list)
            .unwrap_or_default(),
        when_to_use: reader.own(&["when_to_use", "when-to-use"], text),
        when_not_to_use: reader.own(&["when_not_to_use", "when-not-to-use"], text),
        agents: reader.own(&["agents"], agent_list).unwrap_or_default(),
        actions,
        requires_secrets: reader
            .own(&["requires-secrets", "requires_secrets"], secrets)
            .unwrap_or_default(),
        capabilities: reader.own(&["capabilities"], capabilities),
    };
    reader.finish(
        frontmatter,
        Places {
            name: name_at,
            description: description_at,
        },
    )
}

/// Looks fields up and collects what is wrong with them.
struct Reader<'a> {
    top: &'a [Member],
    metadata: &'a [Member],
    errors: Vec<(&'static str, Finding)>,
    warnings: Vec<Finding>,
    /// The actions that can be read, with their names as written.
    declared: Vec<(String, Action)>,
}

/// Why a value does not fit: what was wanted, in the words of a message, and where.
struct Unfit {
    wanted: String,
    at: Position,
}

impl Unfit {
    fn new(wanted: impl Into<String>, node: &Node) -> Self {
        Self {
            wanted: wanted.into(),
            at: node.at,
        }
    }
}

impl<'a> Reader<'a> {
    fn new(top: &'a [Member]) -> Self {
        let metadata = match member(top, "metadata").map(|member| &member.node.value) {
            Some(Value::Map(members)) => members.as_slice(),
            _ => &[],
        };
        Self {
            top,
            metadata,
            errors: Vec::new(),
            warnings: Vec::new(),
            declared: Vec::new(),
        }
    }

    /// The name; where the frontmatter has none, the one that is known otherwise, which is said.
    fn name(&mut self, known: Option<&SkillName>) -> (String, Position) {
        let Some(known) = known.filter(|_| member(self.top, "name").is_none()) else {
            return self.required("name", "skill_name", "name-missing");
        };
        let at = Position::new(1, 1);
        let message = "the frontmatter has no `name`; agents that want one do not see this skill";
        self.warnings.push(
            Finding::new("name-missing", Level::Warning, message)
                .at(SKILL_MD)
                .on(at)
                .hint(format!("add a line `name: {known}` to the frontmatter")),
        );
        (known.to_string(), at)
    }

    /// A text that must be there; an error and an empty text when it is not.
    fn required(
        &mut self,
        key: &str,
        word: &'static str,
        rule: &'static str,
    ) -> (String, Position) {
        let hint = format!("add a line `{key}: ...` to the frontmatter");
        match member(self.top, key) {
            Some(Member {
                node:
                    Node {
                        value: Value::Text(text),
                        at,
                    },
                ..
            }) => (text.clone(), in_file(*at)),
            Some(Member { node, key_at, .. }) if node.value == Value::Null => {
                self.error(word, rule, format!("`{key}` is empty"), *key_at, &hint);
                (String::new(), in_file(*key_at))
            }
            Some(Member { node, .. }) => {
                let message = format!("`{key}` is {}, not text", node.kind());
                self.error(word, rule, message, node.at, "put the value in quotes");
                (String::new(), in_file(node.at))
            }
            None => {
                let first_line = Position::new(1, 1);
                self.error_in_file(
                    word,
                    rule,
                    format!("the frontmatter has no `{key}`"),
                    first_line,
                    &hint,
                );
                (String::new(), first_line)
            }
        }
    }

    fn check_name(&mut self, name: &str, at: Position) {
        let failed = self.errors.iter().any(|(word, _)| *word == "skill_name");
        if failed {
            return;
        }
        if name.trim().is_empty() {
            self.error_in_file(
                "skill_name",
                "name-missing",
                "`name` is empty",
                at,
                "give the skill a name",
            );
        } else if name.chars().count() > MAX_NAME_CHARS {
            let message = format!(
                "`name` has {} characters; {MAX_NAME_CHARS} are allowed",
                name.chars().count()
            );
            self.error_in_file(
                "skill_name",
                "name-length",
                message,
                at,
                "shorten it; 64 characters fit a vault",
            );
        } else if name.chars().any(is_unseen) {
            let message = "`name` holds line breaks, control or invisible characters";
            let hint = "write the name on one line, without them";
            self.error_in_file("skill_name", "name-hidden", message, at, hint);
        }
    }

    fn check_description(&mut self, description: &str, at: Position) {
        let failed = self
            .errors
            .iter()
            .any(|(word, _)| *word == "skill_description");
        if failed {
            return;
        }
        let length = description.chars().count();
        if description.trim().is_empty() {
            let hint = "say in a sentence what the skill does and when to use it";
            self.error_in_file(
                "skill_description",
                "description-missing",
                "`description` is empty",
                at,
                hint,
            );
        } else if length > MAX_DESCRIPTION_CHARS {
            let message = format!(
                "`description` has {length} characters; {MAX_DESCRIPTION_CHARS} are allowed"
            );
            self.error_in_file(
                "skill_description",
                "description-length",
                message,
                at,
                "move details into the text",
            );
        }
    }

    /// A key of the standard: top level only, hyphen and underscore alike.
    fn standard<T>(&mut self, key: &str, read: fn(&Node) -> Result<T, Unfit>) -> Option<T> {
        let other = key.replace('-', "_");
        let spellings = if other == key {
            vec![key]
        } else {
            vec![key, &other]
        };
        self.first(&[self.top], &spellings, read)
    }

    /// A key of the vault's own: top level, else under `metadata`.
    fn own<T>(&mut self, spellings: &[&str], read: fn(&Node) -> Result<T, Unfit>) -> Option<T> {
        self.first(&[self.top, self.metadata], spellings, read)
    }

    /// The first value that fits, looking level by level and in a level spelling by spelling.
    fn first<T>(
        &mut self,
        levels: &[&'a [Member]],
        spellings: &[&str],
        read: fn(&Node) -> Result<T, Unfit>,
    ) -> Option<T> {
        for level in levels {
            let given: Vec<&Member> = spellings
                .iter()
                .filter_map(|key| member(level, key))
                .filter(|member| member.node.value != Value::Null)
                .collect();
            if let [kept, ignored, ..] = given.as_slice() {
                let message = format!(
                    "`{}` says again what `{}` says, and is not read",
                    ignored.key, kept.key
                );
                let hint = format!("keep one of the two; the vault reads `{}` first", kept.key);
                self.warn("frontmatter-spelling", message, ignored.key_at, &hint);
            }
            for member in given {
                match read(&member.node) {
                    Ok(value) => return Some(value),
                    Err(unfit) => {
                        let message =
                            format!("`{}` must be {}; it is not read", member.key, unfit.wanted);
                        self.warn(
                            "frontmatter-type",
                            message,
                            unfit.at,
                            "correct it, or take the line out",
                        );
                    }
                }
            }
        }
        None
    }

    fn metadata(&mut self) -> serde_json::Map<String, serde_json::Value> {
        let Some(member) = member(self.top, "metadata") else {
            return serde_json::Map::new();
        };
        match member.node.to_json() {
            serde_json::Value::Object(map) => map,
            serde_json::Value::Null => serde_json::Map::new(),
            _ => {
                let message = format!(
                    "`metadata` must be a map; it is {} and is not read",
                    member.node.kind()
                );
                self.warn(
                    "frontmatter-type",
                    message,
                    member.node.at,
                    "write it as `key: value` lines",
                );
                serde_json::Map::new()
            }
        }
    }

    /// The declared actions. What is wrong here refuses the skill, so every fault is named.
    fn actions(&mut self) -> BTreeMap<ActionName, Action> {
        let mut actions = BTreeMap::new();
        let Some(bin) = member(self.top, "bin")
            .filter(|member| member.node.value != Value::Null)
            .or_else(|| member(self.metadata, "bin"))
        else {
            return actions;
        };
        let members = match &bin.node.value {
            Value::Map(members) => members,
            Value::Null => return actions,
            _ => {
                let message = format!("`bin` is {}, not a map of actions", bin.node.kind());
                self.bin_error(
                    message,
                    bin.node.at,
                    "write `bin: { <action>: { command: <file> } }`",
                );
                return actions;
            }
        };
        for member in members {
            // Both are asked, so that every fault is named.
            let (name, action) = (self.action_name(member), self.action(member));
            let Some(action) = action else {
                continue;
            };
            self.declared.push((member.key.clone(), action.clone()));
            if let Some(name) = name {
                actions.insert(name, action);
            }
        }
        actions
    }

    fn action_name(&mut self, member: &Member) -> Option<ActionName> {
        if let Ok(name) = member.key.parse() {
            return Some(name);
        }
        let key = quoted(&member.key);
        let reserved = matches!(member.key.as_str(), "list" | "search" | "which");
        let (message, hint) = if reserved {
            let message = format!("{key} is a command of `vault skill` and cannot be an action");
            (message, "give the action another name")
        } else {
            let message = format!("{key} cannot be the name of an action");
            (
                message,
                "use a lower-case letter, then letters, digits and hyphens, at most 32 in all",
            )
        };
        self.bin_error(message, member.key_at, hint);
        None
    }

    fn action(&mut self, member: &Member) -> Option<Action> {
        let name = quoted(&member.key);
        let Value::Map(members) = &member.node.value else {
            let message = format!("the action {name} is {}, not a map", member.node.kind());
            self.bin_error(message, member.node.at, "write `{ command: <file> }`");
            return None;
        };
        let command = self.action_part(members, "command", &name, line_text);
        let args = self.action_part(members, "args", &name, argument_list);
        let cwd = self.action_part(members, "cwd", &name, line_text);
        let description = self.action_part(members, "description", &name, line_text);
        let spelling = if member_of(members, "requires-tty").is_some() {
            "requires-tty"
        } else {
            "requires_tty"
        };
        let requires_tty = self.action_part(members, spelling, &name, boolean);
        let Some(command) = command? else {
            let message = format!("the action {name} has no `command`");
            self.bin_error(
                message,
                member.key_at,
                "name a file of the skill, or a program",
            );
            return None;
        };
        Some(Action {
            command,
            args: args?.unwrap_or_default(),
            cwd: cwd?.unwrap_or_else(|| ".".to_owned()),
            description: description?,
            requires_tty: requires_tty?.unwrap_or_default(),
            at: in_file(member.key_at),
        })
    }

    /// One part of an action: `Some(None)` when absent, `None` when wrong, which is said.
    #[expect(clippy::option_option, reason = "absent and wrong are two things here")]
    fn action_part<T>(
        &mut self,
        members: &[Member],
        key: &str,
        action: &str,
        read: fn(&Node) -> Result<T, Unfit>,
    ) -> Option<Option<T>> {
        let Some(member) = member_of(members, key) else {
            return Some(None);
        };
        match read(&member.node) {
            Ok(value) => Some(Some(value)),
            Err(unfit) => {
                let message = format!("`{key}` of the action {action} must be {}", unfit.wanted);
                self.bin_error(
                    message,
                    unfit.at,
                    "correct it: a wrong action is never started",
                );
                None
            }
        }
    }

    fn bin_error(&mut self, message: String, at: Position, hint: &str) {
        self.error("skill_bin", "bin", message, at, hint);
    }

    fn error(
        &mut self,
        word: &'static str,
        rule: &'static str,
        message: impl AsRef<str>,
        at: Position,
        hint: &str,
    ) {
        self.error_in_file(word, rule, message, in_file(at), hint);
    }

    fn error_in_file(
        &mut self,
        word: &'static str,
        rule: &'static str,
        message: impl AsRef<str>,
        at: Position,
        hint: &str,
    ) {
        let finding = Finding::new(rule, Level::Error, message)
            .at(SKILL_MD)
            .on(at)
            .hint(hint);
        self.errors.push((word, finding));
    }

    fn warn(&mut self, rule: &'static str, message: String, at: Position, hint: &str) {
        let finding = Finding::new(rule, Level::Warning, message)
            .at(SKILL_MD)
            .on(in_file(at))
            .hint(hint);
        self.warnings.push(finding);
    }

    fn finish(
        mut self,
        frontmatter: Frontmatter,
        places: Places,
    ) -> Result<Outcome, DocumentError> {
        self.warnings
            .sort_by_key(|finding| (finding.line, finding.column));
        let Some((word, _)) = self.errors.first() else {
            return Ok(Outcome {
                frontmatter,
                places,
                findings: self.warnings,
            });
        };
        let word = *word;
        let errors = self.errors.into_iter().map(|(_, finding)| finding);
        Err(DocumentError {
            word,
            findings: errors.chain(self.warnings).collect(),
            actions: self.declared,
        })
    }
}

fn member<'a>(members: &'a [Member], key: &str) -> Option<&'a Member> {
    members.iter().find(|member| member.key == key)
}

/// A member that is there and not null.
fn member_of<'a>(members: &'a [Member], key: &str) -> Option<&'a Member> {
    member(members, key).filter(|member| member.node.value != Value::Null)
}

fn text(node: &Node) -> Result<String, Unfit> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(Unfit::new(format!("text, not {}", node.kind()), node)),
    }
}

/// Text that is shown or run: not empty, one line, nothing invisible.
fn line_text(node: &Node) -> Result<String, Unfit> {
    let text = text(node)?;
    if text.is_empty() || text.chars().any(is_unseen) {
        return Err(Unfit::new(
            "one line of text without control characters",
            node,
        ));
    }
    Ok(text)
}

/// What the manifest would refuse, and what only hides: zero-width characters count here, even
/// between emoji.
fn is_unseen(character: char) -> bool {
    is_hidden(character) || is_deceptive(character)
}

fn boolean(node: &Node) -> Result<bool, Unfit> {
    match node.value {
        Value::Bool(value) => Ok(value),
        _ => Err(Unfit::new("`true` or `false`", node)),
    }
}

fn text_list(node: &Node) -> Result<Vec<String>, Unfit> {
    let Value::List(items) = &node.value else {
        return Err(Unfit::new(
            format!("a list of texts, not {}", node.kind()),
            node,
        ));
    };
    let item = |item: &Node| {
        text(item).map_err(|_| {
            Unfit::new(
                format!("a list of texts, and this is {}", item.kind()),
                item,
            )
        })
    };
    items.iter().map(item).collect()
}

fn argument_list(node: &Node) -> Result<Vec<String>, Unfit> {
    let args = text_list(node)?;
    if args.len() > MAX_ARGS {
        return Err(Unfit::new(
            format!("a list of at most {MAX_ARGS} texts"),
            node,
        ));
    }
    if args.iter().any(|arg| arg.chars().any(is_unseen)) {
        return Err(Unfit::new(
            "a list of texts without control characters",
            node,
        ));
    }
    Ok(args)
}

fn text_or_list(node: &Node) -> Result<String, Unfit> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::List(_) => Ok(text_list(node)?.join(", ")),
        _ => Err(Unfit::new(
            format!("text or a list of texts, not {}", node.kind()),
            node,
        )),
    }
}

/// A list, or text split at commas; items trimmed, empty and repeated ones left out.
fn comma_list(node: &Node) -> Result<Vec<String>, Unfit> {
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

/// A list, or text split at white space and commas, except inside brackets: `Bash(git add:*)` is
/// one tool.
fn tool_list(node: &Node) -> Result<Vec<String>, Unfit> {
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

fn agent_list(node: &Node) -> Result<Vec<AgentId>, Unfit> {
    let agent = |id: String| {
        id.parse().map_err(|_| {
            Unfit::new(
                format!("a list of agent ids, and {} is none", quoted(&id)),
                node,
            )
        })
    };
    comma_list(node)?.into_iter().map(agent).collect()
}

const SECRETS: &str = "a list of variables: names, or `{ name, description, required }`";

fn secrets(node: &Node) -> Result<Vec<Secret>, Unfit> {
    if matches!(node.value, Value::Text(_)) {
        let names = comma_list(node)?;
        if !names.iter().all(|name| is_variable(name)) {
            return Err(Unfit::new(SECRETS, node));
        }
        let secret = |name| Secret {
            name,
            description: None,
            required: true,
        };
        return Ok(names.into_iter().map(secret).collect());
    }
    let Value::List(items) = &node.value else {
        return Err(Unfit::new(SECRETS, node));
    };
    items.iter().map(secret).collect()
}

/// A variable: its name alone, or a map that says more of it.
fn secret(node: &Node) -> Result<Secret, Unfit> {
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
        return Err(Unfit::new(SECRETS, node));
    };
    let Some(member) = member_of(members, "name") else {
        return Err(Unfit::new("a list in which each entry has a `name`", node));
    };
    let name = text(&member.node)?;
    if !is_variable(&name) {
        return Err(Unfit::new(
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
            .map_or(Ok(true), |member| boolean(&member.node))?,
    })
}

fn is_variable(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn capabilities(node: &Node) -> Result<Capabilities, Unfit> {
    let Value::Map(members) = &node.value else {
        return Err(Unfit::new(format!("a map, not {}", node.kind()), node));
    };
    let part = |key| member_of(members, key).map(|member| &member.node);
    Ok(Capabilities {
        network: part("network").map(boolean).transpose()?,
        filesystem: part("filesystem").map(text).transpose()?,
        tools: part("tools")
            .map(tool_list)
            .transpose()?
            .unwrap_or_default(),
    })
}
