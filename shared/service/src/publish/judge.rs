//! Verification of a pushed catalog file: the rules of `vault-format`, which devices also apply,
//! and further ones that only a service has. Nothing is read from a store here: everything that the
//! file is compared with is passed in.

use vault_api::ReturnedSkill;
use vault_format::catalog::{
    Catalog, CatalogError, CatalogOutcome, CatalogReader, CountedCatalog, JudgedRelease, NewRoots,
    ReaderKind, SignedCatalog, SkillEntry, judge_catalog, judge_proposal,
};
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::root::{RootChain, RootError, RootState};
use vault_store::objects::Class;

use super::current::PublishBase;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::namespace::{MAX_REVOKED_ELSEWHERE, Namespace, Pinned};
use crate::model::release::Closure;

const EARLIER_PIN_DETAIL: &str = "An earlier version of vault published here. Take its skills into a new vault with \
    `vault import --from-vault PATH`, then reset the pin of this namespace as its owner.";
/// Maximum number of skills that a refusal lists, because clients read at most 64 KiB of an answer.
const MAX_RETURNED: usize = 400;

const ROLLED_BACK_DETAIL: &str = "A skill that an earlier release removed comes back below the version that it had; `skills` says which one has to be \
    above which version.";
const TOO_MANY_FORKS_DETAIL: &str = "The root versions that were given up in this namespace have revoked more keys than it keeps. \
    Its owner resets the pin.";

/// A file with valid signatures. The objects that it names are not checked yet.
pub(super) enum VerifiedFile {
    /// A release other than the current one.
    Release(Box<JudgedRelease>),
    /// The payload of the current release, with other root versions or signatures.
    SameRelease {
        state: RootState,
        signers: Vec<PublicKey>,
        /// Root version that the payload names.
        root_version: u64,
        release: u64,
    },
}

impl VerifiedFile {
    /// Verifies a file against the pinned state. Fails with the error code of the first broken
    /// rule.
    pub(super) fn verify_file(
        app: &App,
        namespace: &Namespace,
        bytes: &[u8],
        base: &PublishBase,
    ) -> Result<Self, Refusal> {
        let pinned_vault = base.known.as_ref();
        let judgement = judge_catalog(bytes, &catalog_reader(app, namespace, base)?);
        let outcome = judgement.outcome.map_err(|error| to_refusal(&error))?;
        let state = match judgement.roots {
            NewRoots::WithCatalog(state) | NewRoots::Now(state) => Some(state),
            NewRoots::None => pinned_vault.map(|known| known.state.clone()),
        };
        let state = state.ok_or(ErrorCode::Internal)?;
        // The chain of root versions is stored only in this file, so the file must contain all of
        // it.
        check_state(bytes, &state)?;
        let signers = match outcome {
            CatalogOutcome::Release(release) => return Ok(Self::Release(release)),
            CatalogOutcome::Equal { signers } => Some(signers),
            CatalogOutcome::RootsOnly => None,
        };
        let last = &pinned_vault.ok_or(ErrorCode::Internal)?.last;
        Ok(Self::SameRelease {
            state,
            signers: signers.unwrap_or_else(|| last.signers.clone()),
            root_version: last.catalog.root_version,
            release: last.catalog.release,
        })
    }
}

/// Verifies a proposal: a file that may lack some signatures, but not all. Fails with the error
/// code of the first broken rule.
pub(super) fn verify_proposal(
    app: &App,
    namespace: &Namespace,
    bytes: &[u8],
    base: &PublishBase,
) -> Result<JudgedRelease, Refusal> {
    let reader = catalog_reader(app, namespace, base)?;
    let follows = reader.last.map(|last| last.stored);
    // The service signs no proposals, so there is no earlier payload of its own that could
    // contradict one.
    let judgement = judge_proposal(bytes, &reader, follows, &|_, _| None);
    let release = match judgement.outcome.map_err(|error| to_refusal(&error))? {
        CatalogOutcome::Release(release) => *release,
        // In both cases, the proposal has the content of the current release.
        CatalogOutcome::Equal { .. } | CatalogOutcome::RootsOnly => {
            return Err(ErrorCode::ProposalOutdated.into());
        }
    };
    check_state(bytes, release.state())?;
    Ok(release)
}

/// Returns what the file is compared with: the pinned state of the namespace, its last release, its
/// address and the time.
fn catalog_reader<'a>(
    app: &'a App,
    namespace: &'a Namespace,
    base: &'a PublishBase,
) -> Result<CatalogReader<'a>, Refusal> {
    if matches!(namespace.pin, Pinned::Earlier(_)) {
        // Trust is never transferred silently: an owner must confirm that a new vault replaces the
        // earlier one.
        return Err(Refusal::new(ErrorCode::CatalogSchema).detail(EARLIER_PIN_DETAIL));
    }
    let pinned_vault = base.known.as_ref();
    Ok(CatalogReader {
        side: ReaderKind::Service,
        base: app.config.public_url.base(),
        slug: &namespace.slug,
        now: app.clock.now(),
        // Only devices store the latest time that they have seen, because their clock may be set
        // back.
        latest_seen_at: None,
        own: pinned_vault.map(|known| &known.state),
        expected: None,
        last: pinned_vault.map(|known| &known.last),
        // Only a person may choose between two payloads of one release (a fork); a service never
        // does.
        accept_fork: false,
    })
}

