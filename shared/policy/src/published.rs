//! The profiles (sets of skills for one agent) that a release publishes, and the checks that
//! publisher, service and device share.
//!
//! A profile names a bundle for each of its skills: the plain one, which the catalog lists too, or
//! a variant that was rendered from it for the profile's agent. The service rejects exactly what a
//! device rejects, because both call these functions.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::catalog::{Catalog, ProfileEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::name::{ANY_AGENT, AgentId, SkillName};

use crate::profile::{Profile, ProfileError, ProfileSkill};

/// Most skills that all profiles of a new release may name together. Readers accept older releases
/// with more.
pub const MAX_SKILLS: usize = 100_000;
/// Most profiles of a new release.
pub const MAX_PROFILES: usize = 1_000;
/// Most variants that a new release may have.
pub const MAX_VARIANTS: usize = 4_000;

/// The skills that one agent gets from all its profiles.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PublishedAgent {
    /// The names of the agent's profiles.
    pub profiles: Vec<String>,
    /// The skills by name: the variant for this agent, or `None` for the plain skill of the
    /// catalog.
    pub skills: BTreeMap<SkillName, Option<ProfileSkill>>,
}

/// The form of one skill that a release gives an agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PublishedForm<'a> {
    /// The plain skill, as the catalog lists it.
    Plain,
    /// A variant that was made for the agent.
    Variant(&'a ProfileSkill),
    /// Nothing: no profile of the agent names the skill.
    LeftOut,
}

impl PublishedAgent {
    /// Returns what the agent gets of a skill of the catalog.
    pub fn form_of(&self, skill: &SkillName) -> PublishedForm<'_> {
        match self.skills.get(skill) {
            None => PublishedForm::LeftOut,
            Some(None) => PublishedForm::Plain,
            Some(Some(variant)) => PublishedForm::Variant(variant),
        }
    }
}

/// The profiles of a release, grouped by agent. An agent without profiles gets the skills of
/// [`ANY_AGENT`]; if that has none either, it gets the plain skills of the catalog.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PublishedProfiles {
    agents: BTreeMap<AgentId, PublishedAgent>,
    /// The number of skills that all profiles name together.
    skills: usize,
    /// The number of variants of all agents together.
    variants: usize,
}

impl PublishedProfiles {
    /// Reads the profiles that a catalog lists. `object` returns the bytes of an object; they are
    /// compared with the size and hash in the catalog before they are parsed.
    pub fn read(
        catalog: &Catalog,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Self, ProfileError> {
        let mut reader = ProfilesReader::new(catalog);
        for entry in &catalog.profiles {
            let bytes = object(&entry.bundle_hash).unwrap_or_default();
            reader.add(entry, &bytes)?;
        }
        Ok(reader.published)
    }

    /// Returns the agents that have a profile, with their skills.
    pub fn agents(&self) -> impl Iterator<Item = (&AgentId, &PublishedAgent)> {
        self.agents.iter()
    }

    /// Returns the skills of an agent with profiles of its own; `None` if it has none.
    pub fn agent(&self, agent: &AgentId) -> Option<&PublishedAgent> {
        self.agents.get(agent)
    }

    /// Returns the skills of any agent; `None` if it gets the plain skills of the catalog.
    pub fn for_agent(&self, agent: &AgentId) -> Option<&PublishedAgent> {
        self.agent(agent).or_else(|| self.agents.get(ANY_AGENT))
    }

    /// Returns the number of skills that all profiles name together.
    pub const fn named_skills(&self) -> usize {
        self.skills
    }

    /// Returns every variant with its agent. No variant occurs twice: its manifest names one agent.
    pub fn variants(&self) -> impl Iterator<Item = (&AgentId, &ProfileSkill)> {
        let agents = self.agents.iter();
        agents.flat_map(|(agent, published)| {
            let variants = published.skills.values().flatten();
            variants.map(move |variant| (agent, variant))
        })
    }
}

/// Reads the profiles of one catalog one by one and checks each.
#[derive(Debug)]
pub struct ProfilesReader<'a> {
    catalog: &'a Catalog,
    /// The plain and the withdrawn bundles of the catalog. A profile must not call them variants.
    not_variants: BTreeSet<Digest>,
    published: PublishedProfiles,
}

