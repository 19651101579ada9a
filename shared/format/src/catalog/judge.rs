//! Decides whether a reader accepts a catalog: a device that pulls it, a publisher's machine, or
//! the service to which it is pushed.
//!
//! A catalog "counts" for a reader when every check has passed: enough keys of the release role in
//! the reader's newest root version have signed it, and it contradicts nothing that the reader has
//! stored.

use super::file::{LastCatalog, SignedCatalog};
use super::{
    Catalog, CatalogError, CatalogWarning, MAX_AHEAD_SECONDS, MAX_RELEASE_JUMP, ReleaseRef,
    SkillEntry,
};
use crate::hash::Digest;
use crate::json;
use crate::keys::PublicKey;
use crate::name::Slug;
use crate::root::{self, JudgedRoots, RootError, RootState, RootVersion, RootWarning};
use crate::time::Timestamp;

/// The kind of reader of a catalog.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReaderKind {
    /// A device that pulls. It may have missed releases, and may see one again.
    Device,
    /// A machine that signs releases and reads the current one from its service. It judges like a
    /// device, with two exceptions, because its next release replaces the current one: it accepts
    /// an expired catalog, and a catalog that names an older root version if the publishers of that
    /// version and of the newest one have both signed it.
    Publisher,
    /// A service to which catalogs are pushed. Each must name the one before as its previous
    /// release.
    Service,
}

/// What a reader of catalogs has stored and what it expects.
#[derive(Clone, Copy, Debug)]
pub struct CatalogReader<'a> {
    /// Whether a device, a publisher's machine or the service judges: each has rules of its own.
    pub side: ReaderKind,
    /// The base address of the service that the reader asked, with its path prefix if it has one,
    /// such as `https://vault.example/base`.
    pub base: &'a str,
    /// The namespace that the reader asked for.
    pub slug: &'a Slug,
    /// The time by the reader's clock.
    pub now: Timestamp,
    /// The latest time that the reader's clock has shown. A device judges expiry by it if its clock
    /// went back.
    pub latest_seen_at: Option<Timestamp>,
    /// The reader's state of the vault's keys; `None` at the first link or push.
    pub own: Option<&'a RootState>,
    /// A vault fingerprint that the chain must contain; `None` if nobody gave one.
    pub expected: Option<&'a root::VaultFingerprint>,
    /// The catalog that the reader accepted last; `None` before the first.
    pub last: Option<&'a LastCatalog>,
    /// Whether a person has agreed to a catalog that follows another payload of the stored release
    /// (a fork).
    pub accept_fork: bool,
}

/// The result of judging a catalog file.
#[derive(Debug)]
pub struct CatalogJudgement {
    /// Root versions that are new to the reader, and when to store them.
    pub roots: NewRoots,
    /// Warnings about the root versions, for the user.
    pub warnings: Vec<RootWarning>,
    /// Whether the reader accepts the catalog, and as what.
    pub outcome: Result<CatalogOutcome, CatalogError>,
}

/// The time at which the reader stores new root versions.
#[derive(Clone, Debug)]
pub enum NewRoots {
    /// Nothing to store: the versions are not new, or they are rejected.
    None,
    /// Store the state at once, even if the catalog is rejected.
    Now(RootState),
    /// Store the state together with the catalog, once its bundles are verified; otherwise not at
    /// all.
    WithCatalog(RootState),
}

/// What an accepted catalog is to the reader.
#[derive(Debug)]
pub enum CatalogOutcome {
    /// A release that the reader does not have yet.
    Release(Box<JudgedRelease>),
    /// The stored release again. Nothing is installed; the reader stores these signers in place of
    /// the former ones.
    Equal {
        /// The keys whose signatures count.
        signers: Vec<PublicKey>,
    },
    /// The service's current release with a longer chain: the file replaces the stored one, the
    /// release stays.
    RootsOnly,
}

/// A release that passed every check except for the versions of some skills:
/// [`JudgedRelease::settle_versions`] decides about those.
#[derive(Clone, Debug)]
pub struct JudgedRelease {
    counted: CountedCatalog,
    /// Stored skills whose version forbids the new one, unless their own manifest no longer counts.
    doubtful_skills: Vec<SkillEntry>,
    same_root: bool,
}

