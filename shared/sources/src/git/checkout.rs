//! Fetches one commit of a repository into a temporary folder and reads it as git objects.

use std::collections::{HashMap, HashSet};

use tempfile::TempDir;
use vault_format::manifest::{MAX_FILE_BYTES, Mode};

use super::run::{Git, Run};
use super::{GitSettings, Resolved, is_commit};
use crate::error::{FetchError, GitFault, Result, escape_untrusted};
use crate::source::GitSource;

/// Maximum size of a tree listing, in bytes.
const MAX_LISTING_BYTES: usize = 32 << 20;

/// Maximum length of the line that git writes before a blob: its id, type and size.
const MAX_HEADER_BYTES: usize = 100;

/// An entry of a git tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TreeEntry {
    pub(crate) kind: EntryKind,
    pub(crate) id: String,
    pub(crate) path: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EntryKind {
    File(Mode),
    Folder,
    Link,
    Submodule,
}

/// A fetched commit in a temporary bare repository.
#[derive(Debug)]
pub(crate) struct Checkout {
    folder: TempDir,
    settings: GitSettings,
    place: String,
    pub(crate) commit: String,
    /// The committer date in the commit, in seconds since 1970.
    pub(crate) committed: i64,
    pub(crate) tree: Vec<TreeEntry>,
    root: String,
}

impl Checkout {
    /// Returns the tree id of a folder in this commit. An empty path is the root.
    pub(crate) fn tree_id(&self, path: &str) -> Option<&str> {
        if path.is_empty() {
            return Some(&self.root);
        }
        let found = self.tree.iter().find(|entry| entry.path == path);
        found
            .filter(|entry| entry.kind == EntryKind::Folder)
            .map(|entry| entry.id.as_str())
    }

    /// Returns the sizes of blobs by their ids, in bytes. A blob that was not fetched is missing in
    /// the result.
    pub(crate) async fn blob_sizes(&self, ids: &[&str]) -> Result<HashMap<String, u64>> {
        // git answers to an empty line too.
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let (input, number) = unique_lines(ids);
        let run = Run {
            input,
            ..Run::new(number * MAX_HEADER_BYTES, self.settings.fetch_time)
        };
        let git = self.git();
        let out = git
            .run_command(&["cat-file", "--batch-check"], &run)
            .await?;
        let text = String::from_utf8_lossy(&out);
        let sizes = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some(id), Some("blob"), Some(size)) => Some((id.to_owned(), size.parse().ok()?)),
                _ => None,
            }
        });
        Ok(sizes.collect())
    }

    fn git(&self) -> Git<'_> {
        Git {
            settings: &self.settings,
            place: &self.place,
            folder: Some(self.folder.path()),
        }
    }

    /// Reads blobs by their ids. Fails if they exceed `max` bytes in total.
    pub(crate) async fn read_blobs(
        &self,
        ids: &[&str],
        max: u64,
    ) -> Result<HashMap<String, Vec<u8>>> {
        // git answers to an empty line too.
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let (input, number) = unique_lines(ids);
        let limit = usize::try_from(max)
            .unwrap_or(usize::MAX)
            .saturating_add(number * MAX_HEADER_BYTES);
        let run = Run {
            input,
            ..Run::new(limit, self.settings.fetch_time)
        };
        let out = self
            .git()
            .run_command(&["cat-file", "--batch"], &run)
            .await
            .map_err(|error| match error {
                FetchError::TooLarge { .. } => FetchError::too_large(&self.place, max, "bytes"),
                error => error,
            })?;
        parse_objects(&self.place, &out)
    }
}

/// Returns each id once, one on each line, and their number.
fn unique_lines(ids: &[&str]) -> (Vec<u8>, usize) {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let lines = ids.iter().flat_map(|id| [id, "\n"]);
    (lines.collect::<String>().into_bytes(), ids.len())
}

