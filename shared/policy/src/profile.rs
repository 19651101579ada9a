//! Profiles: named sets of skills, each made for one agent.
//!
//! The owner writes rules for profiles in `profiles.toml`. Each release carries the resulting
//! profiles as objects `vault.profile/1`.

use crate::toml_text::{self, Located, Step, TextError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::json::JsonError;
use vault_format::name::{AgentId, SkillName};
use vault_format::text::quoted;

/// Value of the member `schema`.
pub const SCHEMA: &str = "vault.profile/1";
/// Largest object, in bytes.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Longest name of a profile, in characters.
pub const MAX_NAME_CHARS: usize = 64;

/// One profile of a release: the skills that an agent gets, by the bundles made for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Profile {
    /// Name of the profile, unique in the release.
    pub name: String,
    /// Agent that it is made for.
    pub agent: AgentId,
    /// Skills, sorted by name, each once.
    pub skills: Vec<ProfileSkill>,
}

/// A skill in a profile.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProfileSkill {
    /// Name of the skill in the vault.
    pub name: SkillName,
    /// SHA-256 of the bundle: that of the variant rendered for the agent if there is one, else of
    /// the plain skill.
    pub bundle_hash: Digest,
    /// Exact size of the bundle, in bytes.
    pub size: u64,
}

#[derive(Deserialize, Serialize)]
struct Object {
    schema: String,
    name: String,
    agent: AgentId,
    skills: Vec<ProfileSkill>,
}

/// A reason why bytes are not a profile object.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The object has more than 4 MiB.
    #[error("the profile has {0} bytes; {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// The bytes are not JSON of a profile's shape.
    #[error("the profile cannot be read: {0}")]
    Json(#[from] JsonError),
    /// The schema has another name or number.
    #[error("the schema is {}, not `{SCHEMA}`", quoted(.0))]
    Schema(String),
    /// The name of the profile is empty, too long, or holds hidden characters.
    #[error("{} cannot be the name of a profile", quoted(.0))]
    Name(String),
    /// The skills are out of order or repeated.
    #[error("the profile is not sorted by name at `{0}`")]
    Order(SkillName),
    /// The bytes are missing, or their size or hash is not the one in the signed catalog.
    #[error("the bytes of the profile {} are not those that were signed for", quoted(.0))]
    OtherBytes(String),
    /// The object is a profile, but not written in its only canonical form.
    #[error("the profile {} is not in canonical form", quoted(.0))]
    NotCanonical(String),
    /// The name or agent differs from that in the catalog's entry.
    #[error("the object of the profile {} has another name or agent", quoted(.0))]
    OtherProfile(String),
    /// The catalog does not list the skill, or the profile names a bundle of another skill.
    #[error(
        "the profile {} names a bundle of {skill} that does not fit the release",
        quoted(profile)
    )]
    Skill {
        /// Profile that names the bundle.
        profile: String,
        /// Skill under whose name the profile lists the bundle.
        skill: SkillName,
    },
    /// The bundle is not a variant of the skill that was rendered for this agent.
    #[error("the bundle of {skill} for {agent} was not rendered from this version for this agent")]
    NotRendered {
        /// Skill under whose name the profile lists the bundle.
        skill: SkillName,
        /// The agent of the profile.
        agent: AgentId,
    },
    /// The profiles of a new release name too many skills.
    #[error(
        "the profiles of {agents} agents name {skills} skills together; a release has at most {}",
        crate::published::MAX_SKILLS
    )]
    TooManySkills {
        /// The number of skills in all profiles.
        skills: usize,
        /// The number of agents.
        agents: usize,
    },
    /// A new release has too many profiles.
    #[error(
        "{profiles} profiles are published; a release has at most {}",
        crate::published::MAX_PROFILES
    )]
    TooManyProfiles {
        /// The number of profiles.
        profiles: usize,
    },
    /// A new release has too many variants.
    #[error(
        "{variants} variants for agents are rendered; a release has at most {}",
        crate::published::MAX_VARIANTS
    )]
    TooManyVariants {
        /// The number of variants of all agents.
        variants: usize,
    },
}

impl ProfileError {
    /// Machine-readable class of the error: always `profile_schema`.
    pub const fn error_code(&self) -> &'static str {
        "profile_schema"
    }
}

impl Profile {
    /// Reads a `vault.profile/1` object. Fails unless the skills are in strictly rising order of
    /// their names.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProfileError> {
        if bytes.len() > MAX_BYTES {
            return Err(ProfileError::TooLarge(bytes.len()));
        }
        let object: Object = json::parse(bytes)?;
        if object.schema != SCHEMA {
            return Err(ProfileError::Schema(object.schema));
        }
        if !is_profile_name(&object.name) {
            return Err(ProfileError::Name(object.name));
        }
        match object
            .skills
            .windows(2)
            .find(|pair| pair[0].name >= pair[1].name)
        {
            Some(pair) => Err(ProfileError::Order(pair[1].name.clone())),
            None => Ok(Self {
                name: object.name,
                agent: object.agent,
                skills: object.skills,
            }),
        }
    }

    /// Writes the object in its canonical form. Skills are sorted by name; of two with one name the
    /// first is kept.
    pub fn to_object(&self) -> Vec<u8> {
        let mut skills = self.skills.clone();
        skills.sort_by(|a, b| a.name.cmp(&b.name));
        skills.dedup_by(|later, kept| later.name == kept.name);
        json::to_bytes(&Object {
            schema: SCHEMA.to_owned(),
            name: self.name.clone(),
            agent: self.agent.clone(),
            skills,
        })
    }
}

