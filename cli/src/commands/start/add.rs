//! `vault add`: checks, signs and stores skills.

mod gather;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault,
    admit::{AdmitError, AdmitReport, Candidate, Neighbours, Source, admit, examine},
    keys::KeyKind,
};
use vault_skill::{
    gate::{self, Outcome},
    name::{AgentId, SkillName},
    package::Package,
    provenance::ProvenanceId,
};
use vault_sources::short;
use vault_store::clock::{Clock as _, SystemClock};

use self::gather::{Gathered, Item};
use crate::{
    admission::{
        admitted_json, admitted_text,
        outcomes::{self, Outcomes},
        refused,
        texts::Texts,
    },
    context::Context,
    errors::{Exit, Failure},
    output::{BAD, BOLD, DIM, GOOD, HINT, Report, clean, count, paint, size},
    profiles, project_lock,
};

/// Since 0.4.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
The gate reads every file; what passes is signed with this vault's key and kept byte for byte. What it refuses changes
nothing (exit 5). The first skill makes the vault and its keys. A source is a folder, a SKILL.md or an archive of this
machine; github:owner/repository[/path][#ref]; any git or web address of a repository; an https address of a SKILL.md or
archive; a site with a well-known index; clawhub:<name>; registry:<name>. A word without a prefix is a path.
docs/sources.md describes them all.

Examples:
  vault add ./code-review
  vault add ./skills/* --agent claude-code
  vault add github:acme/skills/pdf#v1.2
  vault add git@git.example.com:acme/skills.git --skill pdf --skill csv
  vault add https://docs.example.com --all
  vault add github:acme/plugins --plugin review-tools --all
  vault add --from-lock skills-lock.json
  vault add ./draft --dry-run
  vault add ./copy --provenance github:acme/skills/code-review

Since 0.4.0 (stable); sources other than folders since 0.5.0 (beta).")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Arguments {
    /// Folders of skills, a SKILL.md, an archive, a repository, an address; several at once
    #[arg(required_unless_present = "from_lock", value_name = "SOURCE")]
    sources: Vec<String>,
    /// A skill of the source, where it has several; may be given several times
    #[arg(long = "skill", value_name = "NAME", conflicts_with = "all")]
    skills: Vec<String>,
    /// Every skill of the source
    #[arg(long)]
    all: bool,
    /// A branch, tag, commit or version of the source
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// A folder inside the repository
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// A plugin of the marketplace that the repository is
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
    /// Add what another tool's lock file names (skills-lock.json)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sources", "skills", "reference", "path", "plugin", "name"])]
    from_lock: Option<PathBuf>,
    /// The name in the vault, where the skill's own does not fit
    #[arg(long, value_name = "NAME")]
    name: Option<SkillName>,
    /// An agent that the skill is for; may be given several times
    #[arg(long = "agent", value_name = "AGENT", value_parser = profiles::agent_id)]
    agents: Vec<AgentId>,
    /// Record this source instead of the folder: for a staged copy of something else
    #[arg(long, value_name = "SOURCE")]
    provenance: Option<ProvenanceId>,
    /// Take the place of a skill of the same name that came from another source
    #[arg(long)]
    replace: bool,
    /// Note the skill in vault.lock of this project, which is made where there is none
    #[arg(long, conflicts_with = "no_lock")]
    lock: bool,
    /// Do not note the skill in the project's vault.lock
    #[arg(long)]
    no_lock: bool,
    /// Let flags of this rule pass, for exactly these bytes; may be given several times
    #[arg(long = "allow", value_name = "RULE")]
    allow: Vec<String>,
    /// Why they may pass; signed with the exception
    #[arg(long, value_name = "TEXT", requires = "allow")]
    reason: Option<String>,
    /// Show files, findings, environment and context cost, and change nothing
    #[arg(long)]
    dry_run: bool,
}

fn name_needs_one() -> Failure {
    fail!(NameNeedsOneSkill, "--name goes with one skill only")
}

/// Admits the skills and reports the outcome of each.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if arguments.name.is_some() && arguments.sources.len() > 1 {
        return Err(name_needs_one());
    }
    let known = |rule: &str| {
        rule == "hidden-text"
            || gate::scan_rules().any(|known| known.name == rule || known.id == rule)
    };
    if let Some(rule) = arguments.allow.iter().find(|rule| !known(rule)) {
        return Err(fail!(UnknownRule, "there is no rule {}", clean(rule, 80))
            .hint("a finding names its rule, as in `error[download-pipe-shell]`"));
    }
    let strict = context.strict()?;
    let mut items = gather::gather(context, arguments, strict)?;
    if items.len() == 1
        && let Some(Err((_, failure))) = items.pop_if(|item| item.is_err())
    {
        return Err(failure);
    }
    if arguments.name.is_some() && items.len() > 1 {
        return Err(name_needs_one());
    }
    if arguments.dry_run {
        return check(context, items);
    }
    let single = items.len() == 1;
    let (vault, is_new) = vault_for(context, &items)?;
    if let (Some(vault), true) = (&vault, is_new) {
        greet(context, vault)?;
    }
    let mut adding = Adding {
        context,
        arguments,
        vault: vault.as_ref(),
        neighbours: Neighbours::new(vault.as_ref(), SystemClock.now()),
        admitted: false,
    };
    let mut done = Vec::with_capacity(items.len());
    let mut items = items.into_iter();
    while items.len() > 0 {
        let batch = items.by_ref().take(BATCH).collect();
        done.extend(adding.admit(batch));
    }
    // Refresh even if nothing changed: an earlier run may have been killed after it added a skill
    // and before it linked the skill for agents.
    if let (Some(vault), true) = (&vault, adding.admitted) {
        profiles::refresh(context, vault);
    }
    report(context, done, single)
}

/// How many skills are held in memory and flushed to disk together.
const BATCH: usize = 256;

/// Returns the vault, and whether it is new. A vault is created only if a skill passes the gate, so
/// that a rejected skill leaves nothing behind.
fn vault_for(
    context: &Context,
    items: &[Gathered<Item>],
) -> Result<(Option<Vault>, bool), Failure> {
    if let Some(vault) = context.existing_vault()? {
        return Ok((Some(vault), false));
    }
    let mut nothing = Neighbours::new(None, SystemClock.now());
    let passes = |item: &Item| examine(item.source.clone(), &item.options, &mut nothing).is_ok();
    if items.iter().flatten().any(passes) {
        return Ok((Some(context.vault_or_new()?), true));
    }
    Ok((None, false))
}

struct Adding<'a> {
    context: &'a Context,
    arguments: &'a Arguments,
    /// `None` if there is no vault and no skill passes the gate.
    vault: Option<&'a Vault>,
    neighbours: Neighbours<'a>,
    /// Whether any skill was admitted, changed or not.
    admitted: bool,
}

/// A skill after its examination.
struct ExaminedItem {
    shown: String,
    texts: Texts,
    /// The skill's folder on this machine, if it was not fetched.
    folder: Option<String>,
    /// Whether the skill passed the gate.
    passed: Result<(), Failure>,
}

/// The outcome for one skill.
struct AddOutcome {
    shown: String,
    texts: Texts,
    result: Result<AdmitReport, Failure>,
    /// The source and the signer of a fetched skill, in one line.
    from: Option<String>,
}

impl Adding<'_> {
    /// Examines a batch and admits the skills that pass, with one flush to disk.
    fn admit(&mut self, batch: Vec<Gathered<Item>>) -> Vec<AddOutcome> {
        let mut candidates = Vec::new();
        let examined: Vec<ExaminedItem> = batch
            .into_iter()
            .map(|item| self.examine(item, &mut candidates))
            .collect();
        let reports = match self.vault {
            Some(vault) => admit(vault, &candidates).map_err(Failure::from),
            None => Ok(Vec::new()),
        };
        let (reports, failed) = match reports {
            Ok(reports) => (reports, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let mut admitted = candidates.iter().zip(reports);
        let mut done = Vec::with_capacity(examined.len());
        for skill in examined {
            let mut from = None;
            let result = skill.passed.and_then(|()| {
                let Some((candidate, report)) = admitted.next() else {
                    let not_added = || fail!(NotAdded, "it was not added");
                    return Err(failed.clone().unwrap_or_else(not_added));
                };
                let report = report.map_err(|error| refused(&skill.shown, &skill.texts, error))?;
                self.admitted = true;
                from = self.note(candidate, skill.folder.as_deref(), &report)?;
                Ok(report)
            });
            done.push(AddOutcome {
                shown: skill.shown,
                texts: skill.texts,
                result,
                from,
            });
        }
        done
    }

    fn examine(&mut self, item: Gathered<Item>, candidates: &mut Vec<Candidate>) -> ExaminedItem {
        let item = match item {
            Ok(item) => item,
            Err((shown, failure)) => {
                return ExaminedItem {
                    texts: Texts::of_folder(&shown),
                    shown,
                    folder: None,
                    passed: Err(failure),
                };
            }
        };
        let texts = Texts::of_source(&item.shown, &item.source);
        let folder = match &item.source {
            Source::Folder(folder) => Some(folder.clone()),
            _ => None,
        };
        let passed = match examine(item.source, &item.options, &mut self.neighbours) {
            Ok(candidate) => {
                candidates.push(candidate);
                Ok(())
            }
            Err(error) => Err(refused(&item.shown, &texts, error)),
        };
        ExaminedItem {
            shown: item.shown,
            texts,
            folder,
            passed,
        }
    }

    /// Records an admitted skill in the project's lock. Returns a line about the origin of a
    /// fetched skill.
    fn note(
        &self,
        candidate: &Candidate,
        folder: Option<&str>,
        report: &AdmitReport,
    ) -> Result<Option<String>, Failure> {
        let Some(vault) = self.vault else {
            return Ok(None);
        };
        let (context, arguments) = (self.context, self.arguments);
        if let Some(folder) = folder {
            if arguments.lock {
                let agents = &arguments.agents;
                project_lock::note_folder(context, vault, folder, &report.name, agents)?;
            }
            return Ok(None);
        }
        if !arguments.no_lock {
            project_lock::note_fetched(context, candidate, arguments.lock)?;
        }
        let fingerprint = vault.keys().public()?.fingerprint();
        Ok(Some(origin_line(candidate, &fingerprint)))
    }
}

/// Formats the source of a fetched skill and the key that signs it now.
fn origin_line(candidate: &Candidate, fingerprint: &str) -> String {
    let at = match &candidate.provenance.revision {
        Some(revision) => match revision.strip_prefix("sha256:") {
            Some(digest) => format!(" at sha256:{}", short(digest)),
            None => format!(" at {}", clean(short(revision), 40)),
        },
        None => String::new(),
    };
    let there = candidate
        .upstream
        .as_ref()
        .and_then(|upstream| upstream.signer)
        .map(|signer| format!(", signed there by {} (pinned)", signer.fingerprint()))
        .unwrap_or_default();
    format!(
        "  from {}{at}{there}, signed by this vault: {fingerprint}",
        clean(candidate.provenance.identifier.as_str(), 200)
    )
}

/// Shows the owner of a new vault its key's fingerprint and the location of the recovery key.
fn greet(context: &Context, vault: &Vault) -> Result<(), Failure> {
    let keys = vault.keys();
    context.ui.note(format!(
        "Made a vault in {}, its key is {}",
        vault.paths().root.display(),
        paint(HINT, keys.public()?.fingerprint())
    ));
    context.ui.note(format!(
        "{} move {} to a safe place: it replaces a lost or stolen key",
        paint(HINT, "hint:"),
        keys.path(KeyKind::Recovery).display()
    ));
    Ok(())
}

fn report(context: &Context, mut done: Vec<AddOutcome>, single: bool) -> Result<Report, Failure> {
    if let (true, Some(AddOutcome { result, .. })) = (single, done.first_mut())
        && let Err(failure) = result
    {
        return Err(failure.clone());
    }
    let mut outcomes = Outcomes::new(context, "source");
    for done in done {
        let result = done.result.map(|report| {
            done.texts.warn(context, &report.findings);
            context.ui.line(admitted_text(&report));
            if let Some(from) = &done.from {
                context.ui.line(paint(DIM, from));
            }
            outcomes::Outcome::Done(admitted_json(&report))
        });
        outcomes.push(&done.shown, result);
    }
    let data = if single {
        outcomes.done.pop().unwrap_or(Value::Null)
    } else {
        json!({ "added": outcomes.done, "failed": outcomes.failed })
    };
    Ok(Report::new(outcomes.finish("added", data)?, ""))
}

/// Runs `--dry-run`: checks the skills and changes nothing. A missing vault is not created.
fn check(context: &Context, items: Vec<Gathered<Item>>) -> Result<Report, Failure> {
    let single = items.len() == 1;
    let here = context.existing_vault()?;
    let mut neighbours = Neighbours::new(here.as_ref(), SystemClock.now());
    let mut data = Vec::new();
    let mut lines = Vec::new();
    let mut exit = Exit::Done;
    for item in items {
        let (shown, failure) = match item {
            Ok(item) => {
                let texts = Texts::of_source(&item.shown, &item.source);
                match examine(item.source, &item.options, &mut neighbours) {
                    Ok(candidate) => {
                        data.push(preview(&item.shown, &texts, &candidate, &mut lines));
                        continue;
                    }
                    Err(AdmitError::Blocked { findings }) => {
                        exit = Exit::Gate;
                        lines.extend(findings.iter().map(|finding| texts.excerpt(finding)));
                        lines.push(format!(
                            "{} {}",
                            paint(BAD, "✗ would be refused"),
                            clean(&item.shown, 200)
                        ));
                        data.push(json!({
                            "source": item.shown, "outcome": Outcome::Blocked, "name": null, "findings": findings,
                        }));
                        continue;
                    }
                    Err(error) => {
                        let failure = refused(&item.shown, &texts, error);
                        (item.shown, failure)
                    }
                }
            }
            Err(failed) => failed,
        };
        if single {
            return Err(failure);
        }
        context.ui.note_failure(&failure);
        exit = failure.exit();
        data.push(json!({
            "source": shown, "code": failure.code.word(), "message": failure.message, "hint": failure.hint,
        }));
    }
    let data = match <[Value; 1]>::try_from(data) {
        Ok([one]) => one,
        Err(several) => json!(several),
    };
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}

/// Shows the findings, files, environment and context cost of a skill that would be added.
fn preview(shown: &str, texts: &Texts, candidate: &Candidate, lines: &mut Vec<String>) -> Value {
    let findings = &candidate.package.findings;
    lines.extend(findings.iter().map(|finding| texts.excerpt(finding)));
    lines.push(format!(
        "{} {}",
        paint(GOOD, "✓ would be added"),
        clean(shown, 200)
    ));
    let mut entry = json!({
        "source": shown,
        "outcome": candidate.outcome,
        "findings": findings,
    });
    let package = &candidate.package;
    let bytes: u64 = package
        .files
        .iter()
        .map(|file| file.bytes.len() as u64)
        .sum();
    let cost = Cost::of(package);
    let secrets = &package.frontmatter.requires_secrets;
    entry["name"] = json!(package.name);
    entry["provenance"] = json!(candidate.provenance.identifier);
    entry["revision"] = json!(candidate.provenance.revision);
    entry["files"] = package
        .files
        .iter()
        .map(|file| json!({ "path": file.path, "size": file.bytes.len(), "mode": format!("{:04o}", file.mode.bits()) }))
        .collect();
    entry["environment"] = json!(secrets);
    entry["context"] = json!({ "listed_tokens": cost.listed, "read_tokens": cost.read });
    let from = clean(candidate.provenance.identifier.as_str(), 200);
    lines.push(format!(
        "  {}  {}, {}, from {from}",
        paint(BOLD, &package.name),
        count(package.files.len() as u64, "file"),
        size(bytes)
    ));
    for file in &package.files {
        let mark = if file.mode.bits() & 0o111 == 0 {
            ' '
        } else {
            '*'
        };
        lines.push(paint(
            DIM,
            format!(
                "    {}{mark} {}",
                clean(file.path.as_str(), 200),
                size(file.bytes.len() as u64)
            ),
        ));
    }
    for secret in secrets {
        let need = if secret.required { "needs" } else { "may use" };
        lines.push(format!(
            "  {need} the variable {}",
            clean(&secret.name, 100)
        ));
    }
    lines.push(format!(
        "  costs about {} of context in every list, {} when it is read",
        count(cost.listed, "token"),
        crate::text::thousands(cost.read)
    ));
    entry
}

/// The context that a skill costs an agent, in tokens of four bytes.
struct Cost {
    listed: u64,
    read: u64,
}

impl Cost {
    fn of(package: &Package) -> Self {
        let own = &package.frontmatter;
        let document = package
            .files
            .iter()
            .find(|file| file.path.as_str() == "SKILL.md")
            .map_or(0, |file| file.bytes.len());
        let tokens = |bytes: usize| (bytes as u64).div_ceil(4);
        Self {
            listed: tokens(own.name.len() + own.description.len()),
            read: tokens(document),
        }
    }
}
