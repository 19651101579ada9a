//! Names in signed formats and addresses: slugs, skills, actions, agents, and the ids of namespaces
//! and drafts.
//!
//! Each has one grammar and one text; nothing is trimmed, folded or corrected while reading. Only
//! [`SkillName::derive`] changes text.

use std::fmt;
use std::str::FromStr;

use ulid::Ulid;
use unicode_normalization::UnicodeNormalization;

use crate::text::{is_device_name, text_form};

pub use crate::text::is_deceptive;

/// A reason to reject a text as a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadName {
    /// The text is not a slug, which is the name of a namespace in addresses.
    #[error("slug must have 1 to 63 characters a-z, 0-9 and single hyphens inside")]
    Slug,
    /// The text can't name a skill and its directory.
    #[error(
        "a skill name has 1 to 64 characters a-z, 0-9 and single hyphens inside, and is not a Windows device name"
    )]
    Skill,
    /// The text can't name an action.
    #[error(
        "an action name begins with a-z, has at most 32 characters a-z, 0-9 and hyphens, and is not list, search or which"
    )]
    Action,
    /// The text does not have the form of an agent's id.
    #[error("agent id must have 1 to 64 characters a-z, 0-9 and hyphens")]
    Agent,
    /// The id that stands for agents without a profile.
    #[error("{ANY_AGENT} is no agent: it stands for every agent without a profile of its own")]
    AnyAgent,
    /// The text is not the id of a namespace or draft. These ids are ULIDs.
    #[error("id must be a ULID: 26 characters of Crockford's base32 in upper case")]
    Id,
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $error:expr, $check:path, $expected:literal $(, $keyword:literal: $value:literal)*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $type(Box<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                if $check(text) { Ok(Self(text.into())) } else { Err($error) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        text_form!($type, BadName, $expected $(, $keyword: $value)*);
    };
}

name!(
    /// The name of a namespace in addresses: `/v/<slug>/`.
    Slug, BadName::Slug, is_slug, "a slug",
    "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 63
);
name!(
    /// The name of a skill, and of its directory in a vault.
    SkillName, BadName::Skill, is_skill_name, "a skill name",
    "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64
);
name!(
    /// The name of a declared action; never `list`, `search` or `which`, which are commands.
    ActionName, BadName::Action, is_action_name, "an action name"
);
name!(
    /// The id of a target agent, such as `claude-code`.
    AgentId, BadName::Agent, is_agent_id, "an agent id"
);

/// In profiles and variants: every agent without a profile of its own. No agent has this id.
pub const ANY_AGENT: &str = "any-agent";

impl AgentId {
    /// Returns the id that means every agent without a profile of its own.
    pub fn any() -> Self {
        Self(ANY_AGENT.into())
    }

    /// Parses the id of one agent. Fails for [`ANY_AGENT`] too, which no agent has.
    pub fn named(text: &str) -> Result<Self, BadName> {
        match text.parse::<Self>() {
            Ok(agent) if agent.is_any() => Err(BadName::AnyAgent),
            parsed => parsed,
        }
    }

    /// Returns whether the id is [`ANY_AGENT`], which means every agent without a profile of its
    /// own.
    pub fn is_any(&self) -> bool {
        self.as_str() == ANY_AGENT
    }
}

fn is_slug(text: &str) -> bool {
    text.len() <= 63 && is_kebab_case(text)
}

fn is_skill_name(text: &str) -> bool {
    // A skill's name is a directory, which Windows cannot create under a device's name.
    text.len() <= 64 && is_kebab_case(text) && !is_device_name(text)
}

fn is_action_name(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(is_name_byte)
        && !["list", "search", "which"].contains(&text)
}

fn is_agent_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(is_name_byte)
}

/// `[a-z0-9]+(-[a-z0-9]+)*`
fn is_kebab_case(text: &str) -> bool {
    text.split('-')
        // An empty word is a hyphen at an end, or two in a row.
        .all(|word| !word.is_empty() && word.bytes().all(|byte| byte != b'-' && is_name_byte(byte)))
}

const fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
}

