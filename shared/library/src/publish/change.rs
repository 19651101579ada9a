//! The review of a release by another publisher, for proposals, take-overs and rollbacks. It
//! verifies the bytes, computes derived data again, runs this machine's gate on every changed
//! skill, and describes each difference in a line of text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vault_format::bundle::{File, OpenedBundle};
use vault_format::catalog::{Catalog, CatalogChanges, ChangeKind, ChangeLine, SkillEntry};
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::keys::PublicKey;
use vault_format::manifest_changes::manifest_changes;
use vault_format::name::SkillName;
use vault_format::root::{KeyStanding, RootDocument, RootState, RootVersion};
use vault_format::text::quoted_whole;
use vault_gate::derived;
use vault_gate::finding::Finding;
use vault_policy::profile::{Profile, ProfileSkill};

use super::fetched::{self, AdoptError, Exceptions, Fetched};
use crate::admit::{Neighbours, Purpose};
use crate::store::Trusted;
use crate::vault::trust::{NamedKey, RootChanges, VaultTrust};
use crate::vault::{Vault, VaultError};

/// A release of another publisher, compared with the one that this machine accepted last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReleaseChange {
    /// The release under review.
    pub catalog: Catalog,
    /// The release that this machine published or took over last. `None` if there is none; then
    /// everything is new.
    pub before: Option<Catalog>,
    /// Entries in which the two catalogs differ: skills, profiles, policy, withdrawals and
    /// addresses.
    pub changes: CatalogChanges,
    /// Changes of the vault's keys since the earlier release; `None` if there are none.
    pub roots: Option<RootChanges>,
    /// A warning for each signer of the release who is no longer a publisher.
    pub signers: Vec<ChangeLine>,
    /// Root version (signed list of keys) whose publishers' signatures are accepted on the skills;
    /// `None` means the newest.
    pub(super) signed_under: Option<u64>,
}

/// Objects that the caller must fetch before [`ReleaseChange::verify_content`].
#[derive(Clone, Debug, Default)]
pub struct NeededObjects {
    /// Skills of the release. The review fails without them.
    pub skills: Vec<SkillEntry>,
    /// Earlier versions to compare with. If one is missing, all files of its skill count as new.
    pub former: Vec<SkillEntry>,
    /// SHA-256 of each profile of the release. If one is missing, the review fails.
    pub objects: Vec<Digest>,
    /// Profiles of the earlier release, to compare with.
    pub former_objects: Vec<Digest>,
}

/// The review that a person reads before they sign or take over a release.
#[derive(Clone, Debug, Default)]
pub struct Reviewed {
    /// New and changed skills, and every variant that was rendered for an agent.
    pub skills: Vec<CheckedSkill>,
    /// Skills that the release no longer contains, with their files if these are known.
    pub removed: Vec<(SkillName, Vec<File>)>,
    /// Changes of the profiles, one line for each.
    pub profiles: Vec<ChangeLine>,
}

/// A changed skill that passed the gate.
#[derive(Clone, Debug)]
pub struct CheckedSkill {
    /// Name of the skill in the release. A variant has the name of its plain skill.
    pub name: SkillName,
    /// Agent for which it was rendered; `None` for the plain skill.
    pub rendered_for: Option<String>,
    /// Changes of the skill's manifest, one line for each.
    pub lines: Vec<ChangeLine>,
    /// Files as they would be installed.
    pub files: Vec<File>,
    /// Files of the earlier version; empty for a new skill or variant.
    pub before: Vec<File>,
    /// Findings of this machine's gate. None of them blocks the skill.
    pub findings: Vec<Finding>,
}

impl ReleaseChange {
    /// Compares two releases, without reading any object.
    pub(super) fn between(
        trust: &VaultTrust,
        before: Option<Catalog>,
        (catalog, signers): (Catalog, &[PublicKey]),
    ) -> Self {
        Self {
            signers: former_signers(&trust.roots, signers),
            signed_under: None,
            changes: CatalogChanges::between(before.as_ref(), &catalog),
            roots: before
                .as_ref()
                .and_then(|before| root_changes(&trust.roots, before)),
            before,
            catalog,
        }
    }

