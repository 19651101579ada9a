//! `vault show`: shows everything that vault knows about a skill, installed or not.

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault,
    run::{self, VerifiedSkill},
};
use vault_skill::{
    document::{Frontmatter, Secret},
    gate::Outcome,
    manifest::ActionSpec,
    name::{ActionName, SkillName},
};

use crate::{
    admission,
    context::Context,
    errors::{Exit, Failure},
    lookup::{self, Target},
    output::{
        BAD, BOLD, DIM, GOOD, HINT, Report, WARN, clean, count,
        origin::{origin, signer, whose},
        paint, size,
    },
};

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Of an installed skill: who signed it, where it came from, its files, actions, declared variables, and what it costs an agent
to see it; verified first. Of a folder: the same before it is added, with what the gate finds (exit 5 where it would refuse).

Examples:
  vault show code-review
  vault show ./draft --json

Since 0.5.0 (stable).")]
pub struct Arguments {
    /// An installed skill, or a skill's folder; `./name` is always a folder
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

fn installed(context: &Context, vault: &Vault, name: &SkillName) -> Result<Report, Failure> {
    let found = run::inspect(vault, name).map_err(|error| lookup::suggest(vault, error))?;
    let manifest = &found.examined.manifest;
    let empty = Vec::new();
    let secrets = found
        .frontmatter
        .as_ref()
        .map_or(&empty, |read| &read.requires_secrets);
    let cost = Cost::of(&found);
    let data = installed_json(context, &found, secrets, &cost);
    let mut lines = heading(
        found.name.as_str(),
        &format!("version {}", manifest.version),
        found.frontmatter.as_ref(),
    );
    let revision = manifest.provenance.revision.as_deref();
    lines.extend([
        row(
            "from",
            clean(
                &format!(
                    "{}{}",
                    manifest.provenance.identifier,
                    revision.map_or_else(String::new, |r| format!(" at {r}"))
                ),
                400,
            ),
        ),
        row(
            "signed",
            format!(
                "{} by {} ({})",
                manifest.signed_at,
                paint(HINT, found.signer.fingerprint()),
                whose(&found.origin)
            ),
        ),
        row("bundle", found.bundle.to_string()),
        row(
            "gate",
            format!(
                "{}{}",
                if manifest.gate.strict {
                    "strict"
                } else {
                    "not strict"
                },
                waived(&found)
            ),
        ),
    ]);
    if !manifest.agents.is_empty() {
        let agents: Vec<_> = manifest.agents.iter().map(ToString::to_string).collect();
        lines.push(row("agents", agents.join(", ")));
    }
    lines.push(row("context", cost.text()));
    lines.extend(environment(context, secrets));
    lines.extend(actions(manifest.actions.iter()));
    lines.extend(files(manifest.files.iter().map(|file| {
        (
            file.path.as_str(),
            file.size,
            file.mode == vault_skill::manifest::Mode::Executable,
        )
    })));
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
        "name": found.name,
        "version": manifest.version,
        "bundle_hash": found.bundle,
        "origin": origin(&found.origin),
        "signer": signer(&found.signer),
        "signed_at": manifest.signed_at,
        "provenance": {
            "identifier": manifest.provenance.identifier,
            "revision": manifest.provenance.revision,
            "fetched_at": manifest.provenance.fetched_at,
        },
        "frontmatter": found.frontmatter,
        "agents": manifest.agents,
        "files": manifest.files,
        "actions": manifest.actions,
        "environment": environment_json(context, secrets),
        "gate": manifest.gate,
        "context": cost.json(),
    })
}

