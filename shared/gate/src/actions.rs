//! Checks the actions (programs) that a skill declares: the command is a file that can run or the
//! bare name of a program, the folder exists in the skill, and no declared variable is a setting of
//! vault.

use crate::document::{Action, Frontmatter, SKILL_MD, is_reserved_variable};
use crate::finding::{Finding, Level};
use std::collections::BTreeMap;
use vault_format::bundle::File;
use vault_format::manifest::{ActionSpec, Mode, is_program};
use vault_format::name::ActionName;
use vault_format::text::quoted;

/// Returns the valid actions in the form of the manifest. A faulty action is reported and left out.
pub(super) fn read_valid_actions(
    frontmatter: &Frontmatter,
    files: &[File],
    findings: &mut Vec<Finding>,
) -> BTreeMap<ActionName, ActionSpec> {
    let mut specs = BTreeMap::new();
    for (name, action) in &frontmatter.actions {
        let action = &normalise_paths(action, files);
        let faults = find_faults(name.as_str(), action, files);
        if faults.is_empty() {
            specs.insert(name.clone(), to_spec(action));
        }
        findings.extend(faults);
    }
    findings.extend(reserved_variables(frontmatter));
    specs
}

/// Reports the faults of the actions of a document that is rejected for another reason, so that its
/// author sees every fault at once.
pub(super) fn check_declared(
    declared: &[(String, Action)],
    files: &[File],
    findings: &mut Vec<Finding>,
) {
    for (name, action) in declared {
        findings.extend(find_faults(name, &normalise_paths(action, files), files));
    }
}

fn find_faults(name: &str, action: &Action, files: &[File]) -> Vec<Finding> {
    let faults = [command_fault(action, files), cwd_fault(action, files)];
    let findings = faults.into_iter().flatten().map(|fault| {
        let message = format!("the action {}: {}", quoted(name), fault.message);
        Finding::new(fault.rule, Level::Error, message)
            .at(SKILL_MD)
            .on(action.at)
            .hint(fault.hint)
    });
    findings.collect()
}

/// Returns the action with its paths in one spelling, because people write both: `./bin/x` becomes
/// `bin/x` if that is a file of the skill, and `./bin/` becomes `bin`.
fn normalise_paths(action: &Action, files: &[File]) -> Action {
    let mut action = action.clone();
    let below = action.command.strip_prefix("./");
    // Change the command only if the file exists; otherwise, the fault must quote it as the author
    // wrote it.
    if let Some(path) = below.filter(|path| files.iter().any(|file| file.path.as_str() == *path)) {
        action.command = path.to_owned();
    }
    let folder = action.cwd.strip_prefix("./").unwrap_or(&action.cwd);
    let folder = folder.strip_suffix('/').unwrap_or(folder);
    if files.iter().any(|file| file.path.is_below(folder)) {
        action.cwd = folder.to_owned();
    } else if action.cwd == "./" {
        ".".clone_into(&mut action.cwd);
    }
    action
}

fn reserved_variables(frontmatter: &Frontmatter) -> impl Iterator<Item = Finding> {
    let declared = frontmatter.requires_secrets.iter();
    let reserved = declared.filter(|secret| is_reserved_variable(&secret.name));
    reserved.map(|secret| {
        let message = format!(
            "{} is a setting of vault, which no skill gets",
            quoted(&secret.name)
        );
        Finding::new("variable-reserved", Level::Error, message)
            .at(SKILL_MD)
            .hint("declare and read a variable whose name does not begin with VAULT_")
    })
}

fn to_spec(action: &Action) -> ActionSpec {
    ActionSpec {
        command: action.command.clone(),
        args: action.args.clone(),
        cwd: action.cwd.clone(),
        description: action.description.clone(),
        requires_tty: action.requires_tty,
    }
}

struct Fault {
    rule: &'static str,
    message: String,
    hint: String,
}

fn command_fault(action: &Action, files: &[File]) -> Option<Fault> {
    let fault = |message: String, hint: String| {
        Some(Fault {
            rule: "action-command",
            message,
            hint,
        })
    };
    let command = action.command.as_str();
    let found = |path: &str| files.iter().find(|file| file.path.as_str() == path);
    if let Some(file) = found(command) {
        // A `#!` line is enough: archives and Windows lose the executable bit, and `vault` sets it
        // on the copy that runs.
        let runs = file.mode == Mode::Executable || file.bytes.starts_with(b"#!");
        return if runs {
            None
        } else {
            let message = format!(
                "{} is neither executable nor begins with `#!`",
                quoted(command)
            );
            fault(
                message,
                format!(
                    "run `chmod +x` on it, or name its interpreter as the command and {} as an argument",
                    quoted(command)
                ),
            )
        };
    }
    if is_program(command) {
        return None;
    }
    // No shell splits the command, so a whole command line would be looked up as one program name.
    if command.split_whitespace().nth(1).is_some() {
        let message = format!("{} holds white space", quoted(command));
        return fault(
            message,
            "put the arguments into `args`; no shell reads the command".to_owned(),
        );
    }
    let message = format!(
        "{} is no file of the skill and no bare program name",
        quoted(command)
    );
    fault(
        message,
        "name a file that lies in the skill's folder, or a program without a path".to_owned(),
    )
}

fn cwd_fault(action: &Action, files: &[File]) -> Option<Fault> {
    let cwd = action.cwd.as_str();
    // A bundle has no entries for folders: a folder exists only through the files below it.
    if cwd == "." || files.iter().any(|file| file.path.is_below(cwd)) {
        return None;
    }
    let message = format!("{} is no folder of the skill", quoted(cwd));
    let hint = "name a folder that holds files of the skill".to_owned();
    Some(Fault {
        rule: "action-cwd",
        message,
        hint,
    })
}
