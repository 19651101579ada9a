//! `check_updates`: compares skills with their sources.

use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::text::printable;
use vault_policy::Reach;
use vault_shelf::{DriftState, Entry};

use super::{Answer, Call, Effect, Spec};
use crate::fault::Fault;

/// The largest number of skills that one call compares.
const MOST: usize = 1_000;

pub struct CheckUpdates;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// The name of one skill; without it, all are compared.
    #[serde(default)]
    #[schemars(with = "String")]
    skill: Option<String>,
}

#[derive(Default, JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Output {
    /// Skills whose source has changed.
    drifted: Vec<Drifted>,
    /// Names of skills that equal their source.
    up_to_date: Vec<String>,
    /// Skills that were not compared, and why.
    unchecked: Vec<UncheckedSkill>,
    /// Remarks about the whole comparison, such as that some skills were left out.
    warnings: Vec<String>,
    /// Skills whose source could not be read, and why.
    errors: Vec<UncheckedSkill>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Drifted {
    /// Name of the skill.
    name: String,
    /// Source of the skill: a recorded identifier, or a folder of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    source: Option<String>,
    /// Commit, version or digest of the source that was recorded with the skill.
    recorded: String,
    /// Commit, version or digest that the source has now.
    upstream: String,
    /// Whether the source's history no longer contains the recorded revision.
    is_rewritten: bool,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars", rename = "Said")]
pub struct UncheckedSkill {
    /// Name of the skill.
    name: String,
    /// Reason why the skill was not compared or its source not read.
    reason: String,
}

impl UncheckedSkill {
    /// Creates an entry. The reason may quote a source's answer, so its hidden characters are
    /// escaped.
    fn with_reason(name: String, reason: &str) -> Self {
        Self {
            name,
            reason: printable(reason),
        }
    }
}

impl Spec for CheckUpdates {
    const NAME: &'static str = "check_updates";
    const TITLE: &'static str = "Check skills for updates";
    const DESCRIPTION: &'static str = "Compares skills with their sources and lists those that differ. Changes nothing. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Reads;
    type Input = Input;
    type Output = Output;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<Output>, Fault> {
        // Treat a named skill like a fetch by name: a rule of the policy may grant a skill that
        // lists do not show.
        let reach = input.skill.as_ref().map_or(Reach::List, |_| Reach::Fetch);
        let visible = call.visible(reach).await?;
        let mut output = Output::default();
        let entries: Vec<&Entry> = match &input.skill {
            Some(name) => {
                let found = visible.find_id(call.owner(), name);
                vec![found.ok_or_else(Fault::no_skill)?.1]
            }
            // Take one more than is compared, to know whether to warn.
            None => visible.entries().take(MOST + 1).collect(),
        };
        let looked_at = entries.get(..MOST).unwrap_or(&entries);
        if looked_at.len() < entries.len() {
            output.warnings.push(format!(
                "only the first {MOST} skills were checked; name a skill to check it alone"
            ));
        }
        let owner = call.session.person().owner;
        let drifts = call
            .session
            .shelf()
            .drift(looked_at, input.skill.is_some())
            .await;
        for drift in drifts.map_err(|error| Fault::from_shelf(error, owner))? {
            let name = drift.name.to_string();
            match drift.state {
                DriftState::Drifted {
                    recorded,
                    upstream,
                    is_rewritten,
                } => {
                    if is_rewritten {
                        output.warnings.push(format!(
                            "{name}: the history of its source was rewritten; it no longer \
                             contains {recorded}"
                        ));
                    }
                    output.drifted.push(Drifted {
                        name,
                        source: drift.source,
                        recorded,
                        upstream,
                        is_rewritten,
                    });
                }
                DriftState::UpToDate => output.up_to_date.push(name),
                DriftState::Unchecked(reason) => {
                    output
                        .unchecked
                        .push(UncheckedSkill::with_reason(name, &reason));
                }
                DriftState::Removed(reason)
                | DriftState::Refused(reason)
                | DriftState::Failed(reason) => {
                    output
                        .errors
                        .push(UncheckedSkill::with_reason(name, &reason));
                }
            }
        }
        Ok(output.into())
    }
}