    /// Returns whether this machine would sign or take over nothing new.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.roots.is_none()
    }

    /// Lists the objects that the review needs and this machine lacks.
    pub fn needed_objects(&self, vault: &Vault) -> Result<NeededObjects, VaultError> {
        let changes = &self.changes;
        let lacks = |entry: &&SkillEntry| {
            Ok::<_, VaultError>(!fetched::is_stored(vault, &entry.bundle_hash)?)
        };
        let mut needed = NeededObjects::default();
        // The search texts are computed from all skills, unchanged ones included.
        for entry in &self.catalog.skills {
            if lacks(&entry)? {
                needed.skills.push(entry.clone());
            }
        }
        let former = changes.changed.iter().map(|(old, _)| old);
        for entry in former.chain(&changes.removed) {
            if lacks(&entry)? {
                needed.former.push(entry.clone());
            }
        }
        needed.objects = profile_objects(&self.catalog);
        let former = self.before.as_ref().map(profile_objects);
        needed.former_objects = former.unwrap_or_default();
        Ok(needed)
    }

    /// Returns the variants that the caller must fetch too: those of this release, and those of the
    /// earlier release. Profiles name variants, but the catalog does not list them.
    pub fn needed_variants(
        &self,
        fetched: Fetched<'_>,
    ) -> Result<(Vec<SkillEntry>, Vec<SkillEntry>), AdoptError> {
        let variants =
            ReleaseVariants::from_profiles(&self.catalog, &self.read_profiles(fetched)?)?;
        let former = self.former_variants(fetched)?;
        let known = |entry: &SkillEntry| {
            let hash = entry.bundle_hash;
            former.0.values().any(|former| former.bundle_hash == hash)
        };
        let unknown = variants.0.values().filter(|entry| !known(entry)).cloned();
        Ok((unknown.collect(), former.0.values().cloned().collect()))
    }

    fn former_variants(&self, fetched: Fetched<'_>) -> Result<ReleaseVariants, AdoptError> {
        match &self.before {
            Some(before) => {
                ReleaseVariants::from_profiles(before, &former_profiles(before, fetched))
            }
            None => Ok(ReleaseVariants::default()),
        }
    }

    /// Returns the trust for the bundles of the two releases, by their hashes.
    fn trust_for_bundles(
        &self,
        vault: &Vault,
        variants: &[SkillEntry],
        former: &ReleaseVariants,
    ) -> Result<Trusted, VaultError> {
        let mut roots = vault.require_trust()?.roots;
        // Verify an earlier release under the keys of its time, some of which may be retired now.
        if let Some(chain) = self
            .signed_under
            .and_then(|it| roots.chain().until_version(it))
        {
            roots = RootState::new(chain, BTreeSet::new());
        }
        let before = self.before.iter().flat_map(|before| &before.skills);
        let entries = self.catalog.skills.iter().chain(before);
        let entries = entries.chain(variants).chain(former.0.values());
        let listed = entries.map(|entry| entry.bundle_hash).collect();
        Ok(Trusted::for_listed(Arc::new(roots), listed))
    }

    /// Verifies everything that is new, computes derived data again, and runs the gate with this
    /// machine's own exceptions. Fails if one skill is blocked.
    pub fn verify_content(
        &self,
        vault: &Vault,
        exceptions: &Exceptions,
        fetched: Fetched<'_>,
    ) -> Result<Reviewed, AdoptError> {
        let profiles = self.read_profiles(fetched)?;
        let (variants, _) = self.needed_variants(fetched)?;
        let former_variants = self.former_variants(fetched)?;
        let trusted = self.trust_for_bundles(vault, &variants, &former_variants)?;
        self.check_index(vault, &trusted, fetched)?;
        let mut reviewed = Reviewed {
            profiles: self.profile_lines(&profiles, fetched),
            ..Reviewed::default()
        };
        let open =
            |entry: &SkillEntry, trusted| fetched::open_bundle(vault, entry, fetched, trusted);
        // Without the former version all files count as new, so the review shows more and hides
        // nothing.
        let former = |entry: &SkillEntry| open(entry, &trusted).ok();
        let mut neighbours = Neighbours::for_vault(vault);
        let mut check = |entry: &SkillEntry, opened: OpenedBundle, before: Option<OpenedBundle>| {
            let rendered_for = opened.manifest.rendered_from.as_ref();
            let rendered_for = rendered_for.map(|from| from.agent.to_string());
            let before_manifest = before.as_ref().map(|before| &before.manifest);
            let lines = manifest_changes(before_manifest, &opened.manifest);
            let files = opened.files.clone();
            let purpose = Purpose::Adopt(opened.signed.clone());
            let options = exceptions.options();
            let candidate =
                fetched::gate_bundle(entry, opened, purpose, &options, &mut neighbours)?;
            reviewed.skills.push(CheckedSkill {
                name: entry.name.clone(),
                rendered_for,
                lines,
                files,
                before: before.map_or_else(Vec::new, |before| before.files),
                findings: candidate.package.findings,
            });
            Ok::<_, AdoptError>(())
        };
        let added = self.changes.added.iter().map(|new| (None, new));
        let changed = self
            .changes
            .changed
            .iter()
            .map(|(old, new)| (Some(old), new));
        for (old, new) in added.chain(changed) {
            check(new, open(new, &trusted)?, old.and_then(former))?;
        }
        for entry in &variants {
            let opened = open(entry, &trusted)?;
            let agent = opened.manifest.rendered_from.as_ref();
            let agent = agent.map(|from| from.agent.to_string());
            // Compare a variant with the former one for the same agent, because the transforms make
            // it differ from the plain skill anyway.
            let same = agent.and_then(|agent| {
                former_variants
                    .0
                    .iter()
                    .find(|((name, it), _)| *name == entry.name && *it == agent)
            });
            let before = same.and_then(|(_, old)| former(old));
            check(entry, opened, before)?;
        }
        for entry in &self.changes.removed {
            let files = former(entry).map_or_else(Vec::new, |before| before.files);
            reviewed.removed.push((entry.name.clone(), files));
        }
        Ok(reviewed)
    }

    /// Fails unless the search texts, which agents read on a service, are those of the skills.
    fn check_index(
        &self,
        vault: &Vault,
        trusted: &Trusted,
        fetched: Fetched<'_>,
    ) -> Result<(), AdoptError> {
        let mut entries = Vec::new();
        for entry in &self.catalog.skills {
            let opened = fetched::open_bundle(vault, entry, fetched, trusted)?;
            let frontmatter = derived::compare_with_files(&opened.manifest, &opened.files);
            let frontmatter =
                frontmatter.map_err(|mismatch| fetched::derived_error(entry, mismatch))?;
            let hash = entry.bundle_hash;
            entries.push(derived::index_entry(
                &opened.manifest,
                frontmatter.as_ref(),
                hash,
            ));
        }
        // A publisher could put text into the search texts that a review of the files does not
        // show.
        if index::is_built_from(&self.catalog, entries) {
            Ok(())
        } else {
            Err(AdoptError::Index)
        }
    }

    /// Reads the profiles of the release. Fails if one is missing or contradicts the catalog.
    fn read_profiles(&self, fetched: Fetched<'_>) -> Result<Vec<Profile>, AdoptError> {
        let mut profiles = Vec::new();
        for entry in &self.catalog.profiles {
            let object = fetched(&entry.bundle_hash);
            let object = object.filter(|bytes| Digest::of(bytes) == entry.bundle_hash);
            let profile = object.and_then(|bytes| Profile::parse(&bytes).ok());
            let is_named = |it: &Profile| it.name == entry.name && it.agent == entry.agent;
            let profile = profile.filter(is_named);
            profiles.push(profile.ok_or_else(|| AdoptError::Profile(entry.name.clone()))?);
        }
        Ok(profiles)
    }

    /// Returns a line for each change of the profiles, and a warning for each new skill that a
    /// profile leaves out.
    fn profile_lines(&self, profiles: &[Profile], fetched: Fetched<'_>) -> Vec<ChangeLine> {
        let former = self.before.as_ref();
        let former = former.map_or_else(Vec::new, |before| former_profiles(before, fetched));
        let mut lines = Vec::new();
        for profile in profiles {
            let old = former.iter().find(|old| old.name == profile.name);
            lines.extend(profile_changes(old, profile));
            // Warn about skills that a profile leaves out: a person who gets a new profile loses
            // them, and one who has an old profile does not get a new skill.
            let is_new = |entry: &SkillEntry| {
                old.is_none() || self.changes.added.iter().any(|it| it.name == entry.name)
            };
            let has = |entry: &SkillEntry| profile.skills.iter().any(|it| it.name == entry.name);
            let skills = self.catalog.skills.iter();
            lines.extend(skills.filter(|it| is_new(it) && !has(it)).map(|entry| {
                let shown = quoted_whole(&profile.name);
                let text = format!("profile {shown}: leaves out {}", entry.name);
                ChangeLine::new(ChangeKind::Warning, text)
            }));
        }
        lines
    }
}

