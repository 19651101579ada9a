//! The places that the owner allows: `[sources]` of `policy.toml`, checked before each request.
//!
//! The policy fails closed: with a list, a place that no pattern covers is refused. A place that is reached on the way (a redirect, a
//! hand-off to another host) is checked like the first one. Folders and archives of this machine are always allowed.

use url::Url;
use vault_skill::keys::PublicKey;
use vault_skill::policy::Policy;
use vault_skill::time::Timestamp;

use crate::error::{FetchError, Result, shown};
use crate::source::{Source, url_names};

/// The source policy, compiled.
#[derive(Clone, Debug, Default)]
pub struct SourcePolicy {
    allow: Option<Vec<Pattern>>,
    signed_only: bool,
    signers: Vec<PublicKey>,
    minimum_age_days: u32,
}

impl SourcePolicy {
    /// The `[sources]` of a policy; without one anything may be fetched.
    pub fn new(policy: Option<&Policy>) -> Self {
        let Some(sources) = policy.and_then(|policy| policy.sources.as_ref()) else {
            return Self::default();
        };
        Self {
            allow: sources
                .allow
                .as_ref()
                .map(|patterns| patterns.iter().map(|text| Pattern::new(text)).collect()),
            signed_only: sources.signed_only.unwrap_or(false),
            signers: sources.signers.clone().unwrap_or_default(),
            minimum_age_days: sources.minimum_age_days.unwrap_or(0),
        }
    }

    /// Fails where nothing of this source can be allowed. Called before the first request.
    pub fn check(&self, source: &Source) -> Result<()> {
        if matches!(source, Source::Local(_)) {
            return Ok(());
        }
        let refuse = |reason: &str| Err(refusal(&source.shown(), reason));
        let is_signed = matches!(source, Source::WellKnown { .. } | Source::Vault { .. });
        if self.signed_only && !is_signed {
            return refuse(
                "only linked vaults and site indexes with digests are allowed (signed_only)",
            );
        }
        let names = source.policy_names();
        let open = names.iter().any(|name| self.may_allow(name));
        if !open {
            return refuse("no pattern of `allow` covers it");
        }
        if self.minimum_age_days > 0 && !matches!(source, Source::Git(_) | Source::Vault { .. }) {
            return refuse("minimum_age_days asks for the age of a commit, and it has none");
        }
        Ok(())
    }

    /// Fails where no pattern covers any of these names of a skill.
    pub fn check_names(&self, names: &[String]) -> Result<()> {
        if names.iter().any(|name| self.allows(name)) {
            return Ok(());
        }
        let name = names.first().map_or("", String::as_str);
        Err(refusal(name, "no pattern of `allow` covers it"))
    }

    /// Fails where an address on the way is neither on the first host nor covered by a pattern.
    pub fn check_hop(&self, asked: &Url, reached: &Url) -> Result<()> {
        if asked.host_str() == reached.host_str() || self.allow.is_none() {
            return Ok(());
        }
        self.check_names(&url_names(reached))
    }

    /// Fails for a commit that is younger than the policy allows. A commit from the future has no age.
    pub fn check_age(&self, place: &str, committed: i64, now: Timestamp) -> Result<()> {
        let days = now.unix().saturating_sub(committed).div_euclid(86_400);
        if i64::from(self.minimum_age_days) <= days || self.minimum_age_days == 0 {
            return Ok(());
        }
        Err(refusal(
            place,
            &format!(
                "its commit is {} days old, {} are asked for (minimum_age_days)",
                days.max(0),
                self.minimum_age_days
            ),
        ))
    }

    /// Whether a site's index must carry digests.
    pub const fn wants_digests(&self) -> bool {
        self.signed_only
    }

    /// Fails where a source carries a vault's signature by a key that is not listed; an empty list allows every key.
    pub fn check_signer(&self, place: &str, signer: &PublicKey) -> Result<()> {
        if self.signers.is_empty() || self.signers.contains(signer) {
            return Ok(());
        }
        Err(refusal(place, "its signer is not among `signers`"))
    }

    fn allows(&self, name: &str) -> bool {
        self.allow
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(|pattern| pattern.covers(name)))
    }

    /// Whether the name, or something below it, is covered.
    fn may_allow(&self, name: &str) -> bool {
        self.allows(name)
            || self
                .allow
                .as_ref()
                .is_some_and(|patterns| patterns.iter().any(|pattern| pattern.is_below(name)))
    }
}

fn refusal(place: &str, reason: &str) -> FetchError {
    FetchError::Policy {
        place: shown(place),
        reason: reason.to_owned(),
    }
}

/// A pattern of `allow`. It covers a name segment by segment, and everything below: `*` matches any text within one segment, so that a
/// path never matches the pattern of a host.
#[derive(Clone, Debug)]
struct Pattern {
    segments: Vec<String>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let text = text.trim_end_matches('/');
        let text = text.strip_suffix("/*").map_or(text, |text| text);
        Self {
            segments: folded(text).split('/').map(str::to_owned).collect(),
        }
    }

    fn covers(&self, name: &str) -> bool {
        let name = folded(name);
        let mut parts = name.split('/');
        self.segments
            .iter()
            .all(|pattern| parts.next().is_some_and(|part| part_matches(pattern, part)))
    }

    /// Whether it covers something below the name and not the name itself.
    fn is_below(&self, name: &str) -> bool {
        let name = folded(name);
        let mut patterns = self.segments.iter();
        name.split('/').all(|part| {
            patterns
                .next()
                .is_some_and(|pattern| part_matches(pattern, part))
        })
    }
}

