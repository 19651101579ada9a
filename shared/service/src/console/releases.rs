//! `/console/{slug}/releases`: the published releases with their signers, and the differences of
//! any two.
//!
//! The number of a release alone may be ambiguous: after a revocation of keys, numbers are used
//! again under a new *root version*, the version of the list of the vault's keys.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use vault_format::catalog::Catalog;
use vault_format::root::RootChain;

use super::changes::{Comparison, compare_releases};
use super::content::{NamedKey, named_key, readable_chain, release_catalog};
use super::difference::LineKind;
use super::guard::ConsolePage;
use super::names::Names;
use super::page::{PageLayout, Pager, show_page};
use super::timeline::{BAR, Timeline, WIDTH, draw_timeline};
use crate::admin::call::Page;
use crate::admin::drafts::{DraftFilter, listed_drafts};
use crate::admin::principal::Principal;
use crate::admin::releases::{all_releases, find_release};
use crate::model::draft::{Kind, State};
use crate::model::namespace::{Kind as NamespaceKind, Namespace};
use crate::model::release::Release;
use crate::units::format_count;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_minute;

/// Maximum number of releases that a page offers for comparison.
const CHOICES_SHOWN: usize = 200;

struct ReleaseRow {
    number: u64,
    href: String,
    at: String,
    current: bool,
    skills: Option<u64>,
    /// Number of skills that changed, in words.
    changes: String,
    signers: Vec<NamedKey>,
    /// Root version under which it was published; 0 for a release of an earlier version of vault.
    root_version: u64,
}

/// Row of the page: a proposed release that waits for signatures.
struct Proposal {
    href: String,
    number: u64,
    /// Number of signatures, such as `1 of 2 signatures`.
    signatures: String,
    ends: String,
}

#[derive(Template)]
#[template(path = "console/releases.html")]
struct ReleasesPage {
    shell: PageLayout,
    /// Whether the current release, which names the keys, cannot be read.
    unreadable: bool,
    proposals: Vec<Proposal>,
    timeline: Option<Timeline>,
    width: u32,
    bar: u32,
    rows: Vec<ReleaseRow>,
    pager: Pager,
    /// Whether publishers push releases; otherwise the service signs them.
    hosted: bool,
}

/// `GET /console/{slug}/releases`: lists the releases, newest first, and the proposals.
pub(super) async fn list_releases(page: ConsolePage) -> Result<Response, ErrorPage> {
    let releases = all_releases(page.app(), &page.namespace.id).await?;
    let (chain, unreadable) = readable_chain(&page).await;
    let chain = chain.as_deref();
    let home = page.address("/releases");
    let href = |number: usize| with_query(&home, &[("page", &*number.to_string())]);
    let pager = Pager::from_query(&page, "releases", releases.len(), href);
    let picture = draw_timeline(&releases);
    let newest_first: Vec<_> = releases.iter().rev().collect();
    // Compared by hash, because two root versions may have releases with the same number.
    let sha256 = page
        .namespace
        .current
        .as_ref()
        .map(|current| current.sha256);
    let row = |release: &Release| ReleaseRow {
        number: release.release,
        href: release_address(&page, release),
        at: format_minute(release.published_at),
        current: sha256 == Some(release.sha256),
        skills: release.skills,
        changes: changes_text(release),
        signers: named_signers(&page.namespace, chain, release),
        root_version: release.root_version,
    };
    let template = ReleasesPage {
        shell: PageLayout::for_page(&page),
        unreadable,
        proposals: list_proposals(&page, chain).await?,
        timeline: picture,
        width: WIDTH,
        bar: BAR,
        rows: pager.take_rows(newest_first).into_iter().map(row).collect(),
        pager,
        hosted: page.namespace.kind == NamespaceKind::Hosted,
    };
    Ok(show_page(&template))
}

