//! The fields of the frontmatter, read from the tree of `yaml`.
//!
//! Vault's own keys may stand at top level or under `metadata`; the top level takes precedence. A
//! key with a value of a wrong type is reported and treated as absent. Only a wrong `bin` (the
//! declared actions) is an error: a program that starts wrongly is worse than one that is missing.
//! Unknown keys are not touched.

use super::yaml::{Member, Node, Value};
use super::{DocumentError, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, Places, SKILL_MD, in_file};
use crate::finding::{Finding, Level};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use vault_format::name::{ActionName, AgentId, SkillName};
use vault_format::text::{Position, quoted};

mod declared;
mod values;

pub use declared::{Action, Capabilities, Secret, is_reserved_variable};

use values::{
    TypeMismatch, agent_list, argument_list, comma_list, is_unseen, read_boolean,
    read_capabilities, read_secrets, read_visible_line, text, text_or_list, tool_list,
};

/// The fields that the vault reads, absent ones empty.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Frontmatter {
    /// The author's name for the skill, 1 to 256 characters; not always fit to be a name in a
    /// vault.
    pub name: String,
    /// Description of the skill and its use, 1 to 4,096 characters.
    pub description: String,
    /// Licence, as the author states it.
    pub license: Option<String>,
    /// Requirements on the environment; a list is joined by `, `.
    pub compatibility: Option<String>,
    /// Tools that the skill asks to use; text is split at white space and commas outside brackets.
    pub allowed_tools: Vec<String>,
    /// Everything under `metadata`, as JSON.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Tags, in the author's order.
    pub tags: Vec<String>,
    /// Categories, in the author's order.
    pub categories: Vec<String>,
    /// Situations in which an agent should use this skill.
    pub when_to_use: Option<String>,
    /// Situations in which an agent should not use it.
    pub when_not_to_use: Option<String>,
    /// Agents that the skill is meant for; empty means any.
    pub agents: Vec<AgentId>,
    /// Declared actions by name.
    pub actions: BTreeMap<ActionName, Action>,
    /// Names of secrets that the skill's actions read from their environment.
    pub requires_secrets: Vec<Secret>,
    /// Resources that the skill claims to use.
    pub capabilities: Option<Capabilities>,
}

/// The fields, where they stand, and what is wrong with them.
pub(super) struct ReadFields {
    pub frontmatter: Frontmatter,
    pub places: Places,
    pub findings: Vec<Finding>,
}

/// Reads the fields. Fails if name, description or `bin` are invalid. `known` replaces the name if
/// the frontmatter has none.
pub(super) fn read_fields(
    root: &Node,
    known: Option<&SkillName>,
) -> Result<ReadFields, DocumentError> {
    let none = Vec::new();
    let top = match &root.value {
        Value::Map(members) => members,
        // Empty frontmatter: the checks below then report name and description as missing, which
        // helps more than one error about the whole.
        Value::Null => &none,
        _ => {
            let message = format!(
                "the frontmatter is {}, not a list of `key: value` lines",
                root.kind()
            );
            let hint = "write `name: ...` and `description: ...`";
            return Err(super::unreadable_document(
                "frontmatter-yaml",
                message,
                Some(in_file(root.at)),
                hint,
            ));
        }
    };
    let mut reader = Reader::new(top);
    let (name, name_at) = reader.read_name(known);
    let (description, description_at) =
        reader.required_text("description", "skill_description", "description-missing");
    reader.check_name(&name, name_at);
    reader.check_description(&description, description_at);
    let actions = reader.read_actions();
    let frontmatter = Frontmatter {
        name,
        description,
        license: reader.read_standard_key("license", text),
        compatibility: reader.read_standard_key("compatibility", text_or_list),
        allowed_tools: reader
            .read_standard_key("allowed-tools", tool_list)
            .unwrap_or_default(),
        metadata: reader.read_metadata(),
        tags: reader
            .read_own_key(&["tags"], comma_list)
            .unwrap_or_default(),
        categories: reader
            .read_own_key(&["categories", "category"], comma_list)
            .unwrap_or_default(),
        when_to_use: reader.read_own_key(&["when_to_use", "when-to-use"], text),
        when_not_to_use: reader.read_own_key(&["when_not_to_use", "when-not-to-use"], text),
        agents: reader
            .read_own_key(&["agents"], agent_list)
            .unwrap_or_default(),
        actions,
        requires_secrets: reader
            .read_own_key(&["requires-secrets", "requires_secrets"], read_secrets)
            .unwrap_or_default(),
        capabilities: reader.read_own_key(&["capabilities"], read_capabilities),
    };
    reader.finish(
        frontmatter,
        Places {
            name: name_at,
            description: description_at,
        },
    )
}