impl Slug {
    /// Whether the slug is reserved for routes and well-known hosts and must not be given to a
    /// tenant.
    pub fn is_reserved(&self) -> bool {
        const RESERVED: [&str; 41] = [
            "about",
            "account",
            "accounts",
            "admin",
            "api",
            "app",
            "assets",
            "auth",
            "billing",
            "blog",
            "console",
            "default",
            "docs",
            "download",
            "healthz",
            "help",
            "hooks",
            "invite",
            "legal",
            "login",
            "logout",
            "mail",
            "mcp",
            "me",
            "new",
            "oauth",
            "operator",
            "ops",
            "register",
            "root",
            "security",
            "settings",
            "signin",
            "signup",
            "static",
            "status",
            "support",
            "system",
            "v",
            "well-known",
            "www",
        ];
        RESERVED.contains(&self.as_str())
    }
}

impl SkillName {
    /// Derives a name from any text: NFKC, lower case, runs of other characters become one hyphen,
    /// ends trimmed, cut at 64 characters. Returns `None` if nothing usable is left.
    pub fn derive(text: &str) -> Option<Self> {
        let mut name = String::new();
        for c in text.nfkc().flat_map(char::to_lowercase) {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                name.push(c);
            } else if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
            // Stop as soon as the name is too long, so that most of a very long text need not be
            // read.
            if name.len() > 64 {
                break;
            }
        }
        name.truncate(64);
        // Parse the rest like any other name: it may be empty or the name of a Windows device.
        name.trim_end_matches('-').parse().ok()
    }
}

/// The name of an installed skill on this machine: `<name>`, or `<vault>/<name>` for the skill of
/// one vault, independent of which vault holds the bare name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SkillRef {
    /// The vault's name on this machine; `None` for the vault that holds the bare name.
    pub vault: Option<Slug>,
    /// The skill's name, without the vault.
    pub name: SkillName,
}

impl SkillRef {
    /// Creates the reference `<vault>/<name>`, which means this vault's skill even if another vault
    /// holds the bare name.
    pub const fn qualified(vault: Slug, name: SkillName) -> Self {
        Self {
            vault: Some(vault),
            name,
        }
    }
}

impl From<SkillName> for SkillRef {
    fn from(name: SkillName) -> Self {
        Self { vault: None, name }
    }
}

impl From<&SkillName> for SkillRef {
    fn from(name: &SkillName) -> Self {
        Self::from(name.clone())
    }
}

impl From<&SkillRef> for SkillRef {
    fn from(skill: &SkillRef) -> Self {
        skill.clone()
    }
}

impl FromStr for SkillRef {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        Ok(match text.split_once('/') {
            Some((vault, name)) => Self::qualified(vault.parse()?, name.parse()?),
            None => Self::from(text.parse::<SkillName>()?),
        })
    }
}