/// Describes how many skills a release changed: `1 added, 3 removed`.
fn changes_text(release: &Release) -> String {
    let counts = [
        (release.added, "added"),
        (release.changed, "changed"),
        (release.removed, "removed"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let texts: Vec<_> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if texts.is_empty() {
        return "none".to_owned();
    }
    texts.join(", ")
}

/// Returns the address of the page of a release, with its root version in the query.
fn release_address(page: &ConsolePage, release: &Release) -> String {
    let address = page.address(&format!("/releases/{}", release.release));
    with_query(
        &address,
        &[("root_version", &*release.root_version.to_string())],
    )
}

/// Returns the value of the parameter `to` for a release: `3.2` is number 3 under root version 2. A
/// number alone means the newest release that has it.
fn choice_word(release: &Release) -> String {
    format!("{}.{}", release.release, release.root_version)
}

fn named_signers(
    namespace: &Namespace,
    chain: Option<&RootChain>,
    release: &Release,
) -> Vec<NamedKey> {
    let signers = release.signers.iter();
    signers.map(|it| named_key(namespace, chain, it)).collect()
}

/// Lists the proposed releases that wait for signatures.
async fn list_proposals(
    page: &ConsolePage,
    chain: Option<&RootChain>,
) -> Result<Vec<Proposal>, ErrorPage> {
    let by = Principal::from_user(page.as_acting_user(), &page.user);
    let filter = DraftFilter {
        state: Some(State::Pending),
        kind: Some(Kind::Release),
    };
    let listed = Page {
        limit: 100,
        after: None,
    };
    let drafts = listed_drafts(&by, filter, &listed).await?.items;
    let needed = chain.map(|chain| chain.document().release().threshold());
    let proposal = |draft: &crate::model::draft::DraftRecord| {
        let proposed = draft.proposed()?;
        Some(Proposal {
            href: page.address(&format!("/drafts/{}", draft.id)),
            number: proposed.number,
            signatures: signatures_text(proposed.signers.len(), needed),
            ends: format_minute(proposed.ends_at),
        })
    };
    Ok(drafts.iter().filter_map(proposal).collect())
}

/// Describes how many signatures a proposed release has, of those that it needs.
fn signatures_text(given: usize, needed: Option<usize>) -> String {
    match needed {
        Some(needed) => format!(
            "{given} of {}",
            format_count(needed, "signature", "signatures")
        ),
        None => format_count(given, "signature", "signatures"),
    }
}

/// A release that the person can choose for comparison.
struct ReleaseChoice {
    number: u64,
    /// Value of the parameter `to`; see [`choice_word`].
    to: String,
    at: String,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "console/release.html")]
struct ReleasePage {
    shell: PageLayout,
    list_href: String,
    here: String,
    number: u64,
    /// Numbers of the two releases that are compared, the older first.
    compared: Option<(u64, u64)>,
    at: String,
    by: String,
    current: bool,
    skills: Option<u64>,
    signers: Vec<NamedKey>,
    root_version: u64,
    payload: String,
    choices: Vec<ReleaseChoice>,
    /// `None` if the catalog of one of the two releases is no longer stored.
    comparison: Option<Comparison>,
    /// Address of this comparison without `?skill=`, which shows all differences.
    all_href: String,
    hosted: bool,
}

/// `GET /console/{slug}/releases/{release}`: shows one release, compared with the previous one or
/// with `?to=`. With `?skill=`, shows only the files of that skill.
pub(super) async fn show_release(page: ConsolePage) -> Result<Response, ErrorPage> {
    let number = page.param("release").to_owned();
    let root_version = page.query.value("root_version").map(str::to_owned);
    let release = find_release(
        page.app(),
        &page.namespace,
        &number,
        root_version.as_deref(),
    );
    let release = release.await?.ok_or(ErrorPage::NotFound)?;
    let releases = all_releases(page.app(), &page.namespace.id).await?;
    let other = match page.query.value("to") {
        Some(to) => Some(find_chosen_release(&page, to).await?),
        None => previous_release(&releases, &release).cloned(),
    };
    let (chain, _) = readable_chain(&page).await;
    let chain = chain.as_deref();
    let here = release_address(&page, &release);
    let all_href = match &other {
        Some(other) => with_query(&here, &[("to", &*choice_word(other))]),
        None => here,
    };
    let comparison = compare_stored(&page, &release, other.as_ref(), &all_href).await?;
    let sha256 = page
        .namespace
        .current
        .as_ref()
        .map(|current| current.sha256);
    let choices = releases
        .iter()
        .rev()
        .filter(|it| it.sha256 != release.sha256);
    let choice = |it: &Release| ReleaseChoice {
        number: it.release,
        to: choice_word(it),
        at: format_minute(it.published_at),
        chosen: other
            .as_ref()
            .is_some_and(|other| other.sha256 == it.sha256),
    };
    let names = Names::read_users(page.app(), &page.namespace, [&*release.by]).await?;
    let template = ReleasePage {
        shell: PageLayout::for_page(&page),
        list_href: page.address("/releases"),
        here: page.address(&format!("/releases/{}", release.release)),
        number: release.release,
        compared: other.as_ref().map(|other| {
            let age = |release: &Release| (release.root_version, release.release);
            let (from, to) = (age(other).min(age(&release)), age(other).max(age(&release)));
            (from.1, to.1)
        }),
        at: format_minute(release.published_at),
        by: names.display_name(&release.by),
        current: sha256 == Some(release.sha256),
        skills: release.skills,
        signers: named_signers(&page.namespace, chain, &release),
        root_version: release.root_version,
        payload: release.payload_sha256.to_string(),
        choices: choices.take(CHOICES_SHOWN).map(choice).collect(),
        comparison,
        all_href,
        hosted: page.namespace.kind == NamespaceKind::Hosted,
    };
    Ok(show_page(&template))
}

/// Returns the release that `?to=` names: its number, or number and root version.
async fn find_chosen_release(page: &ConsolePage, to: &str) -> Result<Release, ErrorPage> {
    let (number, under) = match to.split_once('.') {
        Some((number, under)) => (number, Some(under)),
        None => (to, None),
    };
    let release = find_release(page.app(), &page.namespace, number, under).await?;
    release.ok_or(ErrorPage::NotFound)
}

/// Compares a release with `other`, or with nothing if it is the first. Returns `None` if a catalog
/// is no longer stored.
async fn compare_stored(
    page: &ConsolePage,
    release: &Release,
    other: Option<&Release>,
    all_href: &str,
) -> Result<Option<Comparison>, ErrorPage> {
    let Some(catalog) = release_catalog(page, release).await? else {
        return Ok(None);
    };
    let Some(other) = other else {
        let comparison = compare_releases(page, None, &catalog, all_href).await?;
        return Ok(Some(comparison));
    };
    let Some(other) = release_catalog(page, other).await? else {
        return Ok(None);
    };
    // Always compared from the older to the newer one: otherwise an added skill would be shown as
    // removed.
    let (from, to) = in_order(other, catalog);
    let comparison = compare_releases(page, Some(&from), &to, all_href).await?;
    Ok(Some(comparison))
}

/// Returns the release that was published before this one.
fn previous_release<'r>(releases: &'r [Release], release: &Release) -> Option<&'r Release> {
    let mut earlier = releases.iter().filter(|it| {
        (it.published_at, it.root_version, it.release)
            < (release.published_at, release.root_version, release.release)
    });
    let first = earlier.next()?;
    Some(earlier.fold(first, |found, it| {
        let key = |it: &Release| (it.published_at, it.root_version, it.release);
        if key(it) > key(found) { it } else { found }
    }))
}

