//! Plugin marketplaces: reads `.claude-plugin/marketplace.json` in the folder that a source names,
//! by default the root of a repository, folder or archive, and lists the skills of one plugin.

use serde::Deserialize;
use vault_gate::is_document_name;
use vault_gate::skill_folders::{Found, LeftOut, LeftOutReason};

use super::files::{FileSet, web_upstream};
use super::npm::Package;
use super::repository::Repository;
use super::tree::Tree;
use super::{MAX_JSON_BYTES, join_path, parse_json};
use crate::access::Access;
use crate::archive;
use crate::error::{FetchError, Result, escape_untrusted};
use crate::find::{self, MergedSearches};
use crate::git::is_commit;
use crate::opened::Opened;
use crate::source::{BadSource, GitSource, ParseOptions, Source};

const FILE: &str = ".claude-plugin/marketplace.json";

/// The file in a plugin's folder that may name more folders of skills.
const PLUGIN_FILE: &str = ".claude-plugin/plugin.json";

/// Maximum number of folders that a plugin may name. Each costs a search of the whole tree.
const MAX_NAMED: usize = 1_000;

/// What selects the skill folders of a plugin.
struct SkillRule {
    /// The folders that the plugin's entry in the marketplace names; `None` if the entry has no
    /// list.
    named: Option<Vec<String>>,
    /// Whether the plugin's own `plugin.json` is read too. With `strict: false`, only the entry
    /// decides.
    strict: bool,
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

/// The members of `plugin.json` that matter for skills.
#[derive(Default, Deserialize)]
struct PluginFile {
    #[serde(default)]
    skills: Option<Folders>,
}

impl Folders {
    fn into_list(self) -> Vec<String> {
        match self {
            Self::One(only) => vec![only],
            Self::Many(many) => many,
        }
    }
}

/// Opens a plugin of a marketplace and lists its skills. The plugin may be in the tree of the
/// marketplace, in another repository, or in an npm package.
pub(super) async fn open_plugin(
    access: Access<'_>,
    market: Box<dyn Tree + '_>,
    name: &str,
) -> Result<Opened> {
    let place = join_path(market.place(), &join_path(market.base(), FILE));
    let (root, entry) = find_entry(&*market, &place, name).await?;
    let rule = SkillRule {
        named: entry.skills.map(Folders::into_list),
        strict: entry.strict != Some(false),
    };
    let plugin = escape_untrusted(name);
    let mut note = format!("skills of the plugin {plugin}");
    let (tree, base): (Box<dyn Tree + '_>, String) = match entry.source {
        PluginSource::Path(path) => {
            let inside = join_inside(&root, &path);
            let inside = inside.ok_or_else(|| outside_error(&place, "a plugin's path"))?;
            let base = join_path(market.base(), &inside);
            (market, base.trim_matches('/').to_owned())
        }
        PluginSource::RemotePlugin(elsewhere) if elsewhere.source == "npm" => {
            let package = elsewhere.package.as_deref().unwrap_or_default();
            let package = Package::new(package, elsewhere.version.as_deref());
            let package = package.map_err(|reason| FetchError::content_error(&place, reason))?;
            let archive = package.fetch_archive(access).await?;
            let upstream = web_upstream(&archive.url, &archive.body)?;
            let unpacked = archive::unpack_archive(&archive.shown, archive.body).await?;
            note.push_str(&format!(", the npm package {}", archive.shown));
            let files = FileSet::new(unpacked, upstream, archive.url.as_str()).await?;
            (Box::new(files), String::new())
        }
        PluginSource::RemotePlugin(elsewhere) => {
            let source = elsewhere.git_source(&access.fetcher.settings.parse, &place)?;
            // So far, the policy was checked for the marketplace only, and the plugin is in
            // another repository.
            access.policy.check_source(&Source::Git(source.clone()))?;
            let repository = Repository::fetch_repository(access, &source).await?;
            let base = repository.base().to_owned();
            (Box::new(repository), base)
        }
    };
    let found = rule.find_skills(&*tree, &base).await?;
    if found.skills.is_empty() {
        let message = format!("the plugin {plugin} holds no skills");
        return Err(FetchError::NotFound(message));
    }
    let mut opened = tree.open_found(found, None).await?;
    opened.notes.push(note);
    Ok(opened)
}

/// Returns the base folder for relative plugin paths, and the plugin's entry in the marketplace.
async fn find_entry(tree: &dyn Tree, place: &str, name: &str) -> Result<(String, PluginEntry)> {
    let path = join_path(tree.base(), FILE);
    let bytes = tree.read_file(&path, MAX_JSON_BYTES).await?;
    let bytes = bytes.ok_or_else(|| {
        let market = join_path(tree.place(), tree.base());
        let market = escape_untrusted(market.trim_end_matches('/'));
        FetchError::NotFound(format!("{market} is not a marketplace: it has no {FILE}"))
    })?;
    let market: Market = parse_json(place, &bytes)?;
    let names = market.plugins.iter().take(50);
    let names: Vec<String> = names.map(|entry| escape_untrusted(&entry.name)).collect();
    let plugin = escape_untrusted(name);
    let mut entries = market
        .plugins
        .into_iter()
        .filter(|entry| entry.name == name);
    let entry = entries.next().ok_or_else(|| {
        FetchError::NotFound(format!(
            "{} has no plugin {plugin}; it has: {}",
            escape_untrusted(tree.place()),
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

fn outside_error(place: &str, what: &str) -> FetchError {
    FetchError::content_error(place, format!("{what} points out of the repository"))
}

impl SkillRule {
    /// Finds the skills of the plugin in a folder: those in `skills/`, and those in the folders
    /// that its entry and its `plugin.json` name. If there are none, the folder itself may be the
    /// skill.
    async fn find_skills(self, tree: &dyn Tree, base: &str) -> Result<Found> {
        // An empty list names no skill, which is not the same as no list.
        let named_all = !self.strict && self.named.is_some();
        let mut named = self.named.unwrap_or_default();
        if self.strict {
            let path = join_path(base, PLUGIN_FILE);
            if let Some(bytes) = tree.read_file(&path, MAX_JSON_BYTES).await? {
                let place = format!("{}/{path}", tree.place());
                let file: PluginFile = parse_json(place, &bytes)?;
                named.extend(file.skills.map(Folders::into_list).unwrap_or_default());
            }
        }
        find::check_limit(tree.place(), named.len(), MAX_NAMED, "folders in a plugin")?;
        let mut found = MergedSearches::default();
        for folder in &named {
            let inside = join_inside("", folder);
            let inside = inside.ok_or_else(|| outside_error(tree.place(), "a skill's path"))?;
            // Some marketplaces name the file and not its folder.
            let inside = match inside.rsplit_once('/') {
                Some((above, name)) if is_document_name(name) => above,
                None if is_document_name(&inside) => "",
                _ => &inside,
            };
            let folder = join_path(base, inside);
            let folder = folder.trim_matches('/');
            let mut below = tree.find_skills(folder).of_named_folder(folder);
            if folder == base {
                // Other plugins of the same repository may lie below the plugin's own folder.
                below.keep_level(folder);
            }
            if below.skills.is_empty() {
                let reason = LeftOutReason::BadEntry("it holds no SKILL.md".to_owned());
                below.left_out.insert(0, LeftOut::new(folder, reason));
            }
            found.add(below);
            find::check_number(tree.place(), found.len())?;
        }
        if !named_all {
            found.add(tree.find_skills(&join_path(base, "skills")));
            if found.len() == 0 {
                let own = tree.find_skills(base).of_named_folder(base);
                let is_own = own.skills.first().is_some_and(|(folder, _)| folder == base);
                if is_own {
                    found.add(own);
                }
            }
        }
        find::check_number(tree.place(), found.len())?;
        Ok(found.into_found())
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
            // One plugin has all skills of its folder, and other tools know no such suffix.
            Source::Git(GitSource { skill: Some(_), .. }) => Err(FetchError::content_error(
                place,
                "a plugin's repository is named without @",
            )),
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
