//! The last steps of `vault key recovery use`, after the lost or stolen key was revoked: lists the
//! releases at the service and what a thief may have published, and ends the sign-ins that the lost
//! machine had.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::catalog::{ReleaseRef, SignedCatalog};
use vault_library::{
    Vault,
    publish::{self, PlanRequest, Review, ShownRelease, SuspectSkill},
};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, HINT, TICK, WARN, Warning, count, format_key, join},
    service::{OwnerClient, connection::Connection, sessions, tokens::TokenFile},
    tasks::publishing::{Publisher, everywhere},
};

/// Maximum number of skills in the text for people; `--json` lists all.
const MAX_LINES: usize = 40;

/// A part of a command's report: lines for people, and data for `--json`.
#[derive(Default)]
pub(super) struct ReportPart<T> {
    pub(super) lines: Vec<String>,
    pub(super) data: T,
}

/// The releases that a service shows after a recovery.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ShownReleases {
    /// The releases, the newest first.
    releases: Vec<ShownRelease>,
    /// The last release that can be trusted; null if none is known.
    last_good: Option<u64>,
    /// The skills that a revoked key has published since.
    suspects: Vec<Suspect>,
}

/// A skill that a revoked key published.
#[derive(Debug, JsonSchema, Serialize)]
struct Suspect {
    #[serde(flatten)]
    skill: SuspectSkill,
    /// Whether the release withdrew it.
    withdrawn: bool,
}

/// Command-line sign-ins of the account that were ended at one service.
#[derive(Debug, JsonSchema, Serialize)]
pub struct EndedSignIns {
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    /// Names of the sign-ins that were ended, such as `vault on <machine>`.
    ended: Vec<String>,
    /// False if they could not be ended; a warning says what to do.
    done: bool,
}

/// Lists the releases with their signers, and the skills that a revoked key has published since
/// `last_good`, the last release that can be trusted. If the service cannot be asked, only warns,
/// because the keys have changed already.
pub(super) fn show_releases(
    context: &Context,
    vault: &Vault,
    connection: Option<&Connection>,
    catalog: Option<&[u8]>,
    last_good: Option<ReleaseRef>,
) -> Result<ReportPart<Option<ShownReleases>>, Failure> {
    let (place, listed_releases) = match (connection, catalog) {
        // Prefer the service, which lists several releases; a catalog file is only one.
        (Some(connection), _) => {
            let fetched = fetch_catalogs(context, vault, connection, last_good);
            let fetched = fetched.unwrap_or_else(|failure| {
                let hint = failure.hint.unwrap_or_default();
                context
                    .ui
                    .warn_with("releases_unknown", failure.message, hint);
                Vec::new()
            });
            (connection.clone(), fetched)
        }
        (None, Some(bytes)) => match namespace_of_catalog(bytes) {
            Some((place, release)) => (place, vec![(release, bytes.to_vec())]),
            None => return Ok(ReportPart::default()),
        },
        (None, None) => return Ok(ReportPart::default()),
    };
    let (numbers, catalogs): (Vec<u64>, Vec<Vec<u8>>) = listed_releases.into_iter().unzip();
    if catalogs.is_empty() {
        return Ok(ReportPart::default());
    }
    let request = PlanRequest {
        last_good,
        ..PlanRequest::new(place.base.as_str(), &place.slug, None)
    };
    let review = publish::review_catalogs(vault, &request, &catalogs)?;
    // Report releases that do not verify, and go on with the others.
    for (at, reason) in &review.refused {
        let text = format!("release {} of {}: {reason}", numbers[*at], place.address());
        context.ui.warn(Warning::new("release_refused", text));
    }
    if review.contradicts {
        let text = format!(
            "{} shows a different payload for the number of your last good release",
            place.address()
        );
        let hint = "compare release and payload on several machines: vault status --cloud";
        context.ui.warn_with("last_good_differs", text, hint);
    }
    let lines = review_lines(&place.address(), &review);
    let suspects = review.suspects.into_iter().map(|skill| Suspect {
        withdrawn: skill.version.is_none(),
        skill,
    });
    let data = Some(ShownReleases {
        releases: review.releases,
        last_good: review.last_good,
        suspects: suspects.collect(),
    });
    Ok(ReportPart { lines, data })
}

fn fetch_catalogs(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
    last_good: Option<ReleaseRef>,
) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
    let publisher = Publisher::new(context, vault, connection)?;
    let last_good_release = last_good.map(|good| good.release);
    context.block_on(publisher.shown_catalogs(last_good_release))
}