impl<'a> ProfilesReader<'a> {
    /// Creates a reader that has no profile yet.
    pub fn new(catalog: &'a Catalog) -> Self {
        let plain = catalog.skills.iter().map(|it| it.bundle_hash);
        let withdrawn = catalog.withdrawn.iter().map(|it| it.bundle_hash);
        Self {
            catalog,
            not_variants: plain.chain(withdrawn).collect(),
            published: PublishedProfiles::default(),
        }
    }

    /// Returns the profiles that were added so far.
    pub const fn published(&self) -> &PublishedProfiles {
        &self.published
    }

    /// Adds the profile of an entry of the catalog. Fails if the bytes are not its object, or if the
    /// profile does not agree with the catalog or with another profile of its agent.
    pub fn add(&mut self, entry: &ProfileEntry, bytes: &[u8]) -> Result<(), ProfileError> {
        if bytes.len() as u64 != entry.size || Digest::of(bytes) != entry.bundle_hash {
            return Err(ProfileError::OtherBytes(entry.name.clone()));
        }
        let profile = Profile::parse(bytes)?;
        if profile.to_object() != bytes {
            return Err(ProfileError::NotCanonical(entry.name.clone()));
        }
        if profile.name != entry.name || profile.agent != entry.agent {
            return Err(ProfileError::OtherProfile(entry.name.clone()));
        }
        let published = &mut self.published;
        let agent = published.agents.entry(profile.agent.clone()).or_default();
        for skill in profile.skills {
            let name = skill.name.clone();
            let wrong = || ProfileError::Skill {
                profile: entry.name.clone(),
                skill: name.clone(),
            };
            let listed = self.catalog.skill(&skill.name).ok_or_else(wrong)?;
            let is_plain = skill.bundle_hash == listed.bundle_hash;
            // The catalog signs the size too, so the two must agree. A bundle of another skill is
            // no variant.
            if is_plain && skill.size != listed.size
                || !is_plain && self.not_variants.contains(&skill.bundle_hash)
            {
                return Err(wrong());
            }
            published.skills += 1;
            let variant = (!is_plain).then(|| skill.clone());
            match agent.skills.get(&skill.name) {
                // All profiles of an agent share one folder, so they cannot give it two forms of
                // one skill.
                Some(first) if *first != variant => return Err(wrong()),
                Some(_) => {}
                None => {
                    published.variants += usize::from(variant.is_some());
                    agent.skills.insert(skill.name, variant);
                }
            }
        }
        agent.profiles.push(profile.name);
        Ok(())
    }

    /// Fails if a new release would have more than [`MAX_PROFILES`], or its profiles more than
    /// [`MAX_SKILLS`] or [`MAX_VARIANTS`] together.
    pub fn check_bounds(&self) -> Result<(), ProfileError> {
        let profiles = self.catalog.profiles.len();
        if profiles > MAX_PROFILES {
            return Err(ProfileError::TooManyProfiles { profiles });
        }
        let PublishedProfiles {
            agents,
            skills,
            variants,
        } = &self.published;
        if *skills > MAX_SKILLS {
            return Err(ProfileError::TooManySkills {
                skills: *skills,
                agents: agents.len(),
            });
        }
        if *variants > MAX_VARIANTS {
            return Err(ProfileError::TooManyVariants {
                variants: *variants,
            });
        }
        Ok(())
    }
}

