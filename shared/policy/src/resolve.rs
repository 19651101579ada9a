//! Resolves all capabilities of one caller: the skills, tools and MCP servers that the policy
//! grants, the scores of the skills for a query, and the reasons.

use super::compiled::{
    Asker, CompiledPolicy, Decision, Grant, MAX_QUERY_BYTES, ProfileOrigin, Reach,
};
use crate::search::{Ranking, Text};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::text::quoted;

/// Value of `schema` in the JSON whose hash is the cache key.
const CACHE_KEY_SCHEMA: &str = "vault.capabilities/1";

/// The input of [`resolve_capabilities`].
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The compiled policy; [`CompiledPolicy::absent`] if the vault has none.
    pub policy: &'a CompiledPolicy,
    /// A digest that changes whenever the skills change, for the cache key: SHA-256 of the
    /// catalog's payload, or another one. `None` without a catalog.
    pub catalog: Option<Digest>,
    /// The caller, with platform and channel.
    pub asker: Asker<'a>,
    /// The caller's task, in words: context rules are matched against it and skills are ranked by
    /// it. With `None` no rule applies.
    pub query: Option<&'a str>,
    /// All skills of the vault, each name once, in any order.
    pub skills: &'a [Text<'a>],
}

/// The skills, tools and MCP servers that the policy grants to one caller.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Capabilities {
    /// Id by which the policy decided: the first id of the caller that the policy names, else the
    /// first one given.
    pub caller: String,
    /// Platform on which the caller works, as the request named it.
    pub platform: String,
    /// Channel on the platform, as the request named it; `null` if it named none.
    pub channel: Option<String>,
    /// Profile from which the grants follow; `null` if nothing is granted.
    pub profile: Option<String>,
    /// Granted skills: best first by the query, equal ones by name.
    pub skills: Vec<GrantedSkill>,
    /// Granted tools in order, names and patterns; `!pattern` at the end takes some of the
    /// patterns' names out again.
    pub tools: Vec<String>,
    /// Names of the granted MCP servers, in order.
    pub mcp_servers: Vec<String>,
    /// Granted groups that the query is about: by name, by another word for them, or by a hit in
    /// their skills; in order.
    pub matched_groups: Vec<String>,
    /// The steps to this answer, one sentence each; they name nothing that is not granted.
    pub reasons: Vec<String>,
    /// SHA-256 over everything on which the answer depends. While it stays the same, a cached
    /// answer is valid.
    pub cache_key: Digest,
}

/// A skill that a caller may use.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct GrantedSkill {
    /// Name of the skill in the vault.
    pub name: String,
    /// The score for the query: 0 if nothing fits, else comparable within one answer only.
    pub score: f64,
    /// The granted groups that contain the skill, in order.
    pub groups: Vec<String>,
}

/// Resolves the capabilities of a caller. Never fails: an unknown caller, and a name without a
/// definition, get nothing, and the reasons say so.
///
/// The time grows about linearly with the number of skills, the length of the query and the size of
/// the policy.
pub fn resolve_capabilities(input: &Input<'_>) -> Capabilities {
    let reach = input.query.map_or(Reach::List, Reach::Query);
    let decision = input.policy.decide_grant(&input.asker, reach);
    let grant = &decision.grant;
    // Rank only the granted skills among themselves. A score counts rare words more, and rarity
    // among all skills would reveal something about those that the caller may not see.
    let granted: Vec<Text<'_>> = input
        .skills
        .iter()
        .filter(|skill| grant.allows_text(skill.name, skill.tags))
        .copied()
        .collect();
    // Zero for skills without a hit: a query ranks granted skills and never filters them.
    let mut scores = vec![0.0; granted.len()];
    if let Some(query) = input.query {
        let ranking = Ranking::new(granted.iter().copied());
        for hit in ranking.rank(query) {
            scores[hit.position] = hit.score;
        }
    }
    let mut matched: BTreeSet<usize> = input
        .query
        .filter(|_| !decision.query_too_long)
        .map(|query| input.policy.groups_mentioned(query))
        .unwrap_or_default()
        .into_iter()
        // The query may name a group that the caller is not granted. Such a group must not appear
        // in the answer.
        .filter(|number| grant.holds(*number))
        .collect();
    let mut skills: Vec<GrantedSkill> = granted
        .iter()
        .zip(scores)
        .map(|(skill, score)| {
            let numbers = grant.numbers_of(skill.name, skill.tags);
            if score > 0.0 {
                matched.extend(&numbers);
            }
            GrantedSkill {
                name: skill.name.to_owned(),
                score,
                groups: numbers
                    .iter()
                    .map(|number| grant.group_name(*number).to_owned())
                    .collect(),
            }
        })
        .collect();
    skills.sort_by(|one, other| {
        other
            .score
            .total_cmp(&one.score)
            .then_with(|| one.name.cmp(&other.name))
    });
    Capabilities {
        caller: decision.caller.to_owned(),
        platform: input.asker.platform.to_owned(),
        channel: input.asker.channel.map(str::to_owned),
        profile: grant.profile().map(str::to_owned),
        skills,
        tools: grant.tools(),
        mcp_servers: grant.mcp_servers(),
        matched_groups: matched
            .into_iter()
            .map(|number| grant.group_name(number).to_owned())
            .collect(),
        reasons: describe_steps(input, &decision),
        cache_key: cache_key(input),
    }
}

