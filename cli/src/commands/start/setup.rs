//! `vault setup`: from a machine with agents on it to a vault whose skills they all read.
//!
//! Nothing changes before the summary is agreed to, and every change is told with what undoes it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault, add_folder,
    admit::{AdmitError, Options},
    agents::{self, Machine},
    profiles::{PROFILES_FILE, SyncProfilesInput, sync_profiles},
    setup::{self, AdoptNativeError, AdoptionMode, NativeSkill, NativeState, Scan},
    shelf,
};
use vault_skill::name::AgentId;

use crate::{
    context::Context,
    diff::diff_texts,
    errors::{Exit, Failure},
    output::{BAD, BOLD, DIM, GOOD, HINT, Report, Table, WARN, Warning, clean, count, paint, size},
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

/// What is to be done, once it is agreed to.
#[derive(Debug, Default)]
struct Plan {
    /// By name; where the installer left one, its folder.
    starters: Vec<(String, Option<PathBuf>)>,
    adopt: Vec<(NativeSkill, AdoptionMode, bool)>,
    agents: Vec<AgentId>,
    folders: Vec<(AgentId, PathBuf)>,
    tags: Vec<String>,
    strict: bool,
}

/// Scans, asks, shows, does.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if !context.ui.may_ask() {
        return Err(Failure::usage(
            "NoTtyError",
            "NoTtyError: setup asks questions and needs a terminal",
        )
        .hint("in scripts: vault add <folder>, then vault sync-profiles --discover"));
    }
    if context.settings()?.text("VAULT_MODE") == Some("remote") {
        return Err(Failure::usage(
            "RemoteModeError",
            "RemoteModeError: setup is for the machine that the agents are on",
        )
        .hint("run it with VAULT_MODE=local"));
    }
    let project = std::path::absolute(".").ok();
    let machine = profiles::machine(context, project)?;
    let vault = context.existing_vault()?;
    // What is linked is this user's: an agent that only the folder at hand speaks of is not among them.
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
    plan.adopt = adoption(context, arguments, vault.as_ref(), &scan)?;
    summary(context, &user, vault.is_none(), &plan);
    if !context.ui.confirm_default("Go ahead?", true)? {
        context.ui.note("Nothing was changed.");
        return Ok(Report::new(json!({ "changed": false }), ""));
    }
    carry_out(context, &user, &plan)
}

fn say(context: &Context, line: impl AsRef<str>) {
    context.ui.must_see(line);
}

fn heading(context: &Context, text: &str) {
    say(context, format!("\n{}", paint(BOLD, text)));
}

fn advanced(context: &Context, plan: &mut Plan, vault: Option<&Vault>) -> Result<(), Failure> {
    let found: Vec<String> = plan.agents.iter().map(ToString::to_string).collect();
    if !found.is_empty() {
        let chosen = context
            .ui
            .tick("Which agents should see the vault's skills?", found, true)?;
        plan.agents
            .retain(|agent| chosen.iter().any(|name| name == agent.as_str()));
    }
    loop {
        let text = context
            .ui
            .ask("Another folder of skills, as agent=/path (empty: none):")?;
        if text.is_empty() {
            break;
        }
        match profiles::parse_link(&text) {
            Ok(folder) => plan.folders.push(folder),
            Err(reason) => say(context, format!("  {} {reason}", paint(WARN, "!"))),
        }
    }
    let ruled = vault.is_some_and(|vault| vault.paths().root.join(PROFILES_FILE).exists());
    if !ruled {
        let text = context
            .ui
            .ask("Only skills with one of these tags, separated by commas (empty: all):")?;
        plan.tags = text
            .split(',')
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
            .map(str::to_owned)
            .collect();
    }
    plan.strict = context
        .ui
        .confirm_default("Refuse skills that the gate flags?", plan.strict)?;
    Ok(())
}