/// A catalog that the reader accepts. The caller verifies its bundles one by one.
#[derive(Clone, Debug)]
pub struct CountedCatalog {
    /// The verified catalog.
    pub catalog: Catalog,
    /// The state of the vault's keys that the reader stores with it.
    pub state: RootState,
    /// Release number of the catalog, and the SHA-256 of its payload.
    pub stored: ReleaseRef,
    /// SHA-256 of the file's bytes.
    pub file_sha256: Digest,
    /// The keys whose signatures count.
    pub signers: Vec<PublicKey>,
    /// Whether the previous catalog is void, together with its withdrawals, because one of the keys
    /// that signed it is revoked or unknown to the chain.
    pub voids_last: bool,
    /// Warnings for the user.
    pub warnings: Vec<CatalogWarning>,
}

impl JudgedRelease {
    /// The stored skills whose manifests the caller checks, as input for
    /// [`JudgedRelease::settle_versions`].
    pub fn doubtful_skills(&self) -> &[SkillEntry] {
        &self.doubtful_skills
    }

    /// The catalog, before the versions of its skills are settled.
    pub const fn catalog(&self) -> &Catalog {
        &self.counted.catalog
    }

    /// The state of the vault's keys under which the catalog counts.
    pub const fn state(&self) -> &RootState {
        &self.counted.state
    }

    /// SHA-256 of the signed payload.
    pub const fn payload_sha256(&self) -> Digest {
        self.counted.stored.payload_sha256
    }

    /// Whether the previous catalog is void; see [`RootState::voids_release`].
    pub const fn voids_last(&self) -> bool {
        self.counted.voids_last
    }

    /// Decides about the skills of [`JudgedRelease::doubtful_skills`]. `counts` tells whether the
    /// stored manifest of a skill is by a key that the reader's chain knows and does not revoke.
    /// Otherwise that stored version is ignored.
    pub fn settle_versions(
        self,
        counts: impl Fn(&SkillEntry) -> bool,
    ) -> Result<CountedCatalog, CatalogError> {
        let catalog = &self.counted.catalog;
        for stored in self.doubtful_skills.iter().filter(|stored| counts(stored)) {
            if let Some(new) = catalog.skill(&stored.name) {
                check_version(stored, new, self.same_root)?;
            }
        }
        Ok(self.counted)
    }
}

/// Decides whether a reader accepts a catalog file. Stores nothing: the caller does.
pub fn judge_catalog(bytes: &[u8], reader: &CatalogReader<'_>) -> CatalogJudgement {
    judge_with_threshold(bytes, reader, None)
}

/// Judges a catalog file. `threshold` replaces the number of signatures that the release role
/// requires; proposals need only one.
pub(super) fn judge_with_threshold(
    bytes: &[u8],
    reader: &CatalogReader<'_>,
    threshold: Option<usize>,
) -> CatalogJudgement {
    let refused = |error| CatalogJudgement {
        roots: NewRoots::None,
        warnings: Vec::new(),
        outcome: Err(error),
    };
    let file = match SignedCatalog::parse(bytes) {
        Ok(file) => file,
        Err(error) => return refused(error),
    };
    // Roots come before the signatures of the catalog: they name the keys that may sign it.
    let judged = match root::judge_roots(reader.own, file.roots(), reader.expected) {
        Ok(judged) => judged,
        Err(error) => return refused(error.into()),
    };
    let case = CatalogCheck {
        reader,
        file: &file,
        judged: &judged,
        threshold,
    };
    let outcome = case.judge_file(bytes);
    CatalogJudgement {
        roots: case.new_roots(&outcome),
        warnings: judged.warnings,
        outcome,
    }
}

/// One file and one reader, after the root versions are judged.
struct CatalogCheck<'a> {
    reader: &'a CatalogReader<'a>,
    file: &'a SignedCatalog,
    judged: &'a JudgedRoots,
    threshold: Option<usize>,
}

