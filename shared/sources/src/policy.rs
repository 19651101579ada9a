//! The owner's source policy: `[sources]` of `policy.toml`. It is checked before each request. The
//! age of a commit and the signer are checked once they are known.
//!
//! The policy fails closed: if it has an `allow` list, it rejects every source that no pattern
//! covers. Hosts that are reached later, by a redirect or because a registry refers to a
//! repository, are checked too. Folders and archives on this machine are always allowed.

use url::Url;
use vault_format::count::count;
use vault_format::keys::PublicKey;
use vault_format::time::Timestamp;
use vault_policy::Policy;

use crate::error::{FetchError, Result, escape_untrusted};
use crate::source::{Source, url_names};

/// The source policy in parsed form.
#[derive(Clone, Debug, Default)]
pub struct SourcePolicy {
    allow: Option<Vec<Pattern>>,
    signed_only: bool,
    signers: Vec<PublicKey>,
    minimum_age_days: u32,
}

impl SourcePolicy {
    /// Reads `[sources]` of a policy. Without one, every source is allowed.
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

    /// Fails if the policy can allow no skill of this source. Call it before the first request.
    pub fn check_source(&self, source: &Source) -> Result<()> {
        if matches!(source, Source::Local(_)) {
            return Ok(());
        }
        let refuse = |reason: &str| Err(policy_error(&source.display_name(), reason));
        // The content of these sources is checked against a digest or a signature before it is
        // used.
        let is_signed = matches!(source, Source::WellKnown { .. } | Source::Vault { .. });
        if self.signed_only && !is_signed {
            return refuse(
                "only linked vaults and site indexes with digests are allowed (signed_only)",
            );
        }
        let names = source.policy_names();
        // An entry of a registry is a single skill. A pattern may cover only a part of a repository
        // or site; `check_names` later checks the chosen skill.
        let is_one_skill = matches!(source, Source::ClawHub { .. } | Source::Registry { .. });
        let open = names
            .iter()
            .any(|name| self.is_allowed(name) || !is_one_skill && self.may_allow(name));
        if !open {
            return refuse("no pattern in `allow` matches it");
        }
        if self.minimum_age_days > 0 && !matches!(source, Source::Git(_) | Source::Vault { .. }) {
            return refuse("minimum_age_days needs the age of a commit, and there is none");
        }
        Ok(())
    }

    /// Fails if the policy can allow no skill of the registry that speaks ClawHub's protocol. Call it
    /// before a search, which tells the registry what is searched for.
    pub fn check_registry(&self) -> Result<()> {
        let place = "clawhub:";
        if self.signed_only {
            return Err(policy_error(
                place,
                "only linked vaults and site indexes with digests are allowed (signed_only)",
            ));
        }
        if self.minimum_age_days > 0 {
            return Err(policy_error(
                place,
                "minimum_age_days needs the age of a commit, and there is none",
            ));
        }
        let names_registry = |patterns: &Vec<Pattern>| patterns.iter().any(Pattern::is_of_clawhub);
        if self.allow.as_ref().is_none_or(names_registry) {
            return Ok(());
        }
        Err(policy_error(place, "no pattern in `allow` matches it"))
    }

    /// Fails if no pattern covers any of the names of a skill.
    pub fn check_names(&self, names: &[String]) -> Result<()> {
        if names.iter().any(|name| self.is_allowed(name)) {
            return Ok(());
        }
        let name = names.first().map_or("", String::as_str);
        Err(policy_error(name, "no pattern in `allow` matches it"))
    }

    /// Fails if a redirect leaves the origin of `asked` for an address that no pattern covers.
    /// Another port of the same host may be another service, so it needs a pattern too.
    pub fn check_redirect(&self, asked: &Url, reached: &Url) -> Result<()> {
        if asked.origin() == reached.origin() || self.allow.is_none() {
            return Ok(());
        }
        self.check_names(&url_names(reached))
    }

