//! The questions of `vault setup` and the screens between them. This module changes nothing on
//! disk.

use std::path::{Path, PathBuf};

use vault_format::name::AgentId;
use vault_gate::finding::Level;
use vault_library::{
    PROFILES_FILE, Vault,
    agents::setup::{AdoptionMode, NativeSkill, NativeState, Scan},
    agents::{self, Machine},
};

use crate::{
    context::Context,
    errors::Failure,
    output::{
        BAD, BOLD, Column, DIM, GOOD, Table, WARN, clean, count,
        diff::{Detail, diff_texts},
        either, format_size, join, paint,
    },
    tasks::{profiles, starter},
};

/// The changes that `vault setup` will make once the user confirms.
#[derive(Debug, Default)]
pub struct SetupPlan {
    /// The starter skills to add, each with the folder that the installer left, if it did.
    pub starters: Vec<(String, Option<PathBuf>)>,
    /// The skills to import from agents' folders: what becomes of each folder, and whether the
    /// skill replaces the vault's skill of that name.
    pub adopt: Vec<(NativeSkill, AdoptionMode, bool)>,
    /// The agents that get links to the vault's skills.
    pub agents: Vec<AgentId>,
    /// Further folders to link into, each with its agent.
    pub folders: Vec<(AgentId, PathBuf)>,
    /// Tags to which the linked skills are limited; empty for all skills.
    pub tags: Vec<String>,
    /// Whether security flags of the gate block a skill.
    pub strict: bool,
    /// Whether imported skills are shown to agents that did not have them before.
    pub share: bool,
    /// Agents that the user does not want to link.
    pub declined: Vec<AgentId>,
    /// The value of `VAULT_MCP_WRITES` to set: whether agents' changes wait as drafts. `None`
    /// leaves the setting unchanged.
    pub writes: Option<&'static str>,
}

/// Asks the questions of `--advanced`: about agents, further folders, tags and strictness.
pub fn ask_advanced(
    context: &Context,
    plan: &mut SetupPlan,
    vault: Option<&Vault>,
) -> Result<(), Failure> {
    let ui = &context.ui;
    let found: Vec<String> = plan.agents.iter().map(ToString::to_string).collect();
    if !found.is_empty() {
        let chosen =
            ui.choose_preselected("Which agents should see the vault's skills?", found, true)?;
        let is_chosen = |agent: &AgentId| chosen.iter().any(|name| name == agent.as_str());
        (plan.agents, plan.declined) = plan.agents.drain(..).partition(is_chosen);
    }
    loop {
        let text = ui.ask_text("Another folder of skills, as agent=/path (empty: none):")?;
        if text.is_empty() {
            break;
        }
        // Ask again after a typing error, because a failure would lose the answers so far.
        match profiles::parse_link(&text) {
            Ok(folder) => plan.folders.push(folder),
            Err(reason) => ui.must_see(format!("  {WARN}!{WARN:#} {reason}")),
        }
    }
    // Tags are written to `profiles.toml`. Do not ask if the user already has that file.
    let has_rules = vault.is_some_and(|vault| vault.paths().root.join(PROFILES_FILE).exists());
    if !has_rules {
        let question = "Only skills with one of these tags, separated by commas (empty: all):";
        let text = ui.ask_text(question)?;
        let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        plan.tags = tags.map(str::to_owned).collect();
    }
    plan.strict = ui.confirm_default("Refuse skills that the gate flags?", plan.strict)?;
    Ok(())
}

/// Prints the vault, the agents and the skills that were found on this machine.
pub fn show_overview(
    context: &Context,
    vault: Option<&Vault>,
    installed: usize,
    plan: &SetupPlan,
    scan: &Scan,
) {
    // Print this even with `--quiet`, because the questions below refer to it.
    let (ui, process) = (&context.ui, &context.process);
    ui.must_see(format!("\n{BOLD}Found on this machine{BOLD:#}"));
    let root = context
        .vault_paths()
        .map(|paths| process.short_path(&paths.root))
        .unwrap_or_default();
    let state = match vault {
        Some(_) => count(installed, "skill"),
        None => "will be created".to_owned(),
    };
    ui.must_see(format!("  vault   {root}  {DIM}{state}{DIM:#}"));
    let agents = match &plan.agents[..] {
        [] => paint(DIM, "none found"),
        agents => join(agents),
    };
    ui.must_see(format!("  agents  {agents}"));
    if scan.skills.is_empty() {
        let none = paint(DIM, "none in the agents' folders");
        return ui.must_see(format!("  skills  {none}"));
    }
    let skills = scan.skills.len();
    ui.must_see(format!("  skills  {skills} in the agents' folders:"));
    ui.must_see(skill_table(context, &scan.skills));
    for skill in &scan.skills {
        show_findings(context, skill);
    }
    for (path, reason) in &scan.skipped {
        ui.must_see(format!(
            "  {WARN}!{WARN:#} {}: {reason}",
            process.short_path(path)
        ));
    }
}

