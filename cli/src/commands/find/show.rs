//! `vault show`: shows everything that vault knows about a skill, installed or not.

use std::{collections::BTreeMap, path::Path};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use vault_format::{
    hash::Digest,
    manifest::{ActionSpec, Gate, Mode, SKILL_MD},
    name::{ActionName, AgentId, SkillName, SkillRef},
    path::FilePath,
    provenance::{Kind, ProvenanceId},
    root::KeyFingerprint,
    time::Timestamp,
};
use vault_gate::{
    Outcome,
    document::{Frontmatter, Secret},
    report::{Audited, LeftOutFolder, Verdict},
    requirements::{Need, read_needs, read_requirements},
};
use vault_library::{
    Origin, Vault,
    admit::history,
    audit::{Auditor, audit_skill},
    run::{self, VerifiedSkill},
};
use vault_sources::OfferedSkill;

use crate::{
    context::Context,
    errors::Failure,
    lookup::{self, Target},
    output::{
        BOLD, DIM, GOOD, HINT, Report, WARN, clean, count, either, format_size, join,
        origin::{SigningKey, describe_owner, format_origin, whose_skill},
        paint,
    },
    tasks::{
        admission,
        audit_report::{
            Location, audit_not_started, describe_verdict, exit_of, finding_lines, left_out_lines,
            verdict_mark,
        },
        exceptions::{SkillException, exceptions_of},
    },
};

/// The arguments of `vault show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows who signed an installed skill, its source, files, actions and variables, and the context \
that it costs an agent. The skill is verified first. A folder is shown as it would be added, with \
the gate's verdict (exit 5 if it is blocked, 2 if something could not be judged). A folder with \
several skills is exit 2 with their list.

Examples:
  vault show code-review
  vault show ./draft --json")]
pub struct Arguments {
    /// An installed skill, or the folder of one (`./name` is always a folder)
    #[arg(value_name = "NAME|PATH")]
    what: String,
}

/// Prints the facts about an installed skill, or about a skill in a folder that is not installed.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    match (
        lookup::resolve_target(vault.as_ref(), &arguments.what)?,
        &vault,
    ) {
        (Target::Installed(name), Some(vault)) => show_installed(context, vault, &name),
        (Target::Installed(_), None) | (Target::Path(_), _) => {
            show_folder(context, &arguments.what)
        }
    }
}

/// What the files of a skill contain and declare.
#[derive(Debug, JsonSchema, Serialize)]
struct SkillContent {
    /// The name in the vault.
    name: SkillName,
    /// The frontmatter of SKILL.md; null if this version cannot read it.
    frontmatter: Option<Frontmatter>,
    /// The agents that it is for; empty for all.
    agents: Vec<AgentId>,
    /// Files of the skill, without their content.
    files: Vec<SkillFile>,
    /// Actions (commands) that the skill declares, by name.
    actions: BTreeMap<ActionName, ActionSpec>,
    /// Environment variables that the skill declares.
    environment: Vec<Variable>,
    /// Skills that it requires, each with a revision or a range of versions if it names one. Empty if
    /// `metadata.requires` cannot be read.
    requires: Vec<String>,
    /// Programs and variables (`$NAME`) that it works with. Empty if `metadata.needs` cannot be read.
    needs: Vec<Need>,
    /// How much text an agent has to read because of it.
    context: ContextCost,
}

/// A file of a skill, without its content.
#[derive(Debug, JsonSchema, Serialize)]
struct SkillFile {
    /// Path below the skill's folder, with `/` between names.
    path: FilePath,
    /// Size in bytes.
    size: u64,
    /// `0755` if the file is executable, else `0644`.
    mode: Mode,
    /// SHA-256 of its bytes; absent if the skill is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Digest>,
}

/// An environment variable that a skill declares.
#[derive(Debug, JsonSchema, Serialize)]
struct Variable {
    #[serde(flatten)]
    secret: Secret,
    /// Whether the environment of this command has it; its value is never shown.
    set: bool,
}

/// The context that a skill costs an agent.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "SkillContext")]
struct ContextCost {
    /// Length of the name and the description in characters. Every conversation pays this, even if
    /// the skill is not used.
    listed_characters: usize,
    /// Size of SKILL.md in bytes. A conversation pays this when it uses the skill.
    loaded_bytes: u64,
}

/// The output of `vault show` for an installed skill.
#[derive(Debug, JsonSchema, Serialize)]
pub struct InstalledSkill {
    #[serde(flatten)]
    content: SkillContent,
    /// Version number in the skill's signed manifest.
    version: u64,
    /// SHA-256 of the skill's bundle (its signed manifest and all its files).
    bundle_hash: Digest,
    /// Whose it is: this vault's (`local`), a linked vault's (`link:<id>`) or a project's
    /// (`project:<path>`).
    origin: String,
    /// The key whose signature the manifest has.
    signer: SigningKey,
    /// When its manifest was signed, in UTC.
    signed_at: Timestamp,
    /// The source that the manifest records.
    provenance: SkillSource,
    /// The rules that it was checked by, and the exceptions.
    gate: Gate,
    /// The exceptions with the files that they are about.
    exceptions: Vec<SkillException>,
    /// Whether updates leave it at this version, because `vault rollback` chose it.
    held: bool,
}

