//! Collects the results of several skills for `vault add`, `install` and `update`.

use serde_json::{Value, json};

use crate::{context::Context, errors::Failure, output::count};

/// Collects one result per skill. Each failure is printed when it arrives; the first one decides
/// the exit code.
pub struct Outcomes<'a> {
    context: &'a Context,
    /// The JSON member that identifies a skill in the list of failures: `name` or `source`.
    member: &'static str,
    /// JSON results of the skills that changed, in the order of arrival.
    pub done: Vec<Value>,
    /// Names of the skills that did not change.
    pub unchanged: Vec<Value>,
    /// JSON entries of the skills that failed.
    pub failed: Vec<Value>,
    first: Option<Failure>,
}

/// The result for one skill that did not fail.
pub enum Outcome {
    /// The skill changed; the value is its JSON result.
    Done(Value),
    /// The skill did not change.
    Unchanged,
}

impl<'a> Outcomes<'a> {
    /// Creates an empty collection. Failures identify their skill by `member`.
    pub const fn new(context: &'a Context, member: &'static str) -> Self {
        Self {
            context,
            member,
            done: Vec::new(),
            unchanged: Vec::new(),
            failed: Vec::new(),
            first: None,
        }
    }

    /// Records the result for the skill with this name or source.
    pub fn push(&mut self, name: &str, result: Result<Outcome, Failure>) {
        let failure = match result {
            Ok(Outcome::Done(data)) => return self.done.push(data),
            Ok(Outcome::Unchanged) => return self.unchanged.push(json!(name)),
            Err(failure) => failure,
        };
        let mut entry = json!({
            self.member: name, "code": failure.code.word(), "message": failure.message, "hint": failure.hint,
        });
        // The printed line has to contain the name, for which the JSON entry has a member.
        let mut shown = failure.clone();
        if self.member == "name" {
            shown.message = format!("{name}: {}", failure.message);
        } else {
            let findings = failure.facts().map(|data| &data["findings"]);
            entry["findings"] = json!(findings);
        }
        // Print at once, so that a long run does not hide its failures until the end.
        self.context.ui.note_failure(&shown);
        self.failed.push(entry);
        // The first failure decides the exit code; later ones are only listed.
        self.first.get_or_insert(failure);
    }

    /// Returns `data`, or a failure that carries `data` if any skill failed. `what` completes the
    /// message "3 skills could not be …".
    pub fn finish(self, what: &str, data: Value) -> Result<Value, Failure> {
        let failed = self.failed.len();
        let message = if self.member == "name" {
            format!("{} could not be {what}", count(failed as u64, "skill"))
        } else {
            let total = count((failed + self.done.len()) as u64, "skill");
            let verb = if failed == 1 { "was" } else { "were" };
            format!("{failed} of {total} {verb} not {what}")
        };
        match self.first {
            // Programs match the code of the first failure. People have read the single messages
            // already.
            Some(first) => Err(Failure::new(first.code.clone(), message).data(data)),
            None => Ok(data),
        }
    }
}
