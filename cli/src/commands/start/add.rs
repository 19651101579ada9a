//! `vault add`: through the gate, signed, kept.

mod gather;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault,
    add::{self, AddError, AddReport, AddSkill, Candidate},
    keys::KeyKind,
    known::Known,
};
use vault_skill::{
    gate::{self, Outcome},
    name::{AgentId, SkillName},
    package::Package,
    provenance::ProvenanceId,
};
use vault_sources::fetcher::short;
use vault_store::clock::{Clock as _, SystemClock};

use self::gather::{Gathered, Item};
use crate::{
    admission::{admitted_json, admitted_text, refused, texts::Texts},
    context::Context,
    errors::{Exit, Failure},
    output::{BOLD, DIM, GOOD, HINT, Report, clean, count, paint, size, text},
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
    Failure::usage("name_needs_one_skill", "--name goes with one skill only")
}

/// Admits the skills; each has an answer of its own.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if arguments.name.is_some() && arguments.sources.len() > 1 {
        return Err(name_needs_one());
    }
    let known = |rule: &str| {
        rule == "hidden-text"
            || gate::scan_rules().any(|known| known.name == rule || known.id == rule)
    };
    if let Some(rule) = arguments.allow.iter().find(|rule| !known(rule)) {
        return Err(Failure::usage(
            "unknown_rule",
            format!("there is no rule {}", clean(rule, 80)),
        )
        .hint("a finding names its rule, as in `error[download-pipe-shell]`"));
    }
    let strict = context.strict()?;
    let mut items = gather::gather(context, arguments, strict)?;
    if items.len() == 1
        && let Some(Err((_, failure))) = items.pop_if(|item| item.is_err())
    {
        return Err(failure);
    }
    let folders_only = items.iter().all(|item| matches!(item, Ok(Item::Folder(_))));
    if arguments.name.is_some() && items.len() > 1 {
        return Err(name_needs_one());
    }
    if arguments.dry_run {
        return check(context, items);
    }
    if folders_only {
        let requests: Vec<AddSkill> = items
            .into_iter()
            .filter_map(|item| match item {
                Ok(Item::Folder(request)) => Some(request),
                _ => None,
            })
            .collect();
        return folders(context, arguments, &requests);
    }
    mixed(context, arguments, items)
}

/// Folders alone, with one flush for many.
fn folders(
    context: &Context,
    arguments: &Arguments,
    requests: &[AddSkill],
) -> Result<Report, Failure> {
    // A folder that is not there, or that is refused, must not leave a new vault behind.
    let is_new = context.existing_vault()?.is_none();
    if let ([only], true) = (requests, is_new) {
        let checked = add::check_folder(only).and_then(|verdict| match verdict.package {
            Some(_) => Ok(()),
            None => Err(AddError::Blocked {
                findings: verdict.findings,
            }),
        });
        checked.map_err(|error| refused(&only.source, &Texts::of_folder(&only.source), error))?;
    }
    let vault = context.vault_or_new()?;
    if is_new {
        greet(context, &vault)?;
    }
    let results = if let [only] = requests {
        vec![add::add_skill(&vault, only)]
    } else {
        add::add_skills(&vault, requests)
    };
    // Also after no change: what added it may have been killed before agents saw it.
    if results.iter().any(Result::is_ok) {
        profiles::refresh(context, &vault);
    }
    if arguments.lock {
        let noted = requests
            .iter()
            .zip(&results)
            .filter_map(|(request, result)| Some((request, result.as_ref().ok()?)));
        for (request, report) in noted {
            project_lock::note_folder(
                context,
                &vault,
                &request.source,
                &report.name,
                &request.agents,
            )?;
        }
    }
    let done = requests
        .iter()
        .zip(results)
        .map(|(request, result)| {
            let texts = Texts::of_folder(&request.source);
            let result = result.map_err(|error| refused(&request.source, &texts, error));
            Done {
                shown: request.source.clone(),
                texts,
                result,
                from: None,
            }
        })
        .collect();
    report(context, done)
}

/// A skill on its way in, and where its text is.
struct Ready {
    shown: String,
    texts: Texts,
    candidate: Result<Box<Candidate>, Failure>,
}

/// What became of one skill.
struct Done {
    shown: String,
    texts: Texts,
    result: Result<AddReport, Failure>,
    /// Where a fetched skill came from and who signed it, in one line.
    from: Option<String>,
}

/// Fetched skills, with folders among them or not.
fn mixed(
    context: &Context,
    arguments: &Arguments,
    items: Vec<Gathered<Item>>,
) -> Result<Report, Failure> {
    let here = context.existing_vault()?;
    let mut known = Known::of(here.as_ref());
    let ready: Vec<Ready> = items
        .into_iter()
        .map(|item| gated(item, &mut known))
        .collect();
    if ready.iter().all(|ready| ready.candidate.is_err()) {
        let done = ready.into_iter().map(|ready| Done {
            result: Err(match ready.candidate {
                Err(failure) => failure,
                Ok(_) => Failure::failed("not_added", "it was not added"),
            }),
            shown: ready.shown,
            texts: ready.texts,
            from: None,
        });
        return report(context, done.collect());
    }
    let is_new = here.is_none();
    let vault = context.vault_or_new()?;
    if is_new {
        greet(context, &vault)?;
    }
    let fingerprint = vault.keys().public()?.fingerprint();
    let mut done = Vec::new();
    for Ready {
        shown,
        texts,
        candidate,
    } in ready
    {
        let mut from = None;
        let result = candidate.and_then(|candidate| {
            let mut reports = add::admit(&vault, std::slice::from_ref(&candidate))
                .map_err(|error| refused(&shown, &texts, error))?;
            let report = reports
                .pop()
                .ok_or_else(|| Failure::failed("not_added", "nothing was reported"))?;
            from = Some(origin_line(&candidate, &fingerprint));
            if !arguments.no_lock {
                project_lock::note_fetched(context, &candidate, arguments.lock)?;
            }
            Ok(report)
        });
        done.push(Done {
            shown,
            texts,
            result,
            from,
        });
    }
    if done.iter().any(|done| done.result.is_ok()) {
        profiles::refresh(context, &vault);
    }
    report(context, done)
}