/// The source of a skill as its manifest records it.
#[derive(Debug, JsonSchema, Serialize)]
struct SkillSource {
    /// The repository, registry, address or folder, such as `github:acme/skills/code-review`.
    identifier: ProvenanceId,
    /// The exact commit or version there; null if the place has none.
    revision: Option<String>,
    /// When the files were read there, in UTC.
    fetched_at: Timestamp,
}

/// A folder as it would be added. The members about its content are absent if it is blocked.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SkillFolder<'a> {
    #[serde(flatten)]
    audited: &'a Audited,
    /// The folder of the skill: the named one, or that of the only skill below it.
    source: &'a str,
    /// The outcome of adding it.
    outcome: Outcome,
    /// The other skills below the named folder, and why `vault add` would not take them.
    left_out: Vec<LeftOutFolder>,
    // The name in the vault replaces the one that the gate read.
    #[serde(flatten)]
    content: Option<SkillContent>,
}

fn show_installed(context: &Context, vault: &Vault, name: &SkillRef) -> Result<Report, Failure> {
    let verified =
        run::inspect_skill(vault, name).map_err(|error| lookup::suggest_name(vault, error))?;
    // Only the vault's own skills can be held by a rollback. A linked skill may have the same name.
    let is_held = verified.origin == Origin::Local && history::is_held(vault, &verified.name)?;
    let mut lines = installed_lines(vault, name, &verified, is_held)?;
    let exceptions = exceptions_of(&verified.examined.manifest);
    lines.extend(exceptions.iter().map(SkillException::row));
    let manifest = verified.examined.manifest;
    let files = manifest.files.into_iter().map(|file| SkillFile {
        path: file.path,
        size: file.size,
        mode: file.mode,
        sha256: Some(file.sha256),
    });
    let mut content = SkillContent::new(
        context,
        verified.name,
        verified.frontmatter,
        files.collect(),
        manifest.actions,
    );
    // The manifest has the agents that the owner chose, which may be others than SKILL.md declares.
    content.agents = manifest.agents;
    lines.extend(content.content_lines());
    let skill = InstalledSkill {
        content,
        version: manifest.version,
        bundle_hash: verified.bundle,
        origin: format_origin(&verified.origin),
        signer: verified.signer.into(),
        signed_at: manifest.signed_at,
        provenance: SkillSource {
            identifier: manifest.provenance.identifier,
            revision: manifest.provenance.revision,
            fetched_at: manifest.provenance.fetched_at,
        },
        gate: manifest.gate,
        exceptions,
        held: is_held,
    };
    Ok(Report::view(skill, lines.join("\n")))
}

/// Formats the heading of an installed skill, with its source, signature and gate.
fn installed_lines(
    vault: &Vault,
    name: &SkillRef,
    found: &VerifiedSkill,
    held: bool,
) -> Result<Vec<String>, Failure> {
    let manifest = &found.examined.manifest;
    let version = format!("version {}", manifest.version);
    let mut lines = format_heading(found.name.as_str(), &version, found.frontmatter.as_ref());
    let mut from = manifest.provenance.identifier.to_string();
    if let Some(revision) = &manifest.provenance.revision {
        from.push_str(&format!(" at {revision}"));
    }
    let (signed_at, key) = (manifest.signed_at, KeyFingerprint::publisher(&found.signer));
    // Look the skill up again for its qualified name, which has the local name of its vault.
    let place = run::find_skill(vault, name)?;
    let whose = match &place {
        Some(place) => whose_skill(&found.origin, &place.qualified),
        None => describe_owner(&found.origin),
    };
    // The `local:` source of a linked skill is a folder on another machine. Say so, or readers
    // would look for it here.
    if matches!(found.origin, Origin::Linked(_)) && manifest.provenance.kind() == Kind::Local {
        from.push_str(" on its publisher's machine");
    }
    let strict = either(manifest.gate.strict, "strict", "not strict");
    lines.extend([
        format_row("from", clean(&from, 400)),
        format_row(
            "signed",
            format!("{signed_at} by {HINT}{key}{HINT:#} ({whose})"),
        ),
        format_row("bundle", found.bundle.to_string()),
        format_row("gate", format!("{strict}{}", format_rules(found))),
    ]);
    if held {
        let text = format!("by vault rollback; vault update {name} takes the newest version");
        lines.push(format_row("held", text));
    }
    if !manifest.agents.is_empty() {
        lines.push(format_row("agents", join(&manifest.agents)));
    }
    Ok(lines)
}

