//! Plugin marketplaces: reads `.claude-plugin/marketplace.json` at the root of a repository and
//! lists the skills of one plugin.

use async_trait::async_trait;
use serde::Deserialize;

use super::files::{open_folders, web_upstream};
use super::npm::Package;
use super::repository::Repository;
use super::{Kind, MAX_JSON_BYTES, join_path, parse_json};
use crate::access::Access;
use crate::archive;
use crate::error::{FetchError, Result, escape_untrusted};
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
    plugins: Vec<PluginEntry>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(rename = "pluginRoot")]
    root: Option<String>,
}

#[derive(Deserialize)]
struct PluginEntry {
    name: String,
    source: PluginSource,
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
enum PluginSource {
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
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        let repository = Repository::fetch_repository(access, self.market).await?;
        let place = format!("{}/{FILE}", self.market.place);
        let (root, entry) = self.find_plugin(&repository, &place).await?;
        let selection = Selection {
            named: entry.skills,
            strict: entry.strict,
        };
        let plugin = escape_untrusted(self.name);
        match entry.source {
            PluginSource::Path(path) => {
                let base = join_inside(&root, &path).ok_or_else(|| {
                    FetchError::content_error(
                        &place,
                        "a plugin's path points out of the repository",
                    )
                })?;
                let paths: Vec<&str> = repository.file_paths().collect();
                let folders = selection.skill_folders(&paths, &base, &place, &plugin)?;
                let mut opened = repository.open_folders(folders).await?;
                opened
                    .notices
                    .push(format!("skills of the plugin {plugin}"));
                Ok(opened)
            }
            PluginSource::RemotePlugin(elsewhere) if elsewhere.source == "npm" => {
                let package = elsewhere.package.as_deref().unwrap_or_default();
                let package = Package::new(package, elsewhere.version.as_deref());
                let package =
                    package.map_err(|reason| FetchError::content_error(&place, reason))?;
                open_package(access, &package, selection, &plugin).await
            }
            PluginSource::RemotePlugin(elsewhere) => {
                let source = elsewhere.git_source(&access.fetcher.settings.parse, &place)?;
                // So far, the policy was checked for the marketplace only, and the plugin is in
                // another repository.
                access.policy.check_source(&Source::Git(source.clone()))?;
                let repository = Repository::fetch_repository(access, &source).await?;
                repository.open_all().await
            }
        }
    }
}

impl Plugin<'_> {
    /// Returns the base folder for relative plugin paths, and the plugin's entry in the
    /// marketplace.
    async fn find_plugin(
        &self,
        repository: &Repository,
        place: &str,
    ) -> Result<(String, PluginEntry)> {
        let checkout = &repository.checkout;
        let file = checkout.tree.iter().find(|entry| entry.path == FILE);
        let file = file.ok_or_else(|| {
            let market = &self.market.place;
            FetchError::NotFound(format!("{market} is not a marketplace: it has no {FILE}"))
        })?;
        let mut bytes = checkout.read_blobs(&[&file.id], MAX_JSON_BYTES).await?;
        let market: Market = parse_json(place, &bytes.remove(&file.id).unwrap_or_default())?;
        let names = market
            .plugins
            .iter()
            .take(50)
            .map(|e| escape_untrusted(&e.name));
        let names: Vec<String> = names.collect();
        let plugin = escape_untrusted(self.name);
        let mut entries = market.plugins.into_iter().filter(|e| e.name == self.name);
        let entry = entries.next().ok_or_else(|| {
            FetchError::NotFound(format!(
                "{} has no plugin {plugin}; it has: {}",
                self.market.place,
                names.join(", ")
            ))
        })?;
        // Tools differ in which of two entries with one name they use.
        if entries.next().is_some() {
            let reason = format!("it lists the plugin {plugin} twice");
            return Err(FetchError::content_error(place, reason));
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
    let archive = package.fetch_archive(access).await?;
    let files = archive::unpack_archive(&archive.shown, &archive.body)?;
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    // An npm archive contains one top-level folder, usually `package`.
    let base = paths.first().and_then(|path| path.split('/').next());
    let folders =
        selection.skill_folders(&paths, base.unwrap_or_default(), &archive.shown, plugin)?;
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
    fn skill_folders(
        self,
        files: &[&str],
        base: &str,
        place: &str,
        plugin: &str,
    ) -> Result<Vec<String>> {
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
                    let folder = join_inside(base, &folder).ok_or_else(|| {
                        FetchError::content_error(
                            place,
                            "a skill's path points out of the repository",
                        )
                    })?;
                    all.extend(find::skill_folders(files(), &folder));
                }
                if self.strict != Some(false) {
                    all.extend(find::skill_folders(files(), &join_path(base, "skills")));
                }
                all.sort();
                all.dedup();
                all
            }
            None => find::skill_folders(files(), &join_path(base, "skills")),
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
    fn git_source(self, options: &ParseOptions, place: &str) -> Result<GitSource> {
        let text = match (self.source.as_str(), &self.repo, &self.url) {
            ("github" | "git-subdir", Some(repo), None) => format!("github:{repo}"),
            ("url" | "git" | "git-subdir", _, Some(url))
                if url.contains("://") || url.contains('@') =>
            {
                format!("git:{url}")
            }
            (other, ..) => {
                return Err(FetchError::content_error(
                    place,
                    format!("a plugin's source {} is not known", escape_untrusted(other)),
                ));
            }
        };
        let bad = |bad: BadSource| FetchError::content_error(place, bad.to_string());
        // The text comes from a marketplace, which must not name a local path.
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
                return Err(FetchError::content_error(
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
            _ => Err(FetchError::content_error(
                place,
                "a plugin's source is not a repository",
            )),
        }
    }
}

/// Joins two relative paths and removes `.` segments. Returns `None` if the result leaves the
/// repository.
fn join_inside(base: &str, path: &str) -> Option<String> {
    let parts: Vec<&str> = base
        .split('/')
        .chain(path.split('/'))
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    (!path.starts_with('/') && !parts.contains(&"..")).then(|| parts.join("/"))
}
