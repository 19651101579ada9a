//! Repositories through the system's git, with the user's own keys and credential helpers.
//!
//! Nothing of a fetched repository ever runs and nothing is checked out: one commit is fetched into a bare folder of our own, and its tree
//! and files are read as objects, so that hooks, filters, attributes, submodules and LFS have no part in it. git never asks anything, speaks
//! https and ssh only, and is ended with all that it started when it takes too long.

mod run;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use vault_skill::manifest::{MAX_FILE_BYTES, Mode};

use crate::error::{FetchError, shown};
use crate::source::GitSource;
use run::{Git, Run};

/// Most bytes of a listing.
const MAX_LISTING_BYTES: usize = 32 << 20;

/// How git is run.
#[derive(Clone, Debug)]
pub struct GitSettings {
    /// The program.
    pub program: PathBuf,
    /// The command that the user set for SSH in `GIT_SSH_COMMAND`, which is kept and told to ask nothing.
    pub ssh_command: Option<String>,
    /// How long a look at a remote may take.
    pub list_time: Duration,
    /// How long a fetch may take.
    pub fetch_time: Duration,
    /// Use the user's keys, credential helpers and configuration. Off for callers who are somebody else.
    pub own_credentials: bool,
    /// Plain and local transports too: for tests.
    pub loopback: bool,
}

impl GitSettings {
    /// The git that the system finds, for a user who set nothing.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            ssh_command: None,
            list_time: Duration::from_secs(30),
            fetch_time: Duration::from_mins(3),
            own_credentials: true,
            loopback: false,
        }
    }
}

/// A commit, and how it was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolved {
    /// The full id.
    pub(crate) commit: String,
    /// The name that leads to it, for a fetch where the server gives out no single commits.
    pub(crate) name: Option<String>,
    /// Branch, tag or commit as it was asked for; `None`: the default branch.
    pub(crate) reference: Option<String>,
    /// What was left of a web address behind the reference.
    pub(crate) path: Option<String>,
}

/// An entry of a tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TreeEntry {
    pub(crate) kind: EntryKind,
    pub(crate) id: String,
    pub(crate) path: String,
}

/// What an entry is.
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
    /// The id of a folder in this commit; empty: of the root.
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
    pub(crate) async fn read(
        &self,
        ids: &[&str],
        max: u64,
    ) -> Result<HashMap<String, Vec<u8>>, FetchError> {
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
            most: limit,
            time: self.settings.fetch_time,
        };
        let out = git
            .run(&["cat-file", "--batch"], &run)
            .await
            .map_err(|error| match error {
                FetchError::TooLarge { .. } => FetchError::TooLarge {
                    what: self.place.clone(),
                    limit: max,
                    unit: "bytes",
                },
                error => error,
            })?;
        objects(&self.place, &out)
    }
}

