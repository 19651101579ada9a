//! Transforms of skills for single agents, and the variants that are rendered with them.
//!
//! A transform is a file of the owner that changes the text of a skill's SKILL.md, for the agents
//! that it names. A variant is the result for one agent: a bundle of its own with the skill's files
//! and the changed SKILL.md. It passes the gate again, is signed here, and only the links of agents
//! lead to it. `variants.json` records what each variant was rendered from, so that nothing is
//! rendered twice and an outdated variant is never used for a new version. Only transforms that the
//! owner approved are applied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::bundle;
use vault_format::hash::Digest;
use vault_format::manifest::{AppliedTransform, RenderedFrom, SKILL_MD};
use vault_format::name::{AgentId, SkillName};
use vault_gate::document::{Transform, TransformError, in_order, render_variant as render_text};

use super::sign::{SignedSkill, sign_candidate};
use super::sign_again::to_earlier_source;
use super::{AdmitError, Candidate, Neighbours, Options, Purpose, examine_candidate};
use crate::disk::{self, Batch};
use crate::installed::installations::{Installation, list_skill_places};
use crate::installed::rendered_variants::{Part, Variant, VariantsRecord};
use crate::store::{self, Trusted};
use crate::vault::authored::{self, AuthoredFile};
use crate::vault::{Change, Vault, VaultError};

/// Limit on the transforms of one skill.
pub const MAX_TRANSFORMS: usize = 32;

/// Error of adding a transform. The vault is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AddTransformError {
    /// The skill that the transform should change is not installed.
    #[error("{0} is not installed")]
    NotInstalled(SkillName),
    /// The file is not a valid transform, or can't be applied to the skill.
    #[error("{0}")]
    Transform(#[from] TransformError),
    /// The gate blocks the skill after the transform changed it.
    #[error("the gate refuses the result for {agent}: {reason}")]
    Refused {
        /// The agent whose variant the gate blocks.
        agent: AgentId,
        /// The first finding of the gate, as text for the message.
        reason: String,
    },
    /// The skill already has [`MAX_TRANSFORMS`].
    #[error("a skill has at most {MAX_TRANSFORMS} transforms")]
    TooMany,
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// A transform file of the vault, which may be invalid.
#[derive(Clone, Debug)]
pub struct ListedTransform {
    /// The skill that it changes.
    pub skill: SkillName,
    /// Path of the transform file in the vault's folder.
    pub path: PathBuf,
    /// The transform, or the error in the file.
    pub transform: Result<Transform, TransformError>,
    /// Whether the owner approved the file as it is now. Unapproved transforms are not applied.
    pub is_approved: bool,
}

/// A variant that was rendered and signed.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct RenderedVariant {
    /// Name of the skill from which the variant was rendered.
    pub skill: SkillName,
    /// The agent that gets the variant in place of the skill.
    pub agent: AgentId,
}

/// Which content one agent gets for a skill.
#[derive(Debug)]
pub(crate) enum VariantLookup<'a> {
    /// The plain skill, because no transform applies to it.
    Plain,
    /// This rendered variant; if it has no bundle, the transforms changed nothing, and the agent
    /// gets the plain skill.
    Rendered(&'a Variant),
    /// A variant that has to be rendered first ([`Transforms::render_variants`]).
    Missing,
    /// The plain skill, with a warning: this is the reason why the variant can't be rendered.
    Impossible(String),
}

/// Returns the bundle from which the variant of a skill for an agent is rendered now; `None` if the
/// agent gets no variant.
type BaseOf<'a> = &'a dyn Fn(&SkillName, &AgentId) -> Option<Digest>;

/// The approved transforms of a vault and its record of variants.
#[derive(Debug, Default)]
pub(crate) struct Transforms {
    by_skill: BTreeMap<SkillName, Vec<Transform>>,
    /// Approved transform files that are invalid: the skill, the path and the reason.
    pub(crate) bad: Vec<(SkillName, PathBuf, TransformError)>,
    pub(super) record: VariantsRecord,
    /// Recorded variants whose signature no longer counts, for example because their signer was
    /// revoked. Nobody gets them.
    untrusted: Vec<Variant>,
}

