//! Access to skills and releases for pages: the *shelf* of a vault, which reads its current skills,
//! and the catalogs of earlier releases that are still stored.

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

use super::difference::printable_line;
use super::guard::ConsolePage;
use crate::app::{ActingUser, Shelves};
use crate::error::Refusal;
use crate::model::namespace::Namespace;
use crate::model::release::Release;
use crate::web::error_page::ErrorPage;

/// Converts the refusal of a form or page. A 404 becomes the page for an address that does not
/// exist.
pub(super) fn to_error_page(refusal: Refusal) -> ErrorPage {
    match refusal.status() {
        StatusCode::NOT_FOUND => ErrorPage::NotFound,
        _ => refusal.into(),
    }
}

pub(super) fn open_shelf(page: &ConsolePage) -> Arc<dyn Shelf> {
    let ActingUser {
        app,
        namespace,
        actor,
        ..
    } = page.as_acting_user();
    // A server that has the vault's library reads from it; any other reads the current release.
    let shelves: &dyn Shelves = match &app.shelves {
        Some(shelves) => &**shelves,
        None => &page.cache.releases,
    };
    shelves.shelf(app, namespace, actor.source)
}

/// Loads a skill of the current release; `None` if the release has no skill of this name.
pub(super) async fn current_skill(
    shelf: &dyn Shelf,
    name: &SkillName,
) -> Result<Option<Arc<Loaded>>, ShelfError> {
    let snapshot = shelf.take_snapshot().await?;
    match snapshot.find(name) {
        Some(entry) => shelf.load_skill(entry).await.map(Some),
        None => Ok(None),
    }
}

/// Loads the skill with this bundle, from the current release or an earlier one. If it is not in
/// the current release, its signature must be by a key that may publish now.
pub(super) async fn skill_of_bundle(
    shelf: &dyn Shelf,
    skill: &SkillEntry,
) -> Result<Arc<Loaded>, ShelfError> {
    let snapshot = shelf.take_snapshot().await?;
    let current = snapshot.find(&skill.name);
    if let Some(entry) = current.filter(|entry| entry.texts.bundle_hash == skill.bundle_hash) {
        return shelf.load_skill(entry).await;
    }
    // The texts can stay empty, because only name, bundle, version and size are used for loading.
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
    shelf.load_skill(&entry).await
}

/// Returns the sentence for a skill whose content cannot be shown. Fails if the store failed.
pub(super) fn unavailable_text(error: ShelfError) -> Result<&'static str, StoreError> {
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

/// Reads the catalog of a release; `None` if it is no longer stored, or if an earlier version of
/// vault published the release.
pub(super) async fn release_catalog(
    page: &ConsolePage,
    release: &Release,
) -> Result<Option<Arc<Catalog>>, StoreError> {
    // Releases of an earlier version of vault have no root version.
    if release.root_version == 0 {
        return Ok(None);
    }
    let (file, payload) = (release.sha256, release.payload_sha256);
    let catalogs = &page.cache.catalogs;
    catalogs
        .get_catalog(page.app(), &page.namespace, file, payload)
        .await
}

/// Returns the root chain of the vault, which lists its keys; `None` before the first release.
pub(super) async fn current_root_chain(
    page: &ConsolePage,
) -> Result<Option<Arc<RootChain>>, StoreError> {
    page.cache
        .catalogs
        .key_chain(page.app(), &page.namespace)
        .await
}

/// Returns the root chain for a page that shows more than keys. If the current release cannot be
/// read, returns no chain and `true`, so that the page can show the rest.
pub(super) async fn readable_chain(page: &ConsolePage) -> (Option<Arc<RootChain>>, bool) {
    match log_unreadable(current_root_chain(page).await) {
        Some(chain) => (chain, false),
        None => (None, true),
    }
}

/// Returns the value, or logs the error and returns `None`, so that a page can show the rest.
pub(super) fn log_unreadable<T>(read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(|error| tracing::error!(%error, "the current release cannot be read"))
        .ok()
}

/// A finding of the security check, in the words of the page.
pub(super) struct FindingRow {
    pub(super) level: &'static str,
    /// CSS class of the level's mark.
    pub(super) mark: &'static str,
    pub(super) message: String,
    /// File and line; empty for a finding about the skill as a whole.
    pub(super) place: String,
    pub(super) rule: &'static str,
    /// Why the rule exists, in a sentence.
    pub(super) why: &'static str,
}

impl FindingRow {
    pub(super) fn from_finding(finding: &Finding) -> Self {
        let (level, mark) = match finding.level {
            Level::Error => ("Error", "stop"),
            Level::Flag => ("Security flag", "stop"),
            Level::Warning => ("Warning", "wait"),
            Level::Note => ("Note", ""),
        };
        let place = match (finding.path.as_str(), finding.line) {
            ("", _) => String::new(),
            (path, Some(line)) => format!("{}, line {line}", printable_line(path)),
            (path, None) => printable_line(path),
        };
        Self {
            level,
            mark,
            message: printable_line(&finding.message),
            place,
            rule: finding.rule,
            why: finding.why,
        }
    }
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct NamedKey {
    /// Name that the owner gave the key; `None` if no root version names it.
    pub(super) name: Option<String>,
    pub(super) fingerprint: String,
    /// Whether the key was revoked; its signatures then no longer count.
    pub(super) revoked: bool,
}

/// Returns the key with this fingerprint, with the newest name that the chain has for it.
pub(super) fn named_key(
    namespace: &Namespace,
    chain: Option<&RootChain>,
    fingerprint: &KeyFingerprint,
) -> NamedKey {
    // The newest version comes first, because a key may have been renamed.
    let versions = chain.map(RootChain::versions).unwrap_or_default();
    let entry = versions.iter().rev().find_map(|version| {
        let mut keys = version.document().keys().iter();
        keys.find(|entry| fingerprint.matches(&entry.public_key))
    });
    let in_chain = chain.map(|chain| chain.document().revoked());
    // The chain lacks revocations of root versions that were replaced; the pin has stored them.
    let elsewhere = namespace.pin.vault_pin().map(|pin| &pin.revoked);
    let mut revoked = in_chain.into_iter().flatten();
    let mut revoked_elsewhere = elsewhere.into_iter().flatten();
    NamedKey {
        name: entry.map(|entry| entry.name.as_str().to_owned()),
        fingerprint: fingerprint.to_string(),
        revoked: entry.is_some_and(|entry| {
            let is_key = |key: &RevokedKey| key.is_key(&entry.public_key);
            revoked.any(is_key) || revoked_elsewhere.any(is_key)
        }),
    }
}

/// Returns the text of a policy that a release names, in the owner's format. The text is empty for
/// no policy; `None` if the policy is no longer stored.
pub(super) async fn policy_text(
    page: &ConsolePage,
    sha256: Option<Digest>,
) -> Result<Option<String>, StoreError> {
    let Some(sha256) = sha256 else {
        return Ok(Some(String::new()));
    };
    let key = page.namespace.object_key(Class::Policies, sha256);
    let object = page.app().object(&key).await?;
    let policy = object.and_then(|object| vault_policy::Policy::from_object(&object.bytes).ok());
    Ok(policy.map(|policy| policy.to_toml()))
}