fn overview(context: &Context, vault: Option<&Vault>, installed: usize, plan: &Plan, scan: &Scan) {
    heading(context, "What is here");
    let place = context
        .paths()
        .map(|paths| context.process.short(&paths.root))
        .unwrap_or_default();
    let state = if vault.is_some() {
        count(installed, "skill")
    } else {
        "not made yet".to_owned()
    };
    say(context, format!("  vault   {place}  {}", paint(DIM, state)));
    let names: Vec<_> = plan.agents.iter().map(ToString::to_string).collect();
    say(
        context,
        format!(
            "  agents  {}",
            if names.is_empty() {
                paint(DIM, "none found")
            } else {
                names.join(", ")
            }
        ),
    );
    if scan.skills.is_empty() {
        say(
            context,
            format!(
                "  skills  {}",
                paint(DIM, "none of your own in the agents' folders")
            ),
        );
        return;
    }
    say(
        context,
        format!(
            "  skills  {} of your own in the agents' folders:",
            scan.skills.len()
        ),
    );
    let mut table = Table::new(&["  name", "folder", "from", "state"]);
    for skill in &scan.skills {
        table.row([
            format!("  {}", paint(BOLD, &skill.name)),
            context.process.short(&skill.root),
            skill.provenance.as_ref().map_or_else(
                || "this machine".to_owned(),
                |from| clean(from.as_str(), 60),
            ),
            state_text(skill),
        ]);
    }
    say(context, table.text());
    for (path, reason) in &scan.skipped {
        say(
            context,
            format!(
                "  {} {}: {reason}",
                paint(WARN, "!"),
                context.process.short(path)
            ),
        );
    }
}

fn state_text(skill: &NativeSkill) -> String {
    match &skill.state {
        NativeState::New => format!("{}, {}", count(skill.files, "file"), size(skill.bytes)),
        NativeState::Same => paint(GOOD, "same as in the vault"),
        NativeState::Differs => paint(WARN, "differs from the vault's"),
        NativeState::Refused { findings } => paint(
            BAD,
            format_args!(
                "refused: {}",
                findings
                    .first()
                    .map_or_else(String::new, |finding| clean(&finding.message, 80))
            ),
        ),
        NativeState::Unreadable { reason } => paint(BAD, clean(reason, 80)),
    }
}

fn starters(
    context: &Context,
    installed: &BTreeSet<String>,
) -> Result<Vec<(String, Option<PathBuf>)>, Failure> {
    let mut offered = starter::offers(context.process.starter_dir().as_deref());
    offered.retain(|name, _| !installed.contains(name));
    if offered.is_empty() {
        return Ok(Vec::new());
    }
    say(context, "");
    let chosen = context.ui.tick(
        "Which starter skills do you want?",
        offered.keys().cloned().collect(),
        installed.is_empty(),
    )?;
    offered.retain(|name, _| chosen.contains(name));
    Ok(offered.into_iter().collect())
}

const AUGMENT: &str = "augment   leave as it is, link the vault's skills beside it";
const BACKUP: &str = "backup    sign and keep in the vault, move the folder to <root>.bak";
const IN_PLACE: &str = "in-place  sign and keep in the vault, remove the folder";

fn mode(context: &Context, question: &str) -> Result<AdoptionMode, Failure> {
    let options = [AUGMENT, BACKUP, IN_PLACE].map(str::to_owned).to_vec();
    let chosen = context.ui.choose_first(question, options)?;
    Ok(match chosen.as_str() {
        BACKUP => AdoptionMode::Backup,
        IN_PLACE => AdoptionMode::InPlace,
        _ => AdoptionMode::Augment,
    })
}

fn adoption(
    context: &Context,
    arguments: &Arguments,
    vault: Option<&Vault>,
    scan: &Scan,
) -> Result<Vec<(NativeSkill, AdoptionMode, bool)>, Failure> {
    let able: Vec<&NativeSkill> = scan
        .skills
        .iter()
        .filter(|skill| skill.is_adoptable())
        .collect();
    if able.is_empty() {
        return Ok(Vec::new());
    }
    let mut chosen = Vec::new();
    if arguments.review {
        for skill in able {
            say(context, "");
            show(context, vault, skill);
            let mode = mode(context, &format!("What should become of {}?", skill.name))?;
            if mode != AdoptionMode::Augment {
                let differs = matches!(skill.state, NativeState::Differs);
                let taken = chosen
                    .iter()
                    .any(|(other, ..): &(NativeSkill, _, _)| other.name == skill.name);
                let replace = differs || taken;
                chosen.push((skill.clone(), mode, replace));
            }
        }
        return Ok(chosen);
    }
    say(context, "");
    let mode = mode(context, "What should become of your own skills?")?;
    if mode == AdoptionMode::Augment {
        return Ok(chosen);
    }
    for skill in able {
        let twice = chosen
            .iter()
            .any(|(other, ..): &(NativeSkill, _, _)| other.name == skill.name);
        if matches!(skill.state, NativeState::Differs) || twice {
            context.ui.warn(
                Warning::new(
                    "left_as_it_is",
                    format!(
                        "{} stays: another skill of this name {}",
                        context.process.short(&skill.path),
                        if twice {
                            "was found first"
                        } else {
                            "is in the vault"
                        }
                    ),
                )
                .hint("vault setup --review decides about each by itself"),
            );
        } else {
            chosen.push((skill.clone(), mode, false));
        }
    }
    Ok(chosen)
}