/// Formats the table of the skills with their folders. It has a column for sources only if another
/// tool recorded some.
fn skill_table(context: &Context, skills: &[NativeSkill]) -> String {
    let has_sources = skills.iter().any(|skill| skill.provenance.is_some());
    let name = Column::new("name").shrinks_to(16);
    let folder = Column::new("folder").shrinks_to(16);
    let from = Column::new("from").shrinks_to(12).leaves(1);
    let state = Column::new("state").shrinks_to(16);
    let table = if has_sources {
        Table::new([name, folder, from, state])
    } else {
        Table::new([name, folder, state])
    };
    let mut table = table.indented(2);
    for skill in skills {
        let name = paint(BOLD, &skill.name);
        let mut row = vec![name, context.process.short_path(&skill.root)];
        if has_sources {
            let from = skill.provenance.as_ref();
            row.push(clean(from.map_or("this machine", |from| from.as_str()), 60));
        }
        row.push(state_text(skill));
        table.push_row(row);
    }
    context.ui.format_table(&table)
}

/// Prints the first findings of the gate in a skill, and the command that shows all.
fn show_findings(context: &Context, skill: &NativeSkill) {
    const SHOWN: usize = 3;
    let findings = match &skill.state {
        NativeState::Refused { findings } => findings,
        _ => &skill.warnings,
    };
    if findings.is_empty() {
        return;
    }
    let ui = &context.ui;
    for finding in findings.iter().take(SHOWN) {
        let mark = if finding.level > Level::Warning {
            paint(BAD, "✗")
        } else {
            paint(WARN, "!")
        };
        let message = clean(&finding.message, 80);
        ui.must_see(format!("  {mark} {}: {message}", skill.name));
    }
    let more = match findings.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("{more} more; "),
    };
    let path = context.process.short_path(&skill.path);
    ui.must_see(paint(DIM, format!("    {more}details: vault audit {path}")));
}

fn state_text(skill: &NativeSkill) -> String {
    match &skill.state {
        NativeState::New => format!(
            "{}, {}",
            count(skill.files, "file"),
            format_size(skill.bytes)
        ),
        NativeState::Same => paint(GOOD, "same as in the vault"),
        NativeState::Differs => paint(WARN, "differs from the vault's"),
        NativeState::Refused { findings } => {
            let findings = count(findings.len(), "finding");
            format!("{BAD}refused, {findings}{BAD:#}")
        }
        NativeState::Unreadable { reason } => paint(BAD, clean(reason, 80)),
    }
}

/// Asks which starter skills to add. They are preselected for a user who has no skills yet.
pub fn choose_starters(
    context: &Context,
    installed: &[String],
    has_none: bool,
) -> Result<Vec<(String, Option<PathBuf>)>, Failure> {
    let mut available = starter::list_offers(context.process.starter_dir().as_deref());
    available.retain(|name, _| !installed.contains(name));
    if available.is_empty() {
        return Ok(Vec::new());
    }
    context.ui.must_see("");
    let names = available.keys().cloned().collect();
    let question = "Which starter skills do you want?";
    let chosen =
        context
            .ui
            .choose_preselected(question, names, has_none && installed.is_empty())?;
    available.retain(|name, _| chosen.contains(name));
    Ok(available.into_iter().collect())
}

const MODES: [AdoptionMode; 3] = [
    AdoptionMode::Augment,
    AdoptionMode::Backup,
    AdoptionMode::InPlace,
];
const MODE_TEXTS_FOR_ALL: [&str; 3] = [
    "Keep them as they are (recommended)",
    "Import them; keep the originals in <folder>.bak",
    "Import them and delete the originals",
];
const MODE_TEXTS_FOR_ONE: [&str; 3] = [
    "Keep it as it is (recommended)",
    "Import it; keep the original in <folder>.bak",
    "Import it and delete the original",
];

