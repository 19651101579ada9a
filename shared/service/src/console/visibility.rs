//! Decides which skills of a vault a chosen viewer sees, and explains why. `vault-policy` makes the
//! decision, as for `/mcp` and `vault policy check --explain`.

use vault_format::name::AgentId;
use vault_mcp::visible::{PLATFORM, is_for};
use vault_policy::{Asker, CompiledPolicy, Grant, Input, Reach, resolve_capabilities};
use vault_shelf::Entry;

use crate::model::client::ClientId;
use crate::model::user::{Role, Scope, User};

/// Reason why a person without the right to read gets no skill.
const NO_RIGHT_TO_READ: &str = "this person has no right to read";

/// The viewer whose list of skills is shown.
pub(super) enum Viewer {
    /// An owner: the policy does not filter.
    Owner,
    /// An admitted machine: the policy does not filter downloads.
    Machine,
    /// A user of the vault, through the given app or any.
    Person {
        user: Box<User>,
        app: Option<ClientId>,
    },
}

impl Viewer {
    /// Whether the policy decides what the viewer sees.
    pub(super) fn is_filtered(&self) -> bool {
        matches!(self, Self::Person { user, .. } if user.role != Role::Owner)
    }
}

/// The agent that asks for skills, or that runs on the machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ChosenAgent {
    /// Any agent: no skill is left out because of its agents.
    Any,
    Named(AgentId),
    /// An agent that no skill of the release names.
    Other,
}

impl ChosenAgent {
    /// Whether a skill is meant for this agent.
    fn can_use(&self, entry: &Entry) -> bool {
        match self {
            Self::Any => true,
            Self::Named(agent) => is_for(entry, Some(agent)),
            Self::Other => entry.texts.agents.is_empty(),
        }
    }
}

/// Whether the viewer sees one skill, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Exposure {
    /// The skill is in lists and searches.
    Shown,
    /// The skill is in no list, but the viewer can fetch it by its name, and a question that
    /// matches a rule of the policy finds it.
    OnRequest,
    /// The policy does not grant the skill.
    Withheld,
    /// The skill is meant for other agents.
    ForOthers,
}

/// What the decision about the viewer's skills is based on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Basis {
    /// The viewer sees everything, since the policy does not apply.
    Everything,
    /// The viewer sees nothing, whatever the policy grants.
    NoRightToRead,
    /// The policy decides about each skill.
    Policy,
}

/// Visibility of skills for one viewer under one policy.
pub(super) struct Visibility {
    policy: CompiledPolicy,
    listed: Grant,
    fetched: Grant,
    agent: ChosenAgent,
    basis: Basis,
    /// Reasons of the decision, as sentences.
    pub(super) reasons: Vec<String>,
}

impl Visibility {
    /// Decides what `viewer` sees. `agent` is the agent that asks or that runs on the machine;
    /// `question` is the search query, if there is one. May take long if the policy has expressions
    /// and there is a query.
    pub(super) fn new(
        policy: CompiledPolicy,
        viewer: &Viewer,
        agent: ChosenAgent,
        question: Option<&str>,
    ) -> Self {
        let everything = |reason: &str| Self {
            policy: CompiledPolicy::absent(),
            listed: Grant::everything(),
            fetched: Grant::everything(),
            agent: agent.clone(),
            basis: Basis::Everything,
            reasons: vec![to_sentence(reason)],
        };
        let Viewer::Person { user, app } = viewer else {
            return everything(match viewer {
                Viewer::Machine => {
                    "an admitted machine can download every skill: the policy does not apply to machines"
                }
                _ => "an owner sees every skill: the policy does not apply to owners",
            });
        };
        if user.role == Role::Owner {
            return everything("this person is an owner: the policy does not apply to owners");
        }
        let ids = [user.email.to_string()];
        let app = app.as_ref().map(ToString::to_string);
        let callers: Vec<&str> = ids.iter().chain(&app).map(String::as_str).collect();
        let asker = Asker {
            callers: &callers,
            bound_profile: user.profile.as_deref(),
            platform: PLATFORM,
            channel: None,
        };
        let reach = question.map_or(Reach::List, Reach::Query);
        // Checked before the policy: without the right to read, its groups would be the wrong
        // reason.
        let (granting, basis, reasons) = if user.scopes.has(Scope::Read) {
            let input = Input {
                policy: &policy,
                catalog: None,
                asker,
                query: question,
                // No skills are needed: only the reasons are used, and these do not depend on
                // single skills.
                skills: &[],
            };
            let reasons = resolve_capabilities(&input).reasons;
            (policy.clone(), Basis::Policy, reasons)
        } else {
            let reasons = vec![NO_RIGHT_TO_READ.to_owned()];
            (CompiledPolicy::absent(), Basis::NoRightToRead, reasons)
        };
        Self {
            listed: granting.grant_for(&asker, reach),
            fetched: granting.grant_for(&asker, Reach::Fetch),
            policy,
            agent,
            basis,
            reasons: reasons.iter().map(|reason| to_sentence(reason)).collect(),
        }
    }

