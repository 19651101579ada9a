//! The newest commits of a branch or tag, without their files.

use std::collections::HashSet;

use super::checkout::create_repository;
use super::run::{Git, Run};
use super::{GitSettings, Resolved, is_commit};
use crate::error::Result;
use crate::source::GitSource;

/// Number of commits on one line of ancestors that are fetched first. Most collections of skills
/// have fewer between two updates.
pub(crate) const NEAR: usize = 2_000;
/// Maximum number of commits on one line of ancestors that are fetched.
pub(crate) const FAR: usize = 100_000;
/// Maximum size of the list of commits, in bytes.
const MAX_LIST_BYTES: usize = 16 << 20;

/// The commits that lead to the current one of a source, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct History {
    commits: HashSet<String>,
    /// Whether `commits` are all commits.
    is_whole: bool,
}

impl History {
    /// Fetches the commits behind the one to which a source resolved, at most `depth` on one line of
    /// ancestors.
    pub(crate) async fn fetch_history(
        settings: &GitSettings,
        source: &GitSource,
        resolved: &Resolved,
        pinned_to: &[String],
        depth: usize,
    ) -> Result<Self> {
        let folder = create_repository(settings, source, &resolved.commit).await?;
        let git = Git {
            settings,
            place: &source.place,
            folder: Some(folder.path()),
        };
        let depth = format!("--depth={depth}");
        let fetch = [
            "fetch",
            "--quiet",
            &depth,
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--filter=tree:0",
            "--",
            &source.address,
            resolved.name.as_ref().unwrap_or(&resolved.commit),
        ];
        let fetch = fetch.map(str::to_owned);
        let arguments: Vec<String> = pinned_to.iter().cloned().chain(fetch).collect();
        let run = Run::new(64 << 10, settings.fetch_time);
        git.run_watched(&arguments, &run).await?;
        let list = Run::new(MAX_LIST_BYTES, settings.list_time);
        let listed = git.run_command(&["rev-list", "FETCH_HEAD"], &list).await?;
        let listed = String::from_utf8_lossy(&listed);
        let commits = listed.lines().filter(|line| is_commit(line));
        Ok(Self {
            commits: commits.map(str::to_owned).collect(),
            // git writes this file if it left out ancestors.
            is_whole: !folder.path().join("shallow").exists(),
        })
    }

    /// Tells whether a commit may be among the ancestors that were left out. If nothing is known, to
    /// fetch more is of no use.
    pub(crate) fn may_reach(&self, commit: &str) -> bool {
        !self.is_whole && !self.commits.is_empty() && !self.commits.contains(commit)
    }

    /// Tells whether a commit is certainly not among the ancestors of the current one.
    pub(crate) fn lacks(&self, commit: &str) -> bool {
        self.is_whole && !self.commits.contains(commit)
    }
}
