//! What the tools that change something share: files as they come in, and what became of a change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_skill::finding::{Finding as Found, Level, printable};
use vault_skill::gate::{GateOptions, RawFile, check};
use vault_skill::manifest::{MAX_FILES, Mode, SKILL_MD};
use vault_skill::name::SkillName;
use vault_skill::policy::Reach;
use vault_store::shelf::{Change, ShelfError, Submitted, Writes};

use super::Call;
use crate::fault::{Code, Fault};
use crate::uri;

/// A file beside SKILL.md.
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

/// How a file is written.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub enum Encoding {
    /// Its text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// Its bytes in standard base64.
    #[serde(rename = "base64")]
    Base64,
}

/// What became of a change.
#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Outcome {
    /// `accepted`: signed and in the vault. `would_accept`: it passes; nothing was changed. `duplicate`: the vault already
    /// has exactly these files.
    /// `drafted`: it waits for the owner of the vault, who checks and signs it. `removed`: it was removed from the vault.
    /// `invalid`: it is not a valid skill. `security_blocked`: a security rule refuses it.
    status: Status,
    /// The outcome, in one sentence.
    message: String,
    /// `<owner>/<name>`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    id: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    version: Option<u64>,
    /// SHA-256 of its bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    bundle_hash: Option<String>,
    /// Id of the draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    draft_id: Option<String>,
    /// What the gate found; blocking findings come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
}

/// The word for what became of a change.
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

/// Something that the gate found.
#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Finding {
    /// Stable id of the rule.
    rule: String,
    /// `error` (blocks), `flag` (blocks unless the owner says otherwise) or `warning`.
    level: String,
    /// The file; absent if the finding concerns the whole skill.
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    line: Option<u32>,
    /// What was found.
    message: String,
    /// How to fix it.
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
            message: found.message,
            hint: found.hint,
        }
    }
}

/// The files of a skill as they were given, SKILL.md among them. Fails on content that is not in its encoding.
pub fn raw_files(skill_md: String, resources: Vec<GivenFile>) -> Result<Vec<RawFile>, Fault> {
    if resources.len() >= MAX_FILES {
        return Err(Fault::arguments(format!(
            "a skill has at most {MAX_FILES} files"
        )));
    }
    let plain = |path: String, bytes| RawFile {
        path,
        mode: Mode::Plain,
        bytes,
    };
    let mut files = vec![plain(SKILL_MD.to_owned(), skill_md.into_bytes())];
    for (at, file) in resources.into_iter().enumerate() {
        let bytes = match file.encoding {
            None | Some(Encoding::Utf8) => file.content.into_bytes(),
            Some(Encoding::Base64) => STANDARD.decode(&file.content).map_err(|_| {
                Fault::arguments(format!("`resources[{at}].content` is not base64"))
            })?,
        };
        files.push(plain(file.path, bytes));
    }
    Ok(files)
}

/// Hands new or changed files to the shelf.
pub async fn take(
    call: &Call<'_>,
    files: Vec<RawFile>,
    mut replace: bool,
    only_check: bool,
) -> Result<Outcome, Fault> {
    let person = call.session.person();
    let mut hidden = false;
    if !person.owner {
        // The name is read here once more: whether somebody else's skill has it must not show in what the shelf says.
        let name = check(files.clone(), &GateOptions::default())
            .package
            .map(|package| package.name);
        hidden = match name {
            Some(name) => is_hidden(call, &name).await?,
            None => false,
        };
        if hidden && call.session.shelf().writes() != Writes::Drafted {
            return Err(taken());
        }
        // A draft for a name that the caller cannot know to be taken is as good as any other: the owner sees what it would replace.
        replace |= hidden;
    }
    let change = Change::Take {
        files,
        replace,
        check: only_check,
    };
    let submitted = submit(call, change).await?;
    if hidden && matches!(submitted, Submitted::Unchanged { .. }) {
        return Err(taken());
    }
    Ok(outcome(call, submitted))
}

fn taken() -> Fault {
    Fault::of_shelf(ShelfError::NameTaken(String::new()), false)
}

