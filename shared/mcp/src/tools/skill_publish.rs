//! `skill_publish`: submits a skill, or a new version of one.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;

use super::changes::{ChangeOutcome, GivenFile, build_outcome, raw_files, submit_files};
use super::{Answer, Call, Effect, Spec};
use crate::fault::Fault;

pub struct SkillPublish;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// The whole text of SKILL.md, frontmatter with `name` and `description` first.
    skill_md: String,
    /// The files beside it: all of them, also the unchanged ones.
    #[serde(default)]
    resources: Vec<GivenFile>,
}

impl Spec for SkillPublish {
    const NAME: &'static str = "skill_publish";
    const DOTTED: Option<&'static str> = Some("skill.publish");
    const TITLE: &'static str = "Publish a skill";
    const DESCRIPTION: &'static str = "Submits a skill or a new version of one: the SKILL.md and all files beside it. The vault's gate scans it. A vault that \
        signs for itself adds and publishes it if an owner asks; else it becomes a draft that an owner accepts. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Replaces;
    type Input = Input;
    type Output = ChangeOutcome;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<ChangeOutcome>, Fault> {
        let files = raw_files(input.skill_md, input.resources)?;
        let submitted = submit_files(call, files, true, false).await?;
        Ok(build_outcome(call, submitted).await.into())
    }
}
