//! Plugin marketplaces: reads `.claude-plugin/marketplace.json` at the root of a repository and
//! lists the skills of one plugin.

use async_trait::async_trait;
use serde::Deserialize;

use super::files::{open_folders, web_upstream};
use super::npm::Package;
use super::repository::Repository;
use super::{Kind, MAX_JSON_BYTES, join, parse_json};
use crate::access::Access;
use crate::archive;
use crate::error::{FetchError, Result, shown};
use crate::find;
use crate::git::is_commit;
use crate::opened::Opened;
use crate::source::{BadSource, GitSource, ParseOptions, Source};

const FILE: &str = ".claude-plugin/marketplace.json";

/// One plugin of a repository's marketplace.
pub(crate) struct Plugin<'a> {
    pub(crate) market: &'a GitSource,
    pub(crate) name: &'a str,
}

/// The rule that selects the skill folders of a plugin.
struct Selection {
    named: Option<Folders>,
    strict: Option<bool>,
}

#[derive(Deserialize)]
struct Market {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    plugins: Vec<Entry>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(rename = "pluginRoot")]
    root: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    source: Place,
    #[serde(default)]
    strict: Option<bool>,
    #[serde(default)]
    skills: Option<Folders>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Folders {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Place {
    Path(String),
    RemotePlugin(RemotePlugin),
}

#[derive(Deserialize)]
struct RemotePlugin {
    source: String,
    repo: Option<String>,
    url: Option<String>,
    path: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    sha: Option<String>,
    package: Option<String>,
    version: Option<String>,
}

#[async_trait]
impl Kind for Plugin<'_> {
    async fn open(&self, access: Access<'_>) -> Result<Opened> {
        let repository = Repository::fetch(access, self.market).await?;
        let place = format!("{}/{FILE}", self.market.place);
        let (root, entry) = self.entry(&repository, &place).await?;
        let selection = Selection {
            named: entry.skills,
            strict: entry.strict,
        };
        let plugin = shown(self.name);
        match entry.source {
            Place::Path(path) => {
                let base = joined(&root, &path).ok_or_else(|| {
                    FetchError::content(&place, "a plugin's path points out of the repository")
                })?;
                let paths: Vec<&str> = repository.paths().collect();
                let folders = selection.folders(&paths, &base, &place, &plugin)?;
                let mut opened = repository.open_folders(folders).await?;
                opened
                    .notices
                    .push(format!("skills of the plugin {plugin}"));
                Ok(opened)
            }
            Place::RemotePlugin(elsewhere) if elsewhere.source == "npm" => {
                let package = elsewhere.package.as_deref().unwrap_or_default();
                let package = Package::new(package, elsewhere.version.as_deref());
                let package = package.map_err(|reason| FetchError::content(&place, reason))?;
                open_package(access, &package, selection, &plugin).await
            }
            Place::RemotePlugin(elsewhere) => {
                let source = elsewhere.source(&access.fetcher.settings.parse, &place)?;
                // The policy was checked for the marketplace only, and the plugin is in another
                // repository.
                access.policy.check(&Source::Git(source.clone()))?;
                let repository = Repository::fetch(access, &source).await?;
                repository.open_all().await
            }
        }
    }
}

impl Plugin<'_> {
    /// Returns the base folder for relative plugin paths, and the plugin's entry in the
    /// marketplace.
    async fn entry(&self, repository: &Repository, place: &str) -> Result<(String, Entry)> {
        let checkout = &repository.checkout;
        let file = checkout.tree.iter().find(|entry| entry.path == FILE);
        let file = file.ok_or_else(|| {
            let market = &self.market.place;
            FetchError::NotFound(format!("{market} is not a marketplace: it has no {FILE}"))
        })?;
        let mut bytes = checkout.read(&[&file.id], MAX_JSON_BYTES).await?;
        let market: Market = parse_json(place, &bytes.remove(&file.id).unwrap_or_default())?;
        let names = market.plugins.iter().take(50).map(|e| shown(&e.name));
        let names: Vec<String> = names.collect();
        let plugin = shown(self.name);
        let mut entries = market.plugins.into_iter().filter(|e| e.name == self.name);
        let entry = entries.next().ok_or_else(|| {
            FetchError::NotFound(format!(
                "{} has no plugin {plugin}; it has: {}",
                self.market.place,
                names.join(", ")
            ))
        })?;
        // Tools differ in which of two entries counts.
        if entries.next().is_some() {
            let reason = format!("it lists the plugin {plugin} twice");
            return Err(FetchError::content(place, reason));
        }
        Ok((market.metadata.root.unwrap_or_default(), entry))
    }
}