/// Checks that a bundle is a variant of the plain skill for the agent. `signed` is the name, the
/// version and the agent in the bundle's manifest; `None` if the manifest names no agent. The
/// caller checks signature and files when it opens the bundle.
pub fn check_variant(
    plain: &SkillEntry,
    agent: &AgentId,
    signed: Option<(&SkillName, u64, &AgentId)>,
) -> Result<(), ProfileError> {
    // The hash of the plain bundle from which it was rendered is not compared: the same version, if
    // it is signed again, has another hash.
    if signed == Some((&plain.name, plain.version, agent)) {
        return Ok(());
    }
    Err(ProfileError::NotRendered {
        skill: plain.name.clone(),
        agent: agent.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn skill(name: &str, bundle: &str) -> ProfileSkill {
        ProfileSkill {
            name: name.parse().unwrap(),
            bundle_hash: digest(bundle),
            size: 7,
        }
    }

    fn catalog() -> Catalog {
        let key = "smChZ3R8WoQ17zQ6ZJ1UJXnDGYRtbFppya5b2nXQk8E";
        let skills: Vec<_> = ["a", "b"]
            .iter()
            .map(|name| {
                let bundle_hash = digest(name);
                serde_json::json!({
                    "name": name, "version": 3, "bundle_hash": bundle_hash,
                    "path": format!("bundles/{bundle_hash}.json"), "size": 7,
                })
            })
            .collect();
        let text = serde_json::json!({
            "schema": "vault.catalog/2", "vault_id": "vlt_42lxzqowomyghk6kpyjb2x6ywz",
            "slug": "acme", "audience": ["https://vault.example/v/acme/"], "release": 1,
            "issued_at": "2026-11-25T09:00:00Z", "expires_at": "2027-02-23T09:00:00Z",
            "public_key": key, "root_version": 1, "root_sha256": digest("root"),
            "previous": null, "skills": skills, "index": [], "policy": null, "profiles": [],
            "withdrawn": [],
        });
        serde_json::from_value(text).unwrap()
    }

    fn entry(profile: &Profile) -> (ProfileEntry, Vec<u8>) {
        let bytes = profile.to_object();
        let entry = ProfileEntry {
            name: profile.name.clone(),
            agent: profile.agent.clone(),
            bundle_hash: Digest::of(&bytes),
            size: bytes.len() as u64,
        };
        (entry, bytes)
    }

    fn profile(name: &str, agent: &str, skills: Vec<ProfileSkill>) -> Profile {
        Profile {
            name: name.to_owned(),
            agent: agent.parse().unwrap(),
            skills,
        }
    }

    #[test]
    fn profiles_of_an_agent_are_read_together() {
        let catalog = catalog();
        let mut reader = ProfilesReader::new(&catalog);
        for profile in [
            profile("codex", "codex", vec![skill("a", "a for codex")]),
            profile(
                "more",
                "codex",
                vec![skill("a", "a for codex"), skill("b", "b")],
            ),
            profile("cursor", "cursor", vec![]),
        ] {
            let (entry, bytes) = entry(&profile);
            reader.add(&entry, &bytes).unwrap();
        }
        reader.check_bounds().unwrap();
        let published = reader.published().clone();
        let codex = &published.agent(&"codex".parse().unwrap()).unwrap().skills;
        assert_eq!(codex["a"], Some(skill("a", "a for codex")));
        assert_eq!(codex["b"], None);
        let cursor = published.agent(&"cursor".parse().unwrap());
        assert!(cursor.unwrap().skills.is_empty());
        let zed: AgentId = "zed".parse().unwrap();
        assert_eq!(published.for_agent(&zed), None);
        let any = profile(ANY_AGENT, ANY_AGENT, vec![skill("b", "b for any")]);
        let (any, bytes) = entry(&any);
        reader.add(&any, &bytes).unwrap();
        let published = reader.published();
        assert_eq!(published.agent(&zed), None);
        let zed = &published.for_agent(&zed).unwrap().skills;
        assert_eq!(zed["b"], Some(skill("b", "b for any")));
        let cursor = published.for_agent(&"cursor".parse().unwrap());
        assert!(cursor.unwrap().skills.is_empty(), "its own comes first");
        assert_eq!(published.variants().count(), 2);
    }

    #[test]
    fn a_profile_that_does_not_fit_the_release_is_refused() {
        let catalog = catalog();
        let good = profile("codex", "codex", vec![skill("a", "a"), skill("b", "b+")]);
        let refused = |entry: &ProfileEntry, bytes: &[u8]| {
            let mut reader = ProfilesReader::new(&catalog);
            let error = reader.add(entry, bytes).unwrap_err();
            assert_eq!(error.error_code(), "profile_schema");
            error
        };
        let (named, bytes) = entry(&good);
        ProfilesReader::new(&catalog).add(&named, &bytes).unwrap();
        let mut longer = named.clone();
        longer.size += 1;
        assert!(matches!(
            refused(&longer, &bytes),
            ProfileError::OtherBytes(_)
        ));
        assert!(matches!(refused(&named, b""), ProfileError::OtherBytes(_)));
        let mut spaced = bytes.clone();
        spaced.push(b' ');
        let mut of_spaced = named.clone();
        (of_spaced.bundle_hash, of_spaced.size) = (Digest::of(&spaced), spaced.len() as u64);
        assert!(matches!(
            refused(&of_spaced, &spaced),
            ProfileError::NotCanonical(_) | ProfileError::Json(_)
        ));
        let mut other_agent = named.clone();
        other_agent.agent = "cursor".parse().unwrap();
        assert!(matches!(
            refused(&other_agent, &bytes),
            ProfileError::OtherProfile(_)
        ));
        let mut other_name = named;
        other_name.name = "Codex".to_owned();
        assert!(matches!(
            refused(&other_name, &bytes),
            ProfileError::OtherProfile(_)
        ));
        let mut other_size = skill("a", "a");
        other_size.size = 8;
        for wrong in [skill("c", "c"), skill("a", "b"), other_size] {
            let (entry, bytes) = entry(&profile("codex", "codex", vec![wrong.clone()]));
            let error = refused(&entry, &bytes);
            assert!(matches!(error, ProfileError::Skill { .. }), "{wrong:?}");
        }
    }

    #[test]
    fn an_agent_has_one_form_of_a_skill() {
        let catalog = catalog();
        for second in [skill("a", "a"), skill("a", "a, otherwise")] {
            let mut reader = ProfilesReader::new(&catalog);
            let (first, bytes) = entry(&profile("one", "codex", vec![skill("a", "a+")]));
            reader.add(&first, &bytes).unwrap();
            let (other, bytes) = entry(&profile("two", "codex", vec![second]));
            let error = reader.add(&other, &bytes).unwrap_err();
            assert!(matches!(error, ProfileError::Skill { .. }), "{error}");
        }
    }

    #[test]
    fn a_new_release_is_bounded() {
        let mut catalog = catalog();
        let all = catalog.clone();
        let mut reader = ProfilesReader::new(&all);
        for number in 0..MAX_VARIANTS {
            let agent = format!("agent-{number}");
            let variant = skill("a", &agent);
            let (entry, bytes) = entry(&profile(&agent, &agent, vec![variant]));
            reader.add(&entry, &bytes).unwrap();
        }
        reader.check_bounds().unwrap();
        let (last, bytes) = entry(&profile("last", "last", vec![skill("a", "last")]));
        reader.add(&last, &bytes).unwrap();
        let error = reader.check_bounds().unwrap_err().to_string();
        assert!(error.starts_with("4001 variants"), "{error}");
        let mut reader = ProfilesReader::new(&all);
        reader.published.skills = MAX_SKILLS + 1;
        let error = reader.check_bounds().unwrap_err().to_string();
        assert!(error.contains("100001 skills"), "{error}");
        catalog.profiles = vec![last; MAX_PROFILES];
        ProfilesReader::new(&catalog).check_bounds().unwrap();
        catalog.profiles.push(catalog.profiles[0].clone());
        let error = ProfilesReader::new(&catalog).check_bounds().unwrap_err();
        assert!(error.to_string().starts_with("1001 profiles"), "{error}");
    }

    #[test]
    fn a_variant_is_of_its_skill_version_and_agent() {
        let catalog = catalog();
        let plain = &catalog.skills[0];
        let (codex, other): (AgentId, SkillName) = ("codex".parse().unwrap(), "b".parse().unwrap());
        let cursor: AgentId = "cursor".parse().unwrap();
        check_variant(plain, &codex, Some((&plain.name, 3, &codex))).unwrap();
        for signed in [
            Some((&other, 3, &codex)),
            Some((&plain.name, 2, &codex)),
            Some((&plain.name, 3, &cursor)),
            None,
        ] {
            let refused = check_variant(plain, &codex, signed);
            assert!(matches!(refused, Err(ProfileError::NotRendered { .. })));
        }
    }
}
