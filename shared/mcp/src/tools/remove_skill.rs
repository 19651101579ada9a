//! `remove_skill`: removes a skill from the vault.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use vault_shelf::{Change, Submitted};

use super::changes::{ChangeOutcome, build_outcome, own_skill, submit_change};
use super::{Answer, Call, Effect, Spec};
use crate::fault::Fault;

pub struct RemoveSkill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// Name of the skill, or its id `<owner>/<name>`.
    name: String,
}

impl Spec for RemoveSkill {
    const NAME: &'static str = "remove_skill";
    const TITLE: &'static str = "Remove a skill";
    const DESCRIPTION: &'static str = "Removes a skill from the vault. If the owner signs this vault on another machine, or somebody else asks, the request \
        becomes a draft that an owner accepts or declines. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Replaces;
    type Input = Input;
    type Output = ChangeOutcome;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<ChangeOutcome>, Fault> {
        let submitted = submit_removal(call, &input).await?;
        Ok(build_outcome(call, submitted).await.into())
    }
}

/// Submits the removal of a skill to the shelf. Fails for a skill that the caller does not see, and
/// for one of a linked vault.
pub async fn submit_removal(call: &Call<'_>, input: &Input) -> Result<Submitted, Fault> {
    let name = own_skill(call, &input.name).await?;
    submit_change(call, Change::Remove(name)).await
}
