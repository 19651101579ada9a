//! Repositories through the system's git, with the user's own keys and credential helpers.
//!
//! Nothing of a fetched repository runs and nothing is checked out: one commit is fetched into a bare temporary folder, and its tree and
//! files are read as objects, so that hooks, filters, attributes, submodules and LFS have no effect. git never prompts, uses HTTPS and SSH
//! only, and is killed with all its children when it takes too long.

mod checkout;
mod run;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use checkout::{Checkout, Depth, EntryKind, fetch};
use run::{Git, Run};

use crate::error::{FetchError, Result, shown};
use crate::source::GitSource;

/// How git is run.
#[derive(Clone, Debug)]
pub struct GitSettings {
    /// The program.
    pub program: PathBuf,
    /// The user's `GIT_SSH_COMMAND`, run in batch mode.
    pub ssh_command: Option<String>,
    /// Longest time for listing a remote.
    pub list_time: Duration,
    /// Longest time for a fetch.
    pub fetch_time: Duration,
    /// Use the user's keys, credential helpers and configuration. Off for callers over the network.
    pub own_credentials: bool,
    /// Allow `http:` and `file:` too: for tests.
    pub loopback: bool,
}

impl GitSettings {
    /// Settings without options of the user.
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

/// A commit, and the reference that leads to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolved {
    /// The full id.
    pub(crate) commit: String,
    /// The name to fetch where the server gives out no single commits.
    pub(crate) name: Option<String>,
    /// Branch, tag or commit as it was asked for; `None`: the default branch.
    pub(crate) reference: Option<String>,
    /// The folder, from the source or from a web address behind its reference.
    pub(crate) path: Option<String>,
}

/// Resolves a source to the commit that it means now. Asks the remote and changes nothing.
pub(crate) async fn resolve(
    settings: &GitSettings,
    source: &GitSource,
    pinned_to: &[String],
) -> Result<Resolved> {
    if let Some(commit) = source.reference.as_deref().filter(|text| is_commit(text)) {
        return Ok(Resolved {
            commit: commit.to_owned(),
            name: None,
            reference: source.reference.clone(),
            path: source.path.clone(),
        });
    }
    // A reference may hold slashes: all beginnings of the tail are asked for at once, and the longest that exists is meant.
    let candidates: Vec<String> = match &source.reference {
        Some(reference) => vec![reference.clone()],
        None => (1..=source.tail.len().min(16))
            .rev()
            .map(|length| source.tail[..length].join("/"))
            .collect(),
    };
    let ids = list_remote(settings, source, &candidates, pinned_to).await?;
    if let Some(found) = candidates
        .iter()
        .find_map(|candidate| resolve_name(source, candidate, &ids))
    {
        return Ok(found);
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
    let head = ids.get("HEAD");
    let commit =
        head.ok_or_else(|| FetchError::NotFound(format!("{} has no commits", source.place)))?;
    Ok(Resolved {
        commit: commit.clone(),
        name: Some("HEAD".to_owned()),
        reference: None,
        path: source.path.clone(),
    })
}

/// The commit of a branch or tag, where the remote listed it.
fn resolve_name(
    source: &GitSource,
    candidate: &str,
    ids: &HashMap<String, String>,
) -> Option<Resolved> {
    let (name, commit) = names_of(candidate)
        .into_iter()
        .find_map(|(listed, fetched)| Some((fetched, ids.get(&listed)?.clone())))?;
    let path = if source.reference.is_some() {
        source.path.clone()
    } else {
        // What is left of the tail of a web address.
        let rest = source.tail.get(candidate.split('/').count()..);
        rest.filter(|rest| !rest.is_empty())
            .map(|rest| rest.join("/"))
    };
    Some(Resolved {
        commit,
        name: Some(name),
        reference: Some(candidate.to_owned()),
        path,
    })
}

/// The commits that a remote lists for these names and for its default branch.
async fn list_remote(
    settings: &GitSettings,
    source: &GitSource,
    candidates: &[String],
    pinned_to: &[String],
) -> Result<HashMap<String, String>> {
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
    let out = git
        .run(&arguments, &Run::new(1 << 20, settings.list_time))
        .await?;
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

/// Names that a reference may stand for, in git's own order, each with the name to fetch. An annotated tag is listed a second time with
/// its commit.
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

/// The SSH command of the user's own configuration.
pub(crate) async fn configured_ssh(settings: &GitSettings) -> Option<String> {
    let git = Git {
        settings,
        place: "",
        folder: None,
    };
    let run = Run::new(4096, settings.list_time);
    let out = git
        .run(&["config", "--get", "core.sshCommand"], &run)
        .await
        .ok()?;
    let text = String::from_utf8(out).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Arguments that pin a host to its checked addresses, so that git's own look-up cannot lead elsewhere.
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