fn choose_mode(
    context: &Context,
    question: &str,
    texts: [&str; 3],
) -> Result<AdoptionMode, Failure> {
    let options = texts.map(str::to_owned).to_vec();
    let chosen = context.ui.choose_first(question, options)?;
    // Fall back to the mode that leaves the folders as they are.
    let at = texts.iter().position(|text| *text == chosen);
    Ok(at.map_or(AdoptionMode::Augment, |at| MODES[at]))
}

/// Asks which skills of the agents' folders to import, and what becomes of their folders: one
/// question for all, or with `review` one for each.
pub fn choose_adoptions(
    context: &Context,
    review: bool,
    vault: Option<&Vault>,
    scan: &Scan,
) -> Result<Vec<(NativeSkill, AdoptionMode, bool)>, Failure> {
    let skills: Vec<_> = scan
        .skills
        .iter()
        .filter(|skill| skill.is_adoptable())
        .collect();
    let mut chosen: Vec<(NativeSkill, AdoptionMode, bool)> = Vec::new();
    if skills.is_empty() {
        return Ok(chosen);
    }
    let mut common = AdoptionMode::Augment;
    if !review {
        context.ui.must_see("");
        let question = match skills.len() {
            some if some < scan.skills.len() => format!(
                "You already have {} skills; {some} can be imported. What should vault do with {}?",
                scan.skills.len(),
                either(some == 1, "it", "them")
            ),
            1 => "You already have 1 skill. What should vault do with it?".to_owned(),
            many => format!("You already have {many} skills. What should vault do with them?"),
        };
        common = choose_mode(
            context,
            &question,
            if skills.len() == 1 {
                MODE_TEXTS_FOR_ONE
            } else {
                MODE_TEXTS_FOR_ALL
            },
        )?;
        if common == AdoptionMode::Augment {
            return Ok(chosen);
        }
    }
    for skill in skills {
        let differs = matches!(skill.state, NativeState::Differs);
        // Two folders may have different skills with the same name. The vault can have only one of
        // them.
        let is_chosen_already = chosen.iter().any(|(other, ..)| other.name == skill.name);
        if review {
            context.ui.must_see("");
            show_skill(context, vault, skill);
            let question = format!("What should vault do with {}?", skill.name);
            let mode = choose_mode(context, &question, MODE_TEXTS_FOR_ONE)?;
            if mode != AdoptionMode::Augment {
                chosen.push((skill.clone(), mode, differs || is_chosen_already));
            }
        } else if differs || is_chosen_already {
            let path = context.process.short_path(&skill.path);
            // An answer for all skills must not replace any: the user has not seen how they differ.
            let reason = either(is_chosen_already, "was found first", "is in the vault");
            let text = format!("{path} stays as it is: another skill of this name {reason}");
            let hint = "vault setup --review asks about each skill";
            context.ui.warn_with("left_as_it_is", text, hint);
        } else {
            chosen.push((skill.clone(), common, false));
        }
    }
    Ok(chosen)
}

/// Asks whether to show imported skills to agents that did not have them before.
pub fn ask_sharing(context: &Context, plan: &SetupPlan) -> Result<bool, Failure> {
    let others = agents_without_skills(plan);
    if others.is_empty() {
        return Ok(true);
    }
    context.ui.must_see("");
    let names = join(others.into_iter().map(profiles::agent_name));
    let question = format!("Show each imported skill to agents that did not have it ({names})?");
    // The default is no: an agent should not get a skill only because another one had it.
    context.ui.confirm_default(&question, false)
}

/// Returns the agents of the plan that lack at least one of the new skills.
fn agents_without_skills(plan: &SetupPlan) -> Vec<&AgentId> {
    let adopted = plan.adopt.iter().filter(|(skill, ..)| skill.is_new());
    let adopted: Vec<_> = adopted.map(|(skill, ..)| skill).collect();
    let is_new_to = |agent: &&AgentId| {
        let mut adopted = adopted.iter();
        adopted.any(|skill| !agents_with_skill(plan, skill).contains(*agent))
    };
    plan.agents.iter().filter(is_new_to).collect()
}

/// Returns the agents in whose folders an imported skill has this name.
pub fn agents_with_skill(plan: &SetupPlan, skill: &NativeSkill) -> Vec<AgentId> {
    let same = plan
        .adopt
        .iter()
        .filter(|(other, ..)| other.name == skill.name);
    same.flat_map(|(other, ..)| other.agents.clone()).collect()
}

