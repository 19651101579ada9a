//! Shared parts of the tools that change something: the files of a request, and the result of a
//! change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::manifest::{MAX_FILES, Mode, SKILL_MD};
use vault_format::name::SkillName;
use vault_format::text::printable;
use vault_gate::finding::{Finding as Found, Level};
use vault_gate::{GateOptions, RawFile, check};
use vault_policy::Reach;
use vault_shelf::{Change, ShelfError, Submitted, Writes};

use super::Call;
use crate::fault::{Fault, ToolError};
use crate::uri;

/// A file of the skill besides SKILL.md.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct GivenFile {
    /// Path below the skill's folder, such as `scripts/check.sh`.
    path: String,
    /// The content, written as `encoding` says.
    content: String,
    /// `utf-8` (also when absent) or `base64`.
    #[serde(default)]
    #[schemars(with = "Encoding")]
    encoding: Option<Encoding>,
}

/// The encoding of a file's content.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub enum Encoding {
    /// The content is the text of the file.
    #[serde(rename = "utf-8")]
    Utf8,
    /// The content is the bytes of the file in standard base64.
    #[serde(rename = "base64")]
    Base64,
}

/// The result of a change.
#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars", rename = "Outcome")]
pub struct ChangeOutcome {
    /// `accepted`: signed and in the vault. `would_accept`: it passes; nothing was changed. `duplicate`: the vault already
    /// has exactly these files.
    /// `drafted`: stored, not published; it waits until an owner or a publisher of the vault accepts it. `removed`: it was removed from the vault.
    /// `invalid`: it is not a valid skill. `security_blocked`: a security rule refuses it.
    status: Status,
    /// The outcome, in one sentence.
    message: String,
    /// Id of the skill, `<owner>/<name>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    id: Option<String>,
    /// Version of the skill after the change. Only with `accepted` and `duplicate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    version: Option<u64>,
    /// SHA-256 of the skill's bundle after the change, in hex. Only with `accepted` and
    /// `duplicate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    bundle_hash: Option<String>,
    /// Id of the draft that waits for an owner; only with `drafted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    draft_id: Option<String>,
    /// Number of drafts of the caller that wait now, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    drafts_waiting: Option<u64>,
    /// Whether running agents must be restarted to see the change. Only on the machine that has the vault.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    restart_required: Option<bool>,
    /// The agents' folders after the change, as `vault add --json` reports them: `roots` lists each linked folder with its `agents`, the number of
    /// `skills`, and which were `added`, `changed` and `removed`. Absent if no folder is linked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    profiles: Option<serde_json::Value>,
    /// Findings of the gate; blocking ones come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
}

/// The kind of result of a change.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(crate = "rmcp::schemars", inline)]
pub enum Status {
    Accepted,
    WouldAccept,
    Duplicate,
    Drafted,
    Removed,
    Invalid,
    SecurityBlocked,
}

/// A finding of the gate.
#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Finding {
    /// Stable id of the rule.
    rule: String,
    /// `error` (blocks), `flag` (blocks unless the owner allows it) or `warning`.
    level: String,
    /// The file; absent if the finding concerns the whole skill.
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    /// The line of the file, counted from 1; absent if the finding is about the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    line: Option<u32>,
    /// What is wrong, in one sentence.
    message: String,
    /// Advice for changing the skill; absent if the rule gives none.
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
}

impl From<Found> for Finding {
    fn from(found: Found) -> Self {
        Self {
            rule: found.rule.to_owned(),
            level: found.level.to_string(),
            path: printable(&found.path),
            line: found.line,
            // The gate has already escaped foreign text in its messages, but not the path above.
            message: found.message,
            hint: found.hint,
        }
    }
}

/// Collects the files of a skill, including SKILL.md, from a request. Fails if a content does not
/// fit its encoding.
pub fn raw_files(skill_md: String, resources: Vec<GivenFile>) -> Result<Vec<RawFile>, Fault> {
    // Check the number before decoding; SKILL.md is one more file.
    if resources.len() >= MAX_FILES {
        return Err(Fault::bad_arguments(format!(
            "a skill has at most {MAX_FILES} files"
        )));
    }
    let mut files = vec![plain_file(SKILL_MD.to_owned(), skill_md.into_bytes())];
    files.extend(given_files("resources", resources)?);
    Ok(files)
}