/// Looks up fields and collects the faults in them.
struct Reader<'a> {
    top: &'a [Member],
    metadata: &'a [Member],
    errors: Vec<(&'static str, Finding)>,
    warnings: Vec<Finding>,
    /// The actions that could be read, with their names as the author wrote them.
    declared: Vec<(String, Action)>,
}

impl<'a> Reader<'a> {
    fn new(top: &'a [Member]) -> Self {
        let metadata = match find_member(top, "metadata").map(|member| &member.node.value) {
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

    /// Returns the name in the frontmatter. If it has none, returns `known` and warns.
    fn read_name(&mut self, known: Option<&SkillName>) -> (String, Position) {
        // Use the known name only if the key is absent: a `name` of a wrong type is a mistake that
        // must be reported.
        let Some(known) = known.filter(|_| find_member(self.top, "name").is_none()) else {
            return self.required_text("name", "skill_name", "name-missing");
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

    /// Returns a required text. If it is missing, reports an error and returns an empty text.
    fn required_text(
        &mut self,
        key: &str,
        word: &'static str,
        rule: &'static str,
    ) -> (String, Position) {
        let hint = format!("add a line `{key}: ...` to the frontmatter");
        match find_member(self.top, key) {
            Some(Member {
                node:
                    Node {
                        value: Value::Text(text),
                        at,
                    },
                ..
            }) => (text.clone(), in_file(*at)),
            Some(Member { node, key_at, .. }) if node.value == Value::Null => {
                self.push_error(word, rule, format!("`{key}` is empty"), *key_at, &hint);
                (String::new(), in_file(*key_at))
            }
            Some(Member { node, .. }) => {
                let message = format!("`{key}` is {}, not text", node.kind());
                self.push_error(word, rule, message, node.at, "put the value in quotes");
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
        // An absent name is an empty text here and was reported already.
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

    /// Reads a key of the standard. It stands only at top level and is spelled with hyphens or
    /// underscores.
    fn read_standard_key<T>(
        &mut self,
        key: &str,
        read: fn(&Node) -> Result<T, TypeMismatch>,
    ) -> Option<T> {
        let other = key.replace('-', "_");
        // The standard spells its keys with hyphens, but many skills use underscores.
        let spellings = if other == key {
            vec![key]
        } else {
            vec![key, &other]
        };
        self.first_fitting(&[self.top], &spellings, read)
    }

    /// Reads a key of vault itself: at top level, else under `metadata`.
    fn read_own_key<T>(
        &mut self,
        spellings: &[&str],
        read: fn(&Node) -> Result<T, TypeMismatch>,
    ) -> Option<T> {
        self.first_fitting(&[self.top, self.metadata], spellings, read)
    }

    /// Returns the first value of the right type: the levels in their order, and within a level the
    /// spellings in theirs.
    fn first_fitting<T>(
        &mut self,
        levels: &[&'a [Member]],
        spellings: &[&str],
        read: fn(&Node) -> Result<T, TypeMismatch>,
    ) -> Option<T> {
        for level in levels {
            let given: Vec<&Member> = spellings
                .iter()
                .filter_map(|key| find_member(level, key))
                // A key without a value must not hide another spelling that has one.
                .filter(|member| member.node.value != Value::Null)
                .collect();
            if let [kept, ignored, ..] = given.as_slice() {
                let message = format!(
                    "`{}` says again what `{}` says, and is not read",
                    ignored.key, kept.key
                );
                let hint = format!("keep one of the two; the vault reads `{}` first", kept.key);
                self.push_warning("frontmatter-spelling", message, ignored.key_at, &hint);
            }
            // A value of a wrong type is treated as absent, so the search continues with the next
            // spelling and level.
            for member in given {
                match read(&member.node) {
                    Ok(value) => return Some(value),
                    Err(unfit) => {
                        let message =
                            format!("`{}` must be {}; it is not read", member.key, unfit.wanted);
                        self.push_warning(
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

    fn read_metadata(&mut self) -> serde_json::Map<String, serde_json::Value> {
        let Some(member) = find_member(self.top, "metadata") else {
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
                self.push_warning(
                    "frontmatter-type",
                    message,
                    member.node.at,
                    "write it as `key: value` lines",
                );
                serde_json::Map::new()
            }
        }
    }

    /// Returns the declared actions. Every fault here rejects the skill, so all of them are
    /// reported at once.
    fn read_actions(&mut self) -> BTreeMap<ActionName, Action> {
        let mut actions = BTreeMap::new();
        let Some(bin) = find_member(self.top, "bin")
            .filter(|member| member.node.value != Value::Null)
            .or_else(|| find_member(self.metadata, "bin"))
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
            // Read both before either is used, so that the faults of both are reported.
            let (name, action) = (self.action_name(member), self.read_action(member));
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
        // A command of `vault skill` would run in place of an action of the same name, so this
        // mistake gets a message of its own.
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

    fn read_action(&mut self, member: &Member) -> Option<Action> {
        let name = quoted(&member.key);
        let Value::Map(members) = &member.node.value else {
            let message = format!("the action {name} is {}, not a map", member.node.kind());
            self.bin_error(message, member.node.at, "write `{ command: <file> }`");
            return None;
        };
        // Read all parts before the first fault ends the function, so that one run reports all
        // faults.
        let command = self.action_part(members, "command", &name, read_visible_line);
        let args = self.action_part(members, "args", &name, argument_list);
        let cwd = self.action_part(members, "cwd", &name, read_visible_line);
        let description = self.action_part(members, "description", &name, read_visible_line);
        let spelling = if member_of(members, "requires-tty").is_some() {
            "requires-tty"
        } else {
            "requires_tty"
        };
        let requires_tty = self.action_part(members, spelling, &name, read_boolean);
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

    /// Reads one part of an action. Returns `Some(None)` if it is absent. Returns `None` if it is
    /// wrong, and reports that.
    #[expect(clippy::option_option, reason = "absent and wrong are two things here")]
    fn action_part<T>(
        &mut self,
        members: &[Member],
        key: &str,
        action: &str,
        read: fn(&Node) -> Result<T, TypeMismatch>,
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
        self.push_error("skill_bin", "bin", message, at, hint);
    }

    fn push_error(
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

    fn push_warning(&mut self, rule: &'static str, message: String, at: Position, hint: &str) {
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
    ) -> Result<ReadFields, DocumentError> {
        self.warnings
            // The fields were read in the order of the struct, but authors expect the order of
            // their text.
            .sort_by_key(|finding| (finding.line, finding.column));
        let Some((word, _)) = self.errors.first() else {
            return Ok(ReadFields {
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

fn find_member<'a>(members: &'a [Member], key: &str) -> Option<&'a Member> {
    members.iter().find(|member| member.key == key)
}

/// Returns the member with this key, unless its value is null.
fn member_of<'a>(members: &'a [Member], key: &str) -> Option<&'a Member> {
    find_member(members, key).filter(|member| member.node.value != Value::Null)
}