/// Parses the output of `git cat-file --batch`.
fn parse_objects(place: &str, mut out: &[u8]) -> Result<HashMap<String, Vec<u8>>> {
    let broken = || FetchError::content_error(place, "git gave an unexpected answer");
    let mut found = HashMap::new();
    while !out.is_empty() {
        let end = out
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or_else(broken)?;
        let head = std::str::from_utf8(&out[..end]).map_err(|_| broken())?;
        out = &out[end + 1..];
        let words: Vec<&str> = head.split(' ').collect();
        match words[..] {
            [id, "blob" | "commit", size] => {
                let size: usize = size.parse().map_err(|_| broken())?;
                let bytes = out.get(..size).ok_or_else(broken)?;
                found.insert(id.to_owned(), bytes.to_owned());
                out = out.get(size + 1..).ok_or_else(broken)?;
            }
            // The fetch filter left this blob out because it exceeds the size limit of a skill's
            // file.
            [id, "missing"] => {
                return Err(FetchError::too_large(
                    format!("a file of {place} ({})", escape_untrusted(id)),
                    MAX_FILE_BYTES,
                    "bytes",
                ));
            }
            _ => return Err(broken()),
        }
    }
    Ok(found)
}

/// The objects to fetch for a commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Depth {
    /// Trees and blobs. Blobs that exceed the size limit of a skill's file are left out.
    Files,
    /// Trees only, if the server supports such a filter.
    Trees,
}

/// Fetches one commit. If the server does not serve single commits, fetches the branch or tag
/// instead. If the branch or tag moved in the meantime, everything that is read and recorded
/// belongs to the newer commit.
pub(crate) async fn fetch_commit(
    settings: &GitSettings,
    source: &GitSource,
    resolved: &Resolved,
    depth: Depth,
    pinned_to: &[String],
) -> Result<Checkout> {
    let folder = create_repository(settings, source, &resolved.commit).await?;
    let place = source.place.clone();
    let git = Git {
        settings,
        place: &place,
        folder: Some(folder.path()),
    };
    let small = Run::new(64 << 10, settings.list_time);
    download_objects(&git, source, resolved, depth, pinned_to).await?;
    // Fetching an annotated tag gives the tag object, so ask for the commit behind it.
    let head = [
        "rev-parse",
        "--verify",
        "--end-of-options",
        "FETCH_HEAD^{commit}",
    ];
    // Read the commit id from `FETCH_HEAD`: after a fetch by name it may be a newer commit.
    let commit = git.run_command(&head, &small).await?;
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let (root, committed) = commit_facts(&git, &commit).await?;
    let listing = Run::new(MAX_LISTING_BYTES, settings.fetch_time);
    // `-z` ends each entry with NUL, so that a newline in a file name cannot forge an entry.
    let list = ["ls-tree", "-r", "-t", "-z", "--full-tree", &commit];
    let tree = parse_entries(&place, &git.run_command(&list, &listing).await?)?;
    Ok(Checkout {
        folder,
        settings: settings.clone(),
        place,
        commit,
        committed,
        tree,
        root,
    })
}

/// Creates an empty bare repository in a temporary folder, into which this commit can be fetched.
pub(super) async fn create_repository(
    settings: &GitSettings,
    source: &GitSource,
    commit: &str,
) -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("vault-git-")
        .tempdir()
        .map_err(|error| FetchError::local_error("making a temporary folder", &error))?;
    let git = Git {
        settings,
        place: &source.place,
        folder: Some(folder.path()),
    };
    // git can fetch a repository with SHA-256 ids only into one of the same format.
    let format = match commit.len() {
        64 => "--object-format=sha256",
        _ => "--object-format=sha1",
    };
    // The empty template keeps hooks and settings of the user's template out.
    let init = ["init", "--quiet", "--bare", "--template=", format];
    let run = Run::new(64 << 10, settings.list_time);
    git.run_command(&init, &run).await?;
    Ok(folder)
}