impl CatalogCheck<'_> {
    fn state(&self) -> &RootState {
        &self.judged.state
    }

    fn newest_root(&self) -> &RootVersion {
        self.state().chain().newest()
    }

    /// Tells whether this file carries the reader's newest root version.
    fn carries_newest(&self) -> bool {
        self.judged.shown_newest_sha256 == *self.newest_root().payload_sha256()
    }

    fn new_roots(&self, outcome: &Result<CatalogOutcome, CatalogError>) -> NewRoots {
        if !self.judged.taken {
            return NewRoots::None;
        }
        let state = self.state().clone();
        let trusted = self.reader.own.is_some() || self.reader.expected.is_some();
        match (self.reader.side, outcome) {
            // A device that expects this chain keeps it, so that no host can take a revocation
            // back.
            (ReaderKind::Device | ReaderKind::Publisher, _) if trusted => NewRoots::Now(state),
            // Enough publishers of this chain have signed the catalog, so the chain belongs to the
            // vault. The device keeps it and waits for the next release.
            (ReaderKind::Device, Err(CatalogError::ReleaseAwaited)) => NewRoots::Now(state),
            (_, Ok(_)) => NewRoots::WithCatalog(state),
            // Apart from the case above, a device that links for the first time pins nothing from a
            // file that does not count, and a service stores nothing.
            (_, Err(_)) => NewRoots::None,
        }
    }

    fn judge_file(&self, bytes: &[u8]) -> Result<CatalogOutcome, CatalogError> {
        let reader = self.reader;
        // The service does not judge its current release again. That release may no longer count
        // under a new root version, but its owner has to be able to publish that version with it.
        if reader.side == ReaderKind::Service
            && let Some(last) = reader.last
            && last.is_same_file(self.file)
        {
            return Ok(if self.judged.taken {
                CatalogOutcome::RootsOnly
            } else {
                let signers = last.signers.clone();
                CatalogOutcome::Equal { signers }
            });
        }
        // The order of these checks is part of the contract with other implementations, since it
        // decides which code a bad catalog gets. Apart from the choice of that code, nothing of the
        // payload is used before its signatures count.
        let signers = self.release_signers()?;
        let catalog = self.file.read_payload()?;
        self.check_root(&catalog)?;
        self.file.check_named_key(&catalog)?;
        check_signer(&catalog, &signers)?;
        self.check_address(&catalog)?;
        let warnings = self.check_clock(&catalog)?;
        let stored = ReleaseRef {
            release: catalog.release,
            payload_sha256: self.file.payload_sha256(),
        };
        // After a theft, numbers of releases by the revoked key are not compared: the thief could
        // have signed the highest number, and the owner must be able to go on below it.
        let voids_last = reader
            .last
            .is_some_and(|last| self.state().voids_release(&last.signers));
        let last = reader.last.filter(|_| !voids_last);
        if let Some(last) = last {
            if check_release(&catalog, stored, last)? {
                return Ok(CatalogOutcome::Equal { signers });
            }
            self.check_previous(&catalog, last)?;
        }
        // The limit for jumps holds only under one root, so that a change of keys is the way out
        // after a thief has jumped far ahead.
        let same_root = reader
            .last
            .is_some_and(|last| last.catalog.root_sha256 == catalog.root_sha256);
        Ok(CatalogOutcome::Release(Box::new(JudgedRelease {
            doubtful_skills: find_doubtful_skills(reader.last, &catalog, same_root),
            same_root,
            counted: CountedCatalog {
                catalog,
                state: self.state().clone(),
                stored,
                file_sha256: Digest::of(bytes),
                signers,
                voids_last,
                warnings,
            },
        })))
    }

    /// Returns the keys of the newest release role whose signatures are valid. Fails if they are
    /// too few.
    fn release_signers(&self) -> Result<Vec<PublicKey>, CatalogError> {
        let role = self.state().document().release();
        let needed = self.threshold.unwrap_or_else(|| role.threshold());
        // Only keys of the reader's own newest root: the root that the file names may be one in
        // which a stolen key was still good.
        let signers = self.file.valid_signers(&self.state().release_keys());
        if signers.len() >= needed {
            Ok(signers)
        } else if self.carries_newest() && self.is_signed_under_older_root() {
            Err(CatalogError::ReleaseAwaited)
        } else {
            let found = signers.len();
            Err(CatalogError::SignaturesMissing { found, needed })
        }
    }

    /// Tells whether the payload names an older version of the chain whose release role has signed
    /// it. Reads no other member of the payload.
    fn is_signed_under_older_root(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct RootOnly {
            root_version: u64,
            root_sha256: Digest,
        }
        let Ok(named) = json::parse_payload::<RootOnly>(self.file.unverified_payload()) else {
            return false;
        };
        let Some(older) = self.older_version(named.root_version, &named.root_sha256) else {
            return false;
        };
        let role = older.document().release();
        let keys: Vec<PublicKey> = role.keys().to_vec();
        // Keys that were revoked in an abandoned fork of the chain count in no catalog, even if a
        // version of this chain names them.
        let revoked_elsewhere = self.state().revoked_elsewhere();
        let signers = self.file.valid_signers(&keys);
        let counted = signers
            .iter()
            .filter(|key| !revoked_elsewhere.contains(&(*key).into()));
        counted.count() >= self.threshold.unwrap_or_else(|| role.threshold())
    }

    /// Returns the version with this number and payload, if it is in the chain and not the newest.
    fn older_version(&self, number: u64, payload_sha256: &Digest) -> Option<&RootVersion> {
        let version = self.state().chain().find(payload_sha256)?;
        let number_fits = version.document().version() == number;
        (number_fits && number < self.state().chain().version()).then_some(version)
    }

    fn check_root(&self, catalog: &Catalog) -> Result<(), CatalogError> {
        let (number, hash) = (catalog.root_version, &catalog.root_sha256);
        let newest = self.state().chain().version();
        if number == newest && hash == self.newest_root().payload_sha256() {
            Ok(())
        } else if self.older_version(number, hash).is_none() {
            Err(RootError::NotInChain { version: number }.into())
        } else if self.reader.side == ReaderKind::Publisher && self.is_signed_under_older_root() {
            Ok(())
        } else if self.carries_newest() {
            Err(CatalogError::ReleaseAwaited)
        } else {
            // Without the newest root in the same file, a host may be hiding it: that is an attack,
            // not an owner who has not published yet.
            let (shown, known) = (number, newest);
            Err(RootError::RolledBack { shown, known }.into())
        }
    }

    fn check_address(&self, catalog: &Catalog) -> Result<(), CatalogError> {
        if catalog.vault_id != self.state().vault_id() {
            return Err(CatalogError::VaultId);
        }
        if catalog.slug != *self.reader.slug {
            return Err(CatalogError::Slug);
        }
        // The address that this reader connected to, not one from the catalog: a catalog of one
        // service must not count at another.
        let base = self.reader.base.trim_end_matches('/');
        let address = format!("{base}/v/{}/", self.reader.slug);
        if catalog.audience.contains(&address) {
            Ok(())
        } else {
            Err(CatalogError::Audience)
        }
    }

    fn check_clock(&self, catalog: &Catalog) -> Result<Vec<CatalogWarning>, CatalogError> {
        let reader = self.reader;
        catalog.check_lifetime()?;
        let ahead = catalog.issued_at > reader.now.plus_seconds(MAX_AHEAD_SECONDS);
        let mut warnings = Vec::new();
        let judged_at = match reader.side {
            // A service rejects at once, so that the publisher fixes its clock; a device only
            // warns, since its own clock may be the wrong one.
            ReaderKind::Service if ahead => {
                return Err(CatalogError::Clock("the catalog is issued in the future"));
            }
            ReaderKind::Service => reader.now,
            ReaderKind::Device | ReaderKind::Publisher => {
                // Judge by the later of the two times, so that setting the clock back does not
                // revive an expired release.
                let latest = reader.latest_seen_at.unwrap_or(reader.now);
                warnings.extend(ahead.then_some(CatalogWarning::IssuedInFuture));
                warnings.extend((latest > reader.now).then_some(CatalogWarning::ClockWentBack));
                latest.max(reader.now)
            }
        };
        if judged_at > catalog.expires_at {
            if reader.side != ReaderKind::Publisher {
                let expired = CatalogError::Expired(catalog.expires_at);
                return Err(self.expiry_error(catalog.expires_at, expired));
            }
            warnings.push(CatalogWarning::Expired);
        }
        if let Some(end) = self.newest_root().document().expires_at() {
            // This holds for a publisher's machine too: its owner has to renew an expired root
            // first.
            if judged_at > end {
                return Err(self.expiry_error(end, CatalogError::RootExpired(end)));
            }
            let names_newest = catalog.root_sha256 == *self.newest_root().payload_sha256();
            if names_newest && catalog.expires_at > end {
                return Err(CatalogError::Clock(
                    "the catalog expires later than the newest root version",
                ));
            }
        }
        Ok(warnings)
    }

    /// Returns the error for something that has ended. If only a time that this clock has shown
    /// before is past the end, one of the two times is wrong, and the clock is reported.
    fn expiry_error(&self, end: Timestamp, expired: CatalogError) -> CatalogError {
        if self.reader.now > end {
            expired
        } else {
            CatalogError::Clock("this machine's clock has shown a time after it expires")
        }
    }

    fn check_previous(&self, catalog: &Catalog, last: &LastCatalog) -> Result<(), CatalogError> {
        let Some(previous) = catalog.previous else {
            return Err(CatalogError::Previous);
        };
        let good = match self.reader.side {
            ReaderKind::Service => previous == last.stored,
            // A device may have missed releases. The catalog then names a previous release that the
            // device does not know, which is fine.
            ReaderKind::Device | ReaderKind::Publisher => {
                self.reader.accept_fork
                    || previous.release != last.stored.release
                    || previous == last.stored
            }
        };
        if good {
            Ok(())
        } else {
            Err(CatalogError::Previous)
        }
    }
}