/// Returns all transforms, approved or not, sorted by skill and name. A changed file is listed with
/// its new, unapproved content.
pub fn list_transforms(vault: &Vault) -> Result<Vec<ListedTransform>, VaultError> {
    // An approved file may have been deleted, and a new one is not approved yet. List both.
    let mut files: BTreeSet<_> = authored::approved_transforms(vault)?.into_iter().collect();
    files.extend(authored::written_transforms(vault)?);
    let mut listed = Vec::new();
    for file in files {
        let AuthoredFile::Transform { skill, name } = &file else {
            continue;
        };
        let approved = file.read_approved(vault)?;
        let written = file.read_written(vault)?;
        let is_approved = approved.is_some() && approved == written;
        if let Some(bytes) = written.or(approved) {
            listed.push(ListedTransform {
                skill: skill.clone(),
                path: file.path(vault),
                transform: Transform::parse(name.clone(), &bytes),
                is_approved,
            });
        }
    }
    Ok(listed)
}

/// Returns the approved transforms: those that are applied.
fn list_approved(vault: &Vault) -> Result<Vec<ListedTransform>, VaultError> {
    let mut listed = Vec::new();
    for file in authored::approved_transforms(vault)? {
        if let AuthoredFile::Transform { skill, name } = &file
            && let Some(bytes) = file.read_approved(vault)?
        {
            listed.push(ListedTransform {
                skill: skill.clone(),
                path: file.path(vault),
                transform: Transform::parse(name.clone(), &bytes),
                is_approved: true,
            });
        }
    }
    Ok(listed)
}

/// Adds a transform to an installed skill, or replaces the transform of this name. First applies it
/// to the current skill, for every agent that it names; if that fails, nothing is written. The next
/// [`crate::sync_profiles`] creates the variants.
pub fn add_transform(
    vault: &Vault,
    skill: &SkillName,
    name: SkillName,
    bytes: &[u8],
) -> Result<Transform, AddTransformError> {
    let mut change = vault.begin_change()?;
    let transform = try_transform(vault, skill, name.clone(), bytes)?;
    let file = AuthoredFile::Transform {
        skill: skill.clone(),
        name,
    };
    change.mark_changing()?;
    change.write_authored(&file, bytes)?;
    Ok(transform)
}

/// Parses a transform and applies it to the current skill together with the approved ones, for
/// every agent that it names.
pub(super) fn try_transform(
    vault: &Vault,
    skill: &SkillName,
    name: SkillName,
    bytes: &[u8],
) -> Result<Transform, AddTransformError> {
    let transform = Transform::parse(name, bytes)?;
    let places = list_skill_places(vault)?;
    let located = places.groups.iter().find_map(|group| {
        let mut places = group.places.iter();
        let place = places.find(|place| place.name == *skill && place.bare)?;
        Some((group, place))
    });
    let Some((group, place)) = located else {
        return Err(AddTransformError::NotInstalled(skill.clone()));
    };
    // A transform of the same name is the earlier version of this one, so it must not be applied
    // too.
    let mut all: Vec<_> = list_approved(vault)?
        .into_iter()
        .filter(|listed| listed.skill == *skill)
        .filter_map(|listed| listed.transform.ok())
        .filter(|other| other.name != transform.name)
        .collect();
    if all.len() >= MAX_TRANSFORMS {
        return Err(AddTransformError::TooMany);
    }
    all.push(transform.clone());
    // A transform without agents applies to all of them.
    let mut agents = transform.agents.clone();
    if agents.is_empty() {
        agents.push(AgentId::any());
    }
    for agent in agents {
        let chosen = in_order(&all, &agent);
        if let Err(reason) = make_variant(vault, place, &group.trusted, &agent, &chosen)? {
            return Err(AddTransformError::Refused { agent, reason });
        }
    }
    Ok(transform)
}

/// Removes a transform; returns whether it existed. The next [`crate::sync_profiles`] removes its
/// variants.
pub fn remove_transform(
    vault: &Vault,
    skill: &SkillName,
    name: &SkillName,
) -> Result<bool, VaultError> {
    let mut change = vault.begin_change()?;
    let file = AuthoredFile::Transform {
        skill: skill.clone(),
        name: name.clone(),
    };
    let path = file.held_path(vault);
    // The owner may have deleted the file by hand. Its approval still has to end.
    if disk::kind_at(&path)?.is_none() && file.read_approved(vault)?.is_none() {
        return Ok(false);
    }
    change.mark_changing()?;
    change.remove_authored(&file)?;
    if let Some(folder) = path.parent() {
        disk::remove_empty(&folder)?;
    }
    Ok(true)
}