/// Whether a skill of this name is there and the caller may not see it.
async fn is_hidden(call: &Call<'_>, name: &SkillName) -> Result<bool, Fault> {
    let visible = call.visible(Reach::Fetch).await?;
    Ok(visible.find(name).is_none() && visible.snapshot().find(name).is_some())
}

/// The name of an own skill of the vault, as the caller sees it. Fails for a skill of a linked vault and says why.
pub async fn own_skill(call: &Call<'_>, name: &str) -> Result<SkillName, Fault> {
    let visible = call.visible(Reach::Fetch).await?;
    let found = visible.find_id(call.owner(), name);
    let (_, entry) = found.ok_or_else(Fault::no_skill)?;
    match &entry.vault {
        None => Ok(entry.name().clone()),
        Some(vault) => Err(Fault::caller(
            Code::NameTaken,
            format!(
                "`{vault}/{0}` comes with the linked vault `{vault}`: it changes with that vault's releases, and cannot be \
                 changed or removed here",
                entry.name()
            ),
        )),
    }
}

/// Hands a change to the shelf.
pub async fn submit(call: &Call<'_>, change: Change) -> Result<Submitted, Fault> {
    let person = call.session.person();
    let shelf = call.session.shelf();
    if shelf.writes() == Writes::Elsewhere {
        return Err(Fault::of_shelf(ShelfError::LibraryElsewhere, person.owner));
    }
    let submitted = shelf.submit(&person.submitter, change).await;
    submitted.map_err(|error| Fault::of_shelf(error, person.owner))
}

/// What a tool says of it.
pub fn outcome(call: &Call<'_>, submitted: Submitted) -> Outcome {
    let id = |name: &SkillName| Some(uri::id(call.owner(), name));
    let mut outcome = Outcome {
        status: Status::Accepted,
        message: String::new(),
        id: None,
        version: None,
        bundle_hash: None,
        draft_id: None,
        findings: Vec::new(),
    };
    let said;
    (outcome.status, said) = match submitted {
        Submitted::Signed {
            name,
            version,
            bundle_hash,
            findings,
        } => {
            outcome.id = id(&name);
            outcome.version = Some(version);
            outcome.bundle_hash = Some(bundle_hash.to_string());
            outcome.findings = findings.into_iter().map(Finding::from).collect();
            (Status::Accepted, "signed, and in the vault")
        }
        Submitted::Unchanged {
            name,
            version,
            bundle_hash,
        } => {
            outcome.id = id(&name);
            outcome.version = Some(version);
            outcome.bundle_hash = Some(bundle_hash.to_string());
            (
                Status::Duplicate,
                "the vault already has exactly these files",
            )
        }
        Submitted::Removed(name) => {
            outcome.id = id(&name);
            (Status::Removed, "it was removed from the vault")
        }
        Submitted::Drafted {
            draft,
            name,
            findings,
        } => {
            outcome.id = id(&name);
            outcome.draft_id = Some(draft.to_string());
            outcome.findings = findings.into_iter().map(Finding::from).collect();
            (
                Status::Drafted,
                "stored as a draft; nothing is published. No command shows drafts to the owner of this vault yet: tell them, and send the skill another way",
            )
        }
        Submitted::WouldPass { name, findings } => {
            outcome.id = id(&name);
            outcome.findings = findings.into_iter().map(Finding::from).collect();
            (Status::WouldAccept, "it would pass; nothing was changed")
        }
        Submitted::Refused { findings } => {
            let invalid = findings.iter().any(|finding| finding.level == Level::Error);
            outcome.findings = findings.into_iter().map(Finding::from).collect();
            if invalid {
                (
                    Status::Invalid,
                    "it is not a valid skill; nothing was changed",
                )
            } else {
                (
                    Status::SecurityBlocked,
                    "a security rule refuses it; nothing was changed",
                )
            }
        }
    };
    said.clone_into(&mut outcome.message);
    outcome
}

/// A fault for a tool that is not for callers elsewhere.
pub fn only_local() -> Fault {
    Fault::caller(
        Code::SourceUnsupported,
        "a folder can be added only on the machine that holds the vault; send the files with `propose_skill` instead",
    )
}
