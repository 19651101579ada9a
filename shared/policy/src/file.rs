//! The policy as the owner writes it (`policy.toml`) and as a release carries it (an object
//! `vault.policy/1`), read into one type.
//!
//! Both are rejected if they use an undefined name: a policy that grants a misspelt group would
//! grant nothing, or later something else. The module `compiled` computes grants from the type.

use crate::toml_text::{self, Step};
use regex::{RegexBuilder, RegexSet, RegexSetBuilder};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::btree_map::{self, BTreeMap};
use std::ops::Deref;
use vault_format::json;
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::text::quoted;

mod fault;

pub use fault::PolicyError;
use fault::{FaultKind, PolicyFault};

/// Value of the member `schema` in the object.
pub const SCHEMA: &str = "vault.policy/1";
/// Largest object, in bytes; `policy.toml` has the same limit.
pub const MAX_BYTES: usize = toml_text::MAX_BYTES;
/// The largest number of context rules: each has an expression that is compiled and matched.
pub const MAX_RULES: usize = 1_000;
/// Largest compiled expression of one rule, in bytes.
const MAX_REGEX_BYTES: usize = 1024 * 1024;
/// Largest compiled form of all expressions together, in bytes. The time for a hostile set grows
/// with it and with the length of the query: with 8 MiB and a query of 4 KiB it was tens of
/// seconds.
const MAX_REGEX_SET_BYTES: usize = 4 * 1024 * 1024;

/// A table of named values, sorted by the bytes of the names. A repeated name is rejected.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Table<T>(BTreeMap<String, T>);

impl<T> Deref for Table<T> {
    type Target = BTreeMap<String, T>;

    fn deref(&self) -> &BTreeMap<String, T> {
        &self.0
    }
}

impl<T> FromIterator<(String, T)> for Table<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<'a, T> IntoIterator for &'a Table<T> {
    type Item = (&'a String, &'a T);
    type IntoIter = btree_map::Iter<'a, String, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::unique_map(deserializer).map(Self)
    }
}

