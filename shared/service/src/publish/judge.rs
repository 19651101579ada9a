//! Whether a pushed catalog file counts for the namespace: the judgement of the pure crate, and what a service asks for besides.

use bytes::Bytes;
use vault_format::catalog::{
    CatalogError, CatalogOutcome, CatalogReader, CountedCatalog, JudgedRelease, LastCatalog,
    NewRoots, Side, SignedCatalog, SkillEntry, judge_catalog,
};
use vault_format::keys::PublicKey;
use vault_format::root::{RootChain, RootError, RootState};
use vault_store::objects::Class;

use super::current::{current_bytes, current_closure, current_state};
use crate::App;
use crate::error::{Code, Refusal};
use crate::model::namespace::{MAX_REVOKED_ELSEWHERE, Namespace, Pinned};

const EARLIER_PIN: &str = "An earlier version of vault published here. Take its skills into a new vault with \
    `vault import --from-vault PATH`, then reset the pin of this namespace as its owner.";
const TOO_MANY_FORKS: &str = "The root versions that were given up in this namespace have revoked more keys than it keeps. \
    Its owner resets the pin.";

/// What a file that counts is.
pub(super) enum Judged {
    /// Another release. The objects that it names are not looked at yet.
    Release(Box<CountedCatalog>),
    /// The payload of the current release, with other root versions or signatures beside it.
    SameRelease {
        state: RootState,
        signers: Vec<PublicKey>,
        /// The root version that the payload names.
        root_version: u64,
        /// Its number.
        release: u64,
    },
}

/// What the service knows of the vault; nothing before the first release, and after a reset of the pin.
struct Known {
    state: RootState,
    last: LastCatalog,
}

/// Judges a file against what is pinned; refuses with the word for what does not hold.
pub(super) async fn judge(
    app: &App,
    namespace: &Namespace,
    bytes: &Bytes,
) -> Result<Judged, Refusal> {
    if matches!(namespace.pin, Pinned::Earlier(_)) {
        // Trust is never carried over silently: an owner says that a new vault takes the place of the earlier one.
        return Err(Refusal::new(Code::CatalogSchema).detail(EARLIER_PIN));
    }
    let known = load_known(app, namespace).await?;
    let reader = CatalogReader {
        side: Side::Service,
        base: app.config.public_url.base(),
        slug: &namespace.slug,
        now: app.clock.now(),
        latest_seen_at: None,
        own: known.as_ref().map(|known| &known.state),
        expected: None,
        last: known.as_ref().map(|known| &known.last),
        accept_fork: false,
    };
    let judgement = judge_catalog(bytes, &reader);
    let outcome = judgement.outcome.map_err(|error| refused(&error))?;
    let state = match judgement.roots {
        NewRoots::WithCatalog(state) | NewRoots::Now(state) => Some(state),
        NewRoots::None => known.as_ref().map(|known| known.state.clone()),
    };
    let state = state.ok_or(Code::Internal)?;
    check_carried(bytes, &state).map_err(|error| refused(&error))?;
    if state.revoked_elsewhere().len() > MAX_REVOKED_ELSEWHERE {
        return Err(Refusal::new(Code::RootForked).detail(TOO_MANY_FORKS));
    }
    let same_release = |signers, last: &LastCatalog| Judged::SameRelease {
        state,
        signers,
        root_version: last.catalog.root_version,
        release: last.catalog.release,
    };
    match (outcome, known) {
        (CatalogOutcome::Release(release), _) => {
            let counted = settle(app, namespace, *release).await?;
            Ok(Judged::Release(Box::new(counted)))
        }
        (CatalogOutcome::Equal { signers }, Some(known)) => Ok(same_release(signers, &known.last)),
        (CatalogOutcome::RootsOnly, Some(known)) => {
            Ok(same_release(known.last.signers.clone(), &known.last))
        }
        (CatalogOutcome::Equal { .. } | CatalogOutcome::RootsOnly, None) => {
            Err(Code::Internal.into())
        }
    }
}

/// Reads what the service knows from the object of the current catalog.
async fn load_known(app: &App, namespace: &Namespace) -> Result<Option<Known>, Refusal> {
    let (Some(pin), Some(current)) = (namespace.pin.vault(), &namespace.current) else {
        return Ok(None);
    };
    let state = current_state(app, namespace, current).await?;
    let bytes = current_bytes(app, namespace.id, current).await?;
    let last = LastCatalog::read(&bytes, &current.payload_sha256, pin.signers.clone())
        .map_err(|error| Refusal::new(Code::Internal).cause(error))?;
    Ok(Some(Known { state, last }))
}

/// Whether the file carries the whole chain that counts, each version with enough signatures. The bytes of the file are all that the
/// service keeps and shows: a chain that is cut off, or without signatures, would count for nobody who links anew.
fn check_carried(bytes: &[u8], state: &RootState) -> Result<(), CatalogError> {
    let file = SignedCatalog::parse(bytes)?;
    let carried = RootChain::verify(file.roots())?;
    if carried.newest().payload_sha256() == state.chain().newest().payload_sha256() {
        return Ok(());
    }
    let (shown, known) = (carried.version(), state.chain().version());
    Err(RootError::RolledBack { shown, known }.into())
}

/// Decides on skills whose versions are lower, or far higher, than the current ones: what a revoked or unknown key signed is not compared.
async fn settle(
    app: &App,
    namespace: &Namespace,
    release: JudgedRelease,
) -> Result<CountedCatalog, Refusal> {
    let closure = match namespace.readable_current() {
        Some(current) if !release.doubts().is_empty() => {
            Some(current_closure(app, namespace.id, current).await?)
        }
        _ => None,
    };
    let state = release.state().clone();
    let counts = |skill: &SkillEntry| {
        let closure = closure.as_ref();
        let node = closure.and_then(|closure| closure.node(Class::Bundles, &skill.bundle_hash));
        node.and_then(|node| node.signer)
            .is_some_and(|signer| state.was_publisher(&signer))
    };
    release.settle(counts).map_err(|error| refused(&error))
}

fn refused(error: &CatalogError) -> Refusal {
    let code = match error.word() {
        "vault_changed" => Code::VaultChanged,
        "root_invalid" => Code::RootInvalid,
        "root_forked" => Code::RootForked,
        "root_rolled_back" => Code::RootRolledBack,
        "newer_vault" => Code::NewerVault,
        "signatures_missing" => Code::SignaturesMissing,
        "release_awaited" => Code::ReleaseAwaited,
        "catalog_key" => Code::CatalogKey,
        "catalog_vault_id" => Code::CatalogVaultId,
        "catalog_slug" => Code::CatalogSlug,
        "catalog_audience" => Code::CatalogAudience,
        "catalog_clock" => Code::CatalogClock,
        "catalog_release" => Code::CatalogRelease,
        "catalog_previous" => Code::CatalogPrevious,
        "catalog_withdrawn" => Code::CatalogWithdrawn,
        "skill_rolled_back" => Code::SkillRolledBack,
        _ => Code::CatalogSchema,
    };
    let refusal = Refusal::new(code);
    match error {
        // Says how the skills of such a vault are taken along.
        CatalogError::EarlierFormat => refusal.detail(error.to_string()),
        _ => refusal,
    }
}
