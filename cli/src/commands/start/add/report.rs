//! The report of `vault add`: the outcome for each skill of the sources.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::credentials::without_credentials;
use vault_library::admit::{AdmitReport, Candidate};
use vault_sources::short_commit;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, FailureCode},
    output::{DIM, clean, count, either, paint},
    tasks::admission::{
        admitted_text,
        outcomes::{FailedSkill, SkillLabel},
        texts::Texts,
    },
};

/// The skills of all sources.
#[derive(Debug, JsonSchema, Serialize)]
pub struct AddedSkills {
    /// The skills that passed the gate, changed or not.
    pub added: Vec<AdmitReport>,
    /// The skills that could not be added.
    pub failed: Vec<FailedSkill>,
    /// The skills that were not taken, and why.
    pub left_out: Vec<LeftOutSkill>,
}

/// A skill of a source that is not added, and the reason.
#[derive(Debug, JsonSchema, Serialize)]
pub struct LeftOutSkill {
    /// The source, as it was named.
    pub source: String,
    /// The folder in the source, or the name in a site's index.
    pub path: String,
    /// The stable code of the reason.
    pub reason: &'static str,
    /// The reason, in one sentence without a full stop.
    pub message: String,
}

/// A source that `vault add` reads, or one skill in it: what a result or a failure is about.
pub struct SourcePlace {
    /// The source or skill in messages. No two skills of one source have the same label.
    pub label: String,
    /// `None` if a failure concerns the whole source, for example because it cannot be fetched.
    pub part: Option<Box<SourcePart>>,
}

pub struct SourcePart {
    /// The folder in the source, or the name in a site's index.
    pub path: String,
    /// The stable code of the reason for which the part cannot be taken, if the list of the source
    /// says so.
    pub reason: Option<&'static str>,
}

impl SourcePlace {
    /// The place of a skill in a folder of a source. The root has an empty folder.
    pub fn of_skill(label: String, folder: &str) -> Self {
        let path = if folder.is_empty() { "." } else { folder };
        let part = SourcePart {
            path: path.to_owned(),
            reason: None,
        };
        Self {
            label,
            part: Some(Box::new(part)),
        }
    }
}

impl From<String> for SourcePlace {
    /// The place of a whole source.
    fn from(label: String) -> Self {
        Self { label, part: None }
    }
}

/// The outcome of adding one skill, with what the report needs to show it.
pub struct AddOutcome {
    pub place: SourcePlace,
    pub texts: Texts,
    pub result: Result<AdmitReport, Failure>,
    /// The source and the signer of a fetched skill, in one line.
    pub from: Option<String>,
}

/// Maximum number of left-out skills that are named without `-v`.
const MOST_NAMED: usize = 20;

/// Prints the outcomes of `vault add`, and builds the data that `--json` prints.
pub struct SkillsReport<'a> {
    pub context: &'a Context,
    /// The listed skills that were not chosen or cannot be added.
    pub left_out: Vec<LeftOutSkill>,
    /// The number of failures that concern whole sources.
    failed_sources: usize,
}

impl<'a> SkillsReport<'a> {
    /// Creates a report in which these skills are left out.
    pub const fn new(
        context: &'a Context,
        left_out: Vec<LeftOutSkill>,
        failed_sources: usize,
    ) -> Self {
        Self {
            context,
            left_out,
            failed_sources,
        }
    }

    /// Converts the failure of the only skill or source into that of the command, which also lists
    /// the left-out skills.
    pub fn of_single(self, place: SourcePlace, failure: Failure) -> Failure {
        self.print_left_out(0, 1);
        let skills = AddedSkills {
            added: Vec::new(),
            failed: vec![failed_skill(place, &failure)],
            left_out: self.left_out,
        };
        let mut data = serde_json::to_value(skills).unwrap_or_default();
        // Keep the failure's own data beside the lists.
        if let (Some(all), Some(own)) = (
            data.as_object_mut(),
            failure.json_data().and_then(serde_json::Value::as_object),
        ) {
            all.extend(own.clone());
        }
        failure.data(data)
    }

