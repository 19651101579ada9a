//! Builds the catalog of a release, which lists its skills and their hashes, and the other objects
//! of the release: search index, policy and profiles.

use std::collections::BTreeSet;

use vault_format::catalog::{
    Catalog, CatalogError, MAX_WITHDRAWN, ObjectEntry, PolicyEntry, ProfileEntry, ReleaseRef,
    Schema, SignedCatalog, SkillEntry, Withdrawn,
};
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::json;
use vault_format::keys::PublicKey;
use vault_format::name::AgentId;
use vault_format::root::RootVersion;
use vault_format::time::Timestamp;
use vault_policy::Policy;
use vault_policy::profile::{Profile, ProfileRule, ProfileSkill};
use vault_policy::published::ProfilesReader;
use vault_store::objects::Class;

use super::current::{Current, ReleaseSkill, compare_with_catalog, skill_places};
use super::error::{Conflicts, Difference, PlanError};
use super::merge::lost_profiles;
use super::release::{Plan, PlannedObject, ReleasePlan, Source};
use super::request::PlanRequest;
use super::state::{CatalogFile, CloudState, RecordedRelease};
use super::variants::{is_selected, refuse_size};
use crate::admit::remove;
use crate::admit::variants::{RenderedVariant, Transforms, VariantLookup};
use crate::installed::rendered_variants::Variant;
use crate::store::Trusted;
use crate::vault::Vault;
use crate::vault::trust::VaultTrust;

/// Version of the build. Increase it when the same inputs produce other objects, so that releases
/// are built again.
const BUILD: u32 = 1;
/// Days before its expiry from which a release is renewed even if nothing changed.
pub const RENEW_DAYS: i64 = 30;

/// Returns whether a release expires within 30 days. A sync then renews it, and users are warned.
pub fn ends_soon(expires_at: Timestamp, now: Timestamp) -> bool {
    expires_at < now.plus_days(RENEW_DAYS)
}
/// Days for which a catalog lists a withdrawn bundle, so that devices uninstall it.
const WITHDRAWN_DAYS: i64 = 400;

/// Everything from which a release is built.
pub(super) struct ReleaseBuilder<'a> {
    pub(super) vault: &'a Vault,
    pub(super) request: &'a PlanRequest<'a>,
    pub(super) current: Option<&'a Current>,
    pub(super) skills: &'a [ReleaseSkill],
    pub(super) trust: &'a VaultTrust,
    pub(super) key: PublicKey,
    pub(super) policy: Option<String>,
    pub(super) profiles: Option<String>,
    pub(super) rules: Vec<ProfileRule>,
    pub(super) transforms: Transforms,
    pub(super) rendered: Vec<RenderedVariant>,
    pub(super) withdrawn: Vec<remove::WithdrawnBundle>,
    pub(super) now: Timestamp,
}

