//! Plugin marketplaces: `.claude-plugin/marketplace.json` at the root of a repository, and the skills of one of its plugins.

use serde::Deserialize;

use crate::error::{FetchError, shown};
use crate::fetcher::{Fetcher, join};
use crate::find;
use crate::git::{Checkout, EntryKind, is_commit};
use crate::npm::Package;
use crate::source::{GitSource, Source};

const FILE: &str = ".claude-plugin/marketplace.json";
/// Largest marketplace, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Where a plugin's skills are.
pub(crate) enum Plugin {
    /// In folders of the marketplace's own commit.
    Here(Vec<String>),
    /// In another repository.
    There(Box<GitSource>),
    /// In a package.
    Package(Package, Picked),
}

/// Which folders of a plugin are its skills.
pub(crate) struct Picked {
    named: Option<Folders>,
    strict: Option<bool>,
}

#[derive(Deserialize)]
struct Market {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    plugins: Vec<Listed>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(rename = "pluginRoot")]
    root: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    source: Place,
    #[serde(default)]
    strict: Option<bool>,
    #[serde(default)]
    skills: Option<Folders>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Folders {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Place {
    Path(String),
    Elsewhere(Elsewhere),
}

#[derive(Deserialize)]
struct Elsewhere {
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

/// Finds the skills of a plugin.
pub(crate) async fn skills(
    fetcher: &Fetcher,
    checkout: &Checkout,
    source: &GitSource,
    plugin: &str,
) -> Result<Plugin, FetchError> {
    let place = format!("{}/{FILE}", source.place);
    let entry = checkout.tree.iter().find(|entry| entry.path == FILE);
    let entry = entry.ok_or_else(|| {
        FetchError::NotFound(format!(
            "{} is no marketplace: it has no {FILE}",
            source.place
        ))
    })?;
    let mut bytes = checkout.read(&[&entry.id], MAX_BYTES).await?;
    let bytes = bytes.remove(&entry.id).unwrap_or_default();
    let market: Market = serde_json::from_slice(&bytes).map_err(|error| {
        FetchError::content(
            &place,
            format!("it cannot be read: {}", shown(&error.to_string())),
        )
    })?;
    let names: Vec<String> = market
        .plugins
        .iter()
        .map(|listed| shown(&listed.name))
        .collect();
    let listed = market
        .plugins
        .into_iter()
        .find(|listed| listed.name == plugin)
        .ok_or_else(|| {
            FetchError::NotFound(format!(
                "{} has no plugin {}; it has: {}",
                source.place,
                shown(plugin),
                names.join(", ")
            ))
        })?;
    let picked = Picked {
        named: listed.skills,
        strict: listed.strict,
    };
    match listed.source {
        Place::Elsewhere(elsewhere) if elsewhere.source == "npm" => {
            let package = elsewhere.package.as_deref().unwrap_or_default();
            let package = Package::new(package, elsewhere.version.as_deref());
            let package = package.map_err(|reason| FetchError::content(&place, reason))?;
            Ok(Plugin::Package(package, picked))
        }
        Place::Elsewhere(elsewhere) => elsewhere
            .source(fetcher, &place)
            .map(Box::new)
            .map(Plugin::There),
        Place::Path(path) => {
            let root = market.metadata.root.as_deref().unwrap_or_default();
            let base = joined(root, &path).ok_or_else(|| {
                FetchError::content(&place, "a plugin's path leads out of the repository")
            })?;
            let files = checkout
                .tree
                .iter()
                .filter(|entry| matches!(entry.kind, EntryKind::File(_)))
                .map(|entry| entry.path.as_str());
            picked
                .folders(&files.collect::<Vec<_>>(), &base, &place, plugin)
                .map(Plugin::Here)
        }
    }
}

impl Picked {
    /// The folders of the skills of a plugin that is at this base among these files; fails where there are none.
    pub(crate) fn folders(
        self,
        files: &[&str],
        base: &str,
        place: &str,
        plugin: &str,
    ) -> Result<Vec<String>, FetchError> {
        let files = || files.iter().copied();
        let named = match self.named {
            Some(Folders::One(one)) => Some(vec![one]),
            Some(Folders::Many(many)) => Some(many),
            None => None,
        };
        let folders = match named {
            // With `strict: false` the entry itself says which skills there are; elsewhere it adds to what is found.
            Some(named) => {
                let mut all = Vec::new();
                for folder in named {
                    let folder = joined(base, &folder).ok_or_else(|| {
                        FetchError::content(place, "a skill's path leads out of the repository")
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
                "the plugin {} holds no skills",
                shown(plugin)
            )));
        }
        Ok(folders)
    }
}

impl Elsewhere {
    fn source(self, fetcher: &Fetcher, place: &str) -> Result<GitSource, FetchError> {
        let options = &fetcher.settings.parse;
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
        let bad = |bad: crate::source::BadSource| FetchError::content(place, bad.to_string());
        let mut source = Source::parse(&text, options, &|_| false).map_err(bad)?;
        if let Some(path) = self
            .path
            .as_deref()
            .map(|path| path.trim_start_matches("./").trim_matches('/'))
            .filter(|path| !path.is_empty())
        {
            source = source.with_path(path).map_err(bad)?;
        }
        // The commit that the marketplace fixes counts, not where the branch has gone since.
        let reference = match &self.sha {
            Some(sha) if is_commit(sha) => Some(sha),
            Some(_) => {
                return Err(FetchError::content(
                    place,
                    "a plugin's sha is no full commit id",
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
                "a plugin's source is no repository",
            )),
        }
    }
}

/// Two relative paths as one, `.` left out; nothing where it leads out.
fn joined(base: &str, path: &str) -> Option<String> {
    let parts: Vec<&str> = base
        .split('/')
        .chain(path.split('/'))
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    (!path.starts_with('/') && !parts.contains(&"..")).then(|| parts.join("/"))
}