/// Returns a warning for each signer of a release who is no longer a publisher. That person, or a
/// thief of their key, could have signed it after the removal.
pub(super) fn former_signers(roots: &RootState, signers: &[PublicKey]) -> Vec<ChangeLine> {
    let chain = roots.chain();
    let lines = signers.iter().filter_map(|key| {
        let why = match roots.standing(key) {
            KeyStanding::Release => return None,
            KeyStanding::Revoked => "whose key is revoked: a thief may have signed it".to_owned(),
            KeyStanding::Retired | KeyStanding::RootOnly if chain.ever_released(key) => {
                let versions = chain.versions().iter().rev();
                let without = versions
                    .map(RootVersion::document)
                    .take_while(|document| !document.release().contains(key));
                let version = without.last().map_or(0, RootDocument::version);
                format!("who is no longer a publisher since version {version} of the keys")
            }
            _ => "whose key is not a publisher's".to_owned(),
        };
        let text = format!(
            "signed by {}, {why}",
            NamedKey::from_chain(chain, key).name_and_fingerprint()
        );
        Some(ChangeLine::new(ChangeKind::Warning, text))
    });
    lines.collect()
}

fn profile_objects(catalog: &Catalog) -> Vec<Digest> {
    let profiles = catalog.profiles.iter();
    profiles.map(|profile| profile.bundle_hash).collect()
}

