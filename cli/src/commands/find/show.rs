//! `vault show`: shows everything that vault knows about a skill, installed or not.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use vault_format::{
    manifest::{ActionSpec, Mode, SKILL_MD},
    name::{ActionName, SkillRef},
    provenance::Kind,
    root::KeyFingerprint,
};
use vault_gate::{
    Outcome,
    document::{Frontmatter, Secret},
    report::Verdict,
};
use vault_library::{
    Origin, Vault,
    admit::history,
    audit::{Auditor, audit_skill},
    run::{self, VerifiedSkill},
};

use crate::{
    admission,
    audit_report::{Location, exit_of, finding_lines, mark, not_started, verdict},
    context::Context,
    errors::Failure,
    lookup::{self, Target},
    output::{
        BOLD, DIM, GOOD, HINT, Report, WARN, clean, count, either, join,
        origin::{origin, signer, whose, whose_skill},
        paint, size,
    },
};

/// The arguments of `vault show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows who signed an installed skill, its source, files, actions and variables, and the context \
that it costs an agent. The skill is verified first. A folder is shown as it would be added, with \
the gate's verdict (exit 5 if it is blocked, 2 if something could not be judged).

Examples:
  vault show code-review
  vault show ./draft --json")]
pub struct Arguments {
    /// An installed skill, or the folder of one (`./name` is always a folder)
    #[arg(value_name = "NAME|PATH")]
    what: String,
}

/// Shows a skill.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    match (lookup::target(vault.as_ref(), &arguments.what)?, &vault) {
        (Target::Installed(name), Some(vault)) => installed(context, vault, &name),
        (Target::Installed(_), None) | (Target::Path(_), _) => folder(context, &arguments.what),
    }
}

fn installed(context: &Context, vault: &Vault, name: &SkillRef) -> Result<Report, Failure> {
    let found = run::inspect(vault, name).map_err(|error| lookup::suggest(vault, error))?;
    let manifest = &found.examined.manifest;
    let frontmatter = found.frontmatter.as_ref();
    let secrets = frontmatter.map_or(&[][..], |read| &read.requires_secrets);
    let cost = Cost::of(&found);
    let held = found.origin == Origin::Local && history::is_held(vault, &found.name)?;
    let mut data = installed_json(context, &found, secrets, &cost);
    data["held"] = json!(held);
    let version = format!("version {}", manifest.version);
    let mut lines = heading(found.name.as_str(), &version, frontmatter);
    let mut from = manifest.provenance.identifier.to_string();
    if let Some(revision) = &manifest.provenance.revision {
        from.push_str(&format!(" at {revision}"));
    }
    let (signed_at, key) = (manifest.signed_at, KeyFingerprint::publisher(&found.signer));
    let place = run::find(vault, name)?;
    let whose = match &place {
        Some(place) => whose_skill(&found.origin, &place.qualified),
        None => whose(&found.origin),
    };
    if matches!(found.origin, Origin::Linked(_)) && manifest.provenance.kind() == Kind::Local {
        from.push_str(" on its publisher's machine");
    }
    let strict = either(manifest.gate.strict, "strict", "not strict");
    lines.extend([
        row("from", clean(&from, 400)),
        row(
            "signed",
            format!("{signed_at} by {HINT}{key}{HINT:#} ({whose})"),
        ),
        row("bundle", found.bundle.to_string()),
        row("gate", format!("{strict}{}", waived(&found))),
    ]);
    if held {
        let text = format!("by vault rollback; vault update {name} takes the newest version");
        lines.push(row("held", text));
    }
    if !manifest.agents.is_empty() {
        lines.push(row("agents", join(&manifest.agents)));
    }
    lines.push(row("context", cost.text()));
    lines.extend(environment(context, secrets));
    lines.extend(actions(manifest.actions.iter()));
    let sizes = manifest.files.iter();
    lines.extend(files(
        sizes.map(|file| (file.path.as_str(), file.size, file.mode)),
    ));
    Ok(Report::new(data, lines.join("\n")))
}

fn installed_json(
    context: &Context,
    found: &VerifiedSkill,
    secrets: &[Secret],
    cost: &Cost,
) -> Value {
    let manifest = &found.examined.manifest;
    json!({
        "name": found.name, "version": manifest.version, "bundle_hash": found.bundle,
        "origin": origin(&found.origin), "signer": signer(&found.signer),
        "signed_at": manifest.signed_at,
        "provenance": {
            "identifier": manifest.provenance.identifier,
            "revision": manifest.provenance.revision,
            "fetched_at": manifest.provenance.fetched_at,
        },
        "frontmatter": found.frontmatter, "agents": manifest.agents, "files": manifest.files,
        "actions": manifest.actions, "environment": environment_json(context, secrets),
        "gate": manifest.gate, "context": cost.json(),
    })
}