impl Transforms {
    /// Reads the approved transforms and the record of variants.
    pub(crate) fn read_approved(vault: &Vault) -> Result<Self, VaultError> {
        let mut all = Self {
            record: VariantsRecord::read(vault)?,
            ..Self::default()
        };
        let trusted = vault.trusted()?.for_variants();
        // The record may not match the store, so keep only variants whose signed manifest agrees
        // with it.
        let variants = std::mem::take(&mut all.record.variants).into_iter();
        (all.record.variants, all.untrusted) =
            variants.partition(|variant| is_as_signed(vault, variant, &trusted));
        for listed in list_approved(vault)? {
            match listed.transform {
                Ok(transform) => all
                    .by_skill
                    .entry(listed.skill)
                    .or_default()
                    .push(transform),
                Err(error) => all.bad.push((listed.skill, listed.path, error)),
            }
        }
        Ok(all)
    }

    /// Returns the agents that the transforms of a skill are for. A transform that names no agents
    /// is for every agent, which [`AgentId::any`] stands for.
    pub(crate) fn agents_of(&self, name: &SkillName) -> BTreeSet<AgentId> {
        let transforms = self.by_skill.get(name).into_iter().flatten();
        let mut agents = BTreeSet::new();
        for transform in transforms {
            agents.extend(transform.agents.iter().cloned());
            if transform.agents.is_empty() {
                agents.insert(AgentId::any());
            }
        }
        agents
    }

    /// Returns the transform that names the most agents, as its skill, its name and the number of
    /// agents; `None` if none names any.
    pub(crate) fn find_widest_transform(&self) -> Option<(&SkillName, &SkillName, usize)> {
        let skills = self.by_skill.iter();
        let all = skills.flat_map(|(skill, transforms)| {
            let transforms = transforms.iter();
            transforms.map(move |it| (skill, &it.name, it.agents.len()))
        });
        let widest = all.max_by_key(|(_, _, agents)| *agents);
        widest.filter(|(_, _, agents)| *agents > 0)
    }

    /// Returns whether any transform of this skill is for this agent.
    pub(crate) fn applies_to(&self, name: &SkillName, agent: &AgentId) -> bool {
        let transforms = self.by_skill.get(name);
        transforms.is_some_and(|transforms| !in_order(transforms, agent).is_empty())
    }

