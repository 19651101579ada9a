//! One commit of a repository, fetched into a temporary folder and read as objects.

use std::collections::HashMap;
use std::path::Path;

use tempfile::TempDir;
use vault_skill::manifest::{MAX_FILE_BYTES, Mode};

use super::run::{Git, Run};
use super::{GitSettings, Resolved, is_commit};
use crate::error::{FetchError, Result, shown};
use crate::source::GitSource;

/// Most bytes of a listing.
const MAX_LISTING_BYTES: usize = 32 << 20;

/// An entry of a tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TreeEntry {
    pub(crate) kind: EntryKind,
    pub(crate) id: String,
    pub(crate) path: String,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EntryKind {
    File(Mode),
    Folder,
    Link,
    Submodule,
}

/// One commit, fetched.
#[derive(Debug)]
pub(crate) struct Checkout {
    folder: TempDir,
    settings: GitSettings,
    place: String,
    pub(crate) commit: String,
    /// Seconds since 1970, as the commit says.
    pub(crate) committed: i64,
    pub(crate) tree: Vec<TreeEntry>,
    root: String,
}

impl Checkout {
    /// The id of a folder in this commit; an empty path stands for the root.
    pub(crate) fn tree_id(&self, path: &str) -> Option<&str> {
        if path.is_empty() {
            return Some(&self.root);
        }
        let found = self.tree.iter().find(|entry| entry.path == path);
        found
            .filter(|entry| entry.kind == EntryKind::Folder)
            .map(|entry| entry.id.as_str())
    }

    /// The bytes of files, by their ids. At most `max` bytes together.
    pub(crate) async fn read(&self, ids: &[&str], max: u64) -> Result<HashMap<String, Vec<u8>>> {
        let mut asked: Vec<&str> = ids.to_vec();
        asked.sort_unstable();
        asked.dedup();
        let mut input = asked.join("\n");
        input.push('\n');
        let limit = usize::try_from(max)
            .unwrap_or(usize::MAX)
            .saturating_add(asked.len() * 100);
        let git = Git {
            settings: &self.settings,
            place: &self.place,
            folder: Some(self.folder.path()),
        };
        let run = Run {
            input: input.into_bytes(),
            ..Run::new(limit, self.settings.fetch_time)
        };
        let out = git
            .run(&["cat-file", "--batch"], &run)
            .await
            .map_err(|error| match error {
                FetchError::TooLarge { .. } => FetchError::too_large(&self.place, max, "bytes"),
                error => error,
            })?;
        objects(&self.place, &out)
    }
}

/// Parses the output of `cat-file --batch`.
fn objects(place: &str, mut out: &[u8]) -> Result<HashMap<String, Vec<u8>>> {
    let broken = || FetchError::content(place, "git gave an answer that cannot be read");
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
            // The filter of the fetch left it out: it is larger than any file of a skill may be.
            [id, "missing"] => {
                return Err(FetchError::too_large(
                    format!("a file of {place} ({})", shown(id)),
                    MAX_FILE_BYTES,
                    "bytes",
                ));
            }
            _ => return Err(broken()),
        }
    }
    Ok(found)
}

/// What is fetched of a commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Depth {
    /// Trees and files.
    Files,
    /// Trees alone, where the server can leave files out.
    Trees,
}

/// Fetches one commit. Where the server gives out no single commits, the branch or tag is fetched: if the repository moved meanwhile, all
/// that is read and recorded is of the newer commit.
pub(crate) async fn fetch(
    settings: &GitSettings,
    source: &GitSource,
    resolved: &Resolved,
    depth: Depth,
    pinned_to: &[String],
) -> Result<Checkout> {
    let folder = tempfile::Builder::new()
        .prefix("vault-git-")
        .tempdir()
        .map_err(|error| FetchError::local("making a temporary folder", &error))?;
    let place = source.place.clone();
    let git = Git {
        settings,
        place: &place,
        folder: Some(folder.path()),
    };
    let small = Run::new(64 << 10, settings.list_time);
    let format = match resolved.commit.len() {
        64 => "--object-format=sha256",
        _ => "--object-format=sha1",
    };
    let init = ["init", "--quiet", "--bare", "--template=", format];
    git.run(&init, &small).await?;
    download(&git, folder.path(), source, resolved, depth, pinned_to).await?;
    let head = [
        "rev-parse",
        "--verify",
        "--end-of-options",
        "FETCH_HEAD^{commit}",
    ];
    let commit = git.run(&head, &small).await?;
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let (root, committed) = commit_facts(&git, &commit).await?;
    let listing = Run::new(MAX_LISTING_BYTES, settings.fetch_time);
    let list = ["ls-tree", "-r", "-t", "-z", "--full-tree", &commit];
    let tree = entries(&place, &git.run(&list, &listing).await?)?;
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

/// Fetches the objects of a commit into the folder of `git`.
async fn download(
    git: &Git<'_>,
    folder: &Path,
    source: &GitSource,
    resolved: &Resolved,
    depth: Depth,
    pinned_to: &[String],
) -> Result<()> {
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
            "--",
            &source.address,
            name,
        ];
        let fetch = fetch.into_iter().map(str::to_owned);
        pinned_to.iter().cloned().chain(fetch).collect()
    };
    let commit = arguments(&resolved.commit);
    let mut fetched = git.run_watched(&commit, &run, folder).await;
    if let (Err(FetchError::NotFound(_) | FetchError::Unreachable { .. }), Some(name)) =
        (&fetched, &resolved.name)
    {
        fetched = git.run_watched(&arguments(name), &run, folder).await;
    }
    fetched.map(drop)
}

/// Tree and time of a commit, read from the object itself, which no configuration can change.
async fn commit_facts(git: &Git<'_>, commit: &str) -> Result<(String, i64)> {
    let broken = || FetchError::content(git.place, "the commit cannot be read");
    let run = Run::new(1 << 20, git.settings.list_time);
    let bytes = git.run(&["cat-file", "commit", commit], &run).await?;
    let text = String::from_utf8_lossy(&bytes);
    let head = text.split("\n\n").next().unwrap_or_default();
    let tree = head
        .lines()
        .find_map(|line| line.strip_prefix("tree "))
        .filter(|id| is_commit(id))
        .ok_or_else(broken)?;
    let time = head
        .lines()
        .find_map(|line| line.strip_prefix("committer "))
        .and_then(|line| line.rsplit(' ').nth(1))
        .and_then(|seconds| seconds.parse().ok())
        .ok_or_else(broken)?;
    Ok((tree.to_owned(), time))
}

fn entries(place: &str, out: &[u8]) -> Result<Vec<TreeEntry>> {
    let broken = || FetchError::content(place, "git gave an answer that cannot be read");
    let mut entries = Vec::new();
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
        // The gate refuses names that are not UTF-8, and shows them like this.
        let path = String::from_utf8_lossy(&line[tab + 1..]).into_owned();
        entries.push(TreeEntry {
            kind,
            id: id.to_owned(),
            path,
        });
    }
    Ok(entries)
}
