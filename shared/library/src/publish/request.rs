//! The parameters of a release plan.

use std::collections::{BTreeMap, HashMap};

use vault_format::catalog::ReleaseRef;
use vault_format::hash::Digest;
use vault_format::name::{SkillName, Slug};
use vault_policy::profile::Profile;

use super::error::PlanError;

/// Number of days after which a release expires, unless the owner chooses another one.
pub const DEFAULT_DAYS: i64 = 90;

/// The namespace, its current catalog, and the owner's choices for a release plan.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an answer of its own"
)]
pub struct PlanRequest<'a> {
    /// Address of the service, without a slash at its end.
    pub base: &'a str,
    /// Name of the vault at the service.
    pub slug: &'a Slug,
    /// Further addresses at which readers accept the release, for a vault that moves from one
    /// address to another.
    pub also_served_from: &'a [String],
    /// Exact bytes of the service's current catalog; `None` if it has none.
    pub current: Option<&'a [u8]>,
    /// Whether an owner has made the service forget which vault publishes here. The release then
    /// replaces a current catalog of another vault, or of an earlier format, without reading it.
    pub pin_is_reset: bool,
    /// Reaction to a current catalog that this machine does not recognise.
    pub on_divergence: OnDivergence,
    /// Profiles of the current catalog, once [`Plan::FetchProfiles`](super::Plan::FetchProfiles)
    /// has asked for them.
    pub current_profiles: Option<&'a [Profile]>,
    /// The bundles of variants of the current catalog with their parts, once
    /// [`Plan::FetchVariants`](super::Plan::FetchVariants) has asked for them.
    pub current_variants: Option<&'a HashMap<Digest, Vec<u8>>>,
    /// Whether to sign a new release even if nothing changed.
    pub renew: bool,
    /// Whether a release that was signed and not published is submitted again unchanged. If not, a
    /// new one with a higher number is signed.
    pub resubmit_signed: bool,
    /// Number of days until the release expires, from 1 to 400.
    pub days: i64,
    /// Versions that the service has named for skills that an earlier release removed. Skills that
    /// come back get higher versions.
    pub reached: Option<&'a BTreeMap<SkillName, u64>>,
    /// Whether to sign again the skills that a revoked key had signed. Set it after the owner has
    /// seen their names.
    pub sign_again: bool,
    /// Last release before a theft, as the owner read it on a device; `None` if there was no theft.
    pub last_good: Option<ReleaseRef>,
    /// A release number that the new release must exceed, because a device may have seen it.
    pub above_release: Option<u64>,
}

impl<'a> PlanRequest<'a> {
    /// Returns a request without any choices of the owner.
    pub fn new(base: &'a str, slug: &'a Slug, current: Option<&'a [u8]>) -> Self {
        Self {
            base,
            slug,
            also_served_from: &[],
            current,
            pin_is_reset: false,
            on_divergence: OnDivergence::Stop,
            current_profiles: None,
            current_variants: None,
            renew: false,
            // An interrupted push is continued, so that it does not use up a second number.
            resubmit_signed: true,
            days: DEFAULT_DAYS,
            reached: None,
            sign_again: false,
            last_good: None,
            above_release: None,
        }
    }

    /// Returns whether the release replaces the current catalog without reading it, given the error
    /// of reading it.
    pub(super) const fn replaces_unread(&self, unread: &PlanError) -> bool {
        self.pin_is_reset && unread.is_another_vaults()
    }
}

/// The reaction to a release by another publisher, or by another machine with this vault's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnDivergence {
    /// In a vault with several publishers, take over the changes that only they made, and report
    /// conflicts. In a vault with one publisher, stop and report the differences.
    Stop,
    /// Take over the changes of the other publisher or machine, even if this machine changed the
    /// same things. [`Plan::TakeOver`](super::Plan::TakeOver) lists the changes.
    Adopt,
    /// Drop the current catalog: the release contains exactly the skills on this machine.
    Replace,
}