    /// Prints the outcome of each skill. Fails if any was not added. With `single`, its failure is
    /// the failure of the command.
    pub fn print_outcomes(
        self,
        mut done: Vec<AddOutcome>,
        single: bool,
    ) -> Result<AddedSkills, Failure> {
        if single
            && let Some(AddOutcome {
                place,
                result: Err(failure),
                ..
            }) = done.pop_if(|done| done.result.is_err())
        {
            return Err(self.of_single(place, failure));
        }
        let context = self.context;
        let total = count(done.len(), "skill");
        let (mut added, mut failed, mut codes) = (Vec::new(), Vec::new(), Vec::new());
        for done in done {
            match done.result {
                Ok(report) => {
                    done.texts.warn_about_findings(context, &report.findings);
                    context.ui.print_line(admitted_text(&report));
                    if let Some(from) = &done.from {
                        context.ui.print_line(paint(DIM, from));
                    }
                    added.push(report);
                }
                Err(failure) => {
                    context.ui.note_failure(&failure);
                    failed.push(failed_skill(done.place, &failure));
                    codes.push(failure.code);
                }
            }
        }
        self.print_left_out(added.len(), failed.len());
        let (number, verb) = (failed.len(), either(failed.len() == 1, "was", "were"));
        let skills = AddedSkills {
            added,
            failed,
            left_out: self.left_out,
        };
        let message = format!("{number} of {total} {verb} not added");
        match code_of_several(codes, !skills.added.is_empty()) {
            Some(code) => Err(Failure::new(code, message).data(skills)),
            None => Ok(skills),
        }
    }

    /// Prints the skills that were left out, and the totals of taken, refused and left-out skills.
    pub fn print_left_out(&self, taken: usize, failed: usize) {
        let (context, left_out) = (self.context, &self.left_out);
        // A failure of a whole source is no listed skill.
        let refused = failed.saturating_sub(self.failed_sources);
        let is_chosen_away = |skill: &&LeftOutSkill| skill.reason == "not_chosen";
        let others = left_out.iter().filter(is_chosen_away).count();
        let mut faults: Vec<&LeftOutSkill> = left_out.iter().collect();
        faults.retain(|skill| context.ui.is_verbose() || !is_chosen_away(skill));
        let most = if context.ui.is_verbose() {
            faults.len()
        } else {
            MOST_NAMED
        };
        for skill in faults.iter().take(most) {
            let (path, message) = (clean(&skill.path, 200), clean(&skill.message, 300));
            context
                .ui
                .note(format!("{DIM}left out{DIM:#} {path}: {message}"));
        }
        if faults.len() > most {
            let more = faults.len() - most;
            context
                .ui
                .note(format!("{DIM}left out{DIM:#} {more} more (-v names them)"));
        }
        let listed = taken + refused + left_out.len();
        if listed > taken && !left_out.is_empty() {
            context.ui.note(paint(
                DIM,
                format!(
                    "{} listed: {taken} taken, {refused} refused, {} left out ({others} not chosen)",
                    count(listed, "skill"),
                    left_out.len()
                ),
            ));
        }
    }
}

/// Creates the `--json` entry of a failed skill or source.
fn failed_skill(place: SourcePlace, failure: &Failure) -> FailedSkill {
    let findings = failure.json_data().map(|data| data["findings"].clone());
    let mut skill = failed_part(place, failure);
    skill.findings = Some(findings.unwrap_or_default());
    skill
}

/// Creates the `--json` entry of a failed skill or source, without findings. It shows no password
/// of an address that was typed as a folder.
pub fn failed_part(place: SourcePlace, failure: &Failure) -> FailedSkill {
    let source = SkillLabel::Source(without_credentials(&place.label));
    let mut skill = FailedSkill::new(source, failure);
    if let Some(part) = place.part {
        (skill.path, skill.reason) = (Some(part.path), part.reason);
    }
    skill
}

/// Chooses the error code of the command from the codes of its failures. `None` if nothing failed.
pub fn code_of_several(failed: Vec<FailureCode>, is_any_added: bool) -> Option<FailureCode> {
    // A refusal by the gate takes precedence, so that scripts notice it.
    if failed.iter().any(|code| *code == ErrorCode::GateBlocked) {
        return Some(ErrorCode::GateBlocked.into());
    }
    let first = failed.into_iter().next()?;
    Some(if is_any_added {
        ErrorCode::NotAdded.into()
    } else {
        first
    })
}

/// Formats the source of a fetched skill and its signer there.
pub fn origin_line(candidate: &Candidate) -> String {
    let at =
        candidate.provenance.revision.as_deref().map_or_else(
            String::new,
            |revision| match revision.strip_prefix("sha256:") {
                Some(digest) => format!(" at sha256:{}", short_commit(digest)),
                None => format!(" at {}", clean(short_commit(revision), 40)),
            },
        );
    let signer = candidate
        .upstream
        .as_ref()
        .and_then(|upstream| upstream.signer);
    let there = signer.map_or_else(String::new, |signer| {
        format!(", signed there by {signer} (pinned)")
    });
    let source = clean(candidate.provenance.identifier.as_str(), 200);
    format!("  from {source}{at}{there}")
}