/// One `[[profile]]` of `profiles.toml`: the skills that an agent gets and the folder in which they
/// are linked.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProfileRule {
    /// Name of the profile, unique in the file.
    pub name: String,
    /// Agent that it is made for.
    pub agent: AgentId,
    /// Folder in which the skills are linked on this machine; `None` means the agent's own folder.
    /// A release does not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Tags of which a skill needs at least one; `None` or empty: it needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_tags: Option<Vec<String>>,
    /// Tags of which a skill must have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_tags: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
struct File {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    profile: Vec<ProfileRule>,
}

/// A reason to reject `profiles.toml`, with line and column.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct RulesError(#[from] TextError);

impl RulesError {
    /// The position of the fault in `profiles.toml`.
    pub const fn position(&self) -> vault_format::text::Position {
        self.0.at
    }
}

impl ProfileRule {
    /// Returns the rule for an agent without a rule of its own: every skill that names this agent
    /// or no agent.
    pub fn for_agent(agent: AgentId) -> Self {
        Self {
            name: agent.to_string(),
            agent,
            target: None,
            include_tags: None,
            exclude_tags: None,
        }
    }

    /// Reads `profiles.toml`. Fails with line and column of the first fault.
    pub fn from_toml(text: &str) -> Result<Vec<Self>, RulesError> {
        let (file, located) = toml_text::parse_strict::<File>(text)?;
        let mut names = BTreeSet::new();
        for (item, rule) in file.profile.iter().enumerate() {
            check_rule(rule, &located, item)?;
            if !names.insert(rule.name.as_str()) {
                let message = format!("there is a second profile {}", quoted(&rule.name));
                return Err(located
                    .error_at(&steps_to_key(item, "name"), message)
                    .into());
            }
        }
        Ok(file.profile)
    }

    /// Tells whether the profile includes a skill with these target agents and tags. Tags are
    /// compared without regard to case.
    pub fn selects(&self, agents: &[AgentId], tags: &[String]) -> bool {
        let any = |wanted: &Option<Vec<String>>| {
            wanted.iter().flatten().any(|wanted| {
                tags.iter()
                    .any(|tag| tag.to_lowercase() == wanted.to_lowercase())
            })
        };
        let for_agent = agents.is_empty() || agents.contains(&self.agent);
        let included =
            self.include_tags.as_ref().is_none_or(Vec::is_empty) || any(&self.include_tags);
        // Exclusion wins over inclusion: a skill with one tag of each kind is left out.
        for_agent && included && !any(&self.exclude_tags)
    }
}

fn steps_to_key(item: usize, key: &str) -> [Step; 3] {
    ["profile".into(), item.into(), key.into()]
}

fn check_rule(rule: &ProfileRule, located: &Located<'_>, item: usize) -> Result<(), TextError> {
    if !is_profile_name(&rule.name) {
        let message = format!("{} cannot be the name of a profile", quoted(&rule.name));
        return Err(located.error_at(&steps_to_key(item, "name"), message));
    }
    if rule.agent.is_any() {
        let message = format!("{} is no agent", rule.agent);
        return Err(located.error_at(&steps_to_key(item, "agent"), message));
    }
    if rule
        .target
        .as_ref()
        // An empty folder would mean the current directory of whatever command runs.
        .is_some_and(|target| target.is_empty() || target.chars().any(char::is_control))
    {
        return Err(located.error_at(&steps_to_key(item, "target"), "the target is not a folder"));
    }
    Ok(())
}

