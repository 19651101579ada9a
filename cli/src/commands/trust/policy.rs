//! `vault policy`: checks `policy.toml`, which decides which skills, tools and MCP servers a caller
//! gets, and explains what it grants to a caller.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::hash::Digest;
use vault_library::{AuthoredFile, Capabilities, Vault, shelf};
use vault_policy::Policy;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, Report, TICK, Warning, clean, count, join, nearest_name, paint},
    tasks::{
        approval::warn_about_pending,
        policy_file::{
            CallerQuery, caller_capabilities, compile_policy, own_path, read_file, written_policy,
        },
    },
};

/// The arguments of `vault policy`.
#[derive(Args, Debug)]
#[command(after_help = "\
The policy decides which skills, tools and MCP servers a caller gets, by profile, group, channel \
and rules over the query. It is the file policy.toml in the vault's folder; each release carries \
it, signed. Changes to it take effect with `vault approve`. docs/policy.md describes the format.

Examples:
  vault policy check
  vault policy check draft.toml --explain --caller ann@example.com \\
      --platform mcp --query \"review a change\"")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check policy.toml and explain what a caller would get
    Check(Check),
}

#[derive(Args, Debug)]
struct Check {
    /// The file [default: policy.toml in the vault's folder]
    file: Option<PathBuf>,
    /// Explain what this caller would get from this vault, and why
    #[arg(long, requires_all = ["caller", "platform", "query"])]
    explain: bool,
    /// The caller: an e-mail address, a client id or any other id in the policy
    #[arg(long, value_name = "ID", requires = "explain")]
    caller: Option<String>,
    /// The platform: cli, mcp, slack, …
    #[arg(long, value_name = "NAME", requires = "explain")]
    platform: Option<String>,
    /// The channel on the platform
    #[arg(long, value_name = "ID", requires = "explain")]
    channel: Option<String>,
    /// The profile that an owner assigned to the caller (`vault users profile`)
    #[arg(long, value_name = "NAME", requires = "explain")]
    profile: Option<String>,
    /// What the caller wants to do
    #[arg(long, value_name = "TEXT", requires = "explain")]
    query: Option<String>,
}

impl Check {
    fn caller_query(&self) -> Option<CallerQuery<'_>> {
        Some(CallerQuery {
            caller: self.caller.as_deref()?,
            platform: self.platform.as_deref()?,
            channel: self.channel.as_deref(),
            profile: self.profile.as_deref(),
            query: self.query.as_deref()?,
        })
    }
}

/// A capability policy, and what a caller gets from it.
#[derive(Debug, JsonSchema, Serialize)]
pub struct PolicyCheck {
    /// Path of the file that was checked.
    path: String,
    /// SHA-256 of the policy; null if there is none.
    sha256: Option<Digest>,
    /// The profile of callers that the policy does not name; null if they get nothing.
    default_profile: Option<String>,
    /// Number of profiles (sets of groups that callers get).
    profiles: usize,
    /// Number of groups (named sets of skills, tools and MCP servers).
    groups: usize,
    /// Number of callers that the policy names.
    callers: usize,
    /// Number of rules that add or remove groups.
    rules: usize,
    /// Number of MCP servers that the policy describes.
    mcp_servers: usize,
    /// What the caller of `--explain` gets; null without it.
    capabilities: Option<Capabilities>,
}

/// Checks the file and, if a caller is given, explains what the policy grants that caller.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Action::Check(check) = &arguments.action;
    // The vault is optional, because a named file can be checked without one.
    let vault = context.existing_vault()?;
    let (path, policy) = match &check.file {
        Some(file) => (file.clone(), Some(read_file(file)?)),
        None => (own_path(context)?, written_policy(context)?),
    };
    // Only the vault's own file needs approval. A named file is not in force.
    if let (None, Some(vault)) = (&check.file, &vault) {
        warn_about_pending(context, vault, |file| *file == AuthoredFile::Policy)?;
    }
    let path = path.display().to_string();
    if let (Some(policy), Some(vault)) = (&policy, &vault) {
        warn_of_ineffective(context, policy, &path, vault)?;
    }
    let compiled = compile_policy(policy)?;
    let explain = |query| caller_capabilities(vault.as_ref(), &compiled, query);
    let answer = check.caller_query().map(explain).transpose()?;
    let policy = compiled.policy();
    let check = PolicyCheck {
        path,
        sha256: compiled.hash(),
        default_profile: policy.default_profile.clone(),
        profiles: table_size(policy.profiles.as_deref()),
        groups: table_size(policy.groups.as_deref()),
        callers: table_size(policy.callers.as_deref()),
        rules: policy.rules.as_ref().map_or(0, Vec::len),
        mcp_servers: table_size(policy.mcp_servers.as_deref()),
        capabilities: answer,
    };
    let mut lines = vec![check.summary_text()];
    lines.extend(check.capabilities.iter().flat_map(capability_lines));
    Ok(Report::view(check, lines.join("\n")))
}