/// Defines JSON objects: first their required members, then their optional ones. An absent member
/// stays absent when it is written, so that writing gives the same bytes again; `null` is rejected.
macro_rules! objects {
    ($($(#[$about:meta])* $object:ident {
        $($(#[$need:meta])* $needed:ident: $needed_type:ty,)*
        ;
        $($(#[$may:meta])* $member:ident: $type:ty,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
        pub struct $object {
            $($(#[$need])* pub $needed: $needed_type,)*
            $($(#[$may])*
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::optional")]
            pub $member: Option<$type>,)*
        }
    )*};
}

objects! {
    /// A capability policy: what each caller may use.
    Policy {
        ;
        /// Profile of callers for whom no other profile is named; without it they get nothing.
        default_profile: String,
        /// The profiles that callers may be given, by name.
        profiles: Table<Profile>,
        /// The groups that profiles grant, by name.
        groups: Table<Group>,
        /// Callers by e-mail, OAuth client id, or any other id under which a caller asks.
        callers: Table<Caller>,
        /// Context rules, in the order in which they are applied.
        rules: Vec<Rule>,
        /// MCP servers by the name under which groups grant them.
        mcp_servers: Table<McpServer>,
        /// Tools that are granted or disabled for every profile.
        always: Always,
        /// The sources from which `vault add` may fetch skills; absent: any.
        sources: Sources,
    }

    /// A profile: the groups that a caller gets.
    Profile {
        ;
        /// Names of groups; `*` stands for all.
        groups: Vec<String>,
    }

    /// A named set of skills, tools and MCP servers, which is granted as a whole.
    Group {
        ;
        /// Names of skills, `tag:<tag>` for all skills with that tag, or `*` for all.
        skills: Vec<String>,
        /// Names of tools; `*` in a name stands for any text.
        tools: Vec<String>,
        /// Names of MCP servers that the policy defines in `mcp_servers`.
        mcp_servers: Vec<String>,
        /// Other words for the group, matched against queries.
        aliases: Vec<String>,
    }

    /// What the policy says about one caller.
    Caller {
        ;
        /// Profile of the caller in every channel without an entry; absent: the profile that an
        /// owner bound, or else the default one.
        profile: String,
        /// Exceptions by channel; an exact channel takes precedence over `*`.
        channels: Vec<Channel>,
    }

    /// An exception for one caller in a channel of a platform.
    Channel {
        /// Platform, for example `slack`.
        platform: String,
        /// Channel id, or `*` for any.
        channel: String,
        ;
        /// Name of the profile that replaces the caller's in this channel.
        profile: String,
        /// Names of groups to add.
        add_groups: Vec<String>,
        /// Names of groups to remove.
        remove_groups: Vec<String>,
    }

    /// A context rule: groups to add or remove if the query matches.
    Rule {
        /// Regular expression that is searched in the query; without look-around and
        /// back-references, so that matching takes linear time.
        when: String,
        ;
        /// Platforms on which the rule applies; absent: all.
        platforms: Vec<String>,
        /// Profiles for which the rule applies; absent: all.
        profiles: Vec<String>,
        /// Names of groups to add.
        add_groups: Vec<String>,
        /// Names of groups to remove.
        remove_groups: Vec<String>,
    }

    /// An MCP server that groups may grant.
    McpServer {
        /// Address of the server, `https://…` or `http://…`.
        url: String,
        ;
    }

    /// Tools that are granted or disabled for every profile.
    Always {
        ;
        /// Tools that every caller with a profile gets.
        tools: Vec<String>,
        /// Tools that no caller gets; they take precedence over every grant.
        disabled_tools: Vec<String>,
    }

    /// The sources that skills may be fetched from.
    Sources {
        ;
        /// Patterns of provenance identifiers; absent: any source.
        allow: Vec<String>,
        /// Whether only linked vaults, and well-known indexes with digests, are allowed.
        signed_only: bool,
        /// Publisher keys that are accepted where a source carries a vault's signature.
        signers: Vec<PublicKey>,
        /// Smallest age of the fetched commit, in days. Sources without commits are refused, except
        /// linked vaults.
        minimum_age_days: u32,
    }
}

/// The policy object as it is written. Reading uses no `flatten`, since serde's buffer for it would
/// accept arrays in place of objects.
#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    #[serde(flatten)]
    policy: &'a Policy,
}

/// The part of an object that states its format, read before the rest.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

impl Policy {
    /// Reads `policy.toml`. Fails with line and column of the first fault.
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        let (policy, located) = toml_text::parse_strict::<Self>(text)?;
        policy
            .check_all()
            .map_err(|fault| fault.into_error(Some(&located)))?;
        Ok(policy)
    }

    /// Reads a `vault.policy/1` object. Fails on everything that `from_toml` rejects, except
    /// unknown members.
    pub fn from_object(bytes: &[u8]) -> Result<Self, PolicyError> {
        let schema = |message: String| PolicyError::Schema { message, at: None };
        if bytes.len() > MAX_BYTES {
            return Err(schema(format!(
                "the object has {} bytes; {MAX_BYTES} are allowed",
                bytes.len()
            )));
        }
        // The schema is read on its own, so that an object of a newer number is reported as such
        // and not as a fault in some member.
        let head: Head = json::parse(bytes).map_err(|error| schema(error.to_string()))?;
        if head.schema != SCHEMA {
            return Err(schema(format!(
                "the schema is {}, not `{SCHEMA}`",
                quoted(&head.schema)
            )));
        }
        let policy: Self = json::parse(bytes).map_err(|error| schema(error.to_string()))?;
        policy.check_all().map_err(|fault| fault.into_error(None))?;
        Ok(policy)
    }

    /// The exact bytes of the `vault.policy/1` object.
    pub fn to_object(&self) -> Vec<u8> {
        json::to_bytes(&Object {
            schema: SCHEMA,
            policy: self,
        })
    }

    /// Writes the policy as a `policy.toml` that [`Self::from_toml`] reads as the same policy.
    /// Comments and order of the owner's file are lost.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self)
            .expect("its members are texts, lists and tables with text keys")
    }

    /// Compiles the expressions of all rules to one set, which is matched in one pass. Fails if
    /// they are too large together.
    pub(super) fn compile_expressions(&self) -> Result<RegexSet, PolicyError> {
        self.expression_set()
            .map_err(|fault| fault.into_error(None))
    }

    fn expression_set(&self) -> Result<RegexSet, PolicyFault> {
        RegexSetBuilder::new(self.rules.iter().flatten().map(|rule| &rule.when))
            // A service compiles the policies of its tenants; the bounds limit memory and time.
            .size_limit(MAX_REGEX_SET_BYTES)
            .dfa_size_limit(MAX_REGEX_BYTES)
            .build()
            .map_err(|error| {
                let message = format!(
                    "the expressions cannot be used together: {}",
                    last_error_line(&error)
                );
                PolicyFault::new(FaultKind::Regex, message, &["rules".into()])
            })
    }

    fn check_all(&self) -> Result<(), PolicyFault> {
        self.check_names()?;
        self.check_groups()?;
        self.check_rules()?;
        self.check_servers()
    }

    /// Checks that every profile and group that the policy names is defined.
    fn check_names(&self) -> Result<(), PolicyFault> {
        if let Some(name) = &self.default_profile {
            self.check_profile(name, &["default_profile".into()])?;
        }
        for (key, profile) in self.profiles.iter().flatten() {
            for (item, group) in profile
                .groups
                .iter()
                .flatten()
                .enumerate()
                .filter(|(_, group)| *group != "*")
            {
                self.check_group(
                    group,
                    &[
                        "profiles".into(),
                        key.as_str().into(),
                        "groups".into(),
                        item.into(),
                    ],
                )?;
            }
        }
        for (key, caller) in self.callers.iter().flatten() {
            let steps = ["callers".into(), key.as_str().into()];
            if let Some(name) = &caller.profile {
                self.check_profile(name, &extend_steps(&steps, &["profile".into()]))?;
            }
            for (item, channel) in caller.channels.iter().flatten().enumerate() {
                let steps = extend_steps(&steps, &["channels".into(), item.into()]);
                if let Some(name) = &channel.profile {
                    self.check_profile(name, &extend_steps(&steps, &["profile".into()]))?;
                }
                self.check_group_list(channel.add_groups.as_deref(), &steps, "add_groups")?;
                self.check_group_list(channel.remove_groups.as_deref(), &steps, "remove_groups")?;
            }
        }
        for (item, rule) in self.rules.iter().flatten().enumerate() {
            let steps = ["rules".into(), item.into()];
            for (item, name) in rule.profiles.iter().flatten().enumerate() {
                self.check_profile(
                    name,
                    &extend_steps(&steps, &["profiles".into(), item.into()]),
                )?;
            }
            self.check_group_list(rule.add_groups.as_deref(), &steps, "add_groups")?;
            self.check_group_list(rule.remove_groups.as_deref(), &steps, "remove_groups")?;
        }
        Ok(())
    }

    fn check_profile(&self, name: &str, steps: &[Step]) -> Result<(), PolicyFault> {
        check_defined(self.profiles.as_ref(), "profile", name, steps)
    }

    fn check_group(&self, name: &str, steps: &[Step]) -> Result<(), PolicyFault> {
        check_defined(self.groups.as_ref(), "group", name, steps)
    }

    fn check_group_list(
        &self,
        groups: Option<&[String]>,
        steps: &[Step],
        key: &str,
    ) -> Result<(), PolicyFault> {
        groups
            .unwrap_or_default()
            .iter()
            .enumerate()
            .try_for_each(|(item, group)| {
                self.check_group(group, &extend_steps(steps, &[key.into(), item.into()]))
            })
    }

    fn check_groups(&self) -> Result<(), PolicyFault> {
        for (key, group) in self.groups.iter().flatten() {
            let steps = ["groups".into(), key.as_str().into()];
            for (item, name) in group.mcp_servers.iter().flatten().enumerate() {
                let steps = extend_steps(&steps, &["mcp_servers".into(), item.into()]);
                check_defined(self.mcp_servers.as_ref(), "MCP server", name, &steps)?;
            }
            for (item, pattern) in group.skills.iter().flatten().enumerate() {
                if !is_skill_pattern(pattern) {
                    let message = format!(
                        "{} is neither the name of a skill nor `tag:<tag>` nor `*`",
                        quoted(pattern)
                    );
                    let steps = extend_steps(&steps, &["skills".into(), item.into()]);
                    return Err(PolicyFault::new(FaultKind::Schema, message, &steps));
                }
            }
        }
        Ok(())
    }

    fn check_rules(&self) -> Result<(), PolicyFault> {
        let rules = self.rules.as_deref().unwrap_or_default();
        // Check the number before any expression is compiled, because each one costs time.
        if rules.len() > MAX_RULES {
            let message = format!("there are {} rules; {MAX_RULES} are allowed", rules.len());
            return Err(PolicyFault::new(
                FaultKind::Schema,
                message,
                &["rules".into()],
            ));
        }
        for (item, rule) in rules.iter().enumerate() {
            // Compile each expression alone first, so that an error names its line; afterwards,
            // only the set below is used.
            rule.compile_expression().map_err(|error| {
                let message = format!(
                    "{} cannot be used as an expression: {}",
                    quoted(&rule.when),
                    last_error_line(&error)
                );
                PolicyFault::new(
                    FaultKind::Regex,
                    message,
                    &["rules".into(), item.into(), "when".into()],
                )
            })?;
        }
        // Small expressions can still be too large together.
        self.expression_set().map(drop)
    }

    fn check_servers(&self) -> Result<(), PolicyFault> {
        for (key, server) in self.mcp_servers.iter().flatten() {
            if !is_web_address(&server.url) {
                let message = format!(
                    "{} is not the address of an MCP server",
                    quoted(&server.url)
                );
                let steps = ["mcp_servers".into(), key.as_str().into(), "url".into()];
                return Err(PolicyFault::new(FaultKind::Schema, message, &steps));
            }
        }
        Ok(())
    }
}

impl Rule {
    /// Compiles the expression of `when`. Fails if it is invalid or too large. Look-around and
    /// back-references are invalid, because they do not run in linear time.
    pub fn compile_expression(&self) -> Result<regex::Regex, regex::Error> {
        RegexBuilder::new(&self.when)
            .size_limit(MAX_REGEX_BYTES)
            .dfa_size_limit(MAX_REGEX_BYTES)
            .build()
    }
}

fn extend_steps(steps: &[Step], more: &[Step]) -> Vec<Step> {
    [steps, more].concat()
}

fn check_defined<T>(
    table: Option<&Table<T>>,
    kind: &str,
    name: &str,
    steps: &[Step],
) -> Result<(), PolicyFault> {
    if table.is_some_and(|table| table.contains_key(name)) {
        return Ok(());
    }
    let known: Vec<String> = table
        .into_iter()
        .flat_map(|table| table.keys())
        // Show a few names, enough to find a misspelling: a policy may define thousands.
        .take(8)
        .map(|key| quoted(key))
        .collect();
    let known = if known.is_empty() {
        "none is defined".to_owned()
    } else {
        format!("defined: {}", known.join(", "))
    };
    let message = format!("there is no {kind} {} ({known})", quoted(name));
    Err(PolicyFault::new(FaultKind::UnknownName, message, steps))
}

fn is_skill_pattern(pattern: &str) -> bool {
    match pattern.strip_prefix("tag:") {
        Some(tag) => !tag.trim().is_empty(),
        None => pattern == "*" || pattern.parse::<SkillName>().is_ok(),
    }
}

fn is_web_address(url: &str) -> bool {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && url.len() <= 2048
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Returns the last line of an expression's error. The lines before it draw the position with
/// spaces, which a message of one line cannot show.
fn last_error_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default().trim();
    vault_format::text::printable(line.strip_prefix("error: ").unwrap_or(line))
}

#[cfg(test)]
mod tests;