/// Decodes the files of the argument `name`.
pub fn given_files(name: &str, given: Vec<GivenFile>) -> Result<Vec<RawFile>, Fault> {
    if given.len() > MAX_FILES {
        return Err(Fault::bad_arguments(format!(
            "a skill has at most {MAX_FILES} files"
        )));
    }
    let decode = |(at, file): (usize, GivenFile)| {
        let bytes = match file.encoding {
            None | Some(Encoding::Utf8) => file.content.into_bytes(),
            Some(Encoding::Base64) => STANDARD.decode(&file.content).map_err(|_| {
                Fault::bad_arguments(format!("`{name}[{at}].content` is not base64"))
            })?,
        };
        Ok(plain_file(file.path, bytes))
    };
    given.into_iter().enumerate().map(decode).collect()
}

// The tools transfer no file modes, so no file from an agent is executable.
const fn plain_file(path: String, bytes: Vec<u8>) -> RawFile {
    RawFile {
        path,
        mode: Mode::Plain,
        bytes,
    }
}

/// Submits new or changed files to the shelf.
pub async fn submit_files(
    call: &Call<'_>,
    files: Vec<RawFile>,
    replace: bool,
    only_check: bool,
) -> Result<Submitted, Fault> {
    let mut hidden = false;
    if !call.session.person().owner {
        // Find the name here, before the shelf does: the answer must not tell whether a skill that
        // the caller may not see has this name.
        let name = check(files.clone(), &GateOptions::default())
            .package
            .map(|package| package.name);
        hidden = match name {
            Some(name) => is_hidden(call, &name).await?,
            None => false,
        };
        // A draft may use the name of a hidden skill: the owner who decides on the draft sees which
        // skill it would replace.
        if hidden && call.session.shelf().write_mode() != Writes::Drafted {
            return Err(Fault::from_shelf(
                ShelfError::NameTaken(String::new()),
                false,
            ));
        }
    }
    let change = Change::Take {
        files,
        replace,
        check: only_check,
        hidden,
    };
    submit_change(call, change).await
}

/// Tells whether a skill of this name exists that the caller may not see.
pub async fn is_hidden(call: &Call<'_>, name: &SkillName) -> Result<bool, Fault> {
    if call.session.person().owner {
        return Ok(false);
    }
    let visible = call.visible(Reach::Fetch).await?;
    Ok(visible.find(name).is_none() && visible.snapshot().find(name).is_some())
}

/// Returns the name of a skill that the caller sees and that belongs to this vault itself. Fails
/// for a skill of a linked vault, with the reason.
pub async fn own_skill(call: &Call<'_>, name: &str) -> Result<SkillName, Fault> {
    let visible = call.visible(Reach::Fetch).await?;
    let found = visible.find_id(call.owner(), name);
    let (_, entry) = found.ok_or_else(Fault::no_skill)?;
    match &entry.vault {
        None => Ok(entry.name().clone()),
        Some(vault) => Err(Fault::by_caller(
            ToolError::NameTaken,
            format!(
                "`{vault}/{0}` comes from the linked vault `{vault}`: that vault's releases update it, and it cannot be changed or \
                 removed here",
                entry.name()
            ),
        )),
    }
}

/// Submits a change to the shelf in the name of the caller. Fails if another server holds the
/// library. The caller's right to write must be checked before.
pub async fn submit_change(call: &Call<'_>, change: Change) -> Result<Submitted, Fault> {
    let person = call.session.person();
    let shelf = call.session.shelf();
    // If another server holds the library, this one cannot sign. The client should try again.
    if shelf.write_mode() == Writes::Elsewhere {
        return Err(Fault::from_shelf(
            ShelfError::LibraryElsewhere,
            person.owner,
        ));
    }
    let submitted = shelf.submit(&person.submitter, change).await;
    submitted.map_err(|error| Fault::from_shelf(error, person.owner))
}

/// Creates the answer of a tool. If the skills have changed, the folders of the agents on the
/// shelf's machine are updated first.
pub async fn build_outcome(call: &Call<'_>, submitted: Submitted) -> ChangeOutcome {
    let links = match &submitted {
        Submitted::Signed { .. } | Submitted::Unchanged { .. } | Submitted::Removed { .. } => {
            call.session.shelf().refresh_agents().await
        }
        // The other results do not change the folders of agents.
        _ => None,
    };
    let was_linked = matches!(
        &submitted,
        Submitted::Removed {
            was_linked: true,
            ..
        }
    );
    let mut outcome = describe_submitted(call, submitted);
    if let Some(links) = links {
        let restart = links.restart_required || was_linked;
        if restart {
            outcome.message += " Running agents must be restarted to see the change.";
        }
        if !links.unlinked_agents.is_empty() {
            let names = links.unlinked_agents.join(", ");
            outcome.message += &format!(
                " Not linked: {names}. `vault sync-profiles --discover` links the vault's skills there."
            );
        }
        outcome.restart_required = Some(restart);
        outcome.profiles = links.profiles.map(without_restart);
    }
    outcome
}