impl fmt::Display for SkillRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.vault {
            Some(vault) => f.pad(&format!("{vault}/{}", self.name)),
            None => self.name.fmt(f),
        }
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $type([u8; 26]);

        impl $type {
            /// Creates an id from the time in milliseconds since 1970 (48 bits are used) and 80
            /// random bits.
            pub fn from_parts(ms: u64, random: u128) -> Self {
                let mut text = [0; 26];
                Ulid::from_parts(ms, random).array_to_str(&mut text);
                Self(text)
            }

            /// Returns the id as a text of 26 characters.
            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0).unwrap_or_default() // the ULID crate writes ASCII
            }
        }

        impl FromStr for $type {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                let id = Ulid::from_string(text).map_err(|_| BadName::Id)?;
                let mut canonical = [0; 26];
                // The ULID crate also reads lower case and look-alike letters: compare, or one id
                // has many texts.
                if id.array_to_str(&mut canonical) == text { Ok(Self(canonical)) } else { Err(BadName::Id) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        text_form!($type, BadName, "a ULID", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$");
    };
}

id!(
    /// The id of one allocation of a namespace; a slug that is allocated again gets another one.
    NamespaceId
);
id!(
    /// The id of a draft; it stands in place of a hash, since two equal drafts are two requests.
    DraftId
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slugs() {
        let longest = "a".repeat(63);
        for good in ["a", "acme", "a-b-c", "0", "9lives", &longest] {
            assert_eq!(good.parse::<Slug>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "a--b",
            "A",
            "a_b",
            "a.b",
            "ä",
            "a b",
            "a/b",
            &"a".repeat(64),
        ] {
            assert_eq!(bad.parse::<Slug>(), Err(BadName::Slug), "{bad:?}");
        }
        assert!("admin".parse::<Slug>().unwrap().is_reserved());
        assert!("default".parse::<Slug>().unwrap().is_reserved());
        assert!(!"acme".parse::<Slug>().unwrap().is_reserved());
    }

    #[test]
    fn skill_names() {
        for good in [
            "a",
            "code-review",
            "3d",
            &"a".repeat(64),
            "com10",
            "console",
        ] {
            assert_eq!(good.parse::<SkillName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-",
            "a--b",
            "a-",
            "-a",
            "Code",
            "a_b",
            "con",
            "nul",
            "com1",
            "lpt9",
            "é",
            &"a".repeat(65),
        ] {
            assert_eq!(bad.parse::<SkillName>(), Err(BadName::Skill), "{bad:?}");
        }
    }

    #[test]
    fn no_agent_is_called_any_agent() {
        assert_eq!(AgentId::named("codex").unwrap().as_str(), "codex");
        assert_eq!(AgentId::named("Codex"), Err(BadName::Agent));
        let reserved = AgentId::named(ANY_AGENT).unwrap_err().to_string();
        assert!(reserved.starts_with("any-agent is no agent"), "{reserved}");
        // Profiles and manifests of variants contain this id, so it must parse.
        assert!(ANY_AGENT.parse::<AgentId>().unwrap().is_any());
    }

    #[test]
    fn a_skill_is_called_by_its_name_or_by_its_vault_and_name() {
        for good in ["pdf", "acme/pdf", "a-2/code-review"] {
            assert_eq!(good.parse::<SkillRef>().unwrap().to_string(), good);
        }
        for bad in [
            "", "/", "acme/", "/pdf", "a/b/c", "Acme/pdf", "../pdf", "acme/con",
        ] {
            assert!(bad.parse::<SkillRef>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn derived_names() {
        let long = format!("{} x", "a".repeat(64));
        let edge = format!("{}-b", "a".repeat(63));
        for (text, name) in [
            ("Release_Notes", Some("release-notes")),
            ("  Code  Review!  ", Some("code-review")),
            ("ＡＢＣ", Some("abc")), // full width: NFKC
            ("ﬁle", Some("file")),
            ("Größe", Some("gr-e")),
            ("日本語", None),
            ("---", None),
            ("", None),
            ("CON", None),
            (
                &long,
                Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ),
            (
                &edge,
                Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ),
        ] {
            assert_eq!(
                SkillName::derive(text).as_ref().map(SkillName::as_str),
                name,
                "{text:?}"
            );
        }
    }

    #[test]
    fn action_names() {
        for good in ["a", "check", "a-b", "a--", &"a".repeat(32)] {
            assert!(good.parse::<ActionName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "list",
            "search",
            "which",
            "Check",
            "1check",
            "-a",
            "a_b",
            &"a".repeat(33),
        ] {
            assert_eq!(bad.parse::<ActionName>(), Err(BadName::Action), "{bad}");
        }
    }

    #[test]
    fn ids_have_one_text() {
        let text = "01JD5VXQ3N8W2K7R4T6Y9ZB1CM";
        assert_eq!(text.parse::<NamespaceId>().unwrap().to_string(), text);
        let (lower, padded) = (text.to_lowercase(), format!("{text}0"));
        for bad in [
            &lower,
            &text[1..],
            &padded,
            "81JD5VXQ3N8W2K7R4T6Y9ZB1CM",
            "01JD5VXQ3N8W2K7R4T6Y9ZB1CI",
            "01JD5VXQ3N8W2K7R4T6Y9ZB1C",
            "",
        ] {
            assert_eq!(bad.parse::<NamespaceId>(), Err(BadName::Id), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn names_never_panic_and_keep_their_text(text in ".{0,70}") {
            if let Ok(name) = text.parse::<Slug>() { prop_assert_eq!(name.to_string(), text.clone()); }
            if let Ok(name) = text.parse::<SkillName>() { prop_assert_eq!(name.to_string(), text.clone()); }
            if let Ok(name) = text.parse::<ActionName>() { prop_assert_eq!(name.to_string(), text.clone()); }
            if let Ok(name) = text.parse::<AgentId>() { prop_assert_eq!(name.to_string(), text.clone()); }
            if let Ok(name) = text.parse::<NamespaceId>() { prop_assert_eq!(name.to_string(), text.clone()); }
            if let Some(name) = SkillName::derive(&text) {
                prop_assert_eq!(SkillName::derive(name.as_str()), Some(name));
            }
        }

        #[test]
        fn ids_survive_a_round_trip(ms: u64, random: u128) {
            let id = NamespaceId::from_parts(ms, random);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
}
