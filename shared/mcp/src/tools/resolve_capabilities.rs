//! `resolve_capabilities`: lists what a caller may use, with reasons. Members may ask only about
//! themselves on this platform; owners about anyone, on any platform.

use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_policy::search::Text;
use vault_policy::{Asker, Capabilities, Input as Question, Reach, resolve_capabilities};

use super::{Answer, Call, Effect, Spec};
use crate::fault::{Fault, ToolError};
use crate::visible::{PLATFORM, Visible};

/// The longest id of a caller, platform or channel, in bytes.
const MAX_ID_BYTES: usize = 512;

pub struct ResolveCapabilities;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// Whom to ask for: an e-mail address or another id of the policy. Absent: yourself. Only owners may ask for others.
    #[serde(default)]
    #[schemars(with = "String")]
    caller: Option<String>,
    /// The platform, such as `mcp` (also when absent) or `slack`. Only owners may ask for another one than `mcp`.
    #[serde(default)]
    #[schemars(with = "String")]
    platform: Option<String>,
    /// The channel on the platform. Only for owners.
    #[serde(default)]
    #[schemars(with = "String")]
    channel: Option<String>,
    /// What the caller is about to do: the policy's rules look at it, and skills are ranked by it.
    #[serde(default)]
    #[schemars(with = "String")]
    query: Option<String>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Output {
    /// Id by which the policy decided about the caller.
    caller: String,
    /// The platform of the request.
    platform: String,
    /// The channel of the request; absent if none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    channel: Option<String>,
    /// The profile in effect; absent if nothing is granted, and for an owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    profile: Option<String>,
    /// Granted skills, best first by the query, equal ones by name.
    skills: Vec<GrantedSkill>,
    /// Granted tools, names and patterns; `!pattern` at the end excludes some.
    tools: Vec<String>,
    /// Names of granted MCP servers.
    mcp_servers: Vec<String>,
    /// Granted groups that match the query.
    matched_groups: Vec<String>,
    /// Sentences that explain by which rules the answer was reached.
    reasons: Vec<String>,
    /// Equal for equal answers: the key for caching this one.
    cache_key: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct GrantedSkill {
    /// Name of the skill in the vault.
    name: String,
    /// How well it fits the query; 0 for not at all.
    score: f64,
    /// The granted groups that contain it.
    groups: Vec<String>,
}

impl From<Capabilities> for Output {
    fn from(resolved: Capabilities) -> Self {
        let skill = |skill: vault_policy::GrantedSkill| GrantedSkill {
            name: skill.name,
            score: skill.score,
            groups: skill.groups,
        };
        Self {
            caller: resolved.caller,
            platform: resolved.platform,
            channel: resolved.channel,
            profile: resolved.profile,
            skills: resolved.skills.into_iter().map(skill).collect(),
            tools: resolved.tools,
            mcp_servers: resolved.mcp_servers,
            matched_groups: resolved.matched_groups,
            reasons: resolved.reasons,
            cache_key: resolved.cache_key.to_string(),
        }
    }
}

impl Spec for ResolveCapabilities {
    const NAME: &'static str = "resolve_capabilities";
    const TITLE: &'static str = "Resolve capabilities";
    const DESCRIPTION: &'static str = "Lists which skills, tools and MCP servers you may use here, why, and how well the skills fit a query. Owners may ask \
        for anyone, on any platform and channel. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Reads;
    type Input = Input;
    type Output = Output;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<Output>, Fault> {
        let person = call.session.person();
        let platform = input.platform.as_deref().unwrap_or(PLATFORM);
        let channel = input.channel.as_deref();
        let given = [input.caller.as_deref(), Some(platform), channel];
        // Bound the ids, since the answer and its reasons repeat them.
        if given.iter().flatten().any(|id| id.len() > MAX_ID_BYTES) {
            return Err(Fault::bad_arguments(format!(
                "`caller`, `platform` and `channel` have at most {MAX_ID_BYTES} bytes"
            )));
        }
        let for_self = input
            .caller
            .as_ref()
            // Members may name themselves: agents often fill in every argument.
            .is_none_or(|caller| person.ids.contains(caller));
        let here = platform == PLATFORM && channel.is_none();
        if !(person.owner || for_self && here) {
            return Err(Fault::by_caller(
                ToolError::CallerForbidden,
                "only an owner may ask for someone else, or for another platform or channel",
            ));
        }
        let visible = call.visible(Reach::List).await?;
        // A caller who names one of their own ids is resolved with all their ids and the profile to
        // which they are bound.
        let (callers, bound_profile) = match &input.caller {
            Some(other) if !for_self => (vec![other.clone()], None),
            _ => (person.ids.clone(), person.profile.clone()),
        };
        let (platform, is_owners_own) = (platform.to_owned(), person.owner && for_self && here);
        // Run this on another thread: matching the policy's expressions and ranking every skill may
        // take long.
        let work = move |visible: &Visible| {
            let callers: Vec<&str> = callers.iter().map(String::as_str).collect();
            let asker = Asker {
                callers: &callers,
                bound_profile: bound_profile.as_deref(),
                platform: &platform,
                channel: input.channel.as_deref(),
            };
            let mut resolved = resolve_for(visible, asker, input.query.as_deref());
            if is_owners_own {
                grant_everything(visible, &mut resolved, input.query.as_deref());
            }
            Output::from(resolved)
        };
        Ok(visible.run_blocking(work).await?.into())
    }
}

fn resolve_for(visible: &Visible, asker: Asker<'_>, query: Option<&str>) -> Capabilities {
    // Pass all skills: the resolver leaves out those that are not granted.
    let snapshot = visible.snapshot();
    let skills: Vec<Text<'_>> = snapshot
        .entries()
        .iter()
        .map(|entry| Text::from(&entry.texts))
        .collect();
    resolve_capabilities(&Question {
        policy: visible.policy(),
        catalog: snapshot.catalog,
        asker,
        query,
        skills: &skills,
    })
}

/// Replaces the capabilities by those of an owner, whom no policy limits.
fn grant_everything(visible: &Visible, resolved: &mut Capabilities, query: Option<&str>) {
    let snapshot = visible.snapshot();
    let ranking = snapshot.ranking();
    let mut scores = vec![0.0; snapshot.entries().len()];
    for hit in ranking.rank(query.unwrap_or_default()) {
        if let Some(score) = scores.get_mut(hit.position) {
            *score = hit.score;
        }
    }
    let granted = |(entry, score): (&vault_shelf::Entry, f64)| vault_policy::GrantedSkill {
        name: entry.name().to_string(),
        score,
        groups: Vec::new(),
    };
    resolved.skills = snapshot.entries().iter().zip(scores).map(granted).collect();
    resolved
        .skills
        .sort_by(|one, other| other.score.total_cmp(&one.score));
    resolved.profile = None;
    resolved.tools = vec!["*".to_owned()];
    let servers = visible.policy().policy().mcp_servers.iter().flatten();
    resolved.mcp_servers = servers.map(|(name, _)| name.clone()).collect();
    resolved.matched_groups = Vec::new();
    // The policy's own reasons would describe rules that do not apply to owners.
    resolved.reasons = vec!["owners see everything in their vault".to_owned()];
}