/// The JSON whose SHA-256 is the cache key.
#[derive(Serialize)]
struct CacheKey<'a> {
    schema: &'static str,
    policy: Option<Digest>,
    catalog: Option<Digest>,
    callers: &'a [&'a str],
    bound_profile: Option<&'a str>,
    platform: &'a str,
    channel: Option<&'a str>,
    query: Option<&'a str>,
}

fn cache_key(input: &Input<'_>) -> Digest {
    let Asker {
        callers,
        bound_profile,
        platform,
        channel,
    } = input.asker;
    // JSON keeps the members apart: joined texts could be equal for different questions.
    Digest::of(&json::to_bytes(&CacheKey {
        schema: CACHE_KEY_SCHEMA,
        policy: input.policy.hash(),
        catalog: input.catalog,
        callers,
        bound_profile,
        platform,
        channel,
        query: input.query,
    }))
}

/// Describes each step of the decision. A group that is not granted in the end is counted but not
/// named: its name could be that of a skill of which the caller must not know. For the same reason
/// no expression is quoted.
fn describe_steps(input: &Input<'_>, decision: &Decision<'_>) -> Vec<String> {
    let (grant, policy) = (&decision.grant, input.policy.policy());
    if input.policy.hash().is_none() {
        return vec!["there is no policy, so nothing is granted".to_owned()];
    }
    if decision.query_too_long {
        return vec![format!(
            "the query is over {MAX_QUERY_BYTES} bytes, so nothing is granted"
        )];
    }
    let mut reasons = vec![base_reason(decision)];
    if let Some(channel) = decision.channel {
        let place = match (&channel.channel[..], quoted(&channel.platform)) {
            ("*", platform) => format!("any channel of {platform}"),
            (channel, platform) => format!("the channel {} of {platform}", quoted(channel)),
        };
        if let Some(profile) = &channel.profile {
            reasons.push(format!(
                "for {place} the profile is {} instead",
                quoted(profile)
            ));
        }
        let lists = [&channel.add_groups, &channel.remove_groups];
        reasons.extend(describe_change(
            grant,
            &format!("the entry for {place}"),
            lists,
        ));
    }
    if grant.profile().is_none() {
        reasons.push("without a profile nothing is granted".to_owned());
        return reasons;
    }
    for number in &decision.rules {
        let rule = policy.rules.iter().flatten().nth(*number);
        reasons.extend(rule.and_then(|rule| {
            let what = format!("rule {} matches and", number + 1);
            describe_change(grant, &what, [&rule.add_groups, &rule.remove_groups])
        }));
    }
    let groups: Vec<String> = grant.groups().map(quoted).collect();
    reasons.push(if groups.is_empty() {
        "no group is granted".to_owned()
    } else {
        format!("granted: {}", groups.join(", "))
    });
    let always = policy.always.as_ref();
    let some = |tools: Option<&Vec<String>>| tools.is_some_and(|tools| !tools.is_empty());
    if some(always.and_then(|always| always.tools.as_ref())) {
        reasons.push("tools for everybody are added".to_owned());
    }
    if some(always.and_then(|always| always.disabled_tools.as_ref())) {
        reasons.push("tools disabled for everybody are removed".to_owned());
    }
    reasons
}

fn base_reason(decision: &Decision<'_>) -> String {
    let caller = quoted(decision.caller);
    let known = if decision.is_named {
        "is named without a profile"
    } else {
        "is not named"
    };
    match decision.base {
        ProfileOrigin::Named(profile) => {
            format!("{caller} is named with the profile {}", quoted(profile))
        }
        ProfileOrigin::Bound(profile) => format!(
            "{caller} {known}; the user is bound to the profile {}",
            quoted(profile)
        ),
        ProfileOrigin::BoundUnknown(profile) => format!(
            "{caller} {known}; the user is bound to the profile {}, which the policy does not have",
            quoted(profile)
        ),
        ProfileOrigin::Default(profile) => {
            format!(
                "{caller} {known}; the default profile is {}",
                quoted(profile)
            )
        }
        ProfileOrigin::None if decision.is_named => {
            format!("{caller} {known}, and there is no default profile")
        }
        ProfileOrigin::None => {
            format!("{caller} is an unknown caller, and there is no default profile")
        }
    }
}

/// Describes the effect of added and removed groups; `None` if the caller would see no effect.
fn describe_change(
    grant: &Grant,
    what: &str,
    [add, remove]: [&Option<Vec<String>>; 2],
) -> Option<String> {
    grant.profile()?;
    let granted: BTreeSet<&str> = grant.groups().collect();
    let added: BTreeSet<&str> = add.iter().flatten().map(String::as_str).collect();
    let added: Vec<String> = added
        .intersection(&granted)
        .map(|name| quoted(name))
        .collect();
    let mut parts = Vec::new();
    if !added.is_empty() {
        parts.push(format!("adds {}", added.join(", ")));
    }
    match remove.as_ref().map_or(0, Vec::len) {
        0 => {}
        1 => parts.push("removes one group".to_owned()),
        count => parts.push(format!("removes {count} groups")),
    }
    (!parts.is_empty()).then(|| format!("{what} {}", parts.join(" and ")))
}

#[cfg(test)]
mod tests;