/// Returns the report of the agents' folders without its member `restart_required`: the report does
/// not know of a link that was removed together with its skill, so it could contradict the answer.
fn without_restart(mut profiles: serde_json::Value) -> serde_json::Value {
    if let Some(members) = profiles.as_object_mut() {
        members.remove("restart_required");
    }
    profiles
}

fn describe_submitted(call: &Call<'_>, submitted: Submitted) -> ChangeOutcome {
    let id = |name: &SkillName| Some(uri::skill_id(call.owner(), name));
    let to_findings = |findings: Vec<Found>| findings.into_iter().map(Finding::from).collect();
    let mut outcome = ChangeOutcome::with_status(Status::Accepted);
    match submitted {
        Submitted::Signed {
            name,
            version,
            bundle_hash,
            findings,
        } => {
            outcome.id = id(&name);
            outcome.version = Some(version);
            outcome.bundle_hash = Some(bundle_hash.to_string());
            outcome.findings = to_findings(findings);
        }
        Submitted::Unchanged {
            name,
            version,
            bundle_hash,
        } => {
            outcome = ChangeOutcome::with_status(Status::Duplicate);
            outcome.id = id(&name);
            outcome.version = Some(version);
            outcome.bundle_hash = Some(bundle_hash.to_string());
        }
        Submitted::Removed { name, .. } => {
            outcome = ChangeOutcome::with_status(Status::Removed);
            outcome.id = id(&name);
        }
        Submitted::Drafted {
            draft,
            name,
            findings,
            waiting,
        } => {
            outcome = ChangeOutcome::with_status(Status::Drafted);
            outcome.id = id(&name);
            outcome.draft_id = Some(draft.to_string());
            outcome.drafts_waiting = Some(waiting);
            outcome.findings = to_findings(findings);
        }
        Submitted::WouldPass { name, findings } => {
            outcome = ChangeOutcome::with_status(Status::WouldAccept);
            outcome.id = id(&name);
            outcome.findings = to_findings(findings);
        }
        Submitted::Refused { findings } => {
            // If a skill is both invalid and blocked, report it as invalid: its author can fix
            // that, while a blocked skill needs the owner.
            let invalid = findings.iter().any(|finding| finding.level == Level::Error);
            outcome = ChangeOutcome::with_status(if invalid {
                Status::Invalid
            } else {
                Status::SecurityBlocked
            });
            outcome.findings = to_findings(findings);
        }
    }
    outcome
}

impl ChangeOutcome {
    fn with_status(status: Status) -> Self {
        Self {
            status,
            message: status.sentence().to_owned(),
            id: None,
            version: None,
            bundle_hash: None,
            draft_id: None,
            drafts_waiting: None,
            restart_required: None,
            profiles: None,
            findings: Vec::new(),
        }
    }
}

impl Status {
    const fn sentence(self) -> &'static str {
        match self {
            Self::Accepted => "The skill is signed and in the vault.",
            Self::WouldAccept => "The skill would be accepted. Nothing was changed.",
            Self::Duplicate => {
                "The vault already has this skill with the same files. Nothing was changed."
            }
            Self::Drafted => {
                "Stored as a draft. Nothing is published until an owner or a publisher of the vault accepts it: `vault drafts list` shows it to them."
            }
            Self::Removed => "The skill was removed from the vault.",
            Self::Invalid => {
                "This is not a valid skill; the findings say why. Nothing was changed."
            }
            Self::SecurityBlocked => {
                "A security rule blocks the skill; the findings say which. Nothing was changed."
            }
        }
    }
}

/// Creates the fault for a tool that works only on the machine with the library.
pub fn only_local() -> Fault {
    Fault::by_caller(
        ToolError::SourceUnsupported,
        "a folder can be added only on the machine that has the vault; send the files with `propose_skill` instead",
    )
}