fn folder(context: &Context, source: &str) -> Result<Report, Failure> {
    let path = Path::new(source);
    let auditor = Auditor::new(context.strict()?);
    let judged = audit_skill(path, &auditor).map_err(|error| not_started(&error, source))?;
    let candidate = match judged.verdict {
        Verdict::Accepted | Verdict::Warnings => admission::examine_folder(source)?.1,
        Verdict::Blocked | Verdict::Unreadable => None,
    };
    let package = candidate.as_ref().map(|candidate| &candidate.package);
    let outcome = candidate
        .as_ref()
        .map_or(Outcome::Blocked, |candidate| candidate.outcome);
    let mut lines = Vec::new();
    let mut data = json!(judged);
    data["source"] = json!(source);
    data["outcome"] = json!(outcome);
    if let Some(package) = package {
        let read = &package.frontmatter;
        let cost = Cost {
            listed: package.name.as_str().len() + read.description.chars().count(),
            loaded: package.document().len(),
        };
        let sizes = || {
            package
                .files
                .iter()
                .map(|file| (&file.path, file.bytes.len(), file.mode))
        };
        let sized =
            sizes().map(|(path, size, mode)| json!({ "path": path, "size": size, "mode": mode }));
        data["name"] = json!(package.name);
        data["frontmatter"] = json!(read);
        data["agents"] = json!(read.agents);
        data["files"] = sized.collect();
        data["actions"] = json!(package.actions);
        data["environment"] = json!(environment_json(context, &read.requires_secrets));
        data["context"] = cost.json();
        lines.extend(heading(package.name.as_str(), "not installed", Some(read)));
        lines.push(row("context", cost.text()));
        lines.extend(environment(context, &read.requires_secrets));
        lines.extend(actions(package.actions.iter()));
        lines.extend(files(
            sizes().map(|(path, size, mode)| (path.as_str(), size as u64, mode)),
        ));
    }
    let location = Location::of(&lookup::folder_of(path));
    lines.extend(finding_lines(&location, &judged, true));
    lines.push(format!(
        "{} {}",
        mark(judged.verdict),
        verdict(&location, &judged)
    ));
    Ok(Report::new(data, lines.join("\n")).exit(exit_of(judged.verdict)))
}

/// The context that a skill costs an agent.
struct Cost {
    /// Length of the name and the description in characters. Every conversation pays this, even if
    /// the skill is not used.
    listed: usize,
    /// Size of SKILL.md in bytes. A conversation pays this when it uses the skill.
    loaded: usize,
}

impl Cost {
    fn of(found: &VerifiedSkill) -> Self {
        let frontmatter = found.frontmatter.as_ref();
        let description = frontmatter.map_or(0, |read| read.description.chars().count());
        let document = found.examined.manifest.file(SKILL_MD);
        Self {
            listed: found.name.as_str().len() + description,
            loaded: document.map_or(0, |file| usize::try_from(file.size).unwrap_or(usize::MAX)),
        }
    }

    fn json(&self) -> Value {
        json!({ "listed_characters": self.listed, "loaded_bytes": self.loaded })
    }

    fn text(&self) -> String {
        let listed = count(self.listed, "character");
        let loaded = size(self.loaded as u64);
        format!("{listed} in every conversation, {loaded} when it is used")
    }
}

fn waived(found: &VerifiedSkill) -> String {
    let gate = &found.examined.manifest.gate;
    let mut text = format!(", rules {}", clean(&gate.rules, 80));
    if !gate.flags.is_empty() {
        let flags = count(gate.flags.len(), "flag");
        text.push_str(&format!(", {flags} accepted"));
    }
    if !gate.waivers.is_empty() {
        text.push_str(&format!(", {}", count(gate.waivers.len(), "waiver")));
    }
    text
}

fn heading(name: &str, beside: &str, read: Option<&Frontmatter>) -> Vec<String> {
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

fn row(label: &str, text: impl AsRef<str>) -> String {
    format!("{DIM}{label:<8}{DIM:#} {}", text.as_ref())
}

fn environment_json(context: &Context, secrets: &[Secret]) -> Vec<Value> {
    let json = |secret: &Secret| {
        json!({
            "name": secret.name, "description": secret.description, "required": secret.required,
            "set": context.process.variable(&secret.name).is_some(),
        })
    };
    secrets.iter().map(json).collect()
}

/// Lists the variables that the skill declares and whether each is set. Never shows a value.
fn environment(context: &Context, secrets: &[Secret]) -> Vec<String> {
    secrets
        .iter()
        .map(|secret| {
            let state = match (context.process.variable(&secret.name), secret.required) {
                (Some(_), _) => paint(GOOD, "set"),
                (None, true) => paint(WARN, "not set"),
                (None, false) => paint(DIM, "not set, not required"),
            };
            let about = secret.description.as_deref().unwrap_or_default();
            let line = format!("{} ({state})  {}", secret.name, clean(about, 200));
            row("variable", line.trim_end())
        })
        .collect()
}

fn actions<'a>(all: impl Iterator<Item = (&'a ActionName, &'a ActionSpec)>) -> Vec<String> {
    all.map(|(name, action)| {
        let mut words = vec![action.command.as_str()];
        words.extend(action.args.iter().map(String::as_str));
        let about = action.description.as_deref().unwrap_or_default();
        let (command, about) = (clean(&words.join(" "), 200), clean(about, 200));
        let line = format!("{BOLD}{name}{BOLD:#}  {command}  {DIM}{about}{DIM:#}");
        row("action", line.trim_end())
    })
    .collect()
}

fn files<'a>(all: impl ExactSizeIterator<Item = (&'a str, u64, Mode)>) -> Vec<String> {
    const SHOWN: usize = 40;
    let more = all.len().saturating_sub(SHOWN);
    let shown = all.take(SHOWN).map(|(path, bytes, mode)| {
        let mark = either(mode == Mode::Executable, "  executable", "");
        let (path, bytes) = (clean(path, 200), size(bytes));
        row("file", format!("{path}  {DIM}{bytes}{mark}{DIM:#}"))
    });
    let mut lines: Vec<String> = shown.collect();
    if more > 0 {
        lines.push(row("", format!("and {more} more")));
    }
    lines
}