/// Checks that a catalog names one of its signers, which have valid signatures, are in the release
/// role and are not revoked.
fn check_signer(catalog: &Catalog, signers: &[PublicKey]) -> Result<(), CatalogError> {
    if signers.contains(&catalog.public_key) {
        Ok(())
    } else {
        Err(CatalogError::Key(
            "the key that the catalog names is not one of its signers in the release role",
        ))
    }
}

/// Returns `true` if the catalog is the stored release itself, `false` if it is a later one. Fails
/// if it is older, is another payload with the same number, or is too far above the stored number.
fn check_release(
    catalog: &Catalog,
    new: ReleaseRef,
    last: &LastCatalog,
) -> Result<bool, CatalogError> {
    let stored = last.stored;
    if new.release < stored.release {
        return Err(CatalogError::Older {
            release: new.release,
            stored: stored.release,
        });
    }
    if new.release == stored.release {
        // Two payloads under one number show that the host gives readers different catalogs, or
        // that two machines signed at once.
        return if new == stored {
            Ok(true)
        } else {
            Err(CatalogError::TwoCatalogs(stored.release))
        };
    }
    let same_root = last.catalog.root_sha256 == catalog.root_sha256;
    if same_root && new.release - stored.release > MAX_RELEASE_JUMP {
        Err(CatalogError::Jump)
    } else {
        Ok(false)
    }
}

/// Returns the stored skills whose version forbids the new one: it is higher, it is equal with
/// other content, or the new one is too far above it.
fn find_doubtful_skills(
    last: Option<&LastCatalog>,
    new: &Catalog,
    same_root: bool,
) -> Vec<SkillEntry> {
    let Some(last) = last else { return Vec::new() };
    let is_doubt = |stored: &&SkillEntry| {
        new.skill(&stored.name)
            // This is only a doubt: whether the stored version may be compared depends on who
            // signed the skill, and its manifest is not available here.
            .is_some_and(|entry| check_version(stored, entry, same_root).is_err())
    };
    last.catalog
        .skills
        .iter()
        .filter(is_doubt)
        .cloned()
        .collect()
}

fn check_version(
    stored: &SkillEntry,
    new: &SkillEntry,
    same_root: bool,
) -> Result<(), CatalogError> {
    new.check_not_before(stored)?;
    if same_root && new.version - stored.version > MAX_RELEASE_JUMP {
        return Err(CatalogError::SkillJump(new.name.clone()));
    }
    Ok(())
}