impl ReleaseBuilder<'_> {
    /// Returns whether a release is needed even if its content stays the same: the owner asked for
    /// one, the current one expires soon, its number is too low, or the vault's keys have changed.
    pub(super) fn is_due(&self, current: &Current) -> bool {
        self.request.renew
            // `None` is less than every `Some`, so this is false if no release number is given.
            || self.request.above_release >= Some(current.stored.release)
            || ends_soon(current.catalog.expires_at, self.now)
            || current.catalog.root_sha256 != *self.newest_root().payload_sha256()
    }

    /// Returns the addresses of the namespace at which readers accept the release.
    pub(super) fn audience(&self) -> Vec<String> {
        let mut audience: Vec<String> = Vec::new();
        let bases = std::iter::once(self.request.base)
            .chain(self.request.also_served_from.iter().map(String::as_str));
        for base in bases {
            let address = format!("{base}/v/{}/", self.request.slug);
            if !audience.contains(&address) {
                audience.push(address);
            }
        }
        audience
    }

    /// Returns the rendered variant of a skill for an agent; `None` if the agent gets the plain
    /// skill.
    pub(super) fn rendered_variant(
        &self,
        skill: &ReleaseSkill,
        agent: &AgentId,
    ) -> Option<&Variant> {
        match self
            .transforms
            .look_up(&skill.place.name, &skill.place.bundle, agent)
        {
            VariantLookup::Rendered(variant) => Some(variant),
            _ => None,
        }
    }

    /// Returns the rendered variants that profiles select, each with its skill.
    pub(super) fn rendered_variants(&self) -> impl Iterator<Item = (&ReleaseSkill, &Variant)> {
        let agents: BTreeSet<_> = self.rules.iter().map(|rule| &rule.agent).collect();
        self.skills.iter().flat_map(move |skill| {
            agents
                .clone()
                .into_iter()
                .filter(move |agent| is_selected(&self.rules, skill, agent))
                .filter_map(move |agent| Some((skill, self.rendered_variant(skill, agent)?)))
        })
    }

    /// Returns a hash over everything that determines the content of the catalog and the objects.
    /// If it is the same as for the current release, nothing has to be built.
    pub(super) fn inputs_digest(&self) -> Digest {
        let mut bytes = Vec::with_capacity(self.skills.len() * 64);
        for skill in self.skills {
            bytes.extend_from_slice(skill.place.name.as_str().as_bytes());
            // No name contains this byte, so no two lists of skills give the same bytes.
            bytes.push(0);
            bytes.extend_from_slice(&skill.row.version.to_le_bytes());
            bytes.extend_from_slice(skill.place.bundle.as_bytes());
        }
        let rest = serde_json::json!({
            "build": BUILD,
            "audience": self.audience(),
            "key": self.key,
            "root": self.newest_root().payload_sha256(),
            "policy": self.policy,
            "profiles": self.profiles,
            "agents": self.rules.iter().map(|rule| (&rule.name, &rule.agent)).collect::<Vec<_>>(),
            "variants": self.rendered_variants().filter_map(|(_, variant)| variant.bundle).collect::<Vec<_>>(),
            "withdrawn": self.withdrawn,
        });
        bytes.extend_from_slice(&json::to_bytes(&rest));
        Digest::of(&bytes)
    }

    /// Returns the newest root version (signed list of the vault's keys), under which the release
    /// is signed.
    fn newest_root(&self) -> &RootVersion {
        self.trust.chain().newest()
    }

    /// Returns the time at which the release expires. It does not outlive the root version under
    /// which it is signed.
    fn expires_at(&self) -> Timestamp {
        let requested = self.now.plus_days(self.request.days);
        let end = self.newest_root().document().expires_at();
        end.map_or(requested, |end| end.min(requested))
    }

    /// Returns the bytes of a catalog that was signed and not published, if the same catalog would
    /// be signed again now. Its number is then used instead of a new one.
    pub(super) fn resumable_catalog(
        &self,
        state: &CloudState,
        inputs: Digest,
        follows: Option<Digest>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let Some(pending) = &state.pending else {
            return Ok(None);
        };
        // The service rejects a catalog that follows another release, and a catalog that expires
        // soon would have to be renewed at once.
        let fits = pending.inputs == Some(inputs)
            && pending.follows == follows
            && !ends_soon(pending.expires_at, self.now)
            && self.request.resubmit_signed
            && !self.request.renew;
        if !fits {
            return Ok(None);
        }
        let bytes = state.read_catalog_file(self.vault, CatalogFile::Pending)?;
        // A killed process may have stored the file of one release and the record of another.
        Ok(bytes.filter(|bytes| Digest::of(bytes) == pending.file_sha256))
    }

    /// Returns the number of the new release, and the release that it follows.
    pub(super) fn next_number(&self, state: &CloudState) -> (u64, Option<ReleaseRef>) {
        let above = self.request.above_release.unwrap_or(0);
        // A release that was signed and never published uses up its number too.
        let lowest = state.highest_signed.max(above) + 1;
        let known = |release: &RecordedRelease| ReleaseRef {
            release: release.release,
            payload_sha256: release.payload_sha256,
        };
        match self.current {
            Some(current) if !current.is_void() => {
                (lowest.max(current.stored.release + 1), Some(current.stored))
            }
            // Readers ignore releases by a revoked key, so the new one follows the last good one.
            Some(_) => {
                let published = state.published.as_ref().map(known);
                let previous = self.request.last_good.or(published);
                let number = previous.map_or(lowest, |good| lowest.max(good.release + 1));
                (number, previous)
            }
            None => {
                let last = state.pending.as_ref().or(state.published.as_ref());
                (lowest, last.map(known))
            }
        }
    }

    /// Builds the catalog and its objects, with a placeholder for the release number.
    pub(super) fn build_unsigned(&self) -> Result<UnsignedRelease, PlanError> {
        let mut release = UnsignedRelease {
            catalog: Catalog {
                schema: Schema,
                vault_id: *self.vault.id(),
                slug: self.request.slug.clone(),
                audience: self.audience(),
                // The number and the predecessor are set later, if the content turns out to differ
                // from the current release.
                release: 1,
                issued_at: self.now,
                expires_at: self.expires_at(),
                public_key: self.key,
                root_version: self.trust.chain().version(),
                root_sha256: *self.newest_root().payload_sha256(),
                previous: None,
                skills: self.skills.iter().map(skill_entry).collect(),
                index: Vec::new(),
                policy: None,
                profiles: Vec::new(),
                withdrawn: Vec::new(),
            },
            objects: Vec::new(),
        };
        let entries = self.skills.iter().map(|skill| {
            let texts = skill.row.texts.clone();
            texts.into_entry(skill.place.name.clone(), skill.place.bundle)
        });
        for object in index::build_objects(self.vault.id(), entries) {
            let (bundle_hash, size) = release.add_object(Class::Bundles, object);
            release
                .catalog
                .index
                .push(ObjectEntry { bundle_hash, size });
        }
        if let Some(text) = &self.policy {
            let policy = Policy::from_toml(text)?;
            let (sha256, size) = release.add_object(Class::Policies, policy.to_object());
            release.catalog.policy = Some(PolicyEntry { sha256, size });
        }
        for profile in self.build_profiles() {
            let (bundle_hash, size) = release.add_object(Class::Bundles, profile.to_object());
            release.catalog.profiles.push(ProfileEntry {
                name: profile.name,
                agent: profile.agent,
                bundle_hash,
                size,
            });
        }
        let mut reader = ProfilesReader::new(&release.catalog);
        for entry in &release.catalog.profiles {
            let object = release.object(&entry.bundle_hash).unwrap_or_default();
            let added = reader.add(entry, object);
            let added = added.and_then(|()| reader.check_bounds());
            added.map_err(|reason| refuse_size(&self.transforms, reason))?;
        }
        for object in &release.objects {
            if object.1.len() > vault_format::catalog::MAX_OBJECT_BYTES {
                return Err(PlanError::TooLarge);
            }
        }
        self.fill_withdrawn(&mut release.catalog)?;
        Ok(release)
    }

    /// Fails if the release would drop or change profiles of the current one that only another
    /// publisher can make, because their rules or transforms are not on this machine.
    pub(super) fn check_profiles(
        &self,
        theirs: &[Profile],
        current: &Current,
    ) -> Result<(), PlanError> {
        let profiles = lost_profiles(
            theirs,
            &current.catalog,
            &self.build_profiles(),
            self.skills,
        );
        if profiles.is_empty() {
            return Ok(());
        }
        Err(PlanError::Conflicts(Conflicts {
            profiles,
            ..Conflicts::for_release(current.stored.release)
        }))
    }

    /// Builds the profiles: for each rule, which skills its agent gets, in which form.
    fn build_profiles(&self) -> Vec<Profile> {
        self.rules
            .iter()
            .map(|rule| Profile {
                skills: self
                    .skills
                    .iter()
                    .filter(|skill| rule.selects(&skill.row.texts.agents, &skill.row.texts.tags))
                    .map(|skill| {
                        let (bundle_hash, size) = self
                            .rendered_variant(skill, &rule.agent)
                            .and_then(|variant| Some((variant.bundle?, variant.size)))
                            .unwrap_or((skill.place.bundle, skill.row.size));
                        ProfileSkill {
                            name: skill.place.name.clone(),
                            bundle_hash,
                            size,
                        }
                    })
                    .collect(),
                name: rule.name.clone(),
                agent: rule.agent.clone(),
            })
            .collect()
    }

    /// Fills the list of withdrawn bundles with those that this vault withdrew in the last 400
    /// days, each with the first release that listed it. Keeps entries of the current catalog that
    /// this machine has no record of, because another machine with this vault's key added them.
    pub(super) fn fill_withdrawn(&self, catalog: &mut Catalog) -> Result<(), PlanError> {
        // Ignore the withdrawals of a release that is not valid.
        let before = self
            .current
            .filter(|current| current.counts())
            .map_or(&[][..], |current| &current.catalog.withdrawn);
        let mut list: Vec<Withdrawn> = Vec::new();
        for entry in &self.withdrawn {
            if entry.withdrawn_at.plus_days(WITHDRAWN_DAYS) < self.now {
                continue;
            }
            let known = before
                .iter()
                .find(|known| known.bundle_hash == entry.bundle_hash);
            list.push(Withdrawn {
                name: entry.name.clone(),
                bundle_hash: entry.bundle_hash,
                reason: entry.reason.clone(),
                since_release: known.map_or(catalog.release, |known| known.since_release),
            });
        }
        for entry in before {
            let ours = self
                .withdrawn
                .iter()
                .any(|own| own.bundle_hash == entry.bundle_hash);
            if !ours {
                list.push(entry.clone());
            }
        }
        list.sort_by_key(|entry| (entry.since_release, entry.name.clone()));
        if list.len() > MAX_WITHDRAWN {
            return Err(CatalogError::Withdrawn.into());
        }
        catalog.withdrawn = list;
        Ok(())
    }

    /// Turns a signed release into the caller's next step: publish it, or propose it to the other
    /// publishers that must sign it too.
    pub(super) fn choose_plan(
        &self,
        release: UnsignedRelease,
        bytes: Vec<u8>,
        resumed: bool,
    ) -> Result<Plan, PlanError> {
        let plan = Box::new(self.release_plan(release, bytes, resumed)?);
        Ok(if plan.needed > 1 {
            Plan::Propose(plan)
        } else {
            Plan::Publish(plan)
        })
    }

    /// Describes a signed release for the upload, given the catalog's bytes.
    fn release_plan(
        &self,
        release: UnsignedRelease,
        bytes: Vec<u8>,
        resumed: bool,
    ) -> Result<ReleasePlan, PlanError> {
        let file = SignedCatalog::parse(&bytes)?;
        let catalog = file.read_counted(&file.payload_sha256())?;
        let changes = match self.current {
            Some(current) => compare_with_catalog(&skill_places(self.skills), &current.catalog),
            None => Difference {
                ours: self
                    .skills
                    .iter()
                    .map(|skill| skill.place.name.clone())
                    .collect(),
                ..Difference::default()
            },
        };
        let (objects, built) = self.planned_objects(release);
        Ok(ReleasePlan {
            release: catalog.release,
            file_sha256: Digest::of(&bytes),
            payload_sha256: file.payload_sha256(),
            follows: self.request.current.map(Digest::of),
            expires_at: catalog.expires_at,
            objects,
            added: changes.ours,
            changed: changes.differing,
            removed: changes.theirs,
            skills: catalog.skills.len(),
            resumed,
            needed: self.newest_root().document().release().threshold(),
            rendered: self.rendered.clone(),
            base: self.request.base.to_owned(),
            slug: self.request.slug.clone(),
            built,
            trusted: Trusted::for_own(self.trust.clone()).for_variants(),
            catalog: bytes,
        })
    }

    /// Returns all objects of the release without duplicates, and the bytes of those that were
    /// built for it. The bytes of skills stay in the store.
    fn planned_objects(&self, release: UnsignedRelease) -> (Vec<PlannedObject>, Vec<Vec<u8>>) {
        let named = self.current.map(|current| named_objects(&current.catalog));
        let known = |sha256: &Digest| named.as_ref().is_some_and(|named| named.contains(sha256));
        let own = self.skills.iter().map(|skill| {
            let bundle = skill.place.bundle;
            let parts = skill.row.parts.clone();
            (skill, bundle, skill.row.size, parts, known(&bundle))
        });
        let variants = self.rendered_variants().filter_map(|(skill, variant)| {
            let parts = variant.parts.iter().map(|part| (part.sha256, part.size));
            // Profiles name variants, but the catalog does not, so the current catalog does not
            // show whether the namespace has a variant.
            Some((skill, variant.bundle?, variant.size, parts.collect(), false))
        });
        let mut objects = Vec::new();
        let mut seen = BTreeSet::new();
        for (skill, bundle, size, parts, known) in own.chain(variants) {
            for (sha256, size) in std::iter::once((bundle, size)).chain(parts) {
                if seen.insert(sha256) {
                    objects.push(PlannedObject {
                        class: Class::Bundles,
                        sha256,
                        size,
                        known,
                        source: Source::Skill(skill.place.name.clone(), bundle),
                    });
                }
            }
        }
        let mut built = Vec::new();
        for (class, bytes) in release.objects {
            let sha256 = Digest::of(&bytes);
            objects.push(PlannedObject {
                class,
                sha256,
                size: bytes.len() as u64,
                known: known(&sha256),
                source: Source::Built(built.len()),
            });
            built.push(bytes);
        }
        (objects, built)
    }
}

