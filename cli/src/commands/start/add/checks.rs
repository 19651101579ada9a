//! Checks of the options of `vault add` that contradict each other or the number of skills.

use vault_gate as gate;
use vault_library::admit::Source;

use super::Arguments;
use super::gather::{GatherResult, SkillToAdd};
use crate::{errors::Failure, output::clean, tasks::admission::require_includes};

/// Returns the error for `--name` with several skills.
pub fn name_needs_one() -> Failure {
    fail!(NameNeedsOneSkill, "--name needs exactly one skill")
}

/// Fails if one of the flags is given that earlier versions had in place of `--project`.
pub fn check_lock_flags(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.lock {
        let text = "--lock is now --project";
        return Err(fail!(Usage, "{text}").hint(
            "vault add <source> --project adds the skill to this project, and to nothing of your own",
        ));
    }
    if arguments.no_lock {
        let text = "--no-lock no longer exists";
        return Err(fail!(Usage, "{text}")
            .hint("leave it out: only vault add --project writes to vault.lock"));
    }
    Ok(())
}

/// Fails if a flag names an unknown rule.
pub fn check_rules(arguments: &Arguments) -> Result<(), Failure> {
    // Reject a misspelt rule before anything is fetched, because it would accept nothing.
    // `hidden-text` is not a scan rule, but it can be accepted like one.
    let is_known_rule = |rule: &str| {
        rule == "hidden-text"
            || gate::scan_rules().any(|known| known.name == rule || known.id == rule)
    };
    let mut rules = arguments.allow.iter();
    if let Some(rule) = rules.find(|rule| arguments.end_exceptions.contains(rule)) {
        let rule = clean(rule, 80);
        return Err(fail!(
            Usage,
            "--allow {rule} and --end-exception {rule} contradict each other"
        )
        .hint("name the rule in one of them"));
    }
    let mut rules = arguments.allow.iter().chain(&arguments.end_exceptions);
    match rules.find(|rule| !is_known_rule(rule)) {
        Some(rule) => Err(fail!(UnknownRule, "unknown rule {}", clean(rule, 80))
            .hint("a finding names its rule, as in `error[download-pipe-shell]`")),
        None => Ok(()),
    }
}

/// Fails if `--allow` or `--include` is combined with `--all`. These flags accept files that the
/// user has read, and nobody has read every skill of a source.
fn check_named(arguments: &Arguments) -> Result<(), Failure> {
    if !arguments.allow.is_empty() {
        return Err(fail!(
            Usage,
            "--allow with --all would accept the findings of every skill of the source"
        )
        .hint("name the skills that you have read: --skill NAME --allow RULE"));
    }
    if !arguments.include.is_empty() {
        return Err(fail!(
            Usage,
            "--include with --all would take such a file of every skill of the source"
        )
        .hint("name the skill: --skill NAME --include FILE"));
    }
    Ok(())
}

/// Checks the options that are about one skill, now that the number of skills is known.
pub fn check_items(
    arguments: &Arguments,
    items: &[GatherResult<SkillToAdd>],
) -> Result<(), Failure> {
    // Only now is it known that a single source has several skills.
    if arguments.name.is_some() && items.len() > 1 {
        return Err(name_needs_one());
    }
    if arguments.all && items.len() > 1 {
        check_named(arguments)?;
    }
    if !arguments.include.is_empty() {
        // Check this before anything is admitted, so that a mistyped path changes nothing.
        let sources: Vec<&Source> = items.iter().flatten().map(|item| &item.source).collect();
        require_includes(&sources, &arguments.include)?;
    }
    Ok(())
}
