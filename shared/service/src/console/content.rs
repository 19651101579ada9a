//! Skills and releases as pages read them: from the shelf of the vault, and from the releases that
//! are kept.

use std::sync::Arc;

use axum::http::StatusCode;
use vault_format::catalog::{Catalog, SkillEntry};
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::name::SkillName;
use vault_format::root::{KeyFingerprint, RevokedKey, RootChain};
use vault_gate::finding::{Finding, Level};
use vault_shelf::{Entry, Loaded, Shelf, ShelfError};
use vault_store::StoreError;
use vault_store::objects::Class;

use super::difference::shown;
use super::guard::ConsolePage;
use crate::app::{Acting, Shelves};
use crate::error::Refusal;
use crate::model::namespace::Namespace;
use crate::model::release::Release;
use crate::web::error_page::ErrorPage;

/// The refusal of a form or page: what is not there has the page of an address that is not there.
pub(super) fn or_not_found(refusal: Refusal) -> ErrorPage {
    match refusal.status() {
        StatusCode::NOT_FOUND => ErrorPage::NotFound,
        _ => refusal.into(),
    }
}

/// The shelf of the vault.
pub(super) fn shelf(page: &ConsolePage) -> Arc<dyn Shelf> {
    let Acting {
        app,
        namespace,
        actor,
    } = page.acting();
    let shelves: &dyn Shelves = match &app.shelves {
        Some(shelves) => &**shelves,
        None => &page.cache.releases,
    };
    shelves.shelf(app, namespace, actor.source)
}

/// A skill of the current release; `None` where it has none of this name.
pub(super) async fn current_skill(
    shelf: &dyn Shelf,
    name: &SkillName,
) -> Result<Option<Arc<Loaded>>, ShelfError> {
    let snapshot = shelf.snapshot().await?;
    match snapshot.find(name) {
        Some(entry) => shelf.load(entry).await.map(Some),
        None => Ok(None),
    }
}

/// The skill with this bundle, whichever release has it. Of one that the current release does not
/// have, the signer must publish now.
pub(super) async fn skill_of_bundle(
    shelf: &dyn Shelf,
    skill: &SkillEntry,
) -> Result<Arc<Loaded>, ShelfError> {
    let snapshot = shelf.snapshot().await?;
    let current = snapshot.find(&skill.name);
    if let Some(entry) = current.filter(|entry| entry.texts.bundle_hash == skill.bundle_hash) {
        return shelf.load(entry).await;
    }
    let entry = Entry {
        texts: IndexEntry {
            name: skill.name.clone(),
            bundle_hash: skill.bundle_hash,
            description: String::new(),
            tags: Vec::new(),
            categories: Vec::new(),
            when_to_use: String::new(),
            agents: Vec::new(),
            actions: Vec::new(),
        },
        version: skill.version,
        size: skill.size,
        vault: None,
    };
    shelf.load(&entry).await
}

/// Why a skill's content is not on the page, in a sentence; fails where the store does.
pub(super) fn unavailable(error: ShelfError) -> Result<&'static str, StoreError> {
    match error {
        ShelfError::NotFound(_) => Ok("Its content is no longer kept, or was withdrawn."),
        ShelfError::SubscriptionLapsed => {
            Ok("Its content is not shown while the subscription of this vault has lapsed.")
        }
        ShelfError::ReleaseAwaited => Ok(
            "Its content is not shown: a key that signed the current release was revoked. A publisher has to sign a new release.",
        ),
        ShelfError::Damaged(..) => {
            Ok("Its content is not shown: it is not signed by a key that publishes now.")
        }
        ShelfError::Store(error) => Err(error),
        error => Err(StoreError::unavailable(error.to_string())),
    }
}

/// What a release lists, as long as it is kept. `None` too where an earlier version of vault has
/// published it, whose files are not read.
pub(super) async fn release_catalog(
    page: &ConsolePage,
    release: &Release,
) -> Result<Option<Arc<Catalog>>, StoreError> {
    if release.root_version == 0 {
        return Ok(None);
    }
    let (file, payload) = (release.sha256, release.payload_sha256);
    let catalogs = &page.cache.catalogs;
    catalogs
        .list(page.app(), &page.namespace, file, payload)
        .await
}