/// Checks that the service can store the root versions and revoked keys that are valid after this
/// file.
fn check_state(bytes: &[u8], state: &RootState) -> Result<(), Refusal> {
    check_chain_in_file(bytes, state).map_err(|error| to_refusal(&error))?;
    if state.revoked_elsewhere().len() > MAX_REVOKED_ELSEWHERE {
        return Err(Refusal::new(ErrorCode::RootForked).detail(TOO_MANY_FORKS_DETAIL));
    }
    Ok(())
}

/// Checks that the file contains the whole chain of root versions, each with enough signatures. The
/// service stores and serves only these bytes, and a newly linked machine rejects a chain that is
/// incomplete or lacks signatures.
fn check_chain_in_file(bytes: &[u8], state: &RootState) -> Result<(), CatalogError> {
    let file = SignedCatalog::parse(bytes)?;
    let carried = RootChain::verify(file.roots())?;
    if carried.newest().payload_sha256() == state.chain().newest().payload_sha256() {
        return Ok(());
    }
    let (shown, known) = (carried.version(), state.chain().version());
    Err(RootError::RolledBack { shown, known }.into())
}

/// Compares a release with the current one: `last` is its catalog and `older` its closure. Refuses
/// skills whose versions are lower or far higher than the current ones, and removed skills that
/// return with too low a version. Versions that a revoked or unknown key signed are not compared.
pub(super) fn accept_release(
    release: JudgedRelease,
    (last, older): (Option<&Catalog>, &Closure),
) -> Result<CountedCatalog, Refusal> {
    let state = release.state().clone();
    let has = |name: &SkillName| last.is_some_and(|last| last.skill(name).is_some());
    let returned = older
        .former
        .find_rolled_back(has, release.catalog(), &state);
    if !returned.is_empty() {
        let skills = returned.into_iter().take(MAX_RETURNED);
        let skills = skills.map(|(skill, reached)| ReturnedSkill {
            name: skill.name,
            reached,
        });
        let skills = Some(skills.collect());
        let refusal = Refusal::new(ErrorCode::SkillRolledBack).detail(ROLLED_BACK_DETAIL);
        return Err(refusal.with(|problem| problem.skills = skills));
    }
    let is_comparable = |skill: &SkillEntry| {
        let node = older.node(Class::Bundles, &skill.bundle_hash);
        node.and_then(|node| node.signer)
            .is_some_and(|signer| state.was_publisher(&signer))
    };
    release
        .settle_versions(is_comparable)
        .map_err(|error| to_refusal(&error))
}

fn to_refusal(error: &CatalogError) -> Refusal {
    let code = match error {
        CatalogError::TooLarge
        | CatalogError::Json(_)
        | CatalogError::Envelope(_)
        | CatalogError::PayloadType
        | CatalogError::EarlierFormat
        | CatalogError::Shape(_) => ErrorCode::CatalogSchema,
        CatalogError::ProposalOutdated(_) => ErrorCode::ProposalOutdated,
        CatalogError::Root(error) => match error {
            RootError::Empty | RootError::Invalid { .. } | RootError::NotInChain { .. } => {
                ErrorCode::RootInvalid
            }
            RootError::NewerVault { .. } => ErrorCode::NewerVault,
            RootError::VaultChanged | RootError::NotExpected(_) => ErrorCode::VaultChanged,
            RootError::Forked { .. } => ErrorCode::RootForked,
            RootError::RolledBack { .. } => ErrorCode::RootRolledBack,
            RootError::ExpectKeyNeeded => ErrorCode::CatalogSchema,
        },
        CatalogError::SignaturesMissing { .. } | CatalogError::Signer(_) => {
            ErrorCode::SignaturesMissing
        }
        CatalogError::ReleaseAwaited => ErrorCode::ReleaseAwaited,
        CatalogError::Key(_) => ErrorCode::CatalogKey,
        CatalogError::VaultId => ErrorCode::CatalogVaultId,
        CatalogError::Slug => ErrorCode::CatalogSlug,
        CatalogError::Audience => ErrorCode::CatalogAudience,
        CatalogError::Clock(_) => ErrorCode::CatalogClock,
        CatalogError::Expired(_) | CatalogError::RootExpired(_) => ErrorCode::ReleaseExpired,
        CatalogError::Older { .. }
        | CatalogError::TwoCatalogs(_)
        | CatalogError::Jump
        | CatalogError::SkillJump(_) => ErrorCode::CatalogRelease,
        CatalogError::Previous => ErrorCode::CatalogPrevious,
        CatalogError::Withdrawn => ErrorCode::CatalogWithdrawn,
        CatalogError::SkillRolledBack { .. } | CatalogError::SkillTwice { .. } => {
            ErrorCode::SkillRolledBack
        }
    };
    let refusal = Refusal::new(code);
    match error {
        // The text of this error says how to move the skills of such a vault.
        CatalogError::EarlierFormat => refusal.detail(error.to_string()),
        _ => refusal,
    }
}