/// Prints a skill for `--review`: its path, the number and size of its files, its recorded source,
/// and the difference of `SKILL.md` if the vault has another version.
fn show_skill(context: &Context, vault: Option<&Vault>, skill: &NativeSkill) {
    let ui = &context.ui;
    let (name, path) = (&skill.name, context.process.short_path(&skill.path));
    let (files, bytes) = (count(skill.files, "file"), format_size(skill.bytes));
    ui.must_see(format!(
        "{BOLD}{name}{BOLD:#}  {path}  {DIM}{files}, {bytes}{DIM:#}"
    ));
    if let (Some(source), Some(by)) = (&skill.provenance, skill.recorded_by) {
        let source = clean(source.as_str(), 200);
        ui.must_see(format!("  from {source} {DIM}(says {by}){DIM:#}"));
    }
    let (NativeState::Differs, Some(vault)) = (&skill.state, vault) else {
        return;
    };
    // Do not show bytes that fail verification as the vault's.
    let Ok(inspected) = vault_library::run::inspect_skill(vault, name) else {
        return ui.must_see(format!("  {WARN}!{WARN:#} the vault's is damaged"));
    };
    let document = inspected
        .examined
        .files
        .iter()
        .find(|file| file.path.as_str() == "SKILL.md");
    let old = document.map_or(&[][..], |file| &file.bytes);
    // The folder may have changed since the scan. That is harmless, because the import compares the
    // bytes again.
    let new = std::fs::read(skill.path.join("SKILL.md")).unwrap_or_default();
    ui.must_see(paint(DIM, "  SKILL.md, the vault's (-) and this one (+):"));
    for line in format_difference(old, &new) {
        ui.must_see(format!("  {line}"));
    }
}

/// Formats the difference between two texts, cut to 40 lines.
fn format_difference(old: &[u8], new: &[u8]) -> Vec<String> {
    const MOST: usize = 40;
    let mut lines = diff_texts(old, new, Detail::Full).lines;
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

/// Prints every change of the plan.
pub fn show_summary(context: &Context, user: &Machine, is_new: bool, plan: &SetupPlan) {
    let (ui, process) = (&context.ui, &context.process);
    ui.must_see(format!("\n{BOLD}Planned changes{BOLD:#}"));
    if is_new {
        ui.must_see("  create the vault and its keys");
    }
    if !plan.starters.is_empty() {
        let starters = count(plan.starters.len(), "starter skill");
        let names = join(plan.starters.iter().map(|(name, _)| name));
        ui.must_see(format!("  add {starters}: {names}"));
    }
    for (skill, mode, replace) in &plan.adopt {
        let what = match (mode, replace) {
            (AdoptionMode::InPlace, false) => "import, and delete what the vault holds",
            (AdoptionMode::InPlace, true) => {
                "import in place of the vault's skill, and delete what the vault holds"
            }
            (_, false) => "import and move to .bak",
            (_, true) => "import in place of the vault's skill, and move to .bak",
        };
        ui.must_see(format!("  {what}: {}", process.short_path(&skill.path)));
        if !skill.left_out.is_empty() {
            let files = clean(&skill.left_out.join(", "), 300);
            ui.must_see(format!("    without what looks like secrets: {files}"));
        }
        if !skill.included.is_empty() {
            let files = clean(&skill.included.join(", "), 300);
            ui.must_see(format!("    with what looks like secrets: {files}"));
        }
    }
    if !plan.tags.is_empty() {
        let tags = plan.tags.join(" or ");
        ui.must_see(format!("  write {PROFILES_FILE}: skills tagged {tags}"));
    }
    let keeps = !plan.share && !agents_without_skills(plan).is_empty();
    let which = either(keeps, "the vault's skills", "every skill");
    let link = |agent: &AgentId, path: &Path| {
        let path = process.short_path(path);
        ui.must_see(format!("  link {which} for {agent} in {path}"));
    };
    for agent in agents::detect_agents(user) {
        if plan.agents.contains(&agent.id) {
            for root in agent.global_roots(user) {
                link(&agent.id, &root.path);
            }
        }
    }
    for (agent, path) in &plan.folders {
        link(agent, path);
    }
    if plan.writes == Some("draft") {
        ui.must_see("  keep what agents change as drafts until you accept them");
    }
    if keeps {
        ui.must_see("  show each imported skill only to the agents that had it");
    }
    ui.must_see("");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_lines_of_one_side() {
        let shown: Vec<_> = format_difference(b"a\nb\nc\n", b"a\nc\nd\n")
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert_eq!(shown, ["    a", "  - b", "    c", "  + d"]);
        let many: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let many = many.join("\n");
        assert_eq!(format_difference(b"", many.as_bytes()).len(), 41);
    }
}