    /// Returns the content that this agent gets for this skill.
    pub(crate) fn look_up(
        &self,
        name: &SkillName,
        bundle: &Digest,
        agent: &AgentId,
    ) -> VariantLookup<'_> {
        // An invalid transform may be meant for this agent, so a variant without it could be wrong.
        if let Some((_, path, error)) = self.bad.iter().find(|(skill, ..)| skill == name) {
            return VariantLookup::Impossible(format!("{}:{error}", path.display()));
        }
        let Some(transforms) = self.by_skill.get(name) else {
            return VariantLookup::Plain;
        };
        let chosen = in_order(transforms, agent);
        if chosen.is_empty() {
            return VariantLookup::Plain;
        }
        let applied = applied_transforms(&chosen);
        let recorded = self.record.variants.iter().find(|variant| {
            variant.name == *name
                && variant.agent == *agent
                && variant.base == *bundle
                && variant.transforms == applied
        });
        match recorded {
            None => VariantLookup::Missing,
            Some(variant) => match &variant.problem {
                Some(problem) => VariantLookup::Impossible(problem.clone()),
                None => VariantLookup::Rendered(variant),
            },
        }
    }

    /// Renders the wanted variants and records them. Returns those that were signed; one that can't
    /// be rendered is recorded with the reason. Call it under the writer lock.
    pub(crate) fn render_variants(
        &mut self,
        vault: &Vault,
        change: &mut Change<'_>,
        wanted: &[(&Installation, &Trusted, AgentId)],
    ) -> Result<Vec<RenderedVariant>, VaultError> {
        let aside = vault.new_scratch()?;
        let mut batch = Batch::default();
        let mut new_variants = Vec::new();
        let mut hashes = Vec::new();
        let mut rendered = Vec::new();
        for (base, trusted, agent) in wanted {
            let Some(transforms) = self.by_skill.get(&base.name) else {
                continue;
            };
            let chosen = in_order(transforms, agent);
            let mut variant = Variant {
                name: base.name.clone(),
                agent: agent.clone(),
                base: base.bundle,
                transforms: applied_transforms(&chosen),
                bundle: None,
                size: 0,
                parts: Vec::new(),
                problem: None,
            };
            match make_variant(vault, base, trusted, agent, &chosen)? {
                // The transforms leave the text as it is, so the agent gets the plain skill.
                Ok(None) => {}
                Ok(Some((candidate, signed))) => {
                    variant.bundle = Some(signed.encoded.hash);
                    variant.size = signed.encoded.bytes.len() as u64;
                    variant.parts = signed
                        .encoded
                        .parts
                        .iter()
                        .map(|part| Part {
                            sha256: part.hash,
                            size: part.bytes.len() as u64,
                        })
                        .collect();
                    store::stage_bundle(
                        &mut batch,
                        aside.path(),
                        &signed.encoded.hash,
                        signed.envelope.as_bytes(),
                        &candidate.package.files,
                    )?;
                    hashes.push(signed.encoded.hash);
                    rendered.push(RenderedVariant {
                        skill: base.name.clone(),
                        agent: agent.clone(),
                    });
                }
                Err(problem) => variant.problem = Some(problem),
            }
            new_variants.push(variant);
        }
        batch.flush(aside.path())?;
        store::admit_bundles(
            &vault.store_folder(),
            aside.path(),
            &hashes,
            &vault.trusted()?.for_variants(),
        )?;
        // Keep older variants until no link points to them; `remove_outdated_variants` removes them then.
        self.record.variants.extend(new_variants);
        self.record.write(vault, change)?;
        Ok(rendered)
    }

    /// Removes outdated variants from the record, and their bundles from the store. Call it under
    /// the writer lock, after no link points to them. `base` returns the bundle from which the
    /// variant of a skill for an agent is rendered.
    pub(crate) fn remove_outdated_variants(
        &mut self,
        vault: &Vault,
        change: &mut Change<'_>,
        base: BaseOf<'_>,
    ) -> Result<(), VaultError> {
        let (kept, mut gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.record.variants)
            .into_iter()
            .partition(|variant| self.is_current(variant, base));
        self.record.variants = kept;
        gone.append(&mut self.untrusted);
        if gone.is_empty() {
            return Ok(());
        }
        let bundles = |variants: &[Variant]| -> BTreeSet<Digest> {
            variants
                .iter()
                .filter_map(|variant| variant.bundle)
                .collect()
        };
        let unused = &bundles(&gone) - &bundles(&self.record.variants);
        let unused: Vec<_> = unused.into_iter().collect();
        // List the bundles first: once the record no longer names them, only this list makes the
        // next writer remove them.
        let aside = vault.new_scratch()?;
        store::note_unlinked(aside.path(), &unused)?;
        self.record.write(vault, change)?;
        store::drop_bundles(&vault.store_folder(), aside.path(), unused)?;
        Ok(())
    }

    /// Returns whether [`Self::remove_outdated_variants`] would remove anything.
    pub(crate) fn has_outdated_variants(&self, base: BaseOf<'_>) -> bool {
        let mut variants = self.record.variants.iter();
        !self.untrusted.is_empty() || variants.any(|variant| !self.is_current(variant, base))
    }

    /// Returns whether a variant was rendered from the current bundle with the current transforms.
    fn is_current(&self, variant: &Variant, base: BaseOf<'_>) -> bool {
        base(&variant.name, &variant.agent) == Some(variant.base)
            && self.by_skill.get(&variant.name).is_some_and(|transforms| {
                variant.transforms == applied_transforms(&in_order(transforms, &variant.agent))
            })
    }
}

/// Returns whether the signed manifest of a variant says the same as the record. The record is not
/// signed, and it chooses the bundle that agents get.
fn is_as_signed(vault: &Vault, variant: &Variant, trusted: &Trusted) -> bool {
    let Some(bundle) = &variant.bundle else {
        return true;
    };
    let Some(manifest) = store::read_manifest(&vault.store_folder(), bundle, trusted) else {
        return false;
    };
    // The manifest lists what the variant was rendered from, which must be what the record says.
    let recorded = RenderedFrom {
        bundle_hash: variant.base,
        agent: variant.agent.clone(),
        transforms: variant.transforms.clone(),
    };
    manifest.name == variant.name && manifest.rendered_from == Some(recorded)
}

