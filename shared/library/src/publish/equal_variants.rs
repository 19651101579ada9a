//! Variants that another publisher rendered from the same skill with the same transforms.
//!
//! Each publisher signs variants with its own key, so two of them never make the same bundle. Where
//! the current release has a variant that differs from this library's in its signature alone, this
//! library uses that one. Otherwise the two publishers would be in conflict about equal bytes, or
//! replace each other's variants with every release.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use vault_format::bundle;
use vault_format::catalog::{Catalog, SkillEntry};
use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::name::AgentId;
use vault_policy::profile::Profile;

use super::current::ReleaseSkill;
use super::error::PlanError;
use super::fetched;
use super::request::PlanRequest;
use super::variants::ReleaseVariants;
use crate::admit::equal_variants::EqualVariant;
use crate::admit::variants::{RenderedVariant, Transforms, VariantLookup};
use crate::store::{self, Trusted};
use crate::vault::trust::VaultTrust;
use crate::vault::{Change, Vault};

impl ReleaseVariants {
    /// Uses those variants of another publisher's release that equal the ones of this library.
    /// Returns the bundles to fetch first, if any. `current` is the catalog of that release.
    pub(super) fn use_equal(
        &mut self,
        vault: &Vault,
        change: &mut Change<'_>,
        request: &PlanRequest<'_>,
        current: &Catalog,
        skills: &[ReleaseSkill],
    ) -> Result<Vec<SkillEntry>, PlanError> {
        let theirs = request.current_profiles.unwrap_or_default();
        let rivals = list_rivals(theirs, current, skills, &self.transforms);
        if rivals.is_empty() {
            return Ok(Vec::new());
        }
        let Some(fetched) = request.current_variants else {
            return Ok(rivals.into_iter().map(|rival| rival.entry).collect());
        };
        let equal = equal_variants(vault, &vault.require_trust()?, rivals, fetched);
        self.transforms.use_equal_variants(vault, change, &equal)?;
        let is_replaced = |made: &RenderedVariant| equal.iter().any(|it| it.replaces(made));
        self.rendered.retain(|made| !is_replaced(made));
        Ok(Vec::new())
    }
}

/// A variant of the current release that stands where this library has another one.
struct RivalVariant {
    agent: AgentId,
    /// The plain skill's name and version, with the hash and size of the variant.
    entry: SkillEntry,
    /// The bundle that this library has.
    ours: Digest,
}

/// Returns the variants of another publisher's release that stand where this library has others,
/// for skills that are the same on both sides.
fn list_rivals(
    theirs: &[Profile],
    current: &Catalog,
    skills: &[ReleaseSkill],
    transforms: &Transforms,
) -> Vec<RivalVariant> {
    let places = skills.iter().map(|skill| &skill.place);
    let places: HashMap<_, _> = places.map(|place| (&place.name, place)).collect();
    let mut seen = BTreeSet::new();
    let mut rivals = Vec::new();
    for profile in theirs {
        for named in &profile.skills {
            let (Some(listed), Some(place)) = (current.skill(&named.name), places.get(&named.name))
            else {
                continue;
            };
            let is_variant = named.bundle_hash != listed.bundle_hash;
            if !is_variant || listed.bundle_hash != place.bundle {
                continue;
            }
            let VariantLookup::Rendered(variant) =
                transforms.look_up(&place.name, &place.bundle, &profile.agent)
            else {
                continue;
            };
            let ours = variant.bundle.filter(|ours| *ours != named.bundle_hash);
            // Several profiles of an agent may name one variant.
            if let Some(ours) = ours.filter(|_| seen.insert(named.bundle_hash)) {
                rivals.push(RivalVariant {
                    agent: profile.agent.clone(),
                    entry: SkillEntry {
                        name: named.name.clone(),
                        version: listed.version,
                        bundle_hash: named.bundle_hash,
                        size: named.size,
                    },
                    ours,
                });
            }
        }
    }
    rivals
}

