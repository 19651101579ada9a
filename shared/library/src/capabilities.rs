//! Resolves what a caller may use: applies the approved version of `policy.toml` to the installed
//! skills.

use std::fmt::Write as _;

use vault_format::hash::Digest;
use vault_policy::search::Text;
use vault_policy::{self as policy, Asker, Capabilities, CompiledPolicy, Input};

use crate::installed::listing::{self, InstalledSkill};
use crate::vault::Vault;
pub use crate::vault::policy::{
    POLICY_FILE, ResolveError, parse_policy, read_policy, read_policy_at, read_source_policy,
};

/// The input of [`resolve_capabilities`].
#[derive(Clone, Copy, Debug)]
pub struct ResolveInput<'a> {
    /// The vault whose skills are resolved.
    pub vault: &'a Vault,
    /// The policy to apply; `None` means the approved version of the vault's `policy.toml`, if
    /// there is one.
    pub policy: Option<&'a CompiledPolicy>,
    /// Ids of the caller, in order of precedence: the first one in the policy is used.
    pub callers: &'a [&'a str],
    /// The profile that an owner assigned to the user, if any.
    pub bound_profile: Option<&'a str>,
    /// Platform, for example `cli`.
    pub platform: &'a str,
    /// Channel on the platform, if any.
    pub channel: Option<&'a str>,
    /// The caller's task. Without it no context rule applies and skills are not ranked.
    pub query: Option<&'a str>,
}

/// Resolves which installed skills, tools and MCP servers a caller may use. Own and linked skills
/// count alike. Shadowed skills (those whose bare name means another skill) and damaged skills are
/// left out.
///
/// An unknown caller gets empty lists and the reason. Fails if the policy is invalid or the vault
/// can't be read. The cache key uses the installed skills in place of the catalog: see
/// `docs/policy.md`.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::{ResolveInput, Vault, VaultPaths, parse_policy, resolve_capabilities};
/// use vault_policy::CompiledPolicy;
/// use vault_store::{clock::SystemClock, random::SystemRandom};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let paths = VaultPaths::new(folder.path().join("vault"), folder.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(SystemClock), Arc::new(SystemRandom))?;
/// let policy = "[profiles.dev]\ngroups = [\"review\"]\n\
///               [groups.review]\nskills = [\"code-review\"]\ntools = [\"Bash\"]\n\
///               [callers.\"ann@example.com\"]\nprofile = \"dev\"\n";
/// let policy = CompiledPolicy::new(parse_policy(policy.as_bytes())?)?;
///
/// let mut input = ResolveInput {
///     vault: &vault,
///     policy: Some(&policy),
///     callers: &["ann@example.com"],
///     bound_profile: None,
///     platform: "cli",
///     channel: None,
///     query: Some("review this change"),
/// };
/// let ann = resolve_capabilities(&input)?;
/// assert_eq!(ann.tools, ["Bash"]);
/// assert_eq!(ann.matched_groups, ["review"]);
///
/// input.callers = &["eve@example.com"];
/// let eve = resolve_capabilities(&input)?;
/// assert!(eve.skills.is_empty() && eve.tools.is_empty());
/// # Ok(())
/// # }
/// ```
pub fn resolve_capabilities(input: &ResolveInput<'_>) -> Result<Capabilities, ResolveError> {
    let read;
    let policy = match input.policy {
        Some(policy) => policy,
        None => {
            read = match read_policy(input.vault)? {
                Some(policy) => CompiledPolicy::new(policy)?,
                None => CompiledPolicy::absent(),
            };
            &read
        }
    };
    let mut skills = listing::list_installed(input.vault)?.skills;
    // A shadowed skill's bare name means another skill, which a grant by name would hand out
    // instead.
    skills.retain(|skill| !skill.shadowed);
    let texts: Vec<Text<'_>> = skills.iter().map(InstalledSkill::search_text).collect();
    Ok(policy::resolve_capabilities(&Input {
        policy,
        catalog: Some(hash_installed_skills(&skills)),
        asker: Asker {
            callers: input.callers,
            bound_profile: input.bound_profile,
            platform: input.platform,
            channel: input.channel,
        },
        query: input.query,
        skills: &texts,
    }))
}

/// Returns the digest of the installed skills for the cache key: SHA-256 over one line
/// `<name> <bundle hash>` for each skill, sorted by name.
fn hash_installed_skills(skills: &[InstalledSkill]) -> Digest {
    let mut sorted: Vec<_> = skills
        .iter()
        .map(|skill| (&skill.name, skill.bundle))
        .collect();
    // The order of the listing must not change the cache key.
    sorted.sort_unstable();
    let mut lines = String::new();
    for (name, bundle) in sorted {
        let _infallible = writeln!(lines, "{name} {bundle}");
    }
    Digest::of(lines.as_bytes())
}
