//! `vault doctor`: verifies every skill, checks keys, links, agents and the clock of this machine
//! for known problems, and names the command that fixes each. A *finding* is one such problem, with
//! a severity and a stable code.

pub mod project;

use std::collections::BTreeSet;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{SkillName, SkillRef};
use vault_library::{
    Vault, VaultError, clock,
    doctor::{self, DoctorFinding, DoctorInput, DoctorReport, RepairStatus, Severity},
};
use vault_sources::requirements::SourceKey;
use vault_store::clock::{Clock as _, SystemClock};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    lookup,
    output::{
        BAD, BOLD, DIM, HINT, Report, TICK, WARN, clean, count,
        doctor::{FindingText, HiddenSkill, THROUGH_FOLDER, variant_maker},
        either, paint,
    },
    tasks::{
        profiles::{self, AgentProfile},
        project_scope::ProjectScope,
        requirements,
    },
};

/// The arguments of `vault doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads and verifies every skill, and checks keys, links, agents and the clock. Nothing changes \
without --fix, --clean or --repair. --fix removes what --clean removes and updates agent links; it \
lists what needs your decision. --repair signs the unsigned skill that you name: read it first, \
because anyone who can write to the folder may have put it there. Without a name it asks about \
each unsigned skill on a terminal, and lists them elsewhere. It refuses skills that were modified, \
and those that an installer recorded as from a remote source (gh skill, skills, clawhub): add \
those with `vault add`. --project checks only the skills of this project; `vault install` fixes \
what it finds. Exit 0: no problems; 3: problems found; 6: a signature is wrong or a file \
was modified after signing.

Examples:
  vault doctor
  vault doctor code-review
  vault doctor --fix
  vault doctor --project
  vault doctor --reset-clock
  vault doctor code-review --repair --json")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Arguments {
    /// One skill: check it, and show which agents see it
    #[arg(value_name = "NAME", conflicts_with = "is_project")]
    skill: Option<String>,
    #[command(flatten)]
    scope: ProjectScope,
    /// Fix what needs no decision: what --clean removes, and outdated agent links
    #[arg(long, conflicts_with_all = ["repair", "is_project"])]
    fix: bool,
    /// Remove metadata of operating systems and editors, temporary files and broken links
    #[arg(long, conflicts_with = "is_project")]
    clean: bool,
    /// Sign the named skill, if it has no signature; without a name, ask about each
    #[arg(long, conflicts_with = "is_project")]
    repair: bool,
    /// Forget times that this machine's clock showed by mistake and that are still to come
    #[arg(long, conflicts_with = "is_project")]
    reset_clock: bool,
}

/// The health of a vault on this machine.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Health<'a> {
    /// Whether no finding has the severity `error`.
    healthy: bool,
    /// The number of skills that failed verification, including those just repaired.
    damaged: usize,
    #[serde(flatten)]
    report: &'a DoctorReport,
    /// The findings, worst first.
    findings: Vec<FindingText>,
    /// The agents, each with the skills that it sees.
    agents: Vec<AgentProfile>,
    /// Whether the links of agents were updated.
    relinked: bool,
    /// Whether times that this machine's clock showed by mistake were forgotten; absent without
    /// `--reset-clock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_reset: Option<bool>,
}