/// Gates one item beside what is known; what is blocked has its failure with the findings.
fn gated(item: Gathered<Item>, known: &mut Known<'_>) -> Ready {
    let item = match item {
        Ok(item) => item,
        Err((shown, failure)) => {
            return Ready {
                texts: Texts::of_folder(&shown),
                shown,
                candidate: Err(failure),
            };
        }
    };
    let shown = item.shown().to_owned();
    let (texts, candidate) = match item {
        Item::Folder(request) => {
            let texts = Texts::of_folder(&request.source);
            (
                texts,
                add::read_folder_skill(&request, known, SystemClock.now()),
            )
        }
        Item::Fetched { skill, request, .. } => {
            let texts = Texts::of_fetched(&shown, &skill.files);
            (
                texts,
                add::gate_fetched(*skill, &request, known, SystemClock.now()),
            )
        }
    };
    let candidate = candidate
        .map(Box::new)
        .map_err(|error| refused(&shown, &texts, error));
    Ready {
        shown,
        texts,
        candidate,
    }
}

/// Where a fetched skill came from, and whose signature it carries now.
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

/// What the owner of a new vault has to know once.
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

fn report(context: &Context, done: Vec<Done>) -> Result<Report, Failure> {
    let (total, single) = (done.len(), done.len() == 1);
    let mut added = Vec::new();
    let mut failed = Vec::new();
    let mut first = None;
    for done in done {
        match done.result {
            Ok(report) => {
                done.texts.warn(context, &report.findings);
                context.ui.line(admitted_text(&report));
                if let Some(from) = &done.from {
                    context.ui.line(paint(DIM, from));
                }
                added.push(admitted_json(&report));
            }
            Err(failure) => {
                if single {
                    return Err(failure);
                }
                failed.push(json!({
                    "source": done.shown, "code": failure.code, "message": failure.message, "hint": failure.hint,
                    "findings": failure.facts().map(|data| &data["findings"]),
                }));
                context.ui.note_failure(&failure);
                first.get_or_insert(failure);
            }
        }
    }
    let data = if single {
        added.pop().unwrap_or(Value::Null)
    } else {
        json!({ "added": added, "failed": failed })
    };
    match first {
        Some(first) => Err(Failure::new(
            first.exit,
            first.code.clone(),
            format!(
                "{} of {} {} not added",
                failed.len(),
                count(total as u64, "skill"),
                if failed.len() == 1 { "was" } else { "were" },
            ),
        )
        .data(data)),
        None => Ok(Report::new(data, "")),
    }
}

/// What `--dry-run` says: nothing is changed, not even a vault made.
fn check(context: &Context, items: Vec<Gathered<Item>>) -> Result<Report, Failure> {
    let single = items.len() == 1;
    let here = context.existing_vault()?;
    let mut known = Known::of(here.as_ref());
    let mut data = Vec::new();
    let mut lines = Vec::new();
    let mut exit = Exit::Done;
    for item in items {
        let Ready {
            shown,
            texts,
            candidate,
        } = gated(item, &mut known);
        let (outcome, findings, candidate) = match candidate {
            Ok(candidate) => (
                candidate.outcome,
                candidate.package.findings.clone(),
                Some(candidate),
            ),
            Err(failure) if failure.code == "gate_blocked" => {
                exit = Exit::Gate;
                lines.extend(failure.lines().iter().cloned());
                lines.push(format!(
                    "{} {}",
                    paint(crate::output::style::BAD, "✗ would be refused"),
                    clean(&shown, 200)
                ));
                data.push(json!({
                    "source": shown,
                    "outcome": Outcome::Blocked,
                    "name": null,
                    "findings": failure.facts().map(|data| data["findings"].clone()),
                }));
                continue;
            }
            Err(failure) if single => return Err(failure),
            Err(failure) => {
                context.ui.note_failure(&failure);
                exit = failure.exit;
                data.push(json!({
                    "source": shown, "code": failure.code, "message": failure.message, "hint": failure.hint,
                }));
                continue;
            }
        };
        lines.extend(findings.iter().map(|finding| texts.excerpt(finding)));
        lines.push(format!(
            "{} {}",
            paint(GOOD, "✓ would be added"),
            clean(&shown, 200)
        ));
        let mut entry = json!({
            "source": shown,
            "outcome": outcome,
            "findings": findings,
        });
        if let Some(candidate) = candidate {
            preview(&candidate, &mut entry, &mut lines);
        }
        data.push(entry);
    }
    let data = match <[Value; 1]>::try_from(data) {
        Ok([one]) => one,
        Err(several) => json!(several),
    };
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}

/// Files, environment and context cost of a skill that would be added.
fn preview(candidate: &Candidate, entry: &mut Value, lines: &mut Vec<String>) {
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
        text::thousands(cost.read)
    ));
}

/// What a skill takes of an agent's context, at four bytes a token.
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
