//! Accesses repositories through the system's git, with the user's own keys and credential helpers.
//!
//! No code of a fetched repository runs, and no files are checked out. git fetches one commit into
//! a temporary bare repository, and its trees and files are read as objects, so hooks, filters,
//! attributes, submodules and LFS have no effect. git never prompts and uses only HTTPS and SSH. If
//! it exceeds its time limit, it is killed together with its child processes.

mod checkout;
mod history;
mod run;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use checkout::{Checkout, Depth, EntryKind, fetch_commit};
pub(crate) use history::{FAR, History, NEAR};
use run::{Git, Run};

use vault_gate::requirements::{Version, VersionRange};

use crate::error::{FetchError, Result, escape_untrusted};
use crate::source::GitSource;

/// Maximum size of a remote's list of tags, in bytes. Beyond it, no version is chosen.
const MAX_TAGS_BYTES: usize = 8 << 20;

/// The git program to run, and the limits for its commands.
#[derive(Clone, Debug)]
pub struct GitSettings {
    /// Path or name of the git program.
    pub program: PathBuf,
    /// The user's `GIT_SSH_COMMAND`. It runs with `BatchMode=yes`, so that it never prompts.
    pub ssh_command: Option<String>,
    /// Time limit for listing the references of a remote.
    pub list_time: Duration,
    /// Time limit for a fetch.
    pub fetch_time: Duration,
    /// Use the user's keys, credential helpers and configuration. Off for remote callers.
    pub own_credentials: bool,
    /// Also allow `http:` and `file:` addresses. For tests.
    pub loopback: bool,
    /// The texts that git's messages must not show, such as passwords.
    pub hidden: HiddenTexts,
}

/// Texts that are hidden in what git prints: the passwords of proxies.
#[derive(Clone, Default)]
pub struct HiddenTexts(Vec<String>);

impl std::fmt::Debug for HiddenTexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HiddenTexts").finish_non_exhaustive()
    }
}

impl HiddenTexts {
    /// Hides the user names and passwords in these addresses of proxies, which may lack a scheme and
    /// may be no addresses at all.
    pub fn of_proxies<'a>(addresses: impl Iterator<Item = &'a str>) -> Self {
        let hidden = addresses.filter_map(|address| {
            let (user, _) = address.rsplit_once('@')?;
            let user = user.split_once("://").map_or(user, |(_, user)| user);
            (!user.is_empty()).then(|| format!("{user}@"))
        });
        Self(hidden.collect())
    }

    /// Replaces the hidden texts. A user name may be a common word, or one letter, so it is hidden
    /// only where an address follows.
    pub(crate) fn hide(&self, text: &str) -> String {
        let hide = |text: String, hidden: &String| text.replace(hidden.as_str(), "***@");
        self.0.iter().fold(text.to_owned(), hide)
    }
}

impl GitSettings {
    /// Creates settings with default time limits and the user's credentials.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            ssh_command: None,
            list_time: Duration::from_secs(30),
            fetch_time: Duration::from_mins(3),
            own_credentials: true,
            loopback: false,
            hidden: HiddenTexts::default(),
        }
    }
}

/// The commit to which a source resolved, and how to fetch it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolved {
    /// The full commit id.
    pub(crate) commit: String,
    /// The full name (`refs/…`) to fetch if the server does not serve single commits; `None` if the
    /// source gives only a commit.
    pub(crate) name: Option<String>,
    /// The requested branch, tag or commit; `None` is the default branch.
    pub(crate) reference: Option<String>,
    /// The folder, from the source or from the rest of a web address after the reference.
    pub(crate) path: Option<String>,
}

/// Resolves a source to its current commit by listing the remote's references.
pub(crate) async fn resolve_commit(
    settings: &GitSettings,
    source: &GitSource,
    pinned_to: &[String],
) -> Result<Resolved> {
    // A full commit id needs no look-up; the fetch will show whether it exists.
    if let Some(commit) = source.reference.as_deref().filter(|text| is_commit(text)) {
        return Ok(Resolved {
            commit: commit.to_owned(),
            name: None,
            reference: source.reference.clone(),
            path: source.path.clone(),
        });
    }
    // A reference may contain slashes, so it is unclear where it ends in a web address. Query every
    // prefix of the tail's first 16 segments at once and use the longest one that exists.
    let candidates: Vec<String> = match &source.reference {
        Some(reference) => vec![reference.clone()],
        None => (1..=source.tail.len().min(16))
            .rev()
            .map(|length| source.tail[..length].join("/"))
            .collect(),
    };
    let ids = list_remote(settings, source, &candidates, pinned_to).await?;
    for candidate in &candidates {
        if let Some(resolved) = resolve_name(source, candidate, &ids)? {
            return Ok(resolved);
        }
    }
    // The first segment of the tail may be a commit id, which `ls-remote` does not list.
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
        let mut text = format!(
            "{} has no branch and no tag {}",
            source.place,
            escape_untrusted(asked)
        );
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

/// Returns the commit of a branch or tag, if the remote has listed it. Fails if both exist with
/// different commits: some git commands would use the tag, others the branch.
fn resolve_name(
    source: &GitSource,
    candidate: &str,
    ids: &HashMap<String, String>,
) -> Result<Option<Resolved>> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (listed, fetched) in names_of(candidate) {
        // The first line of a tag has the commit, and the second one may have the tag object.
        let is_known = found.iter().any(|(name, _)| *name == fetched);
        if let Some(commit) = ids.get(&listed).filter(|_| !is_known) {
            found.push((fetched, commit.clone()));
        }
    }
    if let [(_, one), (_, other)] = &found[..]
        && one != other
    {
        return Err(FetchError::AmbiguousReference {
            place: source.place.clone(),
            reference: escape_untrusted(candidate),
        });
    }
    let Some((name, commit)) = found.into_iter().next() else {
        return Ok(None);
    };
    let path = if source.reference.is_some() {
        source.path.clone()
    } else {
        // The rest of the web address's tail is the path.
        let rest = source.tail.get(candidate.split('/').count()..);
        rest.filter(|rest| !rest.is_empty())
            .map(|rest| rest.join("/"))
    };
    Ok(Some(Resolved {
        commit,
        name: Some(name),
        reference: Some(candidate.to_owned()),
        path,
    }))
}

