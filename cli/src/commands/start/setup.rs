//! `vault setup`: adds the skills of this machine to a vault and links the vault's skills for the
//! agents.
//!
//! Nothing changes before the user confirms the summary. The report lists commands that undo the
//! changes.

mod questions;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault, add_folder,
    admit::{AdmitError, Options},
    agents::setup::{self, AdoptNativeError},
    agents::{self, Machine, PROFILES_FILE, SyncProfilesInput, sync_profiles},
    shelf,
};
use vault_skill::name::AgentId;

use self::questions::{Plan, adoption, advanced, overview, say, starters, summary};
use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BOLD, GOOD, HINT, Report, Warning, paint},
    profiles, starter,
};

/// Since 0.2.0.
#[derive(Args, Debug)]
#[command(after_help = "\
A wizard on a terminal: it looks at the vault and at the skills in the agents' folders, asks what
is to become of them, shows all it would do, and only then does it. Scripts use vault add and
vault sync-profiles instead.

Examples:
  vault setup
  vault setup --review
  vault setup --advanced

Since 0.2.0.")]
pub struct Arguments {
    /// Ask about each skill by itself, and show how it differs from the vault's
    #[arg(long)]
    review: bool,
    /// Ask about agents, further folders, tags and strictness too
    #[arg(long)]
    advanced: bool,
    /// Do not offer starter skills
    #[arg(long)]
    no_starters: bool,
}

/// Scans the machine, asks the questions, shows the summary, and carries out the plan.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if !context.ui.may_ask() {
        return Err(fail!(
            NoTtyError,
            "NoTtyError: setup asks questions and needs a terminal"
        )
        .hint("in scripts: vault add <folder>, then vault sync-profiles --discover"));
    }
    if context.settings()?.text("VAULT_MODE") == Some("remote") {
        return Err(fail!(
            RemoteModeError,
            "RemoteModeError: setup is for the machine that the agents are on"
        )
        .hint("run it with VAULT_MODE=local"));
    }
    let project = std::path::absolute(".").ok();
    let machine = profiles::machine(context, project)?;
    let vault = context.existing_vault()?;
    // Skills are linked for the user, so leave out agents that are found only through the current
    // folder.
    let user = Machine {
        project: None,
        ..machine.clone()
    };
    let mut plan = Plan {
        strict: context
            .settings()?
            .boolean("VAULT_SECURITY_STRICT")
            .unwrap_or(true),
        agents: agents::found(&user)
            .into_iter()
            .map(|agent| agent.id.clone())
            .collect(),
        ..Plan::default()
    };
    if arguments.advanced {
        advanced(context, &mut plan, vault.as_ref())?;
    }
    let scan = setup::scan(vault.as_ref(), &machine, &plan.folders, plan.strict)?;
    let installed: BTreeSet<String> = match &vault {
        Some(vault) => shelf::list(vault)?
            .skills
            .into_iter()
            .map(|skill| skill.name.to_string())
            .collect(),
        None => BTreeSet::new(),
    };
    overview(context, vault.as_ref(), installed.len(), &plan, &scan);
    if !arguments.no_starters {
        plan.starters = starters(context, &installed)?;
    }
    plan.adopt = adoption(context, arguments.review, vault.as_ref(), &scan)?;
    summary(context, &user, vault.is_none(), &plan);
    if !context.ui.confirm_default("Go ahead?", true)? {
        context.ui.note("Nothing was changed.");
        return Ok(Report::new(json!({ "changed": false }), ""));
    }
    carry_out(context, &user, &plan)
}

fn carry_out(context: &Context, user: &Machine, plan: &Plan) -> Result<Report, Failure> {
    let vault = context.vault_or_new()?;
    let mut undo = Vec::new();
    let added = add_starters(context, &vault, plan, &mut undo)?;
    let Adoption {
        adopted,
        failed,
        roots,
    } = adopt(context, &vault, plan, &mut undo);
    write_tags(&vault, plan)?;
    let report = sync_profiles(
        &vault,
        &SyncProfilesInput {
            machine: user.clone(),
            discover: true,
            only: Some(plan.agents.clone()),
            profile_roots: roots,
            ..SyncProfilesInput::default()
        },
    )
    .map_err(profiles::failure)?;
    let linked = profiles::report_of(context, &report);
    let mut lines = vec![linked.text.clone()];
    if !undo.is_empty() {
        lines.push(String::new());
        lines.push(paint(BOLD, "To undo it"));
        lines.extend(undo.iter().map(|line| format!("  {line}")));
    }
    if let Ok(Some(path)) = vault.keys().recovery_left_here() {
        lines.push(String::new());
        lines.push(format!(
            "Move {} to a safe place: it replaces a lost or stolen key.",
            paint(HINT, context.process.short(&path))
        ));
    }
    lines.push(String::new());
    lines.push(format!(
        "Next: {} adds a skill, {} says what is wrong and mends it.",
        paint(HINT, "vault add <folder>"),
        paint(HINT, "vault doctor")
    ));
    let data = json!({
        "changed": true, "added": added, "adopted": adopted, "failed": failed, "undo": undo,
        "profiles": report, "restart_required": report.restart_required,
    });
    let exit = if failed.is_empty() && added.len() == plan.starters.len() {
        linked.exit
    } else {
        Exit::Failed
    };
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}