async fn open_package(
    access: Access<'_>,
    package: &Package,
    selection: Selection,
    plugin: &str,
) -> Result<Opened> {
    let archive = package.fetch(access).await?;
    let files = archive::unpack(&archive.shown, &archive.body)?;
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    // An npm archive contains one top-level folder, usually `package`.
    let base = paths.first().and_then(|path| path.split('/').next());
    let folders = selection.folders(&paths, base.unwrap_or_default(), &archive.shown, plugin)?;
    let upstream = web_upstream(&archive.url, &archive.body)?;
    let mut opened = open_folders(&folders, files, upstream, archive.url.as_str());
    opened.notices.push(format!(
        "skills of the plugin {plugin}, the npm package {}",
        archive.shown
    ));
    Ok(opened)
}

impl Selection {
    /// Returns the skill folders of a plugin among these files, below `base`. Fails if there are
    /// none.
    fn folders(self, files: &[&str], base: &str, place: &str, plugin: &str) -> Result<Vec<String>> {
        let files = || files.iter().copied();
        let named = match self.named {
            Some(Folders::One(one)) => Some(vec![one]),
            Some(Folders::Many(many)) => Some(many),
            None => None,
        };
        let folders = match named {
            // With `strict: false`, the entry alone lists the skills. Otherwise it extends the
            // skills found in `skills/`.
            Some(named) => {
                let mut all = Vec::new();
                for folder in named {
                    let folder = joined(base, &folder).ok_or_else(|| {
                        FetchError::content(place, "a skill's path points out of the repository")
                    })?;
                    all.extend(find::skills(files(), &folder));
                }
                if self.strict != Some(false) {
                    all.extend(find::skills(files(), &join(base, "skills")));
                }
                all.sort();
                all.dedup();
                all
            }
            None => find::skills(files(), &join(base, "skills")),
        };
        if folders.is_empty() {
            return Err(FetchError::NotFound(format!(
                "the plugin {plugin} holds no skills"
            )));
        }
        Ok(folders)
    }
}

impl RemotePlugin {
    fn source(self, options: &ParseOptions, place: &str) -> Result<GitSource> {
        let text = match (self.source.as_str(), &self.repo, &self.url) {
            ("github" | "git-subdir", Some(repo), None) => format!("github:{repo}"),
            ("url" | "git" | "git-subdir", _, Some(url))
                if url.contains("://") || url.contains('@') =>
            {
                format!("git:{url}")
            }
            (other, ..) => {
                return Err(FetchError::content(
                    place,
                    format!("a plugin's source {} is not known", shown(other)),
                ));
            }
        };
        let bad = |bad: BadSource| FetchError::content(place, bad.to_string());
        // A marketplace comes from elsewhere and must not name a local path.
        let mut source = Source::parse(&text, options, &|_| false).map_err(bad)?;
        if let Some(path) = self
            .path
            .as_deref()
            .map(|path| path.trim_start_matches("./").trim_matches('/'))
            .filter(|path| !path.is_empty())
        {
            source = source.with_path(path).map_err(bad)?;
        }
        // A commit id in the marketplace takes precedence over the branch.
        let reference = match &self.sha {
            Some(sha) if is_commit(sha) => Some(sha),
            Some(_) => {
                return Err(FetchError::content(
                    place,
                    "a plugin's sha is not a full commit id",
                ));
            }
            None => self.reference.as_ref(),
        };
        if let Some(reference) = reference {
            source = source.with_reference(reference).map_err(bad)?;
        }
        match source {
            Source::Git(git) => Ok(git),
            _ => Err(FetchError::content(
                place,
                "a plugin's source is not a repository",
            )),
        }
    }
}

/// Joins two relative paths and removes `.` segments. Returns `None` if the result leaves the
/// repository.
fn joined(base: &str, path: &str) -> Option<String> {
    let parts: Vec<&str> = base
        .split('/')
        .chain(path.split('/'))
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    (!path.starts_with('/') && !parts.contains(&"..")).then(|| parts.join("/"))
}