/// Lists the commits of these references and of the remote's default branch.
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
    let mut arguments: Vec<String> = pinned_to.to_vec();
    arguments.extend(["ls-remote", "--quiet", "--exit-code", "--"].map(str::to_owned));
    arguments.extend([source.address.clone(), "HEAD".to_owned()]);
    let names = candidates.iter().flat_map(|candidate| names_of(candidate));
    arguments.extend(names.map(|(listed, _)| listed));
    let out = git
        .run_command(&arguments, &Run::new(1 << 20, settings.list_time))
        .await?;
    let listed = String::from_utf8_lossy(&out).into_owned();
    let lines = listed.lines().filter_map(|line| line.split_once('\t'));
    let named = lines.filter(|(id, _)| is_commit(id));
    Ok(named
        .map(|(id, name)| (name.to_owned(), id.to_owned()))
        .collect())
}

/// Returns the name of the remote's tag with the highest version in a range; `None` if there is none.
/// Of two tags with one version (`1.2.0`, `v1.2.0`) it is the first by name.
pub(crate) async fn find_tag(
    settings: &GitSettings,
    source: &GitSource,
    range: &VersionRange,
    pinned_to: &[String],
) -> Result<Option<String>> {
    let git = Git {
        settings,
        place: &source.place,
        folder: None,
    };
    let mut arguments: Vec<String> = pinned_to.to_vec();
    // `--refs` leaves out the second line of an annotated tag.
    arguments.extend(["ls-remote", "--quiet", "--refs", "--tags", "--"].map(str::to_owned));
    arguments.push(source.address.clone());
    let out = git
        .run_command(&arguments, &Run::new(MAX_TAGS_BYTES, settings.list_time))
        .await?;
    let listed = String::from_utf8_lossy(&out).into_owned();
    let names = listed.lines().filter_map(|line| line.split_once('\t'));
    let names = names.filter_map(|(_, name)| name.strip_prefix("refs/tags/"));
    let versions = names.filter_map(|name| {
        let version = Version::of_tag(name).filter(|version| range.contains(*version))?;
        Some((version, std::cmp::Reverse(name)))
    });
    Ok(versions.max().map(|(_, name)| name.0.to_owned()))
}

/// Returns the full names that a reference may stand for, in git's order of precedence, each with
/// the name to fetch. The remote lists an annotated tag twice: the second line has the suffix `^{}`
/// and the id of the commit.
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

/// Tells whether a text is a full commit id: 40 or 64 lower-case hexadecimal digits.
pub fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64)
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns `core.sshCommand` of the user's git configuration.
pub(crate) async fn configured_ssh(settings: &GitSettings) -> Option<String> {
    let git = Git {
        settings,
        place: "",
        folder: None,
    };
    let run = Run::new(4096, settings.list_time);
    let out = git
        .run_command(&["config", "--get", "core.sshCommand"], &run)
        .await
        .ok()?;
    let text = String::from_utf8(out).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns git arguments that pin a host to its checked addresses, so that git's own DNS lookup
/// cannot lead elsewhere. They also disable redirects and proxies, which would bypass the pin.
pub(crate) fn pin_arguments(
    address: &str,
    (host, port): (&str, u16),
    addresses: &[std::net::IpAddr],
) -> Vec<String> {
    let list: Vec<String> = addresses
        .iter()
        .map(|ip| match ip {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        })
        .collect();
    // curl accepts several addresses for a host, separated by commas.
    let resolve = format!("http.curloptResolve={host}:{port}:{}", list.join(","));
    // Of several settings, git uses the one whose address is the longest part of the remote's, so the
    // user's settings for a host must not come before these.
    let mut settings = vec![resolve];
    for prefix in ["http".to_owned(), format!("http.{address}")] {
        settings.push(format!("{prefix}.followRedirects=false"));
        settings.push(format!("{prefix}.proxy="));
    }
    let options = settings.into_iter();
    options
        .flat_map(|setting| ["-c".to_owned(), setting])
        .collect()
}