    pub(super) fn skill_exposure(&self, entry: &Entry) -> Exposure {
        let (name, tags) = (entry.name(), &entry.texts.tags);
        if self.basis == Basis::NoRightToRead {
            Exposure::Withheld
        } else if !self.agent.can_use(entry) {
            Exposure::ForOthers
        } else if self.listed.allows(name, tags) {
            Exposure::Shown
        } else if self.fetched.allows(name, tags) {
            // A policy may grant a skill only to callers who name it.
            Exposure::OnRequest
        } else {
            Exposure::Withheld
        }
    }

    /// Explains the visibility of a skill to an owner. The text names groups that the viewer does
    /// not have, so the viewer must not read it.
    pub(super) fn explain_exposure(&self, entry: &Entry) -> String {
        let (name, tags) = (entry.name(), &entry.texts.tags);
        let holding = || self.policy.groups_holding(name, tags);
        match self.skill_exposure(entry) {
            Exposure::ForOthers => {
                let agents: Vec<_> = entry.texts.agents.iter().map(AgentId::as_str).collect();
                format!("It is only meant for {}.", agents.join(", "))
            }
            Exposure::Shown if self.basis == Basis::Everything => {
                "The policy does not apply.".to_owned()
            }
            Exposure::Shown => groups_text("Granted by", &self.listed.groups_of(name, tags)),
            Exposure::OnRequest => groups_text(
                "In no list. It can be fetched by its name, and a question that matches a rule finds it: granted by",
                &self.fetched.groups_of(name, tags),
            ),
            Exposure::Withheld if self.basis == Basis::NoRightToRead => {
                to_sentence(NO_RIGHT_TO_READ)
            }
            Exposure::Withheld if self.policy.hash().is_none() => {
                "There is no policy, so members see nothing.".to_owned()
            }
            Exposure::Withheld => match &*holding() {
                [] => "No group of the policy has this skill.".to_owned(),
                groups => groups_text("This person does not get", groups),
            },
        }
    }
}

/// Writes a reason as a sentence, with a capital letter and a full stop.
fn to_sentence(reason: &str) -> String {
    let mut letters = reason.chars();
    let first = letters.next().map(char::to_uppercase);
    let first: String = first.into_iter().flatten().collect();
    format!("{first}{}.", letters.as_str())
}