/// Finds the skill that `vault add` would take of a folder if no flag selects one. Returns its
/// folder, and the skills that are left out. Fails if the folder has several.
fn find_skill_folder(named: &str) -> Result<(String, Vec<LeftOutFolder>), Failure> {
    let path = Path::new(named);
    // The audit reports a path that is not a folder, cannot be listed or has no skill.
    let listing = match vault_sources::list_folder(path) {
        Ok(Some(listing)) if path.is_dir() && !listing.skills.is_empty() => listing,
        _ => return Ok((named.to_owned(), Vec::new())),
    };
    let below = |found: &OfferedSkill| match found.folder.as_str() {
        "" => named.to_owned(),
        folder => path.join(folder).display().to_string(),
    };
    if let Some(found) = listing.default_skill() {
        let left_out = listing.with_chosen(vec![found]).left_out.into_iter();
        return Ok((below(found), left_out.map(LeftOutFolder::from).collect()));
    }
    let (place, number) = (clean(named, 200), listing.skills.len());
    let lines = listing.skills.iter().take(MOST_LISTED).map(|found| {
        let about = found.description.as_deref().unwrap_or_default();
        let (folder, about) = (below(found), about.lines().next().unwrap_or_default());
        let line = format!("{}  {}", clean(&folder, 200), clean(about, 80));
        line.trim_end().to_owned()
    });
    let mut lines: Vec<String> = lines.collect();
    if let more @ 1.. = number.saturating_sub(MOST_LISTED) {
        lines.push(format!("and {more} more"));
    }
    let folders: Vec<String> = listing.skills.iter().map(below).collect();
    let left_out = listing.left_out.into_iter().map(LeftOutFolder::from);
    let left_out: Vec<LeftOutFolder> = left_out.collect();
    let failure = fail!(SkillAmbiguous, "{place} has {}", count(number, "skill"));
    Err(failure
        .details(lines)
        .hint(format!(
            "name the folder of one: vault show {}; vault audit-repo {place} judges all",
            clean(&folders[0], 200)
        ))
        .data(json!({ "skills": folders, "left_out": left_out })))
}

/// Maximum number of skills that the failure for a folder with several lists.
const MOST_LISTED: usize = 40;

fn show_folder(context: &Context, named: &str) -> Result<Report, Failure> {
    let (folder, left_out) = find_skill_folder(named)?;
    let source = folder.as_str();
    let path = Path::new(source);
    let auditor = Auditor::new(context.is_strict()?);
    let judged = audit_skill(path, &auditor).map_err(|error| audit_not_started(&error, source))?;
    // The audit reports every finding. Only a folder that the gate accepts has content to show.
    let candidate = match judged.verdict {
        Verdict::Accepted | Verdict::Warnings => admission::examine_folder(source)?.1,
        Verdict::Blocked | Verdict::Unreadable => None,
    };
    // Without a candidate, the skill cannot be added.
    let outcome = candidate.as_ref();
    let outcome = outcome.map_or(Outcome::Blocked, |candidate| candidate.outcome);
    let mut lines = Vec::new();
    let content = candidate.map(|candidate| {
        let package = candidate.package;
        let files = package.files.into_iter().map(|file| SkillFile {
            path: file.path,
            size: file.bytes.len() as u64,
            mode: file.mode,
            sha256: None,
        });
        SkillContent::new(
            context,
            package.name,
            Some(package.frontmatter),
            files.collect(),
            package.actions,
        )
    });
    if let Some(content) = &content {
        let frontmatter = content.frontmatter.as_ref();
        lines.extend(format_heading(
            content.name.as_str(),
            "not installed",
            frontmatter,
        ));
        lines.extend(content.content_lines());
    }
    let location = Location::of_folder(&lookup::folder_of(path));
    lines.extend(finding_lines(&location, &judged, true));
    let listed = Location::of_folder(&lookup::folder_of(Path::new(named)));
    let is_verbose = context.ui.is_verbose();
    lines.extend(left_out_lines(&listed, &left_out, is_verbose));
    lines.push(format!(
        "{} {}",
        verdict_mark(judged.verdict),
        describe_verdict(&location, &judged)
    ));
    let skill = SkillFolder {
        audited: &judged,
        source,
        outcome,
        left_out,
        content,
    };
    Ok(Report::view(skill, lines.join("\n")).with_exit(exit_of(judged.verdict)))
}