fn applied_transforms(transforms: &[&Transform]) -> Vec<AppliedTransform> {
    transforms
        .iter()
        .map(|transform| transform.to_manifest_entry())
        .collect()
}

/// Removes the transforms of a removed skill; returns whether there were any.
pub(crate) fn remove_transforms_of(
    vault: &Vault,
    change: &mut Change<'_>,
    name: &SkillName,
) -> Result<bool, VaultError> {
    let mut files = authored::approved_transforms(vault)?;
    files.extend(authored::written_transforms(vault)?);
    files.retain(|file| matches!(file, AuthoredFile::Transform { skill, .. } if skill == name));
    for file in &files {
        change.remove_authored(file)?;
    }
    // Unapproved files must go too, or a later skill of this name would inherit them.
    disk::remove_tree(&vault.folder().join("transforms").join(name.as_str()))?;
    Ok(!files.is_empty())
}

/// Removes the variants of removed skills from the record. Their bundles are collected with those
/// of the skills.
pub(crate) fn forget_variants(
    vault: &Vault,
    change: &Change<'_>,
    names: &[SkillName],
) -> Result<(), VaultError> {
    let mut record = VariantsRecord::read(vault)?;
    let removed = |variant: &Variant| names.contains(&variant.name);
    if !record.variants.iter().any(removed) {
        return Ok(());
    }
    record.variants.retain(|variant| !removed(variant));
    record.write(vault, change)
}

/// Renders and signs one variant; `None` if its bytes would be those of the plain skill. The inner
/// error is the reason why it can't be rendered, as text for the owner.
fn make_variant(
    vault: &Vault,
    base: &Installation,
    trusted: &Trusted,
    agent: &AgentId,
    transforms: &[&Transform],
) -> Result<Result<Option<(Candidate, SignedSkill)>, String>, VaultError> {
    let (store, name) = (vault.store_folder(), Some(&base.signed_name));
    let examined = store::examine_stored(&store, &base.bundle, name, trusted);
    let mut plain = match examined {
        Ok(examined) => examined,
        // Verification reports the damage. Here it only stops this variant.
        Err(damage) => return Ok(Err(format!("{}: {damage}", base.name))),
    };
    let document = |file: &&mut bundle::File| file.path.as_str() == SKILL_MD;
    let Some(document) = plain.files.iter_mut().find(document) else {
        return Ok(Err("it has no SKILL.md".to_owned()));
    };
    match render_text(&document.bytes, transforms) {
        Ok(text) if text == document.bytes => return Ok(Ok(None)),
        Ok(text) => document.bytes = text,
        Err(error) => return Ok(Err(error.to_string())),
    }
    let purpose = Purpose::Variant(RenderedFrom {
        bundle_hash: base.bundle,
        agent: agent.clone(),
        transforms: applied_transforms(transforms),
    });
    let (version, signed_at) = (plain.manifest.version, plain.manifest.signed_at);
    // The base may be a linked skill. Keeping its exceptions shows nothing more: agents get its
    // plain text in any case.
    let source = to_earlier_source(base.name.clone(), plain, None, purpose, true);
    let options = Options::as_recorded();
    // Use the version and signing time of the base, so that the same base and transforms always
    // give the same bundle.
    let signed = examine_candidate(source, &options, &mut Neighbours::for_vault(vault)).and_then(
        |candidate| {
            let key = vault.release_signer()?;
            let signed = sign_candidate(vault.id(), &candidate, version, signed_at, &*key)?;
            Ok((candidate, signed))
        },
    );
    match signed {
        Ok(signed) => Ok(Ok(Some(signed))),
        Err(AdmitError::Vault(failed)) => Err(failed),
        Err(AdmitError::Blocked { findings }) => {
            let first = findings.first();
            Ok(Err(first.map_or_else(String::new, ToString::to_string)))
        }
        Err(AdmitError::Unsignable(reason)) => Ok(Err(reason)),
        Err(refused) => Ok(Err(refused.to_string())),
    }
}