fn groups_text(start: &str, groups: &[&str]) -> String {
    const NAMED: usize = 5;
    let named: Vec<_> = groups.iter().take(NAMED).copied().collect();
    let more = match groups.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if groups.len() == 1 { "group" } else { "groups" };
    format!("{start} the {noun} {}{more}.", named.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vault_format::hash::Digest;
    use vault_format::index::IndexEntry;
    use vault_format::time::Timestamp;
    use vault_policy::Policy;
    use vault_testing::TestClock;

    use super::*;
    use crate::model::user::{NamespaceRef, Scopes};
    use crate::ports::Ports;

    const POLICY: &str = r#"
default_profile = "team"
[profiles.team]
groups = ["docs"]
[profiles.finance]
groups = ["money"]
[groups.docs]
skills = ["tag:docs"]
[groups.money]
skills = ["payroll"]
[groups.rare]
skills = ["on-call"]
[callers."app-user@example.com"]
profile = "finance"
[[rules]]
when = "outage"
add_groups = ["rare"]
"#;

    fn entry(name: &str, tag: &str, agents: &[&str]) -> Entry {
        Entry {
            texts: IndexEntry {
                name: name.parse().unwrap(),
                bundle_hash: Digest::of(name.as_bytes()),
                description: String::new(),
                tags: vec![tag.to_owned()],
                categories: Vec::new(),
                when_to_use: String::new(),
                agents: agents.iter().map(|agent| agent.parse().unwrap()).collect(),
                actions: Vec::new(),
            },
            version: 1,
            size: 1,
            vault: None,
        }
    }

    fn person(email: &str, role: Role, scopes: Scopes) -> Viewer {
        let home = NamespaceRef {
            slug: "acme".parse().unwrap(),
            id: "01M81JMZ000000000000000001".parse().unwrap(),
        };
        let clock = TestClock::new(Timestamp::from_unix(1_795_219_200));
        let ports = Ports::in_memory(Arc::new(clock));
        let user = User::new_invited(email.parse().unwrap(), home, role, scopes, &ports);
        Viewer::Person {
            user: Box::new(user),
            app: None,
        }
    }

    #[test]
    fn each_viewer_sees_what_the_policy_grants_and_the_page_says_why() {
        use ChosenAgent::{Any, Named, Other};
        use Exposure::{ForOthers, OnRequest, Shown, Withheld};
        let claude = || Named("claude-code".parse().unwrap());
        let policy = CompiledPolicy::new(Policy::from_toml(POLICY).unwrap()).unwrap();
        let member = || person("ann@example.com", Role::Member, Scopes::READ);
        let named = || person("app-user@example.com", Role::Member, Scopes::READ);
        let skills = [
            entry("notes", "docs", &[]),
            entry("payroll", "secret", &[]),
            entry("on-call", "secret", &[]),
            entry("nowhere", "secret", &[]),
            entry("codex-only", "docs", &["codex"]),
        ];
        for (viewer, agent, question, standings) in [
            (Viewer::Owner, Any, None, [Shown; 5]),
            (
                Viewer::Machine,
                claude(),
                None,
                [Shown, Shown, Shown, Shown, ForOthers],
            ),
            (
                member(),
                Any,
                None,
                [Shown, Withheld, OnRequest, Withheld, Shown],
            ),
            (
                member(),
                Any,
                Some("an outage"),
                [Shown, Withheld, Shown, Withheld, Shown],
            ),
            (
                named(),
                claude(),
                None,
                [Withheld, Shown, OnRequest, Withheld, ForOthers],
            ),
            (
                member(),
                Other,
                None,
                [Shown, Withheld, OnRequest, Withheld, ForOthers],
            ),
            (
                person("ann@example.com", Role::Member, Scopes::NONE),
                Any,
                None,
                [Withheld; 5],
            ),
            (
                person("ann@example.com", Role::Owner, Scopes::ALL),
                Any,
                None,
                [Shown; 5],
            ),
        ] {
            let visibility = Visibility::new(policy.clone(), &viewer, agent, question);
            let found = skills
                .each_ref()
                .map(|entry| visibility.skill_exposure(entry));
            assert_eq!(found, standings, "{question:?}");
            assert!(!visibility.reasons.is_empty());
        }
        // For a person without the right to read, the reason is neither the policy nor the agent.
        let reader = person("ann@example.com", Role::Member, Scopes::NONE);
        let visibility = Visibility::new(policy.clone(), &reader, claude(), None);
        assert_eq!(visibility.reasons, ["This person has no right to read."]);
        for entry in &skills {
            assert_eq!(
                visibility.explain_exposure(entry),
                "This person has no right to read."
            );
        }
        let visibility = Visibility::new(policy, &member(), Any, None);
        let reasons = skills
            .each_ref()
            .map(|entry| visibility.explain_exposure(entry));
        assert_eq!(
            reasons[..2],
            [
                "Granted by the group docs.".to_owned(),
                "This person does not get the group money.".to_owned(),
            ]
        );
        assert!(
            reasons[2].ends_with("granted by the group rare."),
            "{}",
            reasons[2]
        );
        assert_eq!(reasons[3], "No group of the policy has this skill.");
        let visibility = Visibility::new(CompiledPolicy::absent(), &member(), Any, None);
        assert_eq!(
            visibility.reasons,
            ["There is no policy, so nothing is granted."]
        );
        let reason = visibility.explain_exposure(&skills[0]);
        assert_eq!(reason, "There is no policy, so members see nothing.");
    }
}
