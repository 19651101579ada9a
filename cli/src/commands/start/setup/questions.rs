//! The questions of `vault setup` and the screens between them. This module changes nothing on
//! disk.

use std::collections::BTreeSet;
use std::path::PathBuf;

use vault_library::{
    Vault,
    agents::PROFILES_FILE,
    agents::setup::{AdoptionMode, NativeSkill, NativeState, Scan},
    agents::{self, Machine},
};
use vault_skill::name::AgentId;

use crate::{
    context::Context,
    diff::diff_texts,
    errors::Failure,
    output::{BAD, BOLD, DIM, GOOD, Table, WARN, Warning, clean, count, paint, size},
    profiles, starter,
};

/// What to do once the user confirms.
#[derive(Debug, Default)]
pub struct Plan {
    /// The names of the starter skills, with the folder if the installer left one.
    pub starters: Vec<(String, Option<PathBuf>)>,
    /// Skills found in agents' folders, how to adopt each, and whether it replaces the vault's
    /// skill of that name.
    pub adopt: Vec<(NativeSkill, AdoptionMode, bool)>,
    /// The agents that get links to the vault's skills.
    pub agents: Vec<AgentId>,
    /// Further folders to link into.
    pub folders: Vec<(AgentId, PathBuf)>,
    /// Only skills with one of these tags are linked.
    pub tags: Vec<String>,
    /// Whether security flags of the gate block a skill.
    pub strict: bool,
}

/// Prints a line that is part of the dialogue. It appears even with `--quiet` or `--json`.
pub fn say(context: &Context, line: impl AsRef<str>) {
    context.ui.must_see(line);
}

/// Prints a heading of the dialogue.
pub fn heading(context: &Context, text: &str) {
    say(context, format!("\n{}", paint(BOLD, text)));
}

/// Asks about agents, further folders, tags and strictness.
pub fn advanced(context: &Context, plan: &mut Plan, vault: Option<&Vault>) -> Result<(), Failure> {
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

/// Shows the vault, the agents and the skills on this machine.
pub fn overview(
    context: &Context,
    vault: Option<&Vault>,
    installed: usize,
    plan: &Plan,
    scan: &Scan,
) {
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

/// Asks which starter skills to add.
pub fn starters(
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

/// Asks how to adopt the skills in the agents' folders.
pub fn adoption(
    context: &Context,
    review: bool,
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
    if review {
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

/// Shows a skill for review: its path, its contents, and its difference from the vault's version.
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
    let Ok(found) = vault_library::run::inspect(vault, &skill.name) else {
        say(
            context,
            format!("  {} the vault's is damaged", paint(WARN, "!")),
        );
        return;
    };
    let old = found
        .examined
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

/// Formats the difference between two texts, cut to 40 lines.
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

/// Shows every planned change.
pub fn summary(context: &Context, user: &Machine, is_new: bool, plan: &Plan) {
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