/// Resets the clock if asked, runs the checks, and makes the repairs that the flags ask for. After
/// a repair the checks run again, so that the report shows the new state.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Some(project) = arguments.scope.existing_project(context)? {
        return project::examine_project(context, &project);
    }
    let vault = context.open_vault()?;
    let parse = |name: &String| -> Result<SkillRef, Failure> {
        name.parse()
            .map_err(|error| fail!(NameInvalid, "{}: {error}", clean(name, 64)))
    };
    let skill = arguments.skill.as_ref().map(parse).transpose()?;
    let is_set = |name: &str| context.process.variable(name).is_some();
    // Only a repair needs the gate, and so the setting for its strictness. Without a repair,
    // settings that cannot be read must not stop the checks.
    let strict = !arguments.repair || context.is_strict()?;
    let examine_only = |only: Option<SkillRef>| {
        doctor::examine_vault(
            &vault,
            &DoctorInput {
                machine: context.process.describe_machine(None),
                skill: only,
                clean: arguments.clean || arguments.fix,
                repair: arguments.repair,
                strict,
                is_set: &is_set,
            },
        )
    };
    // The clock is reset before the checks, so that they report the state after it.
    let clock_reset = arguments.reset_clock.then(|| reset_clock(context, &vault));
    let clock_reset = clock_reset.transpose()?;
    let examine = || examine_only(skill.clone());
    let mut report = examine()?;
    if arguments.repair && skill.is_none() {
        let repaired = repair_each(context, &report, &examine_only)?;
        if !repaired.is_empty() {
            report = examine()?;
            // The checks run again because signing changes other findings. The second run knows
            // nothing of the repairs, so their results are added to it.
            report.take_repairs(repaired);
        }
    }
    let mut relinked = false;
    let is_stale = |finding: &DoctorFinding| matches!(finding, DoctorFinding::LinksStale);
    if arguments.fix && report.findings.iter().any(is_stale) {
        relinked = profiles::refresh_links(context, &vault).is_some();
        // The second run finds nothing to clean, so the list of files that the first run removed is
        // kept.
        let cleaned = std::mem::take(&mut report.cleaned);
        report = examine()?;
        report.cleaned.splice(0..0, cleaned);
    }
    if let (Some(name), true) = (&skill, report.skills.is_empty()) {
        let names = lookup::installed_names(&vault)?;
        return Err(lookup::not_installed_among(&name.to_string(), &names));
    }
    let repaired = report
        .skills
        .iter()
        .any(|skill| skill.repair_status == RepairStatus::Repaired);
    // A skill that was just signed is not linked into any agent's folder yet.
    if repaired {
        profiles::refresh_links(context, &vault);
    }
    Ok(render_health(
        context,
        arguments,
        &report,
        relinked,
        clock_reset,
    ))
}

/// Makes the report of the command from the results of the checks, and chooses its exit code.
fn render_health(
    context: &Context,
    arguments: &Arguments,
    report: &DoctorReport,
    relinked: bool,
    clock_reset: Option<bool>,
) -> Report {
    let mut findings: Vec<_> = report.findings.iter().map(FindingText::new).collect();
    if context.process.find_program("git").is_none() {
        findings.push(FindingText::git_missing());
    }
    push_stated_needs(context, report, &mut findings);
    findings.sort_by_key(|finding| finding.severity);
    let forgotten = format!("{TICK} forgot the times that this machine's clock showed by mistake");
    let none = "This machine remembers no time that is still to come.";
    let clock = clock_reset.map(|is_reset| either(is_reset, &*forgotten, none).to_owned());
    let mut lines: Vec<_> = clock.into_iter().collect();
    lines.extend(lines_of(context, arguments, report, &findings, relinked));
    // A file that was modified after signing (exit 6) outweighs all other findings (exit 3).
    let exit = if report.is_tampered() {
        Exit::Integrity
    } else if report.is_clean() {
        Exit::Done
    } else {
        Exit::Differences
    };
    let agents = report.agents.agents.iter().cloned().map(AgentProfile::from);
    let health = Health {
        healthy: report.is_clean() && !report.is_tampered(),
        damaged: report.count_damaged(),
        findings,
        agents: agents.collect(),
        relinked,
        clock_reset,
        report,
    };
    Report::view(health, lines.join("\n")).with_exit(exit)
}

/// Adds what the skills state that they work with, and that this machine does not have: programs,
/// variables, and for own skills other skills. The skills of a project have a lock of their own.
fn push_stated_needs(context: &Context, report: &DoctorReport, findings: &mut Vec<FindingText>) {
    let own = || report.skills.iter().filter(|skill| skill.origin == "local");
    let keys: BTreeSet<SourceKey> = own()
        .filter_map(|skill| skill.declared.source.as_ref())
        .filter_map(|source| SourceKey::of_recorded(source.as_str()))
        .collect();
    for skill in &report.skills {
        let unmet = requirements::unmet_needs(context, &skill.declared.needs);
        if !unmet.is_empty() {
            findings.push(FindingText::needs_unmet(&skill.name, &unmet));
        }
    }
    for skill in own() {
        for (text, command) in requirements::absent_skills(&skill.declared.requires, &keys) {
            findings.push(FindingText::requirement_missing(
                &skill.name,
                &text,
                command,
            ));
        }
    }
}

