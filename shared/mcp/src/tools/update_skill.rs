//! `update_skill`: fetches a skill again from its source.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use vault_shelf::Change;

use super::changes::{ChangeOutcome, build_outcome, own_skill, submit_change};
use super::{Answer, Call, Effect, Spec};
use crate::fault::Fault;

pub struct UpdateSkill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// Name of the skill, or its id `<owner>/<name>`.
    name: String,
}

impl Spec for UpdateSkill {
    const NAME: &'static str = "update_skill";
    const TITLE: &'static str = "Update a skill from its source";
    const DESCRIPTION: &'static str = "Fetches a skill from its source again and adds what is there now as a new version. Use `check_updates` first. (beta, \
        since 0.5.0)";
    const EFFECT: Effect = Effect::Replaces;
    type Input = Input;
    type Output = ChangeOutcome;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<ChangeOutcome>, Fault> {
        let name = own_skill(call, &input.name).await?;
        let submitted = submit_change(call, Change::Update(name)).await?;
        Ok(build_outcome(call, submitted).await.into())
    }
}
