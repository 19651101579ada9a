//! `vault outdated --project`: compares the entries of a project's `vault.lock` with their sources.

use vault_format::name::SkillRef;
use vault_shelf::DriftState;

use super::{SourceComparison, unchecked_lines};
use crate::{
    context::Context,
    errors::Failure,
    output::{DIM, Report, paint},
    tasks::{
        project_drift::{check_addresses, compare_entries, entry_check, find_entries},
        project_install::ProjectInstaller,
        project_scope::LockedProject,
    },
};

/// Compares the named entries, or all, and lists those whose source has other content. What is
/// installed does not count.
pub fn compare_project(
    context: &Context,
    project: LockedProject,
    names: &[SkillRef],
) -> Result<Report, Failure> {
    check_addresses(context, &project.lock)?;
    let entries = find_entries(&project.lock, names)?;
    let mut install = ProjectInstaller::new(context, project.folder)?;
    let states = compare_entries(context, &mut install, &entries)?;
    let mut comparison = SourceComparison::default();
    let (mut lines, mut is_refused) = (Vec::new(), false);
    for (locked, state) in entries.iter().zip(states) {
        is_refused |= matches!(state, DriftState::Refused(_));
        lines.extend(comparison.add_state(context, entry_check(locked), state));
    }
    lines.extend(unchecked_lines(&comparison.unchecked));
    lines.push(paint(DIM, comparison.count_line()));
    let exit = comparison.exit(is_refused);
    Ok(Report::view(comparison, lines.join("\n")).with_exit(exit))
}