/// Returns the first namespace for which a catalog was signed, and its release number. Both are
/// unverified.
fn namespace_of_catalog(bytes: &[u8]) -> Option<(Connection, u64)> {
    let file = SignedCatalog::parse(bytes).ok()?;
    // This read does not verify the file, because it compares it only with its own digest. Only the
    // address is used; `review_catalogs` verifies the release.
    let catalog = file.read_counted(&file.payload_sha256()).ok()?;
    let base = catalog.audience.first()?;
    let base = base.strip_suffix(&format!("/v/{}/", catalog.slug))?;
    let place = Connection {
        base: base.parse().ok()?,
        slug: catalog.slug,
    };
    Some((place, catalog.release))
}

fn review_lines(address: &str, review: &Review) -> Vec<String> {
    let mut lines = vec![format!(
        "Releases that {HINT}{address}{HINT:#} shows. The signers are verified; the dates and the order come from the service:"
    )];
    lines.extend(review.releases.iter().map(release_line));
    if review.suspects.is_empty() {
        return lines;
    }
    let since = review.last_good.unwrap_or(0);
    lines.push(format!(
        "Published with a revoked key since release {since}; review each before you publish it again:"
    ));
    lines.extend(review.suspects.iter().take(MAX_LINES).map(suspect_line));
    let more = review.suspects.len().saturating_sub(MAX_LINES);
    if more > 0 {
        let more = count(more as u64, "more skill");
        lines.push(format!("  and {more}; --json lists them all"));
    }
    lines
}

fn release_line(shown: &ShownRelease) -> String {
    let (release, at) = (shown.release, shown.issued_at);
    let skills = count(shown.skills as u64, "skill");
    let signers = join(shown.signers.iter().map(format_key));
    let note = match (shown.by_revoked, shown.known) {
        // This machine has published the release or taken it over, so it is no thief's, even if its
        // key is revoked now.
        (_, true) => format!("  {DIM}known here{DIM:#}"),
        (true, false) => format!("  {WARN}the key is revoked{WARN:#}"),
        (false, false) => String::new(),
    };
    format!("  {BOLD}{release}{BOLD:#}  {at}  {skills}, signed by {signers}{note}")
}

fn suspect_line(suspect: &SuspectSkill) -> String {
    let SuspectSkill { name, release, .. } = suspect;
    match suspect.version {
        Some(version) => {
            format!("  {WARN}!{WARN:#} {name}  version {version}, in release {release}")
        }
        None => format!("  {WARN}!{WARN:#} {name}  withdrawn by release {release}"),
    }
}

/// Ends the account's other command-line sign-ins at each service of the vault. With `own`, also
/// ends this machine's: a thief who copied its key may have copied its sign-in as well.
pub(super) fn end_sign_ins(
    context: &Context,
    vault: &Vault,
    own: bool,
) -> Result<ReportPart<Vec<EndedSignIns>>, Failure> {
    let (mut lines, mut data) = (Vec::new(), Vec::new());
    // The lost machine may have been signed in at any service of the vault, not only at the
    // connected one.
    for connection in everywhere::known_namespaces(context, vault)? {
        let address = connection.address();
        let (ended, done) = match end_sign_ins_at(context, &connection, own) {
            Ok(ended) => {
                let names = if ended.is_empty() {
                    "none".to_owned()
                } else {
                    join(&ended)
                };
                lines.push(format!(
                    "{TICK} {address}: ended the sign-ins of the command line: {names}"
                ));
                (ended, true)
            }
            // Go on with the other services if one cannot be reached.
            Err(failure) => {
                let text = format!(
                    "the lost machine may still be signed in at {address}: {}",
                    failure.message
                );
                let hint = format!(
                    "sign in (vault cloud connect {address}), then end each with vault clients list and vault clients revoke <id>"
                );
                context.ui.warn_with("sign_ins_not_ended", text, hint);
                (Vec::new(), false)
            }
        };
        if own {
            lines.push(format!(
                "  sign in again: {HINT}vault cloud connect {address}{HINT:#}"
            ));
        }
        lines.push(format!(
            "  to end sign-ins in browsers, change the password: {HINT}{}/oauth/password{HINT:#}; other apps: {HINT}vault clients list{HINT:#}",
            connection.base
        ));
        data.push(EndedSignIns {
            address,
            ended,
            done,
        });
    }
    Ok(ReportPart { lines, data })
}

fn end_sign_ins_at(
    context: &Context,
    connection: &Connection,
    own: bool,
) -> Result<Vec<String>, Failure> {
    let Connection { base, slug } = connection;
    let owner = OwnerClient::open(context, base, slug.as_str())?;
    let ended = context.block_on(sessions::end_sign_ins(&owner, own))?;
    if own {
        // The service no longer accepts these tokens.
        let file = TokenFile::for_service(context, base, slug.as_str())?;
        file.remove(&file.lock()?)?;
    }
    Ok(ended)
}
