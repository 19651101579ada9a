//! `add_skill`: adds a skill from a folder of this machine, or from a source elsewhere.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use vault_format::draft::Source;
use vault_format::name::{AgentId, BadName, SkillName};
use vault_shelf::{Change, Submitted, Writes, drafted_name};

mod written;

use super::changes::{ChangeOutcome, build_outcome, is_hidden, only_local, submit_change};
use super::{Answer, Call, Effect, Spec};
use crate::fault::Fault;

/// The largest number of target agents in one call.
const MAX_AGENTS: usize = 64;

pub struct AddSkill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// Kind of the source, which decides how `identifier` is read.
    source: SourceKind,
    /// Address of the skill. With `git`: `owner/repository/path` on GitHub, a repository's web or git address, `gitlab:…`, each
    /// with an optional `#ref`; with `registry`: the skill's name there; with `url`: `https://…`; with `wellknown`:
    /// `https://site` with `skill`,
    /// or `https://site/name`; with `local` its recorded source: `local:folder-name`, or what `vault add --provenance`
    /// recorded for the
    /// installed skill.
    identifier: String,
    /// Name of the skill, if the source has several. With `local` the folder is one skill, which must have this name.
    #[serde(default)]
    #[schemars(with = "String")]
    skill: Option<SkillName>,
    /// Branch, tag, commit or version to fetch; when absent, the one that `identifier` names, or
    /// else the newest.
    #[serde(default, rename = "ref")]
    #[schemars(with = "String")]
    reference: Option<String>,
    /// The skill's folder, as a path on the machine that has the vault. Only for the source
    /// `local`.
    #[serde(default)]
    #[schemars(with = "String")]
    skill_dir: Option<String>,
    /// Agents that the skill is meant for, in addition to those that it names.
    #[serde(default)]
    agents: Vec<AgentName>,
}

/// The id of an agent, such as `claude-code`.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars", inline)]
#[serde(try_from = "String")]
pub struct AgentName(#[schemars(with = "String")] pub AgentId);

impl TryFrom<String> for AgentName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        AgentId::named(&text).map(Self)
    }
}

/// Where a skill is fetched from: a git repository, a registry, an archive or SKILL.md at an
/// address, the index of a site, or a folder.
#[derive(Clone, Copy, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars", inline)]
pub enum SourceKind {
    Git,
    Registry,
    Url,
    Wellknown,
    Local,
}

impl Spec for AddSkill {
    const NAME: &'static str = "add_skill";
    const TITLE: &'static str = "Install a known skill";
    const DESCRIPTION: &'static str = "Adds a published skill: from a repository, a registry, an address, a site's index, or a folder on the machine that \
        holds the vault (`local`, with `skill_dir`). If the owner signs this vault on another machine, or somebody else asks, nothing is \
        fetched and the request becomes a draft. For a skill that you wrote yourself, use `propose_skill`. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Adds;
    type Input = Input;
    type Output = ChangeOutcome;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<ChangeOutcome>, Fault> {
        let submitted = submit_install(call, input).await?;
        Ok(build_outcome(call, submitted).await.into())
    }
}

/// Converts the arguments to a change and submits it to the shelf.
pub async fn submit_install(call: &Call<'_>, input: Input) -> Result<Submitted, Fault> {
    if input.agents.len() > MAX_AGENTS {
        return Err(Fault::bad_arguments(format!(
            "`agents` has at most {MAX_AGENTS} members"
        )));
    }
    if input.source == SourceKind::Local {
        return submit_change(call, folder_change(call, input)?).await;
    }
    if input.skill_dir.is_some() {
        return Err(Fault::bad_arguments(
            "`skill_dir` is only for the source `local`",
        ));
    }
    // Make the text canonical before anything is fetched: the source policy compares canonical
    // identifiers.
    let written = written::parse_source(input.source, &input.identifier, input.skill.as_ref())?;
    let given = check_reference(input.reference)?;
    if let (Some(given), Some(written)) = (&given, &written.reference)
        && given != written
    {
        return Err(Fault::bad_arguments(
            "`identifier` and `ref` name different references",
        ));
    }
    let source = Source {
        identifier: written.identifier,
        reference: given.or(check_reference(written.reference)?),
    };
    let hidden = match drafted_name(&source, input.skill.as_ref()) {
        // A vault that keeps drafts fetches nothing, so the name follows from the source. If a
        // skill that the caller may not see has this name, the draft is made as if there were none,
        // so that the caller does not learn of it.
        Some(name) if call.session.shelf().write_mode() == Writes::Drafted => {
            is_hidden(call, &name).await?
        }
        _ => false,
    };
    let change = Change::Fetch {
        source,
        skill: input.skill,
        agents: input.agents.into_iter().map(|agent| agent.0).collect(),
        hidden,
    };
    submit_change(call, change).await
}

fn folder_change(call: &Call<'_>, input: Input) -> Result<Change, Fault> {
    let path = input
        .skill_dir
        .ok_or_else(|| Fault::bad_arguments("`local` needs `skill_dir`"))?;
    if input.reference.is_some() {
        return Err(Fault::bad_arguments("`ref` is not for the source `local`"));
    }
    // The path on a caller's own machine would name another folder here.
    if !call.session.person().local {
        return Err(only_local());
    }
    Ok(Change::Folder {
        path,
        identifier: input.identifier,
        skill: input.skill,
        agents: input.agents.into_iter().map(|agent| agent.0).collect(),
    })
}

fn check_reference(text: Option<String>) -> Result<Option<String>, Fault> {
    let good = |text: &String| {
        (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control)
    };
    match text {
        Some(text) if !good(&text) => Err(Fault::bad_arguments(
            "`ref` has 1 to 255 visible characters",
        )),
        text => Ok(text),
    }
}