/// One skill for its reviewer: where it is, what it holds, how it differs from the vault's.
fn show(context: &Context, vault: Option<&Vault>, skill: &NativeSkill) {
    say(
        context,
        format!(
            "{}  {}  {}",
            paint(BOLD, &skill.name),
            context.process.short(&skill.path),
            paint(
                DIM,
                format_args!("{}, {}", count(skill.files, "file"), size(skill.bytes))
            )
        ),
    );
    if let (Some(source), Some(by)) = (&skill.provenance, skill.recorded_by) {
        say(
            context,
            format!(
                "  from {} {}",
                clean(source.as_str(), 200),
                paint(DIM, format_args!("(says {by})"))
            ),
        );
    }
    let (NativeState::Differs, Some(vault)) = (&skill.state, vault) else {
        return;
    };
    let Ok((_, _, examined)) = vault_library::run::load(vault, &skill.name) else {
        say(
            context,
            format!("  {} the vault's is damaged", paint(WARN, "!")),
        );
        return;
    };
    let old = examined
        .files
        .iter()
        .find(|file| file.path.as_str() == "SKILL.md")
        .map(|file| String::from_utf8_lossy(&file.bytes).into_owned())
        .unwrap_or_default();
    let new = std::fs::read_to_string(skill.path.join("SKILL.md")).unwrap_or_default();
    say(
        context,
        paint(DIM, "  SKILL.md, the vault's (-) and this one (+):"),
    );
    for line in differing(&old, &new) {
        say(context, format!("  {line}"));
    }
}

/// The difference between two texts, at most forty lines of it.
fn differing(old: &str, new: &str) -> Vec<String> {
    const MOST: usize = 40;
    let mut lines = diff_texts(old.as_bytes(), new.as_bytes());
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if lines.is_empty() {
        lines.push(paint(DIM, "the same lines; another file differs"));
    }
    lines
}

fn summary(context: &Context, user: &Machine, is_new: bool, plan: &Plan) {
    heading(context, "What will be done");
    if is_new {
        say(context, "  make the vault and its keys");
    }
    if !plan.starters.is_empty() {
        let names: Vec<_> = plan.starters.iter().map(|(name, _)| &**name).collect();
        say(
            context,
            format!(
                "  add {}: {}",
                count(names.len(), "starter skill"),
                names.join(", ")
            ),
        );
    }
    for (skill, mode, replace) in &plan.adopt {
        let what = match (mode, replace) {
            (AdoptionMode::InPlace, false) => "sign, keep and remove",
            (AdoptionMode::InPlace, true) => "sign, keep in place of the vault's, and remove",
            (_, false) => "sign, keep and move to .bak",
            (_, true) => "sign, keep in place of the vault's, and move to .bak",
        };
        say(
            context,
            format!("  {what}: {}", context.process.short(&skill.path)),
        );
    }
    if !plan.tags.is_empty() {
        say(
            context,
            format!(
                "  write {PROFILES_FILE}: skills tagged {}",
                plan.tags.join(" or ")
            ),
        );
    }
    for agent in agents::found(user) {
        if !plan.agents.contains(&agent.id) {
            continue;
        }
        for root in agent.global_roots(user) {
            say(
                context,
                format!(
                    "  link every skill for {} in {}",
                    agent.id,
                    context.process.short(&root.path)
                ),
            );
        }
    }
    for (agent, path) in &plan.folders {
        say(
            context,
            format!(
                "  link every skill for {agent} in {}",
                context.process.short(path)
            ),
        );
    }
    say(context, "");
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

/// What became of the skills that were to be taken in.
struct Adoption {
    adopted: Vec<Value>,
    failed: Vec<Value>,
    /// The folders that they lay in, and those that the user named.
    roots: Vec<(AgentId, PathBuf)>,
}

/// Takes in what the plan says, as far as it can be.
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
                // A vault that cannot be written to, or that another process holds, takes none of the others either.
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
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::failed("io", format!("no temporary folder: {error}")))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_lines_of_one_side() {
        let shown: Vec<_> = differing("a\nb\nc\n", "a\nc\nd\n")
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert_eq!(shown, ["    a", "  - b", "    c", "  + d"]);
        let many: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let many = many.join("\n");
        assert_eq!(differing("", &many).len(), 41);
    }
}