impl SkillContent {
    /// Creates the description of a skill. Its agents are those that the frontmatter declares.
    fn new(
        context: &Context,
        name: SkillName,
        frontmatter: Option<Frontmatter>,
        files: Vec<SkillFile>,
        actions: BTreeMap<ActionName, ActionSpec>,
    ) -> Self {
        let read = frontmatter.as_ref();
        let secrets = read.map_or(&[][..], |read| &read.requires_secrets);
        let variables = secrets.iter().map(|secret| Variable {
            // Output only whether it is set: the value may be a secret.
            set: context.process.variable(&secret.name).is_some(),
            secret: secret.clone(),
        });
        let description = read.map_or(0, |read| read.description.chars().count());
        let document = files.iter().find(|file| file.path.as_str() == SKILL_MD);
        Self {
            context: ContextCost {
                listed_characters: name.as_str().len() + description,
                loaded_bytes: document.map_or(0, |file| file.size),
            },
            environment: variables.collect(),
            requires: read
                .and_then(|read| read_requirements(&read.metadata).ok())
                .map_or_else(Vec::new, |stated| {
                    stated.iter().map(ToString::to_string).collect()
                }),
            needs: read
                .and_then(|read| read_needs(&read.metadata).ok())
                .unwrap_or_default(),
            name,
            agents: read.map_or_else(Vec::new, |read| read.agents.clone()),
            frontmatter,
            files,
            actions,
        }
    }

    /// Formats the context cost, variables, actions and files of the skill.
    fn content_lines(&self) -> Vec<String> {
        let listed = count(self.context.listed_characters, "character");
        let loaded = format_size(self.context.loaded_bytes);
        let cost = format!("{listed} in every conversation, {loaded} when it is used");
        let mut lines = vec![format_row("context", cost)];
        lines.extend(self.environment.iter().map(Variable::row));
        let requires = self.requires.iter();
        lines.extend(requires.map(|text| format_row("requires", clean(text, 200))));
        if !self.needs.is_empty() {
            lines.push(format_row("needs", clean(&join(&self.needs), 400)));
        }
        lines.extend(self.actions.iter().map(action_row));
        lines.extend(file_rows(&self.files));
        lines
    }
}

fn format_rules(found: &VerifiedSkill) -> String {
    let gate = &found.examined.manifest.gate;
    let mut text = format!(", rules {}", clean(&gate.rules, 80));
    if !gate.flags.is_empty() {
        let flags = count(gate.flags.len(), "flag");
        text.push_str(&format!(", {flags} accepted"));
    }
    text
}

impl SkillException {
    fn row(&self) -> String {
        format_row("allowed", self.to_line())
    }
}

fn format_heading(name: &str, beside: &str, read: Option<&Frontmatter>) -> Vec<String> {
    // The author's version is text in the frontmatter, unlike vault's version number.
    let version = match read.and_then(|read| read.metadata.get("version")) {
        Some(Value::String(text)) => format!(", the author's {}", clean(text, 40)),
        Some(other) => format!(", the author's {}", clean(&other.to_string(), 40)),
        None => String::new(),
    };
    let mut lines = vec![format!(
        "{BOLD}{name}{BOLD:#}  {DIM}{beside}{version}{DIM:#}"
    )];
    lines.extend(read.map(|read| format!("  {}", clean(read.description.trim(), 600))));
    lines
}

fn format_row(label: &str, text: impl AsRef<str>) -> String {
    format!("{DIM}{label:<8}{DIM:#} {}", text.as_ref())
}

impl Variable {
    /// Formats a variable with whether it is set, but never its value.
    fn row(&self) -> String {
        let state = match (self.set, self.secret.required) {
            (true, _) => paint(GOOD, "set"),
            (false, true) => paint(WARN, "not set"),
            (false, false) => paint(DIM, "not set, not required"),
        };
        let about = self.secret.description.as_deref().unwrap_or_default();
        let line = format!("{} ({state})  {}", self.secret.name, clean(about, 200));
        format_row("variable", line.trim_end())
    }
}

fn action_row((name, action): (&ActionName, &ActionSpec)) -> String {
    let mut words = vec![action.command.as_str()];
    words.extend(action.args.iter().map(String::as_str));
    let about = action.description.as_deref().unwrap_or_default();
    let (command, about) = (clean(&words.join(" "), 200), clean(about, 200));
    let line = format!("{BOLD}{name}{BOLD:#}  {command}  {DIM}{about}{DIM:#}");
    format_row("action", line.trim_end())
}

fn file_rows(files: &[SkillFile]) -> Vec<String> {
    const SHOWN: usize = 40;
    let rows = files.iter().take(SHOWN).map(|file| {
        let mark = either(file.mode == Mode::Executable, "  executable", "");
        let (path, bytes) = (clean(file.path.as_str(), 200), format_size(file.size));
        format_row("file", format!("{path}  {DIM}{bytes}{mark}{DIM:#}"))
    });
    let mut lines: Vec<String> = rows.collect();
    if let more @ 1.. = files.len().saturating_sub(SHOWN) {
        lines.push(format_row("", format!("and {more} more")));
    }
    lines
}
