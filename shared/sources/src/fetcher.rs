//! From a source to skills: first the place is opened and says which skills it has, then one of them is taken.
//!
//! The policy is asked before the first request, for every hop on the way, and once more for the exact skill that is taken. What is taken
//! comes with what its provenance says of it: the files, the revision and the record are of one commit, one archive or one answer.

use std::sync::Arc;

use url::Url;
use vault_skill::document::Document;
use vault_skill::gate::{RawFile, is_ignored};
use vault_skill::hash::Digest;
use vault_skill::manifest::{Mode, SKILL_MD};
use vault_skill::provenance::ProvenanceId;
use vault_store::clock::Clock;
use vault_store::fetch::{FetchedSkill, Upstream};

use crate::archive::{self, MAX_ARCHIVE_FILES, MAX_DOWNLOAD_BYTES, MAX_UNPACKED_BYTES};
use crate::error::{FetchError, shown};
use crate::find;
use crate::git::{self, Checkout, Depth, EntryKind, GitSettings, Resolved};
use crate::http::{self, Http, HttpTimes};
use crate::policy::SourcePolicy;
use crate::site::{self, Site};
use crate::source::{GitSource, ParseOptions, Source};
use crate::tokens::Tokens;
use crate::{market, registry};

/// Largest SKILL.md that is read for its name.
const MAX_SKILL_MD: u64 = 256 << 10;

/// How a fetcher behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How git is run.
    pub git: GitSettings,
    /// How long a request may take.
    pub times: HttpTimes,
    /// What HTTPS sources are told that ask who is there.
    pub tokens: Tokens,
    /// How texts are read that are met on the way (marketplaces, hand-offs).
    pub parse: ParseOptions,
    /// Where the registry with ClawHub's protocol is.
    pub clawhub: Url,
    /// Where the npm registry is, for plugins that are packages.
    pub npm: Url,
    /// Where the registry of the older form is, if there is one.
    pub registry: Option<Url>,
    /// Hosts of repositories must be public addresses too, and SSH, which would use this machine's own keys, is refused: for callers
    /// who are not at this machine's command line.
    pub guarded: bool,
}

/// Fetches skills. Holds connections, no state.
pub struct Fetcher {
    pub(crate) settings: Settings,
    pub(crate) http: Http,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A skill that a source has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// Its own name where its SKILL.md can be read, else its folder's.
    pub name: String,
    /// Its folder in the source; empty: the root.
    pub folder: String,
    /// What it says of itself, where that can be read.
    pub description: Option<String>,
}

/// A source that was reached, and what it has.
#[derive(Debug)]
pub struct Opened {
    /// Its skills, in an order that is the same each time.
    pub found: Vec<Found>,
    /// What a user should know: unpinned sites, entries that were skipped.
    pub notices: Vec<String>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Git(Box<Repository>),
    /// An archive or a single file: all of it is here. `revision` is its digest.
    Files {
        files: Vec<RawFile>,
        identifier: String,
        address: Option<String>,
        reference: Option<String>,
        revision: Option<String>,
        tree: Option<String>,
    },
    Site(Box<Site>),
}

#[derive(Debug)]
struct Repository {
    source: GitSource,
    resolved: Resolved,
    checkout: Checkout,
    /// Recorded in place of the repository: a registry handed over to it.
    recorded: Option<registry::HandOff>,
}