    /// Fails if a commit is younger than the policy allows. `committed` is in seconds since 1970.
    pub fn check_age(&self, place: &str, committed: i64, now: Timestamp) -> Result<()> {
        // A commit date in the future gives a negative age, which is below every minimum.
        let days = now.unix().saturating_sub(committed).div_euclid(86_400);
        if i64::from(self.minimum_age_days) <= days || self.minimum_age_days == 0 {
            return Ok(());
        }
        Err(policy_error(
            place,
            &format!(
                "its commit is {} old, and minimum_age_days is {}",
                count(days.max(0), "day"),
                self.minimum_age_days
            ),
        ))
    }

    /// Tells whether the index of a site must contain digests.
    pub const fn wants_digests(&self) -> bool {
        self.signed_only
    }

    /// Fails if the signer of a skill is not in `signers`. An empty list allows every key.
    pub fn check_signer(&self, place: &str, signer: &PublicKey) -> Result<()> {
        if self.signers.is_empty() || self.signers.contains(signer) {
            return Ok(());
        }
        Err(policy_error(place, "its signer is not among `signers`"))
    }

    fn is_allowed(&self, name: &str) -> bool {
        self.allow
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(|pattern| pattern.covers_name(name)))
    }

    /// Tells whether a pattern covers the name or something below it.
    fn may_allow(&self, name: &str) -> bool {
        self.is_allowed(name)
            || self
                .allow
                .as_ref()
                .is_some_and(|patterns| patterns.iter().any(|pattern| pattern.is_below(name)))
    }
}

fn policy_error(place: &str, reason: &str) -> FetchError {
    FetchError::Policy {
        place: escape_untrusted(place),
        reason: reason.to_owned(),
    }
}

/// A pattern of `allow`. It matches a name segment by segment and covers everything below the
/// match. `*` matches any text within one segment, so a path cannot match the pattern of a host.
#[derive(Clone, Debug)]
struct Pattern {
    segments: Vec<String>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let text = text.trim_end_matches('/');
        // A pattern covers everything below its match, so a final `/*` adds nothing and is dropped.
        // Not so in a registry: `clawhub:x/*` means the skills of the publisher `x`, while
        // `clawhub:x` may be a skill of another publisher.
        let in_registry = text.starts_with("clawhub:") || text.starts_with("registry:");
        let text = match text.strip_suffix("/*") {
            Some(above) if !in_registry => above,
            _ => text,
        };
        Self {
            segments: fold_case(text).split('/').map(str::to_owned).collect(),
        }
    }

    /// Returns whether the pattern may cover a skill of the registry that speaks ClawHub's protocol.
    fn is_of_clawhub(&self) -> bool {
        let first = self.segments.first().map_or("", String::as_str);
        // The part after the colon is the name of a publisher or skill, which a search does not know.
        let may_begin = match first.split_once('*') {
            Some((before, _)) => "clawhub:".starts_with(before) || before.starts_with("clawhub:"),
            None => first.starts_with("clawhub:"),
        };
        may_begin || part_matches(first, "registry:clawhub")
    }

    fn covers_name(&self, name: &str) -> bool {
        let name = fold_case(name);
        let mut parts = name.split('/');
        self.segments
            .iter()
            .all(|pattern| parts.next().is_some_and(|part| part_matches(pattern, part)))
    }

    /// Tells whether the pattern may cover something below the name.
    fn is_below(&self, name: &str) -> bool {
        let name = fold_case(name);
        let mut patterns = self.segments.iter();
        name.split('/').all(|part| {
            patterns
                .next()
                .is_some_and(|pattern| part_matches(pattern, part))
        })
    }
}