fn is_profile_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.chars().count())
        && !name.chars().any(vault_format::name::is_deceptive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn skill(name: &str, size: u64) -> ProfileSkill {
        ProfileSkill {
            name: name.parse().unwrap(),
            bundle_hash: Digest::of(name.as_bytes()),
            size,
        }
    }

    fn profile(skills: Vec<ProfileSkill>) -> Profile {
        Profile {
            name: "claude-code".to_owned(),
            agent: "claude-code".parse().unwrap(),
            skills,
        }
    }

    #[test]
    fn a_profile_survives_and_is_sorted() {
        let written = profile(vec![skill("b", 2), skill("a", 1), skill("b", 3)]).to_object();
        assert_eq!(
            Profile::parse(&written).unwrap(),
            profile(vec![skill("a", 1), skill("b", 2)])
        );
    }

    #[test]
    fn an_object_of_another_shape_is_refused() {
        let good =
            String::from_utf8(profile(vec![skill("a", 1), skill("b", 2)]).to_object()).unwrap();
        let cases = [
            good.replace("profile/1", "profile/2"),
            good.replace("\"name\":\"b\"", "\"name\":\"a\""),
            good.replace("\"name\":\"claude-code\"", "\"name\":\"\""),
            good.replace("\"name\":\"claude-code\"", "\"name\":\"a\\u202eb\""),
            good.replace("\"size\":1", "\"size\":1.0"),
            good.replace("\"size\":1", "\"size\":-1"),
            good.replace("\"agent\":\"claude-code\"", "\"agent\":\"Claude\""),
            good.replace(",\"skills\"", ",\"skill\""),
        ];
        for text in cases {
            assert_ne!(text, good);
            assert_eq!(
                Profile::parse(text.as_bytes()).unwrap_err().error_code(),
                "profile_schema",
                "{text}"
            );
        }
    }

    #[test]
    fn rules_are_read_with_every_member() {
        let text = "[[profile]]\nname = \"work\"\nagent = \"codex\"\ntarget = \"~/x\"\ninclude_tags = [\"git\"]\nexclude_tags = []\n\n[[profile]]\nname = \"home\"\nagent = \"codex\"\n";
        let rules = ProfileRule::from_toml(text).unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[0].target.as_deref(), Some("~/x"));
        assert_eq!(
            rules[1],
            ProfileRule {
                name: "home".to_owned(),
                ..ProfileRule::for_agent("codex".parse().unwrap())
            }
        );
        assert!(ProfileRule::from_toml("").unwrap().is_empty());
    }

    #[test]
    fn faults_in_rules_have_line_and_column() {
        let cases = [
            ("[[profile]]\nname = \"a\"\n", "1:1: missing field `agent`"),
            (
                "[[profile]]\nname = \"a\"\nagent = \"codex\"\n[[profile]]\nname = \"a\"\nagent = \"codex\"\n",
                "5:8: there is a second profile `a`",
            ),
            (
                "[[profile]]\nname = \"\"\nagent = \"codex\"\n",
                "2:8: `` cannot be the name of a profile",
            ),
            (
                "[[profile]]\nname = \"a\"\nagent = \"codex\"\ntags = []\n",
                "4:1: unknown key `tags`",
            ),
            (
                "[[profile]]\nname = \"a\"\nagent = \"codex\"\ninclude_tags = \"git\"\n",
                "4:16: invalid type: string \"git\", expected a sequence",
            ),
            (
                "[[profile]]\nname = \"a\"\nagent = \"codex\"\ntarget = \"\"\n",
                "4:10: the target is not a folder",
            ),
            ("[[profiles]]\n", "1:3: unknown key `profiles`"),
            (
                "profile = [[\"a\", \"codex\"]]\n",
                "1:12: a list is not allowed here",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(
                ProfileRule::from_toml(text).unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
        assert!(ProfileRule::from_toml("[[profile]]\nname = \"a\"\nagent = \"Codex!\"\n").is_err());
    }

    #[test]
    fn skills_are_chosen_by_agent_and_tags() {
        let rule = ProfileRule {
            include_tags: Some(vec!["Git".to_owned(), "ci".to_owned()]),
            exclude_tags: Some(vec!["draft".to_owned()]),
            ..ProfileRule::for_agent("codex".parse().unwrap())
        };
        let agents = |ids: &[&str]| {
            ids.iter()
                .map(|id| id.parse().unwrap())
                .collect::<Vec<AgentId>>()
        };
        let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        assert!(rule.selects(&[], &tags(&["git"])));
        assert!(rule.selects(&agents(&["cursor", "codex"]), &tags(&["ci", "x"])));
        assert!(!rule.selects(&agents(&["cursor"]), &tags(&["git"])));
        assert!(!rule.selects(&[], &tags(&["other"])));
        assert!(!rule.selects(&[], &tags(&["git", "Draft"])));
        assert!(ProfileRule::for_agent("codex".parse().unwrap()).selects(&[], &[]));
    }

    proptest! {
        #[test]
        fn any_profile_survives(name in "[^\\p{C}\\p{Z}]{1,64}", skills in proptest::collection::btree_map("[a-z0-9]{1,8}", 0_u64..1 << 53, 0..6)) {
            prop_assume!(is_profile_name(&name));
            let skills = skills.iter().filter(|(name, _)| name.parse::<SkillName>().is_ok());
            let skills: Vec<_> = skills.map(|(name, size)| skill(name, *size)).collect();
            let reversed = Profile { name: name.clone(), ..profile(skills.iter().rev().cloned().collect()) };
            prop_assert_eq!(Profile::parse(&reversed.to_object()).unwrap(), Profile { name, ..profile(skills) });
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, text in "(\\[\\[profile\\]\\]|name|agent| = |\"a\"|\n|\\[|\\]|\\{|\\}|,|x){0,30}") {
            prop_assert!(Profile::parse(&bytes).is_err());
            let _ = ProfileRule::from_toml(&text);
        }
    }
}