/// Returns the profiles of an earlier release that were fetched.
fn former_profiles(catalog: &Catalog, fetched: Fetched<'_>) -> Vec<Profile> {
    let objects = catalog.profiles.iter().filter_map(|entry| {
        let object = fetched(&entry.bundle_hash)?;
        (Digest::of(&object) == entry.bundle_hash).then_some(object)
    });
    objects
        .filter_map(|object| Profile::parse(&object).ok())
        .collect()
}

/// Bundles that were rendered for single agents, by skill and agent.
#[derive(Debug, Default)]
struct ReleaseVariants(BTreeMap<(SkillName, String), SkillEntry>);

impl ReleaseVariants {
    /// Collects the variants of a release from its profiles. Fails if a profile names a skill that
    /// the release does not contain, or if two profiles of one agent name different variants.
    fn from_profiles(catalog: &Catalog, profiles: &[Profile]) -> Result<Self, AdoptError> {
        let mut variants = BTreeMap::new();
        for profile in profiles {
            for skill in &profile.skills {
                let plain = catalog.skill(&skill.name);
                let plain = plain.ok_or_else(|| AdoptError::Profile(profile.name.clone()))?;
                if plain.bundle_hash != skill.bundle_hash {
                    let variant = SkillEntry {
                        name: skill.name.clone(),
                        version: plain.version,
                        bundle_hash: skill.bundle_hash,
                        size: skill.size,
                    };
                    let key = (skill.name.clone(), profile.agent.to_string());
                    let first = variants.entry(key).or_insert_with(|| variant.clone());
                    // A review shows one variant for each agent, so a second one would be signed
                    // unseen.
                    if *first != variant {
                        return Err(AdoptError::Profile(profile.name.clone()));
                    }
                }
            }
        }
        Ok(Self(variants))
    }
}

/// Returns a line for each difference between a profile and the earlier one of the same name.
fn profile_changes(before: Option<&Profile>, after: &Profile) -> Vec<ChangeLine> {
    // The pattern has no `..`: a new field does not compile until it gets a line here.
    let Profile {
        name,
        agent,
        skills,
    } = after;
    let shown = quoted_whole(name);
    let mut lines = Vec::new();
    let mut line = |kind, text| lines.push(ChangeLine::new(kind, text));
    if let Some(before) = before
        && before.agent != *agent
    {
        let text = format!("profile {shown}: for {} → for {agent}", before.agent);
        line(ChangeKind::Changed, text);
    }
    let by_name = |skills: &[ProfileSkill]| -> BTreeMap<SkillName, Digest> {
        let skills = skills.iter();
        skills
            .map(|skill| (skill.name.clone(), skill.bundle_hash))
            .collect()
    };
    let (old, new) = (
        before.map_or_else(BTreeMap::new, |before| by_name(&before.skills)),
        by_name(skills),
    );
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for name in names {
        match (old.get(name), new.get(name)) {
            (None, Some(_)) => line(ChangeKind::Added, format!("profile {shown}: has {name}")),
            (Some(_), None) => {
                let text = format!("profile {shown}: no longer has {name}");
                line(ChangeKind::Removed, text);
            }
            (Some(old), Some(new)) if old != new => {
                let text = format!("profile {shown}: another bundle of {name}");
                line(ChangeKind::Changed, text);
            }
            _ => {}
        }
    }
    lines
}

/// Returns how the vault's keys changed since the former release; `None` if they did not.
fn root_changes(roots: &RootState, before: &Catalog) -> Option<RootChanges> {
    let former = roots
        .chain()
        .find(&before.root_sha256)
        .map(RootVersion::document)?;
    let former = roots.chain().until_version(former.version())?;
    let former = RootState::new(former, roots.revoked_elsewhere().clone());
    RootChanges::between(Some(&former), roots)
}