/// Lowercases names on GitHub and GitLab, which ignore case. Other hosts may not.
fn fold_case(text: &str) -> String {
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
    // Take the earliest match of each piece. It leaves the most text for the other pieces, so there
    // is no need to try a later one.
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
    use vault_testing::assert_matches;

    use super::*;
    use crate::source::ParseOptions;

    fn policy(toml: &str) -> SourcePolicy {
        SourcePolicy::new(Some(&Policy::from_toml(toml).unwrap()))
    }

    fn source(text: &str) -> Source {
        Source::parse(text, &ParseOptions::default(), &|path| path == "./folder").unwrap()
    }

    #[test]
    fn a_registry_is_searched_only_if_a_pattern_may_cover_one_of_its_skills() {
        for (allow, is_allowed) in [
            ("clawhub:openclaw/*", true),
            ("clawhub:pdf", true),
            ("registry:clawhub/openclaw", true),
            ("claw*", true),
            ("*", true),
            ("github.com/acme/*", false),
            ("wellknown:https://docs.example", false),
            ("registry:other/pdf", false),
            ("clawhub.ai/*", false),
        ] {
            let policy = policy(&format!("[sources]\nallow = [\"{allow}\"]\n"));
            assert_eq!(policy.check_registry().is_ok(), is_allowed, "{allow}");
        }
        for closed in ["signed_only = true", "minimum_age_days = 3", "allow = []"] {
            let policy = policy(&format!("[sources]\n{closed}\n"));
            assert_matches!(policy.check_registry(), Err(FetchError::Policy { .. }));
        }
        assert!(SourcePolicy::default().check_registry().is_ok());
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
            assert!(policy.check_source(&source(good)).is_ok(), "{good}");
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
            // A skill that has the name of the publisher, from anybody.
            "clawhub:openclaw",
            "registry:gif",
        ] {
            let refused = policy.check_source(&source(bad));
            assert_matches!(refused, Err(FetchError::Policy { .. }), "{bad}");
        }
    }

    #[test]
    fn an_empty_list_allows_nothing_and_no_list_allows_anything() {
        let none = policy("[sources]\nallow = []\n");
        assert!(none.check_source(&source("github:acme/skills")).is_err());
        assert!(none.check_source(&source("./folder")).is_ok());
        let absent = policy("[sources]\n");
        assert!(absent.check_source(&source("github:acme/skills")).is_ok());
        let no_policy = SourcePolicy::new(None);
        assert!(no_policy.check_source(&source("clawhub:gif")).is_ok());
    }

    #[test]
    fn signed_only_and_ages_keep_out_what_cannot_have_them() {
        let signed = policy("[sources]\nsigned_only = true\n");
        assert!(signed.check_source(&source("github:acme/skills")).is_err());
        assert!(signed.check_source(&source("https://docs.example")).is_ok());
        assert!(signed.wants_digests());
        let aged = policy("[sources]\nminimum_age_days = 3\n");
        assert!(aged.check_source(&source("https://docs.example")).is_err());
        assert!(aged.check_source(&source("github:acme/skills")).is_ok());
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        assert!(aged.check_age("x", now.unix() - 3 * 86_400, now).is_ok());
        for young in [3 * 86_400 - 1, 0, -5] {
            let checked = aged.check_age("x", now.unix() - young, now);
            assert!(checked.is_err(), "{young}");
        }
        let refused = aged.check_age("x", now.unix() - 86_400, now).unwrap_err();
        assert!(refused.to_string().contains("1 day old"), "{refused}");
    }

    #[test]
    fn a_redirect_to_another_origin_needs_its_own_pattern() {
        let policy = policy(
            "[sources]\nallow = [\"wellknown:https://docs.example\", \"cdn.example/skills\"]\n",
        );
        let at = |text: &str| text.parse::<Url>().unwrap();
        let asked = at("https://docs.example/.well-known/x");
        for (to, allowed) in [
            ("https://docs.example/y", true),
            ("https://docs.example:443/y", true),
            ("https://docs.example:8443/y", false),
            ("https://cdn.example/skills/y.zip", true),
            ("https://cdn.example/other", false),
            ("https://evil.example/cdn.example/skills", false),
        ] {
            assert_eq!(
                policy.check_redirect(&asked, &at(to)).is_ok(),
                allowed,
                "{to}"
            );
        }
    }
}