/// Downloads the objects of a commit into the repository of `git`.
async fn download_objects(
    git: &Git<'_>,
    source: &GitSource,
    resolved: &Resolved,
    depth: Depth,
    pinned_to: &[String],
) -> Result<()> {
    // git leaves out blobs of at least the given size, so the limit is one byte higher.
    let filter = match depth {
        Depth::Files => format!("--filter=blob:limit={}", MAX_FILE_BYTES + 1),
        Depth::Trees => "--filter=blob:none".to_owned(),
    };
    let run = Run::new(64 << 10, git.settings.fetch_time);
    let arguments = |name: &str| -> Vec<String> {
        let fetch = [
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            &filter,
            // Everything behind `--` is no option, whatever it begins with.
            "--",
            &source.address,
            name,
        ];
        let fetch = fetch.into_iter().map(str::to_owned);
        pinned_to.iter().cloned().chain(fetch).collect()
    };
    let commit = arguments(&resolved.commit);
    let mut fetched = git.run_watched(&commit, &run).await;
    // These errors may mean that the server does not serve commits by their ids. Then fetching the
    // branch or tag may succeed.
    let may_serve_name = match &fetched {
        Err(FetchError::Git { fault, .. }) => {
            !matches!(fault, GitFault::NotAllowed | GitFault::HostKey)
        }
        Err(FetchError::Unreachable { .. }) => true,
        _ => false,
    };
    if let (true, Some(name)) = (may_serve_name, &resolved.name) {
        fetched = git.run_watched(&arguments(name), &run).await;
    }
    fetched.map(drop)
}

/// Returns the root tree id and the committer date of a commit. Reads the raw object, whose format
/// does not depend on git's configuration.
async fn commit_facts(git: &Git<'_>, commit: &str) -> Result<(String, i64)> {
    let broken = || FetchError::content_error(git.place, "the commit cannot be read");
    let run = Run::new(1 << 20, git.settings.list_time);
    let bytes = git
        .run_command(&["cat-file", "commit", commit], &run)
        .await?;
    let text = String::from_utf8_lossy(&bytes);
    // The message below the empty line is free text and may contain lines that look like these.
    let head = text.split("\n\n").next().unwrap_or_default();
    let tree = head
        .lines()
        .find_map(|line| line.strip_prefix("tree "))
        .filter(|id| is_commit(id))
        .ok_or_else(broken)?;
    // The line ends with the time and the time zone. The name before them may contain spaces.
    let time = head
        .lines()
        .find_map(|line| line.strip_prefix("committer "))
        .and_then(|line| line.rsplit(' ').nth(1))
        .and_then(|seconds| seconds.parse().ok())
        .ok_or_else(broken)?;
    Ok((tree.to_owned(), time))
}

fn parse_entries(place: &str, out: &[u8]) -> Result<Vec<TreeEntry>> {
    let broken = || FetchError::content_error(place, "git gave an unexpected answer");
    let mut entries = Vec::new();
    let mut names = HashSet::new();
    for line in out.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let tab = line
            .iter()
            .position(|byte| *byte == b'\t')
            .ok_or_else(broken)?;
        let head = std::str::from_utf8(&line[..tab]).map_err(|_| broken())?;
        let mut words = head.split(' ');
        let (Some(mode), Some(_), Some(id)) = (words.next(), words.next(), words.next()) else {
            return Err(broken());
        };
        let kind = match mode {
            "100755" => EntryKind::File(Mode::Executable),
            "040000" => EntryKind::Folder,
            "120000" => EntryKind::Link,
            "160000" => EntryKind::Submodule,
            _ => EntryKind::File(Mode::Plain),
        };
        // The gate later rejects paths that are not UTF-8, and its message shows them in this form.
        let name = &line[tab + 1..];
        let path = String::from_utf8_lossy(name).into_owned();
        // git fetches a tree without checking its names, and tools differ in how they read names
        // such as these.
        let is_inside = path
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".." | ".git"));
        if !is_inside || !names.insert(name) {
            let path = escape_untrusted(&path);
            let reason = if is_inside {
                format!("it holds {path} twice")
            } else {
                format!("{path} is not a path inside the repository")
            };
            return Err(FetchError::content_error(place, reason));
        }
        entries.push(TreeEntry {
            kind,
            id: id.to_owned(),
            path,
        });
    }
    Ok(entries)
}