/// Returns those rivals that equal this library's variants. One that was not fetched, or that does
/// not verify, is not equal.
fn equal_variants(
    vault: &Vault,
    trust: &VaultTrust,
    rivals: Vec<RivalVariant>,
    fetched: &HashMap<Digest, Vec<u8>>,
) -> Vec<EqualVariant> {
    let own = Trusted::for_own(trust.clone()).for_variants();
    // A release that counts lists them, so they are read even if their signer was retired since.
    let listed = rivals.iter().map(|rival| rival.entry.bundle_hash);
    let listed = Trusted::for_listed(Arc::new(trust.roots.clone()), listed.collect());
    let object = |hash: &Digest| fetched.get(hash).cloned();
    let mut equal = Vec::new();
    for rival in rivals {
        let ours = store::read_manifest(&vault.store_folder(), &rival.ours, &own);
        let theirs = fetched::open_bundle(vault, &rival.entry, &object, &listed);
        if let (Some(ours), Ok(theirs)) = (ours, theirs)
            && is_equal(&ours, &theirs.manifest)
            && let Ok(encoded) = bundle::encode(&theirs.signed, &theirs.manifest, &theirs.files)
        {
            equal.push(EqualVariant {
                agent: rival.agent,
                ours: rival.ours,
                theirs,
                encoded,
            });
        }
    }
    equal
}

/// Returns whether two variants have the same files, and are the same in all that is signed about
/// them but the gate's report: another version of the program may have other rules.
fn is_equal(ours: &Manifest, theirs: &Manifest) -> bool {
    let mut theirs = theirs.clone();
    theirs.gate.rules.clone_from(&ours.gate.rules);
    theirs.gate.flags.clone_from(&ours.gate.flags);
    theirs == *ours
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use vault_format::manifest::{AppliedTransform, FileEntry, Gate, Mode, RenderedFrom};
    use vault_format::provenance::Provenance;
    use vault_format::root::VaultId;
    use vault_format::time::Timestamp;

    use super::*;

    type Edit = fn(&mut Manifest);

    fn variant() -> Manifest {
        let now = Timestamp::from_unix(1_780_000_000);
        let file = |path: &str| FileEntry {
            path: path.parse().unwrap(),
            size: 1,
            sha256: Digest::of(path.as_bytes()),
            mode: Mode::Plain,
        };
        Manifest {
            vault_id: VaultId::derive(&Digest::of(b"root")),
            name: "beta".parse().unwrap(),
            frontmatter_name: None,
            version: 3,
            signed_at: now,
            files: vec![file("SKILL.md"), file("run.sh")],
            actions: BTreeMap::new(),
            agents: Vec::new(),
            rendered_from: Some(RenderedFrom {
                bundle_hash: Digest::of(b"plain"),
                agent: "codex".parse().unwrap(),
                transforms: vec![AppliedTransform {
                    name: "own".to_owned(),
                    sha256: Digest::of(b"transform"),
                }],
            }),
            provenance: Provenance {
                identifier: "local:beta".parse().unwrap(),
                revision: None,
                fetched_at: now,
            },
            gate: Gate {
                strict: true,
                rules: "gate/1".to_owned(),
                flags: Vec::new(),
                waivers: Vec::new(),
            },
        }
    }

    #[test]
    fn a_rival_with_the_same_origin_and_other_content_is_not_equal() {
        let ours = variant();
        let mut newer = ours.clone();
        newer.gate.rules = "gate/2".to_owned();
        assert!(is_equal(&ours, &newer), "the rules of another version");
        let edits: [(&str, Edit); 6] = [
            ("bytes", |it| it.files[1].sha256 = Digest::of(b"other")),
            ("mode", |it| it.files[1].mode = Mode::Executable),
            ("a file less", |it| it.files.truncate(1)),
            ("agents", |it| it.agents = vec!["codex".parse().unwrap()]),
            ("strictness", |it| it.gate.strict = false),
            ("transform", |it| {
                let from = it.rendered_from.as_mut().unwrap();
                from.transforms[0].sha256 = Digest::of(b"another");
            }),
        ];
        for (what, edit) in edits {
            let mut theirs = ours.clone();
            edit(&mut theirs);
            assert!(!is_equal(&ours, &theirs), "{what}");
        }
    }
}