/// Returns two catalogs by age, the older first.
fn in_order(one: Arc<Catalog>, other: Arc<Catalog>) -> (Arc<Catalog>, Arc<Catalog>) {
    // The root version is compared first, because two of them may have the same release number.
    let age = |catalog: &Catalog| (catalog.root_version, catalog.release);
    if age(&one) <= age(&other) {
        (one, other)
    } else {
        (other, one)
    }
}

#[cfg(test)]
mod tests {
    use vault_format::hash::Digest;
    use vault_format::time::Timestamp;

    use super::*;

    #[test]
    fn the_list_names_only_changes_that_a_release_made() {
        for ((added, changed, removed), text) in [
            ((0, 0, 0), "none"),
            ((3, 0, 0), "3 added"),
            ((1, 0, 2), "1 added, 2 removed"),
            ((1, 4, 2), "1 added, 4 changed, 2 removed"),
        ] {
            let release = Release {
                release: 1,
                root_version: 1,
                sha256: Digest::of(b"a"),
                payload_sha256: Digest::of(b"b"),
                published_at: Timestamp::from_unix(1_795_219_200),
                by: "usr_1".to_owned(),
                added,
                changed,
                removed,
                skills: None,
                signers: Vec::new(),
            };
            assert_eq!(changes_text(&release), text);
        }
    }
}
