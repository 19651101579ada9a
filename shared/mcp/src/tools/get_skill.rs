//! `get_skill`: the skills that fit a query, or one skill by name.

use rmcp::model::ContentBlock;
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::since::Since;

use super::add_skill::AgentName;
use super::shapes::{FileInfo, Summary, file_infos};
use super::{Answer, Call, Effect, Spec};
use crate::content::{InlineRoom, file_contents, file_link, files_in_order};
use crate::fault::Fault;
use crate::uri;
use crate::visible::is_for;
use vault_policy::Reach;

const DEFAULT_TOP_K: u32 = 5;
const MAX_TOP_K: u32 = 20;

pub struct GetSkill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// Name of one skill, or `<vault>/<name>` for that of one linked vault, to get its SKILL.md. Give this or `query`.
    #[serde(default)]
    #[schemars(with = "String")]
    name: Option<String>,
    /// What you are about to do, to find skills that fit. Give this or `name`.
    #[serde(default)]
    #[schemars(with = "String")]
    query: Option<String>,
    /// Maximum number of skills that a query finds: 1 to 20, 5 when absent.
    #[serde(default)]
    #[schemars(with = "u32", range(min = 1, max = 20))]
    top_k: Option<u32>,
    /// Only skills that are meant for this agent, such as `claude-code`, or for any.
    #[serde(default)]
    #[schemars(with = "String")]
    agent: Option<AgentName>,
    /// With `name`: also the files beside SKILL.md, up to 1 MiB, the rest as links.
    #[serde(default)]
    #[schemars(with = "bool")]
    include_resources: Option<bool>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Output {
    /// By query: the skills that fit, best first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Hit>")]
    hits: Option<Vec<Hit>>,
    /// By name: the skill. Its SKILL.md is the first content block.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "One")]
    skill: Option<One>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Hit {
    #[serde(flatten)]
    summary: Summary,
    /// How well the skill fits the query; comparable within one answer only.
    score: f64,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct One {
    #[serde(flatten)]
    summary: Summary,
    /// Files of the skill, SKILL.md first.
    files: Vec<FileInfo>,
}

impl Spec for GetSkill {
    const NAME: &'static str = "get_skill";
    const TITLE: &'static str = "Get a skill";
    const DESCRIPTION: &'static str = "Finds skills of this vault by a query, or returns one skill by name. A skill is a signed SKILL.md with instructions \
        for a task, and files beside it. Search first with `query` (what you are about to do); then call again with `name` to \
        read the SKILL.md, and with `include_resources` if it refers to its files. Files that are not inline are resource \
        links; read them with resources/read. (beta, since 0.1.0)";
    const SINCE: Since = Since::version("0.1.0");
    const EFFECT: Effect = Effect::Reads;
    type Input = Input;
    type Output = Output;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<Output>, Fault> {
        match (&input.name, &input.query) {
            (Some(name), None) => {
                if input.top_k.is_some() {
                    return Err(Fault::bad_arguments("`top_k` goes with `query`"));
                }
                by_name(call, name, &input).await
            }
            (None, Some(query)) => {
                if input.include_resources == Some(true) {
                    return Err(Fault::bad_arguments("`include_resources` goes with `name`"));
                }
                by_query(call, query, &input).await
            }
            _ => Err(Fault::bad_arguments("give either `name` or `query`")),
        }
    }
}

async fn by_query(call: &Call<'_>, query: &str, input: &Input) -> Result<Answer<Output>, Fault> {
    let top_k = input.top_k.unwrap_or(DEFAULT_TOP_K);
    if !(1..=MAX_TOP_K).contains(&top_k) {
        return Err(Fault::bad_arguments(format!(
            "`top_k` must be 1 to {MAX_TOP_K}"
        )));
    }
    let visible = call.visible(Reach::Query(query)).await?;
    let ranked = visible.into_searchable().await?;
    let hits = ranked
        .search(
            query,
            top_k as usize,
            input.agent.as_ref().map(|agent| &agent.0),
        )
        .into_iter()
        .map(|found| Hit {
            summary: Summary::from_entry(call.owner(), found.entry),
            score: found.score,
        })
        .collect();
    Ok(Output {
        hits: Some(hits),
        skill: None,
    }
    .into())
}

async fn by_name(call: &Call<'_>, name: &str, input: &Input) -> Result<Answer<Output>, Fault> {
    call.may_read()?;
    let visible = call.visible(Reach::Fetch).await?;
    let (owner, entry) = visible
        .find_id(call.owner(), name)
        // A skill for other agents is not found, as in a search for this agent.
        .filter(|(_, entry)| is_for(entry, input.agent.as_ref().map(|agent| &agent.0)))
        .ok_or_else(Fault::no_skill)?;
    let loaded = call.load(entry).await?;
    let with_files = input.include_resources == Some(true);
    let mut room = InlineRoom::new();
    let mut content = Vec::new();
    for (at, (info, file)) in files_in_order(&loaded).enumerate() {
        let path = info.path.as_str();
        if at == 0 {
            // Always send SKILL.md, whose size was limited when it was signed; its bytes still take
            // up room.
            room.reserve_bytes(&file.bytes);
            content.push(ContentBlock::text(String::from_utf8_lossy(&file.bytes)));
        } else if with_files && room.reserve_bytes(&file.bytes) {
            let uri = uri::file_uri(owner, entry.name(), path);
            content.push(ContentBlock::resource(file_contents(
                uri,
                path,
                &file.bytes,
            )));
        } else {
            content.push(ContentBlock::resource_link(file_link(
                owner,
                entry.name(),
                info,
            )));
        }
    }
    Ok(Answer {
        structured: Output {
            hits: None,
            skill: Some(One {
                summary: Summary::from_entry(owner, entry),
                files: file_infos(owner, &loaded),
            }),
        },
        content: Some(content),
    })
}
