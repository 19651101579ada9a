//! `skill_list`: lists the skills by name, page by page.

use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_policy::Reach;

use super::shapes::Summary;
use super::{Answer, Call, Effect, Spec};
use crate::cursor::{parse_cursor, write_cursor};
use crate::fault::Fault;

/// The largest number of skills on a page.
const PAGE: usize = 100;
/// The approximate limit of a page in bytes of JSON. A page is sent twice, structured and as text.
const PAGE_BYTES: usize = 512 * 1024;

pub struct SkillList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// The `next_cursor` of the previous page.
    #[serde(default)]
    #[schemars(with = "String")]
    cursor: Option<String>,
    /// Only skills with this tag, in any letter case.
    #[serde(default)]
    #[schemars(with = "String")]
    tag: Option<String>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Output {
    /// The skills, by name.
    skills: Vec<Summary>,
    /// The `cursor` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next_cursor: Option<String>,
}

impl Spec for SkillList {
    const NAME: &'static str = "skill_list";
    const DOTTED: Option<&'static str> = Some("skill.list");
    const TITLE: &'static str = "List skills";
    const DESCRIPTION: &'static str = "Lists the skills of this vault by name, up to 100 at a time, with their descriptions. To find a skill for a task, use \
        `get_skill` with a query. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Reads;
    type Input = Input;
    type Output = Output;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<Output>, Fault> {
        let after = match input.cursor.as_deref().map(parse_cursor) {
            Some(None) => {
                let message = "`cursor` is not from an earlier answer; leave it out to begin anew";
                return Err(Fault::bad_arguments(message));
            }
            after => after.flatten(),
        };
        let visible = call.visible(Reach::List).await?;
        let has_tag = |tags: &[String]| {
            input.tag.as_ref().is_none_or(|tag| {
                let tag = tag.trim().to_lowercase();
                tags.iter().any(|has| has.trim().to_lowercase() == tag)
            })
        };
        let mut skills: Vec<Summary> = Vec::new();
        let mut size = 0;
        let (mut last, mut next_cursor) = (None, None);
        for entry in visible.entries_after(after.as_ref()) {
            if !has_tag(&entry.texts.tags) {
                continue;
            }
            let summary = Summary::from_entry(call.owner(), entry);
            size += summary.json_size();
            if skills.len() >= PAGE || (size > PAGE_BYTES && !skills.is_empty()) {
                next_cursor = last.map(write_cursor);
                break;
            }
            last = Some(entry.name());
            skills.push(summary);
        }
        Ok(Output {
            skills,
            next_cursor,
        }
        .into())
    }
}