fn table_size<T>(table: Option<&std::collections::BTreeMap<String, T>>) -> usize {
    table.map_or(0, std::collections::BTreeMap::len)
}

impl PolicyCheck {
    fn summary_text(&self) -> String {
        let Some(hash) = &self.sha256 else {
            return "There is no policy.toml, so only owners have access.".to_owned();
        };
        let counts = [
            count(self.profiles, "profile"),
            count(self.groups, "group"),
            count(self.callers, "caller"),
            count(self.rules, "rule"),
            count(self.mcp_servers, "MCP server"),
        ];
        let unknown = match &self.default_profile {
            Some(profile) => format!("unknown callers get the profile {}", clean(profile, 80)),
            None => "unknown callers get nothing".to_owned(),
        };
        format!(
            "{TICK} {}  {}\n  {DIM}{unknown}; sha256 {hash}{DIM:#}",
            clean(&self.path, 400),
            counts.join(", ")
        )
    }
}

fn capability_lines(answer: &Capabilities) -> Vec<String> {
    let Capabilities {
        caller, platform, ..
    } = answer;
    let channel = answer.channel.as_ref().map(|channel| format!(" {channel}"));
    let heading = format!("{caller} on {platform}{}", channel.unwrap_or_default());
    let mut lines = vec![String::new(), paint(BOLD, clean(&heading, 400))];
    let reasons = answer.reasons.iter();
    lines.extend(reasons.map(|reason| format!("  {}", clean(reason, 1000))));
    // A score of 0 means that nothing in the skill fits the query. Show no number then.
    let skills = answer.skills.iter().map(|skill| match skill.score {
        score if score > 0.0 => format!("{} ({score:.2})", skill.name),
        _ => skill.name.clone(),
    });
    for (label, items) in [
        ("skills", join(skills)),
        ("tools", join(&answer.tools)),
        ("MCP servers", join(&answer.mcp_servers)),
        ("matched groups", join(&answer.matched_groups)),
    ] {
        let items = if items.is_empty() {
            "none".to_owned()
        } else {
            clean(&items, 4000)
        };
        lines.push(format!("{label:<15}{items}"));
    }
    lines
}

/// Warns of entries that are valid but grant nothing: skills that are not installed, and the
/// platform `*`.
fn warn_of_ineffective(
    context: &Context,
    policy: &Policy,
    path: &str,
    vault: &Vault,
) -> Result<(), Failure> {
    let listing = shelf::list_installed(vault)?;
    let names: Vec<&str> = listing
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        // Damaged skills are installed too, so do not warn of their names.
        .chain(listing.damaged.iter().map(|(name, _, _)| name.as_str()))
        .collect();
    let warning = |code: &str, message: String| Warning {
        path: Some(path.to_owned()),
        ..Warning::new(code, message)
    };
    for (group, members) in policy.groups.iter().flat_map(|groups| groups.iter()) {
        for skill in members.skills.iter().flatten() {
            // `*` and tags are patterns, which may match nothing yet.
            if skill == "*" || skill.starts_with("tag:") || names.contains(&skill.as_str()) {
                continue;
            }
            let (group, shown) = (clean(group, 80), clean(skill, 80));
            let message =
                format!("the group `{group}` names the skill `{shown}`, which is not installed");
            let near = nearest_name(skill, names.iter().copied());
            context.ui.warn(Warning {
                hint: near.map(|near| format!("did you mean `{near}`?")),
                ..warning("policy_skill_unknown", message)
            });
        }
    }
    for (caller, rules) in policy.callers.iter().flat_map(|callers| callers.iter()) {
        if rules
            .channels
            .iter()
            .flatten()
            .any(|channel| channel.platform == "*")
        {
            let message = format!(
                "a channel entry of `{}` has the platform `*`, which is not a wildcard here",
                clean(caller, 80)
            );
            context.ui.warn(warning("policy_platform_star", message));
        }
    }
    Ok(())
}
