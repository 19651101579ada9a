//! What a release is to be planned for.

use vault_skill::name::Slug;

/// Days that a release counts, unless asked otherwise.
pub const DEFAULT_DAYS: i64 = 90;

/// What to plan.
#[derive(Clone, Debug)]
pub struct PlanRequest<'a> {
    /// The base address that is published to, without a slash at its end.
    pub base: &'a str,
    /// The namespace.
    pub slug: &'a Slug,
    /// Further base addresses that may serve the release, for a vault that moves.
    pub also_served_from: &'a [String],
    /// The exact bytes of the service's current catalog; `None` when it has none.
    pub current: Option<&'a [u8]>,
    /// What to do about a current catalog that this library does not know.
    pub on_divergence: OnDivergence,
    /// Sign a new release though nothing changed.
    pub renew: bool,
    /// Days until it expires, 1 to 400.
    pub days: i64,
}

impl<'a> PlanRequest<'a> {
    /// A plain sync against a current catalog.
    pub fn new(base: &'a str, slug: &'a Slug, current: Option<&'a [u8]>) -> Self {
        Self {
            base,
            slug,
            also_served_from: &[],
            current,
            on_divergence: OnDivergence::Stop,
            renew: false,
            days: DEFAULT_DAYS,
        }
    }
}

/// What to do where somebody else with the vault's key published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnDivergence {
    /// Stop and say what differs.
    Stop,
    /// Take their skills in first: [`Plan::Adopt`] names the bundles to fetch.
    Adopt,
    /// Drop them: the release is this library.
    Replace,
}