/// Returns the hashes of the objects that a catalog names. The namespace has these already.
fn named_objects(catalog: &Catalog) -> BTreeSet<Digest> {
    let skills = catalog.skills.iter().map(|entry| entry.bundle_hash);
    let index = catalog.index.iter().map(|entry| entry.bundle_hash);
    let profiles = catalog.profiles.iter().map(|entry| entry.bundle_hash);
    let policy = catalog.policy.iter().map(|entry| entry.sha256);
    skills.chain(index).chain(profiles).chain(policy).collect()
}

fn skill_entry(skill: &ReleaseSkill) -> SkillEntry {
    SkillEntry {
        name: skill.place.name.clone(),
        version: skill.row.version,
        bundle_hash: skill.place.bundle,
        size: skill.row.size,
    }
}

/// A catalog without signature and the objects that were built for it.
pub(super) struct UnsignedRelease {
    pub(super) catalog: Catalog,
    pub(super) objects: Vec<(Class, Vec<u8>)>,
}

impl UnsignedRelease {
    fn object(&self, hash: &Digest) -> Option<&[u8]> {
        let mut objects = self.objects.iter().map(|(_, bytes)| &**bytes);
        objects.find(|bytes| Digest::of(bytes) == *hash)
    }

    pub(super) fn add_object(&mut self, class: Class, bytes: Vec<u8>) -> (Digest, u64) {
        let hash_and_size = (Digest::of(&bytes), bytes.len() as u64);
        // Two rules may make the same object, which is uploaded once.
        let is_present = self
            .objects
            .iter()
            .any(|(other, object)| *other == class && *object == bytes);
        if !is_present {
            self.objects.push((class, bytes));
        }
        hash_and_size
    }
}
