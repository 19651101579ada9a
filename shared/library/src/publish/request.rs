//! The parameters of a release plan.

use std::collections::BTreeMap;

use vault_format::catalog::ReleaseRef;
use vault_format::name::{SkillName, Slug};
use vault_policy::profile::Profile;

use super::error::PlanError;

/// Days until a release expires, by default.
pub const DEFAULT_DAYS: i64 = 90;

/// The parameters of a release plan.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an answer of its own"
)]
pub struct PlanRequest<'a> {
    /// The base address to publish to, without a trailing slash.
    pub base: &'a str,
    /// The namespace.
    pub slug: &'a Slug,
    /// Additional base addresses that may serve the release, for a vault that moves between
    /// addresses.
    pub also_served_from: &'a [String],
    /// The exact bytes of the service's current catalog; `None` when it has none.
    pub current: Option<&'a [u8]>,
    /// Whether an owner has made the service forget which vault publishes here. The release then
    /// replaces a current catalog of another vault, or of an earlier format, without reading it.
    pub pin_is_reset: bool,
    /// The reaction to a current catalog that this library does not recognise.
    pub on_divergence: OnDivergence,
    /// The profiles of the current catalog, once
    /// [`Plan::FetchProfiles`](super::Plan::FetchProfiles) has asked for them.
    pub current_profiles: Option<&'a [Profile]>,
    /// Sign a new release even if nothing changed.
    pub renew: bool,
    /// Whether a signed release that was not published is submitted again unchanged. If false, a
    /// new one with a higher number is made.
    pub resume: bool,
    /// Days until the release expires, 1 to 400.
    pub days: i64,
    /// The versions that the service named for skills that an earlier release removed. Skills that
    /// return get higher versions.
    pub reached: Option<&'a BTreeMap<SkillName, u64>>,
    /// Sign again the skills that a revoked key had signed. The owner has seen the list.
    pub sign_again: bool,
    /// The last release before a theft, from the status of any device.
    pub last_good: Option<ReleaseRef>,
    /// A release number that the new release must exceed, because a device may have seen it.
    pub above_release: Option<u64>,
}

impl<'a> PlanRequest<'a> {
    /// A request with default options.
    pub fn new(base: &'a str, slug: &'a Slug, current: Option<&'a [u8]>) -> Self {
        Self {
            base,
            slug,
            also_served_from: &[],
            current,
            pin_is_reset: false,
            on_divergence: OnDivergence::Stop,
            current_profiles: None,
            renew: false,
            // An interrupted push is continued by default, so that it uses up no second number.
            resume: true,
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
    /// Take over their changes, even if this library changed the same thing:
    /// [`Plan::TakeOver`](super::Plan::TakeOver) lists them.
    Adopt,
    /// Discard the current catalog: the release contains exactly this library's skills.
    Replace,
}
