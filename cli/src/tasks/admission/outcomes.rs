//! Collects the results of several skills for `vault install` and `update`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use vault_format::name::SkillName;
use vault_gate::finding::Finding;

use crate::{context::Context, errors::Failure, output::count};

/// Collects one result per skill. Each failure is printed when it arrives; the first one decides
/// the exit code.
pub struct Outcomes<'a, T> {
    context: &'a Context,
    /// Results of the skills that changed, in the order in which they were recorded.
    pub done: Vec<T>,
    /// Names of the skills that did not change.
    pub unchanged: Vec<SkillName>,
    failed: Vec<FailedSkill>,
    first: Option<Failure>,
}

/// A skill that could not be added, installed or updated.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FailedSkill {
    #[serde(flatten)]
    label: SkillLabel,
    /// The folder in the source, or the name in a site's index, from `vault add`; absent for a whole
    /// source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The stable code of the reason for which the list of the source has no skill there, as in
    /// `left_out`; absent for other failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Error code, as `vault help errors` lists it, or one that a service sent.
    code: String,
    /// The message: one sentence without a full stop.
    message: String,
    /// What to do about it.
    hint: Option<String>,
    /// What the gate found, from `vault add`; null if it did not refuse the skill.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Finding>>")]
    pub findings: Option<Value>,
}

/// What identifies a skill that failed.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillLabel {
    /// Name of the skill, from `vault install` and `vault update`.
    Name(SkillName),
    /// Source of the skill as it was named, from `vault add`.
    Source(String),
}

impl FailedSkill {
    /// Creates the entry of a failed skill, without findings.
    pub fn new(label: SkillLabel, failure: &Failure) -> Self {
        Self {
            label,
            path: None,
            reason: None,
            code: failure.code.word().to_owned(),
            message: failure.message.clone(),
            hint: failure.hint.clone(),
            findings: None,
        }
    }
}

impl<'a, T> Outcomes<'a, T> {
    /// Creates an empty collection.
    pub const fn new(context: &'a Context) -> Self {
        Self {
            context,
            done: Vec::new(),
            unchanged: Vec::new(),
            failed: Vec::new(),
            first: None,
        }
    }

    /// Records the result for the skill of this name: `None` if it did not change.
    pub fn record_result(&mut self, name: &SkillName, result: Result<Option<T>, Failure>) {
        match result {
            Ok(Some(result)) => self.done.push(result),
            Ok(None) => self.unchanged.push(name.clone()),
            Err(failure) => {
                // The printed line must contain the name; in JSON it is a member of its own.
                let mut shown = failure.clone();
                shown.message = format!("{name}: {}", failure.message);
                // Print at once, so that a long run does not hide its failures until the end.
                self.context.ui.note_failure(&shown);
                let label = SkillLabel::Name(name.clone());
                self.failed.push(FailedSkill::new(label, &failure));
                // The first failure decides the exit code; later ones are only listed.
                self.first.get_or_insert(failure);
            }
        }
    }

    /// Builds a view (the command's JSON) from the changed, unchanged and failed skills, and
    /// returns it. If any skill failed, returns a failure that carries the view. `what` completes
    /// its message "3 skills could not be …".
    pub fn into_result<V: Serialize>(
        self,
        what: &str,
        view: impl FnOnce(Vec<T>, Vec<SkillName>, Vec<FailedSkill>) -> V,
    ) -> Result<V, Failure> {
        let message = format!("{} could not be {what}", count(self.failed.len(), "skill"));
        let view = view(self.done, self.unchanged, self.failed);
        match self.first {
            // The code is that of the first failure, for programs. People have already read each
            // message.
            Some(first) => Err(Failure::new(first.code, message).data(view)),
            None => Ok(view),
        }
    }
}