/// Lowers the times that vault remembers and that lie ahead of this machine's clock, after a
/// question. vault remembers the latest time that it saw, so that a clock set back cannot make
/// expired releases valid again; a clock that was once too far ahead leaves wrong times. Returns
/// whether there were any.
fn reset_clock(context: &Context, vault: &Vault) -> Result<bool, Failure> {
    let ahead = clock::times_ahead(vault)?;
    let Some(latest) = ahead.iter().map(|time| time.seen_at).max() else {
        return Ok(false);
    };
    let now = SystemClock.now();
    // With lower times, expired releases are accepted again, which would help an attacker who
    // offers an old release. So the user decides.
    context.ui.confirm_step(
        &format!("Is it {now} now, and was the clock wrong when it said {latest}?"),
        &[
            "Releases that end between the two times count again".to_owned(),
            "Keys, releases and pins stay as they are".to_owned(),
        ],
    )?;
    clock::reset_times(vault, &ahead)?;
    Ok(true)
}

/// Asks about each unsigned skill, and signs it if the answer is yes. Anyone who can write to the
/// vault's folder may have put the skill there, so nothing is signed without a terminal, and
/// `--yes` does not count as an answer. Returns one report for each skill whose repair was tried.
fn repair_each(
    context: &Context,
    report: &DoctorReport,
    repair: &dyn Fn(Option<SkillRef>) -> Result<DoctorReport, VaultError>,
) -> Result<Vec<DoctorReport>, Failure> {
    let mut done = Vec::new();
    if !context.ui.may_ask() || context.ui.is_yes() {
        return Ok(done);
    }
    for skill in unsigned_skills(report) {
        let question = format!("Sign {skill}, as it is in the vault's folder? Read it first.");
        if context.ui.confirm_in_person(&question)? {
            done.push(repair(Some(SkillRef::from(skill.clone())))?);
        }
    }
    Ok(done)
}

/// Returns the skills without a signature, which `--repair` signs when they are named.
fn unsigned_skills(report: &DoctorReport) -> impl Iterator<Item = &SkillName> {
    let skills = report.skills.iter();
    let unsigned = skills.filter(|skill| skill.repair_status == RepairStatus::Repairable);
    unsigned.map(|skill| &skill.name)
}

/// Formats the results of the checks and repairs as the lines that the command prints.
fn lines_of(
    context: &Context,
    arguments: &Arguments,
    report: &DoctorReport,
    findings: &[FindingText],
    relinked: bool,
) -> Vec<String> {
    let mut lines = vec![format_summary(report, findings)];
    for finding in findings {
        // Notes are shown only with `--verbose`, except those that suggest a command.
        if finding.severity == Severity::Note
            && context.global.verbose == 0
            && !shows_without_verbose(finding)
        {
            continue;
        }
        lines.push(format_finding(finding));
    }
    for skill in &report.skills {
        if skill.repair_status == RepairStatus::Repaired {
            lines.push(format!(
                "{TICK} signed {BOLD}{}{BOLD:#}  {DIM}version {}{DIM:#}",
                skill.name,
                skill.version.unwrap_or(0)
            ));
        }
    }
    for path in &report.cleaned {
        // Other people chose the names of some of these files.
        let path = clean(&context.process.short_path(path), 500);
        lines.push(format!("{TICK} removed {path}"));
    }
    if relinked {
        lines.push(format!("{TICK} updated the agents' links"));
    }
    if let Some(name) = &arguments.skill {
        push_skill_lines(report, name, &mut lines);
    }
    push_agent_lines(report, arguments.skill.is_some(), &mut lines);
    // Without a terminal no question was asked. Say why these skills are still unsigned.
    if arguments.repair && arguments.skill.is_none() {
        let waiting = unsigned_skills(report).count();
        if waiting > 0 {
            let skills = count(waiting, "unsigned skill");
            lines.push(format!(
                "{skills} not signed: --repair signs only what you name, so that you read it first"
            ));
        }
    }
    lines
}