impl Fetcher {
    /// A fetcher with these settings; it opens no connection yet.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let http = Http::new(
            settings.parse.loopback,
            settings.times,
            settings.tokens.clone(),
        );
        Self {
            settings,
            http,
            clock,
        }
    }

    /// Reaches a source and lists its skills. `plugin` picks one of a marketplace.
    pub async fn open(
        &self,
        source: &Source,
        plugin: Option<&str>,
        policy: &SourcePolicy,
    ) -> Result<Opened, FetchError> {
        policy.check(source)?;
        if plugin.is_some() && !matches!(source, Source::Git(_)) {
            return Err(FetchError::Unsupported {
                message: "a marketplace is a repository; this source is none".to_owned(),
                hint: "name the repository: vault add <owner>/<repository> --plugin <name>"
                    .to_owned(),
            });
        }
        match source {
            Source::Local(path) => local_archive(path),
            Source::Git(git) => self.repository(git, plugin, policy, 0).await,
            Source::Archive(url) => self.archive(url, policy).await,
            Source::SkillMd(url) => self.skill_md(url, policy).await,
            Source::WellKnown { origin, skill } => {
                let site = site::open(self, origin, policy).await?;
                let mut found = site.found();
                if let Some(skill) = skill {
                    found.retain(|found| found.name == *skill);
                    if found.is_empty() {
                        return Err(FetchError::NotFound(format!(
                            "{origin} lists no skill named {}",
                            shown(skill)
                        )));
                    }
                }
                let notices = site.notices.clone();
                Ok(Opened {
                    found,
                    notices,
                    content: Content::Site(Box::new(site)),
                })
            }
            Source::ClawHub {
                owner,
                slug,
                version,
            } => {
                let wanted = registry::Wanted {
                    owner: owner.as_deref(),
                    slug,
                    version: version.as_deref(),
                };
                self.clawhub(&wanted, policy).await
            }
            Source::Registry { slug, version } => {
                let version = version.as_deref();
                let (files, revision) = registry::older(self, slug, version, policy).await?;
                Opened::of_files(
                    files,
                    Facts {
                        identifier: registry::identifier(self.settings.registry.as_ref(), slug),
                        address: None,
                        reference: version.map(str::to_owned),
                        revision: Some(revision),
                        place: source.shown(),
                    },
                )
            }
            Source::Vault { name, .. } => Err(FetchError::Unsupported {
                message: format!(
                    "{} comes with its vault and is not added a second time",
                    source.shown()
                ),
                hint: format!("vault cloud pull --skill {}", shown(name)),
            }),
        }
    }

    async fn repository(
        &self,
        source: &GitSource,
        plugin: Option<&str>,
        policy: &SourcePolicy,
        hops: u8,
    ) -> Result<Opened, FetchError> {
        let (pinned, settings) = self.way_to(source).await?;
        let source = source.clone();
        let resolved = git::resolve(&settings, &source, &pinned).await?;
        let checkout = git::fetch(&settings, &source, &resolved, Depth::Files, &pinned).await?;
        policy.check_age(&source.place, checkout.committed, self.clock.now())?;
        if let Some(plugin) = plugin {
            match market::skills(self, &checkout, &source, plugin).await? {
                market::Plugin::Here(folders) => {
                    let mut opened = self.listed(source, resolved, checkout, folders).await?;
                    opened
                        .notices
                        .push(format!("skills of the plugin {}", shown(plugin)));
                    return Ok(opened);
                }
                market::Plugin::Package(package, picked) => {
                    let got = package.fetch(self, policy).await?;
                    let files = archive::unpack(&got.shown, &got.body)?;
                    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
                    // All of a package is in one folder of its archive, most often `package`.
                    let base = paths.first().and_then(|path| path.split('/').next());
                    let base = base.unwrap_or_default();
                    let folders = picked.folders(&paths, base, &got.shown, plugin)?;
                    let facts = web_facts(&got.url, &got.body);
                    let mut opened = Opened::of_folders(&folders, files, facts);
                    opened.notices.push(format!(
                        "skills of the plugin {}, the npm package {}",
                        shown(plugin),
                        got.shown
                    ));
                    return Ok(opened);
                }
                market::Plugin::There(other) => {
                    if hops > 0 {
                        return Err(FetchError::content(
                            &source.place,
                            "a marketplace leads to a marketplace",
                        ));
                    }
                    let next = Source::Git(*other.clone());
                    policy.check(&next)?;
                    return Box::pin(self.repository(&other, None, policy, hops + 1)).await;
                }
            }
        }
        let base = resolved.path.clone().unwrap_or_default();
        let paths = checkout
            .tree
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::File(_)))
            .map(|entry| entry.path.as_str());
        let folders = find::skills(paths, &base);
        if folders.is_empty() {
            let place = if base.is_empty() {
                source.place.clone()
            } else {
                format!("{}/{base}", source.place)
            };
            return Err(FetchError::NotFound(format!(
                "{place} holds no SKILL.md at commit {}",
                short(&checkout.commit)
            )));
        }
        self.listed(source, resolved, checkout, folders).await
    }

    async fn listed(
        &self,
        source: GitSource,
        resolved: Resolved,
        checkout: Checkout,
        folders: Vec<String>,
    ) -> Result<Opened, FetchError> {
        let documents: Vec<(String, String)> = folders
            .iter()
            .filter_map(|folder| {
                let path = join(folder, SKILL_MD);
                let entry = checkout.tree.iter().find(|entry| entry.path == path)?;
                Some((folder.clone(), entry.id.clone()))
            })
            .collect();
        let ids: Vec<&str> = documents.iter().map(|(_, id)| id.as_str()).collect();
        let bytes = checkout
            .read(&ids, MAX_SKILL_MD * (ids.len() as u64).min(200))
            .await?;
        let found = documents
            .iter()
            .map(|(folder, id)| found(folder, &source.place, bytes.get(id).map(Vec::as_slice)))
            .collect();
        Ok(Opened {
            found,
            notices: Vec::new(),
            content: Content::Git(Box::new(Repository {
                source,
                resolved,
                checkout,
                recorded: None,
            })),
        })
    }

    /// Whether a repository has this branch, tag or commit: for a hint, so a trouble on the way says no.
    pub async fn has_reference(&self, source: &GitSource, reference: &str) -> bool {
        let asked = GitSource {
            reference: Some(reference.to_owned()),
            tail: Vec::new(),
            ..source.clone()
        };
        match self.way_to(source).await {
            Ok((pinned, settings)) => git::resolve(&settings, &asked, &pinned).await.is_ok(),
            Err(_) => false,
        }
    }

    /// How git is run for a source. For guarded callers the host's addresses are looked at here, and git is pinned to them.
    pub(crate) async fn way_to(
        &self,
        source: &GitSource,
    ) -> Result<(Vec<String>, GitSettings), FetchError> {
        let mut settings = self.settings.git.clone();
        if !self.settings.guarded || settings.loopback {
            // The user's own SSH command counts, wherever it is set.
            if source.is_ssh() && settings.ssh_command.is_none() {
                settings.ssh_command = git::configured_ssh(&settings).await;
            }
            return Ok((Vec::new(), settings));
        }
        if source.is_ssh() {
            return Err(FetchError::Unsupported {
                message: format!("{} would be asked over SSH with this machine's keys", source.place),
                hint: "use its https address, or add it with vault add on the machine that holds the vault".to_owned(),
            });
        }
        let url: Url = source
            .address
            .parse()
            .map_err(|error| FetchError::content(&source.place, format!("{error}")))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let addresses = http::public_addresses(host.trim_matches(['[', ']']), false)
            .await
            .map_err(|error| {
                if error
                    .get_ref()
                    .is_some_and(<dyn std::error::Error + Send + Sync>::is::<http::NotPublic>)
                {
                    FetchError::NotPublic(source.place.clone())
                } else {
                    FetchError::unreachable(&source.place, error.to_string())
                }
            })?;
        let port = url.port_or_known_default().unwrap_or(443);
        Ok((git::pin(&host, port, &addresses), settings))
    }

    async fn archive(&self, url: &Url, policy: &SourcePolicy) -> Result<Opened, FetchError> {
        let got = self.http.get(url, MAX_DOWNLOAD_BYTES, policy).await?;
        let got = got.ok_or_else(|| FetchError::NotFound(format!("{url} is not there")))?;
        let files = archive::unpack(url.as_str(), &got.body)?;
        Opened::of_files(files, web_facts(url, &got.body))
    }

    async fn skill_md(&self, url: &Url, policy: &SourcePolicy) -> Result<Opened, FetchError> {
        let got = self.http.get(url, MAX_SKILL_MD, policy).await?;
        let got = got.ok_or_else(|| FetchError::NotFound(format!("{url} is not there")))?;
        if got.content_type.starts_with("text/html") {
            return Err(FetchError::content(url, "it is a web page, not a SKILL.md"));
        }
        let facts = web_facts(url, &got.body);
        let files = vec![plain(SKILL_MD, got.body)];
        let mut opened = Opened::of_files(files, facts)?;
        if url.path().trim_matches('/') != SKILL_MD {
            opened.notices.push(
                "one file was fetched; files beside it cannot be found behind an address"
                    .to_owned(),
            );
        }
        Ok(opened)
    }

    async fn clawhub(
        &self,
        wanted: &registry::Wanted<'_>,
        policy: &SourcePolicy,
    ) -> Result<Opened, FetchError> {
        match registry::clawhub(self, wanted, policy).await? {
            registry::Answer::Archive { files, hand_off } => Opened::of_files(
                files,
                Facts {
                    identifier: hand_off.identifier,
                    address: None,
                    reference: hand_off.reference,
                    revision: Some(hand_off.version),
                    place: format!("clawhub:{}", wanted.slug),
                },
            ),
            registry::Answer::Repository { source, hand_off } => {
                policy.check(&Source::Git(source.clone()))?;
                let mut opened = self.repository(&source, None, policy, 1).await?;
                if let Content::Git(repository) = &mut opened.content {
                    repository.recorded = Some(hand_off);
                }
                Ok(opened)
            }
        }
    }

    /// Takes one of the skills that a source has. Fails on links, on what is too large, and where the policy keeps it out.
    pub async fn take(
        &self,
        opened: &Opened,
        found: &Found,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill, FetchError> {
        match &opened.content {
            Content::Git(repository) => self.take_from_git(repository, found, policy).await,
            Content::Site(site) => site.take(self, found, policy).await,
            Content::Files {
                files,
                identifier,
                address,
                reference,
                revision,
                tree,
            } => {
                let several = opened.found.len() > 1;
                let kept: Vec<RawFile> = files
                    .iter()
                    .filter_map(|file| {
                        let path = inside(&file.path, &found.folder)?;
                        (!ignored(path)).then(|| RawFile {
                            path: path.to_owned(),
                            mode: file.mode,
                            bytes: file.bytes.clone(),
                        })
                    })
                    .collect();
                Ok(FetchedSkill {
                    files: kept,
                    folder: last_part(&found.folder).or_else(|| stem(identifier)),
                    upstream: Upstream {
                        identifier: parse_identifier(identifier)?,
                        address: address.clone(),
                        path: several.then(|| found.folder.clone()),
                        reference: reference.clone(),
                        revision: revision.clone(),
                        tree: tree.clone(),
                        signer: None,
                        signed_version: None,
                    },
                })
            }
        }
    }

    async fn take_from_git(
        &self,
        repository: &Repository,
        found: &Found,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill, FetchError> {
        let Repository {
            source,
            resolved,
            checkout,
            recorded,
        } = repository;
        policy.check_names(&source.policy_names(Some(&found.folder)))?;
        let mut wanted = Vec::new();
        for entry in &checkout.tree {
            let Some(path) = inside(&entry.path, &found.folder).filter(|path| !ignored(path))
            else {
                continue;
            };
            let what = match entry.kind {
                EntryKind::Folder => continue,
                EntryKind::File(mode) => {
                    wanted.push((path, mode, entry.id.as_str()));
                    continue;
                }
                EntryKind::Link => "a symbolic link",
                EntryKind::Submodule => "a submodule",
            };
            return Err(FetchError::content(
                &source.place,
                format!(
                    "{} is {what}; a skill holds plain files only",
                    shown(&entry.path)
                ),
            ));
        }
        if wanted.len() > MAX_ARCHIVE_FILES {
            return Err(FetchError::TooLarge {
                what: source.place.clone(),
                limit: MAX_ARCHIVE_FILES as u64,
                unit: "files in one skill",
            });
        }
        let ids: Vec<&str> = wanted.iter().map(|(_, _, id)| *id).collect();
        let bytes = checkout.read(&ids, MAX_UNPACKED_BYTES).await?;
        let mut files = Vec::with_capacity(wanted.len());
        for (path, mode, id) in wanted {
            let bytes = bytes.get(id).ok_or_else(|| {
                FetchError::content(&source.place, format!("{} is missing", shown(path)))
            })?;
            if bytes.starts_with(b"version https://git-lfs.github.com/spec/") {
                return Err(FetchError::content(
                    &source.place,
                    format!("{} is kept in LFS, which is not fetched", shown(path)),
                ));
            }
            files.push(RawFile {
                path: path.to_owned(),
                mode,
                bytes: bytes.clone(),
            });
        }
        let tree = checkout.tree_id(&found.folder).map(str::to_owned);
        let folder = last_part(&found.folder).or_else(|| last_part(&source.place));
        if let Some(hand_off) = recorded {
            return Ok(FetchedSkill {
                files,
                folder,
                upstream: Upstream {
                    identifier: parse_identifier(&hand_off.identifier)?,
                    address: None,
                    path: None,
                    reference: hand_off.reference.clone(),
                    revision: Some(hand_off.version.clone()),
                    tree,
                    signer: None,
                    signed_version: None,
                },
            });
        }
        let identifier = source.identifier_of(&found.folder);
        let default =
            Source::of_identifier(&parse_identifier(&identifier)?, None, &self.settings.parse);
        let same = matches!(&default, Ok(Source::Git(git)) if git.address == source.address);
        Ok(FetchedSkill {
            files,
            folder,
            upstream: Upstream {
                identifier: parse_identifier(&identifier)?,
                address: (!same).then(|| source.address.clone()),
                path: Some(found.folder.clone()),
                reference: resolved.reference.clone(),
                revision: Some(checkout.commit.clone()),
                tree,
                signer: None,
                signed_version: None,
            },
        })
    }
}

/// What is known of files that are all here.
struct Facts {
    identifier: String,
    address: Option<String>,
    reference: Option<String>,
    revision: Option<String>,
    place: String,
}

impl Opened {
    fn of_files(files: Vec<RawFile>, facts: Facts) -> Result<Self, FetchError> {
        let folders = find::skills(files.iter().map(|file| file.path.as_str()), "");
        if folders.is_empty() {
            return Err(FetchError::NotFound(format!(
                "{} holds no SKILL.md",
                facts.place
            )));
        }
        Ok(Self::of_folders(&folders, files, facts))
    }

    fn of_folders(folders: &[String], files: Vec<RawFile>, facts: Facts) -> Self {
        let found = folders
            .iter()
            .map(|folder| {
                let path = join(folder, SKILL_MD);
                let document = files.iter().find(|file| file.path == path);
                found(
                    folder,
                    &facts.place,
                    document.map(|file| file.bytes.as_slice()),
                )
            })
            .collect();
        Self {
            found,
            notices: Vec::new(),
            content: Content::Files {
                files,
                identifier: facts.identifier,
                address: facts.address,
                reference: facts.reference,
                revision: facts.revision,
                tree: None,
            },
        }
    }

    /// The skills of these names, by their own name or their folder's. Fails with what there is where one is missing.
    pub fn pick(&self, names: &[String]) -> Result<Vec<&Found>, String> {
        names
            .iter()
            .map(|name| {
                let by_name = self.found.iter().find(|found| found.name == *name);
                by_name
                    .or_else(|| {
                        self.found
                            .iter()
                            .find(|found| last_part(&found.folder).as_deref() == Some(name))
                    })
                    .ok_or_else(|| name.clone())
            })
            .collect()
    }

    /// The one skill that is meant without a name: the only one, or the root's, or that of the folder that was named.
    pub fn only(&self) -> Option<&Found> {
        match &self.found[..] {
            [only] => Some(only),
            [first, ..] => {
                let base = match &self.content {
                    Content::Git(repository) => {
                        repository.resolved.path.as_deref().unwrap_or_default()
                    }
                    _ => "",
                };
                (first.folder == base && !matches!(self.content, Content::Site(_))).then_some(first)
            }
            [] => None,
        }
    }

    /// The commit, version or digest that was found.
    pub fn revision(&self) -> Option<&str> {
        match &self.content {
            Content::Git(repository) => Some(&repository.checkout.commit),
            Content::Files { revision, .. } => revision.as_deref(),
            Content::Site(_) => None,
        }
    }
}

fn local_archive(path: &std::path::Path) -> Result<Opened, FetchError> {
    let place = path.display().to_string();
    let bytes = read_file(path, MAX_DOWNLOAD_BYTES)?;
    let files = archive::unpack(&place, &bytes)?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("archive");
    Opened::of_files(
        files,
        Facts {
            identifier: format!("local:{}", name.trim()),
            address: None,
            reference: None,
            revision: Some(format!("sha256:{}", Digest::of(&bytes))),
            place,
        },
    )
}

fn web_facts(url: &Url, body: &[u8]) -> Facts {
    Facts {
        identifier: https_identifier(url),
        address: (url.scheme() != "https").then(|| url.to_string()),
        reference: None,
        revision: Some(format!("sha256:{}", Digest::of(body))),
        place: url.to_string(),
    }
}

pub(crate) fn found(folder: &str, place: &str, document: Option<&[u8]>) -> Found {
    let parsed = document.and_then(|bytes| Document::parse(bytes).ok());
    let own = parsed.as_ref().map(Document::frontmatter);
    Found {
        name: own
            .map(|own| own.name.clone())
            .filter(|name| !name.is_empty())
            .or_else(|| last_part(folder))
            .or_else(|| last_part(place))
            .unwrap_or_else(|| "skill".to_owned()),
        folder: folder.to_owned(),
        description: own.map(|own| own.description.clone()),
    }
}

pub(crate) fn plain(path: &str, bytes: Vec<u8>) -> RawFile {
    RawFile {
        path: path.to_owned(),
        mode: Mode::Plain,
        bytes,
    }
}

/// The identifier of an address; that of this machine's own servers (in tests) is written like any other.
pub(crate) fn https_identifier(url: &Url) -> String {
    let text = url.as_str();
    match text.strip_prefix("http://") {
        Some(rest) => format!("https:https://{rest}"),
        None => format!("https:{text}"),
    }
}

pub(crate) fn parse_identifier(text: &str) -> Result<ProvenanceId, FetchError> {
    text.parse()
        .map_err(|error| FetchError::content(text, format!("no source can be recorded: {error}")))
}

pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// A path below a folder.
fn inside<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    if folder.is_empty() {
        return Some(path);
    }
    path.strip_prefix(folder)?.strip_prefix('/')
}

