//! `propose_skill`: submits a new skill that the caller wrote.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;

use super::changes::{ChangeOutcome, GivenFile, build_outcome, raw_files, submit_files};
use super::{Answer, Call, Effect, Spec};
use crate::fault::Fault;

pub struct ProposeSkill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// The whole text of SKILL.md, frontmatter with `name` and `description` first.
    skill_md: String,
    /// The other files of the skill.
    #[serde(default)]
    resources: Vec<GivenFile>,
    /// Only check whether the skill would be accepted; nothing is stored.
    #[serde(default)]
    check: bool,
}

impl Spec for ProposeSkill {
    const NAME: &'static str = "propose_skill";
    const TITLE: &'static str = "Propose a new skill";
    const DESCRIPTION: &'static str = "Submits a skill that you wrote: the SKILL.md and the files beside it. The vault's gate scans it. A vault that signs \
        for itself adds it at once if an owner asks; else it becomes a draft that an owner accepts. A name that exists is refused (use \
        `skill_publish` for a new version). With `check` nothing is changed. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Adds;
    type Input = Input;
    type Output = ChangeOutcome;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<ChangeOutcome>, Fault> {
        let files = raw_files(input.skill_md, input.resources)?;
        let submitted = submit_files(call, files, false, input.check).await?;
        Ok(build_outcome(call, submitted).await.into())
    }
}