/// Returns whether a note is shown even without `--verbose`, because it suggests a command to run.
fn shows_without_verbose(finding: &FindingText) -> bool {
    matches!(
        finding.code,
        "unfinished" | "ignored_metadata" | "agent_not_linked" | "name_taken"
    )
}

fn format_finding(finding: &FindingText) -> String {
    let mark = match finding.severity {
        Severity::Error => paint(BAD, "✗"),
        Severity::Warning => paint(WARN, "!"),
        Severity::Note => paint(DIM, "·"),
    };
    format!(
        "{mark} {} {DIM}[{}]{DIM:#}\n  {HINT}→{HINT:#} {}",
        clean(&finding.message, 500),
        finding.code,
        finding.hint
    )
}

/// Adds the lines about one skill: its version and origin, which agents see it, and why others do
/// not.
fn push_skill_lines(report: &DoctorReport, name: &str, lines: &mut Vec<String>) {
    for skill in report
        .skills
        .iter()
        .filter(|skill| skill.name.as_str() == name)
    {
        let version = skill.version.map_or_else(
            || "no version".to_owned(),
            |version| format!("version {version}"),
        );
        lines.push(format!(
            "{BOLD}{}{BOLD:#}  {DIM}{version}, {}{DIM:#}",
            skill.name, skill.origin
        ));
    }
    for agent in &report.agents.agents {
        // An agent without a linked folder sees no skill at all, so there is nothing to say about
        // this one.
        if !agent.linked {
            continue;
        }
        if !agent.sees.is_empty() {
            let variant = agent
                .variants
                .first()
                .map(|variant| variant_maker(variant.by));
            let form = variant.map_or_else(
                || "it".to_owned(),
                |by| format!("a variant of it, made by {by}"),
            );
            let why = if agent.through_folder.is_empty() {
                String::new()
            } else {
                format!(", {THROUGH_FOLDER}")
            };
            lines.push(format!("  {TICK} {} sees {form}{why}", agent.agent));
        }
        for hidden in &agent.hidden {
            let HiddenSkill { reason, hint, .. } = HiddenSkill::new(&agent.agent, hidden);
            lines.push(format!(
                "  {WARN}!{WARN:#} {} does not: {reason}\n    {HINT}→{HINT:#} {hint}",
                agent.agent
            ));
        }
    }
}

/// Adds a line for each linked agent: how many skills it sees, which are hidden, and how much of
/// its context the skills' descriptions take. Adds none if the command is about one skill.
fn push_agent_lines(report: &DoctorReport, one: bool, lines: &mut Vec<String>) {
    if one {
        return;
    }
    for agent in report.agents.agents.iter().filter(|agent| agent.linked) {
        let cost = report
            .context
            .iter()
            .find(|cost| cost.agent == agent.agent)
            .map_or(0, |cost| cost.characters);
        let hidden = if agent.hidden.is_empty() {
            String::new()
        } else {
            let names: Vec<_> = agent
                .hidden
                .iter()
                .take(3)
                .map(|hidden| format!("{} ({})", hidden.skill, hidden.reason.code()))
                .collect();
            let more = agent.hidden.len().saturating_sub(3);
            let more = if more == 0 {
                String::new()
            } else {
                format!(" and {more} more")
            };
            format!(", not {}{more}", names.join(", "))
        };
        lines.push(format!(
            "{DIM}·{DIM:#} {BOLD}{}{BOLD:#} sees {}{hidden}  {DIM}{} of context{DIM:#}",
            agent.agent,
            count(agent.sees.len(), "skill"),
            count(cost, "character")
        ));
    }
}

/// Formats the first line: how many skills passed verification, and the number of errors, or of
/// warnings if there is no error.
fn format_summary(report: &DoctorReport, findings: &[FindingText]) -> String {
    let of = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    let good = report
        .skills
        .iter()
        .filter(|skill| skill.problem.is_none())
        .count();
    let skills = format!(
        "{} verified from {} bytes",
        count(good, "skill"),
        if good == 1 { "its" } else { "their" }
    );
    if errors == 0 {
        let warned = if warnings == 0 {
            String::new()
        } else {
            format!(", {}", count(warnings, "warning"))
        };
        format!("{TICK} {skills}{warned}")
    } else {
        format!("{BAD}✗{BAD:#} {skills}, {}", count(errors, "error"))
    }
}