fn folder(context: &Context, source: &str) -> Result<Report, Failure> {
    let (findings, candidate) = admission::examine_folder(source)?;
    let outcome = candidate
        .as_ref()
        .map_or(Outcome::Blocked, |candidate| candidate.outcome);
    let mut lines = Vec::new();
    let mut data = json!({
        "source": source,
        "outcome": outcome,
        "findings": findings,
    });
    if let Some(package) = candidate.as_ref().map(|candidate| &candidate.package) {
        let read = &package.frontmatter;
        let cost = Cost {
            listed: package.name.as_str().len() + read.description.chars().count(),
            loaded: package.document().len(),
        };
        let sized: Vec<Value> = package
            .files
            .iter()
            .map(|file| json!({ "path": file.path, "size": file.bytes.len(), "mode": file.mode }))
            .collect();
        let more = json!({
            "name": package.name,
            "frontmatter": read,
            "agents": read.agents,
            "files": sized,
            "actions": package.actions,
            "environment": environment_json(context, &read.requires_secrets),
            "context": cost.json(),
        });
        if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
            data.extend(more);
        }
        lines.extend(heading(package.name.as_str(), "not installed", Some(read)));
        lines.push(row("context", cost.text()));
        lines.extend(environment(context, &read.requires_secrets));
        lines.extend(actions(package.actions.iter()));
        lines.extend(files(package.files.iter().map(|file| {
            (
                file.path.as_str(),
                file.bytes.len() as u64,
                file.mode == vault_skill::manifest::Mode::Executable,
            )
        })));
    }
    lines.extend(
        findings
            .iter()
            .map(|finding| admission::excerpt(source, finding)),
    );
    let blocked = outcome == Outcome::Blocked;
    lines.push(match outcome {
        Outcome::Blocked => paint(BAD, "✗ the gate would refuse it"),
        Outcome::AcceptedWithWarnings => paint(WARN, "! the gate would let it in, with warnings"),
        Outcome::Accepted => paint(GOOD, "✓ the gate would let it in"),
    });
    Ok(Report::new(data, lines.join("\n")).exit(if blocked { Exit::Gate } else { Exit::Done }))
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
        let description = found
            .frontmatter
            .as_ref()
            .map_or(0, |read| read.description.chars().count());
        let document = found
            .examined
            .manifest
            .file(vault_skill::manifest::SKILL_MD);
        Self {
            listed: found.name.as_str().len() + description,
            loaded: document.map_or(0, |file| usize::try_from(file.size).unwrap_or(usize::MAX)),
        }
    }

    fn json(&self) -> Value {
        json!({ "listed_characters": self.listed, "loaded_bytes": self.loaded })
    }

    fn text(&self) -> String {
        format!(
            "{} in every conversation, {} when it is used",
            count(self.listed as u64, "character"),
            size(self.loaded as u64)
        )
    }
}

fn waived(found: &VerifiedSkill) -> String {
    let gate = &found.examined.manifest.gate;
    let mut text = format!(", rules {}", clean(&gate.rules, 80));
    if !gate.flags.is_empty() {
        text.push_str(&format!(
            ", {} let through",
            count(gate.flags.len() as u64, "flag")
        ));
    }
    if !gate.waivers.is_empty() {
        text.push_str(&format!(", {}", count(gate.waivers.len() as u64, "waiver")));
    }
    text
}

fn heading(name: &str, beside: &str, read: Option<&Frontmatter>) -> Vec<String> {
    let version = read
        .and_then(|read| read.metadata.get("version"))
        .map(|version| match version {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .map_or_else(String::new, |text| {
            format!(", the author's {}", clean(&text, 40))
        });
    let mut lines = vec![format!(
        "{}  {}",
        paint(BOLD, name),
        paint(DIM, format_args!("{beside}{version}"))
    )];
    if let Some(read) = read {
        lines.push(format!("  {}", clean(read.description.trim(), 600)));
    }
    lines
}

fn row(label: &str, text: impl AsRef<str>) -> String {
    format!(
        "{} {}",
        paint(DIM, format_args!("{label:<8}")),
        text.as_ref()
    )
}

fn environment_json(context: &Context, secrets: &[Secret]) -> Vec<Value> {
    let one = |secret: &Secret| {
        json!({
            "name": secret.name,
            "description": secret.description,
            "required": secret.required,
            "set": context.process.variable(&secret.name).is_some(),
        })
    };
    secrets.iter().map(one).collect()
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
        let line = format!(
            "{}  {}  {}",
            paint(BOLD, name),
            clean(&words.join(" "), 200),
            paint(DIM, clean(about, 200))
        );
        row("action", line.trim_end())
    })
    .collect()
}

fn files<'a>(all: impl Iterator<Item = (&'a str, u64, bool)>) -> Vec<String> {
    const SHOWN: usize = 40;
    let all: Vec<_> = all.collect();
    let mut lines: Vec<String> = all
        .iter()
        .take(SHOWN)
        .map(|(path, bytes, executable)| {
            let mark = if *executable { "  executable" } else { "" };
            row(
                "file",
                format!(
                    "{}  {}",
                    clean(path, 200),
                    paint(DIM, format_args!("{}{mark}", size(*bytes)))
                ),
            )
        })
        .collect();
    if all.len() > SHOWN {
        lines.push(row("", format!("and {} more", all.len() - SHOWN)));
    }
    lines
}