fn ignored(path: &str) -> bool {
    path.split('/')
        .any(|part| is_ignored(part) || part == "__MACOSX")
}

fn last_part(path: &str) -> Option<String> {
    path.rsplit('/')
        .next()
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
}

/// The name of an archive without its ending.
fn stem(identifier: &str) -> Option<String> {
    let name = identifier.rsplit(['/', ':']).next()?;
    let name = [".tar.gz", ".tgz", ".tar", ".zip", ".skill"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    (!name.is_empty() && name != SKILL_MD).then(|| name.to_owned())
}

/// The beginning of a commit id, as people read it.
pub fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

fn read_file(path: &std::path::Path, max: u64) -> Result<Vec<u8>, FetchError> {
    use rustix::fs::{FileType, Mode as Bits, OFlags, fstat, open};
    use std::io::Read as _;
    let place = path.display().to_string();
    let failed = |error: rustix::io::Errno| {
        FetchError::content(&place, format!("it cannot be read: {error}"))
    };
    // A pipe must not hold us up, and a link leads elsewhere than was said.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let fd = open(path, flags, Bits::empty()).map_err(failed)?;
    let facts = fstat(&fd).map_err(failed)?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Err(FetchError::content(&place, "it is no plain file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::from(fd)
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| FetchError::content(&place, format!("it cannot be read: {error}")))?;
    if bytes.len() as u64 > max {
        return Err(FetchError::TooLarge {
            what: shown(&place),
            limit: max,
            unit: "bytes",
        });
    }
    Ok(bytes)
}