/// Reads what `cat-file --batch` wrote.
fn objects(place: &str, mut out: &[u8]) -> Result<HashMap<String, Vec<u8>>, FetchError> {
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
            // Left out by the filter of the fetch: larger than any file of a skill may be.
            [id, "missing"] => {
                return Err(FetchError::TooLarge {
                    what: format!("a file of {place} ({})", shown(id)),
                    limit: MAX_FILE_BYTES,
                    unit: "bytes",
                });
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

/// Says which commit a source means now. Asks the remote, changes nothing.
pub(crate) async fn resolve(
    settings: &GitSettings,
    source: &GitSource,
    pinned_to: &[String],
) -> Result<Resolved, FetchError> {
    if let Some(commit) = source.reference.as_deref().filter(|text| is_commit(text)) {
        return Ok(Resolved {
            commit: commit.to_owned(),
            name: None,
            reference: source.reference.clone(),
            path: source.path.clone(),
        });
    }
    // A reference may hold slashes: every beginning of the tail is asked for at once, the longest that exists is meant.
    let candidates: Vec<String> = match &source.reference {
        Some(reference) => vec![reference.clone()],
        None => (1..=source.tail.len().min(16))
            .rev()
            .map(|length| source.tail[..length].join("/"))
            .collect(),
    };
    let ids = listed(settings, source, &candidates, pinned_to).await?;
    for candidate in &candidates {
        let found = names_of(candidate)
            .into_iter()
            .find_map(|(name, of)| Some((of, ids.get(&name)?.clone())));
        if let Some((name, commit)) = found {
            let used = candidate.split('/').count();
            let rest = source.tail.get(used..).unwrap_or_default().join("/");
            let from_tail = source.reference.is_none();
            return Ok(Resolved {
                commit,
                name: Some(name),
                reference: Some(candidate.clone()),
                path: if from_tail {
                    (!rest.is_empty()).then_some(rest)
                } else {
                    source.path.clone()
                },
            });
        }
    }
    // A commit in a web address.
    if let [commit, rest @ ..] = &source.tail[..]
        && is_commit(commit)
    {
        return Ok(Resolved {
            commit: commit.clone(),
            name: None,
            reference: Some(commit.clone()),
            path: (!rest.is_empty()).then(|| rest.join("/")),
        });
    }
    if let Some(asked) = candidates.last() {
        let mut text = format!("{} has no branch and no tag {}", source.place, shown(asked));
        if asked.len() >= 7 && asked.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            text.push_str("; a commit is named by its full id");
        }
        return Err(FetchError::NotFound(text));
    }
    match ids.get("HEAD") {
        Some(commit) => Ok(Resolved {
            commit: commit.clone(),
            name: Some("HEAD".to_owned()),
            reference: None,
            path: source.path.clone(),
        }),
        None => Err(FetchError::NotFound(format!(
            "{} has no commits",
            source.place
        ))),
    }
}

/// What a remote says of these names, and of its default branch.
async fn listed(
    settings: &GitSettings,
    source: &GitSource,
    candidates: &[String],
    pinned_to: &[String],
) -> Result<HashMap<String, String>, FetchError> {
    let git = Git {
        settings,
        place: &source.place,
        folder: None,
    };
    let mut patterns = vec!["HEAD".to_owned()];
    for candidate in candidates {
        if candidate.starts_with("refs/") {
            patterns.push(candidate.clone());
            patterns.push(format!("{candidate}^{{}}"));
        } else {
            patterns.push(format!("refs/heads/{candidate}"));
            patterns.push(format!("refs/tags/{candidate}"));
            patterns.push(format!("refs/tags/{candidate}^{{}}"));
        }
    }
    let mut arguments: Vec<String> = pinned_to.to_vec();
    arguments.extend(["ls-remote", "--quiet", "--exit-code", "--"].map(str::to_owned));
    arguments.push(source.address.clone());
    arguments.extend(patterns);
    let run = Run {
        input: Vec::new(),
        most: 1 << 20,
        time: settings.list_time,
    };
    let out = git.run(&arguments, &run).await?;
    let listed = String::from_utf8_lossy(&out).into_owned();
    let mut ids = HashMap::new();
    for line in listed.lines() {
        if let Some((id, name)) = line.split_once('\t')
            && is_commit(id)
        {
            ids.insert(name.to_owned(), id.to_owned());
        }
    }
    Ok(ids)
}

/// Names that a reference may stand for, in git's own order, each with what is fetched for it. A tag that is an object of its own is
/// listed a second time with the commit that it leads to.
fn names_of(reference: &str) -> Vec<(String, String)> {
    let whole: Vec<String> = if reference.starts_with("refs/") {
        vec![reference.to_owned()]
    } else {
        vec![
            format!("refs/tags/{reference}"),
            format!("refs/heads/{reference}"),
        ]
    };
    whole
        .into_iter()
        .flat_map(|name| [(format!("{name}^{{}}"), name.clone()), (name.clone(), name)])
        .collect()
}

/// Whether a text is a full commit id.
pub fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64)
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Fetches one commit. Where the server gives out no single commits, the name's commit is fetched: a repository that moved meanwhile gives
/// its newer commit, and all that is read and recorded is of that one.
pub(crate) async fn fetch(
    settings: &GitSettings,
    source: &GitSource,
    resolved: &Resolved,
    depth: Depth,
    pinned_to: &[String],
) -> Result<Checkout, FetchError> {
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
    let small = Run {
        input: Vec::new(),
        most: 64 << 10,
        time: settings.list_time,
    };
    let format = if resolved.commit.len() == 64 {
        "sha256"
    } else {
        "sha1"
    };
    let format = format!("--object-format={format}");
    git.run(
        &["init", "--quiet", "--bare", "--template=", &format],
        &small,
    )
    .await?;
    let filter = match depth {
        Depth::Files => format!("--filter=blob:limit={}", MAX_FILE_BYTES + 1),
        Depth::Trees => "--filter=blob:none".to_owned(),
    };
    let attempt = |what: String| {
        let mut arguments: Vec<String> = pinned_to.to_vec();
        arguments.extend(
            [
                "fetch",
                "--quiet",
                "--depth=1",
                "--no-tags",
                "--no-recurse-submodules",
                "--no-auto-maintenance",
                &filter,
                "--",
                &source.address,
                &what,
            ]
            .map(str::to_owned),
        );
        arguments
    };
    let long = Run {
        input: Vec::new(),
        most: 64 << 10,
        time: settings.fetch_time,
    };
    let mut fetched = git
        .run_watched(&attempt(resolved.commit.clone()), &long, folder.path())
        .await;
    if let (Err(FetchError::NotFound(_) | FetchError::Unreachable { .. }), Some(name)) =
        (&fetched, &resolved.name)
    {
        fetched = git
            .run_watched(&attempt(name.clone()), &long, folder.path())
            .await;
    }
    fetched?;
    let commit = git
        .run(
            &[
                "rev-parse",
                "--verify",
                "--end-of-options",
                "FETCH_HEAD^{commit}",
            ],
            &small,
        )
        .await?;
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let (root, committed) = commit_facts(&git, &commit, &small).await?;
    let listing = Run {
        most: MAX_LISTING_BYTES,
        ..long
    };
    let out = git
        .run(
            &["ls-tree", "-r", "-t", "-z", "--full-tree", &commit],
            &listing,
        )
        .await?;
    let tree = entries(&place, &out)?;
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

/// Tree and time of a commit, read from the object itself: no configuration of the user's has a say in it.
async fn commit_facts(git: &Git<'_>, commit: &str, run: &Run) -> Result<(String, i64), FetchError> {
    let broken = || FetchError::content(git.place, "the commit cannot be read");
    let run = Run {
        input: Vec::new(),
        most: 1 << 20,
        time: run.time,
    };
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

fn entries(place: &str, out: &[u8]) -> Result<Vec<TreeEntry>, FetchError> {
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
        // A name that is no UTF-8 cannot be a skill's; it is refused there, with this name.
        let path = String::from_utf8_lossy(&line[tab + 1..]).into_owned();
        entries.push(TreeEntry {
            kind,
            id: id.to_owned(),
            path,
        });
    }
    Ok(entries)
}

/// The SSH command of the user's own configuration.
pub(crate) async fn configured_ssh(settings: &GitSettings) -> Option<String> {
    let git = Git {
        settings,
        place: "",
        folder: None,
    };
    let run = Run {
        input: Vec::new(),
        most: 4096,
        time: settings.list_time,
    };
    let out = git
        .run(&["config", "--get", "core.sshCommand"], &run)
        .await
        .ok()?;
    let text = String::from_utf8(out).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Arguments that pin a name to the addresses that were looked at, so that git's own look-up cannot lead elsewhere.
pub(crate) fn pin(host: &str, port: u16, addresses: &[std::net::IpAddr]) -> Vec<String> {
    let list: Vec<String> = addresses
        .iter()
        .map(|ip| match ip {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        })
        .collect();
    vec![
        "-c".to_owned(),
        format!("http.curloptResolve={host}:{port}:{}", list.join(",")),
        "-c".to_owned(),
        "http.followRedirects=false".to_owned(),
        "-c".to_owned(),
        "http.proxy=".to_owned(),
    ]
}
