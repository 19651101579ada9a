//! What became of several skills: one collector for `vault add`, `install` and `update`.

use serde_json::{Value, json};

use crate::{context::Context, errors::Failure, output::count};

/// Collects one result for each skill. Failures are printed as they come; the first one decides the exit status.
pub struct Outcomes<'a> {
    context: &'a Context,
    /// The member that names a skill in the list of failures: `name`, or `source`.
    member: &'static str,
    /// Results for programs, in the order in which they came.
    pub done: Vec<Value>,
    /// Names of skills that stayed as they were.
    pub unchanged: Vec<Value>,
    /// Failures for programs.
    pub failed: Vec<Value>,
    first: Option<Failure>,
}

/// What became of one skill.
pub enum Outcome {
    /// It changed; for programs.
    Done(Value),
    /// It stays as it was.
    Unchanged,
}

impl<'a> Outcomes<'a> {
    /// Nothing yet. Failures name their skill with this member.
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

    /// Takes the result for the skill of this name or source.
    pub fn push(&mut self, name: &str, result: Result<Outcome, Failure>) {
        let failure = match result {
            Ok(Outcome::Done(data)) => return self.done.push(data),
            Ok(Outcome::Unchanged) => return self.unchanged.push(json!(name)),
            Err(failure) => failure,
        };
        let mut entry = json!({
            self.member: name, "code": failure.code.word(), "message": failure.message, "hint": failure.hint,
        });
        let mut shown = failure.clone();
        if self.member == "name" {
            shown.message = format!("{name}: {}", failure.message);
        } else {
            let findings = failure.facts().map(|data| &data["findings"]);
            entry["findings"] = json!(findings);
        }
        self.context.ui.note_failure(&shown);
        self.failed.push(entry);
        self.first.get_or_insert(failure);
    }

    /// Ends with this data: a failure where anything failed. `what` completes "3 skills could not be …".
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
            Some(first) => Err(Failure::new(first.code.clone(), message).data(data)),
            None => Ok(data),
        }
    }
}