/// The name in lower case on the two public hosts, which ignore case; other hosts may not.
fn folded(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let known = ["github.com/", "gitlab.com/", "github:", "gitlab:"];
    if known.iter().any(|host| lower.starts_with(host)) {
        lower
    } else {
        text.to_owned()
    }
}

fn part_matches(pattern: &str, part: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == part;
    };
    let Some(mut part) = part.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in middle.split('*') {
        let Some(at) = part.find(piece) else {
            return false;
        };
        part = &part[at + piece.len()..];
    }
    part.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ParseOptions;

    fn policy(toml: &str) -> SourcePolicy {
        SourcePolicy::new(Some(&Policy::from_toml(toml).unwrap()))
    }

    fn source(text: &str) -> Source {
        Source::parse(text, &ParseOptions::default(), &|path| path == "./folder").unwrap()
    }

    #[test]
    fn a_list_lets_through_what_a_pattern_covers_and_nothing_else() {
        let policy = policy(
            "[sources]\nallow = [\"github.com/acme/*\", \"wellknown:https://docs.example\", \"*.example.com/tools\", \"github.com/solo/skills/pdf\", \"clawhub:openclaw/*\"]\n",
        );
        for good in [
            "github:acme/skills",
            "github:ACME/skills/pdf#v1",
            "github:acme/skills/pdf",
            "git@github.com:acme/skills.git",
            "https://github.com/acme/skills/tree/main/pdf",
            "https://docs.example",
            "wellknown:https://docs.example/pdf",
            "https://git.example.com/tools/x.git",
            "github:solo/skills",
            "github:solo/skills/pdf",
            "clawhub:@openclaw/gif",
            "./folder",
        ] {
            assert!(policy.check(&source(good)).is_ok(), "{good}");
        }
        for bad in [
            "github:acmes/skills",
            "github:evil/acme",
            "https://evil.example/github.com/acme/skills",
            "https://github.com.evil.example/acme/skills.git",
            "https://docs.example.evil",
            "https://docs.example:8443",
            "wellknown:https://other.example/docs.example",
            "https://evil.net/a.example.com/tools",
            "github:solo/skills/other",
            "github:solo/other",
            "clawhub:gif",
            "registry:gif",
        ] {
            let refused = policy.check(&source(bad));
            assert!(
                matches!(refused, Err(FetchError::Policy { .. })),
                "{bad}: {refused:?}"
            );
        }
    }

    #[test]
    fn an_empty_list_allows_nothing_and_no_list_allows_anything() {
        let none = policy("[sources]\nallow = []\n");
        assert!(none.check(&source("github:acme/skills")).is_err());
        assert!(none.check(&source("./folder")).is_ok());
        assert!(
            policy("[sources]\n")
                .check(&source("github:acme/skills"))
                .is_ok()
        );
        assert!(
            SourcePolicy::new(None)
                .check(&source("clawhub:gif"))
                .is_ok()
        );
    }

    #[test]
    fn signed_only_and_ages_keep_out_what_cannot_have_them() {
        let signed = policy("[sources]\nsigned_only = true\n");
        assert!(signed.check(&source("github:acme/skills")).is_err());
        assert!(signed.check(&source("https://docs.example")).is_ok());
        assert!(signed.wants_digests());
        let aged = policy("[sources]\nminimum_age_days = 3\n");
        assert!(aged.check(&source("https://docs.example")).is_err());
        assert!(aged.check(&source("github:acme/skills")).is_ok());
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        assert!(aged.check_age("x", now.unix() - 3 * 86_400, now).is_ok());
        for young in [3 * 86_400 - 1, 0, -5] {
            assert!(
                aged.check_age("x", now.unix() - young, now).is_err(),
                "{young}"
            );
        }
    }

    #[test]
    fn a_hop_to_another_host_needs_a_pattern_of_its_own() {
        let policy = policy(
            "[sources]\nallow = [\"wellknown:https://docs.example\", \"cdn.example/skills\"]\n",
        );
        let at = |text: &str| text.parse::<Url>().unwrap();
        let asked = at("https://docs.example/.well-known/x");
        assert!(
            policy
                .check_hop(&asked, &at("https://docs.example/y"))
                .is_ok()
        );
        assert!(
            policy
                .check_hop(&asked, &at("https://cdn.example/skills/y.zip"))
                .is_ok()
        );
        assert!(
            policy
                .check_hop(&asked, &at("https://cdn.example/other"))
                .is_err()
        );
        assert!(
            policy
                .check_hop(&asked, &at("https://evil.example/cdn.example/skills"))
                .is_err()
        );
    }
}