/// The outcome of adopting skills.
struct Adoption {
    adopted: Vec<Value>,
    failed: Vec<Value>,
    /// The folders that the adopted skills were in, and those that the user named.
    roots: Vec<(AgentId, PathBuf)>,
}

/// Adopts the skills of the plan. A failed skill does not stop the others, unless the vault itself
/// cannot be written.
fn adopt(context: &Context, vault: &Vault, plan: &Plan, undo: &mut Vec<String>) -> Adoption {
    let mut all = Adoption {
        adopted: Vec::new(),
        failed: Vec::new(),
        roots: plan.folders.clone(),
    };
    for (skill, mode, replace) in &plan.adopt {
        match setup::adopt(vault, skill, *mode, *replace, plan.strict) {
            Ok(done) => {
                let path = context.process.short(&skill.path);
                match &done.backup {
                    Some(backup) => undo.push(format!(
                        "vault remove {} && mv {} {path}",
                        skill.name,
                        context.process.short(backup)
                    )),
                    None => undo.push(format!(
                        "cp -rL {path} {path}.tmp && vault remove {} && mv {path}.tmp {path}",
                        skill.name
                    )),
                }
                all.roots.extend(
                    skill
                        .agents
                        .first()
                        .map(|agent| (agent.clone(), skill.root.clone())),
                );
                say(
                    context,
                    format!(
                        "{} {} is in the vault",
                        paint(GOOD, "✓"),
                        paint(BOLD, &skill.name)
                    ),
                );
                all.adopted.push(json!({
                    "name": skill.name, "path": skill.path, "mode": mode, "version": done.report.version,
                    "bundle_hash": done.report.bundle, "provenance": done.report.provenance,
                    "backup": done.backup,
                }));
            }
            Err(error) => {
                context.ui.warn(
                    Warning::new(
                        "not_adopted",
                        format!("{} stays as it is: {error}", skill.name),
                    )
                    .hint(format!("vault add {} says more", skill.path.display())),
                );
                all.failed.push(
                    json!({ "name": skill.name, "path": skill.path, "reason": error.to_string() }),
                );
                // The vault cannot be written, or another process holds the writer lock. Every
                // other skill would fail too.
                if matches!(
                    error,
                    AdoptNativeError::Vault(_) | AdoptNativeError::Admit(AdmitError::Vault(_))
                ) {
                    break;
                }
            }
        }
    }
    all
}

fn add_starters(
    context: &Context,
    vault: &Vault,
    plan: &Plan,
    undo: &mut Vec<String>,
) -> Result<Vec<String>, Failure> {
    let mut added = Vec::new();
    if plan.starters.is_empty() {
        return Ok(added);
    }
    let folder = tempfile::tempdir().map_err(|error| fail!(Io, "no temporary folder: {error}"))?;
    starter::unpack(folder.path())
        .map_err(|error| Failure::io("writing", folder.path(), &error))?;
    for (name, left_by_installer) in &plan.starters {
        let source = match left_by_installer {
            Some(path) => path.clone(),
            None => folder.path().join(name),
        };
        let options = Options {
            strict: plan.strict,
            ..Options::default()
        };
        match add_folder(vault, &source, &options) {
            Ok(_) => added.push(name.clone()),
            Err(error) => {
                context.ui.warn(Warning::new(
                    "not_added",
                    format!("{name} was not added: {error}"),
                ));
                if matches!(error, AdmitError::Vault(_)) {
                    break;
                }
            }
        }
    }
    if !added.is_empty() {
        say(
            context,
            format!("{} added {}", paint(GOOD, "✓"), added.join(", ")),
        );
        undo.push(format!("vault remove {}", added.join(" ")));
    }
    Ok(added)
}

fn write_tags(vault: &Vault, plan: &Plan) -> Result<(), Failure> {
    if plan.tags.is_empty() {
        return Ok(());
    }
    let tags = toml::Value::from(plan.tags.clone());
    let mut text = String::new();
    for agent in &plan.agents {
        text.push_str(&format!(
            "[[profile]]\nname = \"{agent}\"\nagent = \"{agent}\"\ninclude_tags = {tags}\n\n"
        ));
    }
    Ok(vault.replace_file(PROFILES_FILE, text.as_bytes())?)
}