/// The versions of the vault's keys; `None` before the first release.
pub(super) async fn current_chain(
    page: &ConsolePage,
) -> Result<Option<Arc<RootChain>>, StoreError> {
    page.cache.catalogs.chain(page.app(), &page.namespace).await
}

/// The same for a page that shows more than keys: where the current release cannot be read, no
/// keys, and `true`.
pub(super) async fn readable_chain(page: &ConsolePage) -> (Option<Arc<RootChain>>, bool) {
    match readable(current_chain(page).await) {
        Some(chain) => (chain, false),
        None => (None, true),
    }
}

/// What was read of the current release; `None` where it cannot be read, which the log says. A page
/// shows the rest.
pub(super) fn readable<T>(read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(|error| tracing::error!(%error, "the current release cannot be read"))
        .ok()
}

/// A finding of the security check.
pub(super) struct ShownFinding {
    pub(super) level: &'static str,
    /// The class of the level's mark.
    pub(super) mark: &'static str,
    pub(super) message: String,
    /// The file and the line; empty for the skill as a whole.
    pub(super) place: String,
    pub(super) rule: &'static str,
    /// What the rule is for.
    pub(super) why: &'static str,
}

impl ShownFinding {
    /// The finding as pages show it.
    pub(super) fn of(finding: &Finding) -> Self {
        let (level, mark) = match finding.level {
            Level::Error => ("Error", "stop"),
            Level::Flag => ("Security flag", "stop"),
            Level::Warning => ("Warning", "wait"),
            Level::Note => ("Note", ""),
        };
        let place = match (finding.path.as_str(), finding.line) {
            ("", _) => String::new(),
            (path, Some(line)) => format!("{}, line {line}", shown(path)),
            (path, None) => shown(path),
        };
        Self {
            level,
            mark,
            message: shown(&finding.message),
            place,
            rule: finding.rule,
            why: finding.why,
        }
    }
}

/// A key as pages name it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct NamedKey {
    /// The owner's name for it; `None` for a key that no version of the chain names.
    pub(super) name: Option<String>,
    pub(super) fingerprint: String,
    /// Whether nothing that it signed counts any more.
    pub(super) revoked: bool,
}

/// The key of this fingerprint, by the newest name that the chain has for it.
pub(super) fn named_key(
    namespace: &Namespace,
    chain: Option<&RootChain>,
    fingerprint: &KeyFingerprint,
) -> NamedKey {
    let versions = chain.map(RootChain::versions).unwrap_or_default();
    let entry = versions.iter().rev().find_map(|version| {
        let mut keys = version.document().keys().iter();
        keys.find(|entry| fingerprint.matches(&entry.public_key))
    });
    let in_chain = chain.map(|chain| chain.document().revoked());
    let elsewhere = namespace.pin.vault().map(|pin| &pin.revoked);
    let mut revoked = in_chain.into_iter().flatten();
    let mut revoked_elsewhere = elsewhere.into_iter().flatten();
    NamedKey {
        name: entry.map(|entry| entry.name.as_str().to_owned()),
        fingerprint: fingerprint.to_string(),
        revoked: entry.is_some_and(|entry| {
            let is_key = |key: &RevokedKey| key.is(&entry.public_key);
            revoked.any(is_key) || revoked_elsewhere.any(is_key)
        }),
    }
}

/// The text of a policy that a release names, as its owner would write it.
pub(super) async fn policy_text(
    page: &ConsolePage,
    sha256: Option<Digest>,
) -> Result<Option<String>, StoreError> {
    let Some(sha256) = sha256 else {
        return Ok(Some(String::new()));
    };
    let key = page.namespace.object(Class::Policies, sha256);
    let object = page.app().object(&key).await?;
    let policy = object.and_then(|object| vault_policy::Policy::from_object(&object.bytes).ok());
    Ok(policy.map(|policy| policy.to_toml()))
}
