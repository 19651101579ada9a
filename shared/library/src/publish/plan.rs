//! Planning a release: whether anything changed, what it is made of, and the signed catalog.
//!
//! A release is this library, exactly. [`plan`] starts from the service's current catalog. A catalog that this library
//! does not know stops it, as does one that is older than what it published. Whatever is signed is recorded before it
//! leaves, so that no number is ever used for two catalogs; an interrupted push continues with the same bytes.

use std::collections::BTreeSet;

use vault_skill::catalog::{Catalog, SignedCatalog, SkillEntry};
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, Slug};
use vault_skill::profile::ProfileRule;

use super::build::ReleaseBuilder;
use super::current::{Current, Skill, difference, own_skills, same_content, to_adopt};
use super::error::{Difference, PlanError};
use super::release::ReleasePlan;
use super::request::{OnDivergence, PlanRequest};
use super::state::{self, AcknowledgedRelease, CatalogFile, CloudState};
use crate::admit::variants::{Base, Lookup, Transforms};
use crate::admit::{remove, sign_again};
use crate::agents::PROFILES_FILE;
use crate::disk;
use crate::vault::policy::POLICY_FILE;
use crate::vault::rotations::Chain;
use crate::vault::{Change, Vault, VaultError};

/// What is to be done.
#[derive(Debug)]
pub enum Plan {
    /// The current release is this library already.
    Unchanged(AcknowledgedRelease),
    /// Fetch these bundles of the current catalog and hand them to [`super::adopt::adopt`], then plan again.
    Adopt(Vec<SkillEntry>),
    /// Upload what is missing, then put the catalog.
    Publish(Box<ReleasePlan>),
}

/// Plans a release against the service's current catalog. Takes the writer lock; signs only when something changed.
pub fn plan(vault: &Vault, request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    let mut change = vault.change()?;
    let current = request
        .current
        .map(|bytes| Current::read(vault, request, bytes))
        .transpose()?;
    let mut state = state::read_or_new(vault, request.base, request.slug)?;
    settle(vault, &mut change, &mut state, current.as_ref())?;
    let mut skills = own_skills(vault)?;
    let chain = Chain::read(vault)?;
    match judge(
        &state,
        current.as_ref(),
        &skills,
        &chain,
        request.on_divergence,
    )? {
        Verdict::Follow => {}
        Verdict::Adopt(missing) => return Ok(Plan::Adopt(missing)),
        Verdict::Outnumber(catalog) => {
            if raise_versions(vault, &mut change, &skills, catalog)? {
                skills = own_skills(vault)?;
            }
        }
    }
    let profiles = read_text(vault, PROFILES_FILE)?;
    let rules = profile_rules(profiles.as_deref(), &skills)?;
    let transforms = render(vault, &mut change, &skills, &rules)?;
    let builder = ReleaseBuilder {
        vault,
        request,
        rules,
        transforms,
        current: current.as_ref(),
        skills: &skills,
        chain,
        key: vault.keys().public()?,
        policy: read_text(vault, POLICY_FILE)?,
        profiles,
        withdrawn: remove::withdrawn(vault)?,
        now: vault.clock().now(),
    };
    build(&builder, &mut change, state)
}

/// Records that the last push arrived: its answer was lost, but the service shows its catalog.
fn settle(
    vault: &Vault,
    change: &mut Change<'_>,
    state: &mut CloudState,
    current: Option<&Current>,
) -> Result<(), PlanError> {
    if let (Some(pending), Some(current)) = (&state.pending, current)
        && pending.payload_sha256 == current.stored.payload_sha256
    {
        let arrived = AcknowledgedRelease {
            file_sha256: current.file_sha256,
            ..pending.clone()
        };
        if let Some(bytes) = state.bytes(vault, CatalogFile::Pending)? {
            state.write_bytes(vault, change, CatalogFile::Published, &bytes)?;
        }
        state.acknowledge(arrived);
        state.pending = None;
        state.write(vault, change)?;
    }
    if state.pending.is_none() {
        // An earlier run may have been killed before it removed the file.
        state.drop_pending(vault)?;
    }
    Ok(())
}

/// How the release relates to the service's current catalog.
enum Verdict<'a> {
    /// It follows what this library published, or starts from nothing.
    Follow,
    /// These skills of the current catalog have to be taken in first.
    Adopt(Vec<SkillEntry>),
    /// It replaces this catalog, which others published: no version may stay at or below the one there.
    Outnumber(&'a Catalog),
}

/// Decides whether a release may follow the current catalog.
fn judge<'a>(
    state: &CloudState,
    current: Option<&'a Current>,
    skills: &[Skill],
    chain: &Chain,
    on_divergence: OnDivergence,
) -> Result<Verdict<'a>, PlanError> {
    let Some(current) = current else {
        return match &state.published {
            Some(published) if on_divergence == OnDivergence::Stop => Err(PlanError::RolledBack {
                current: 0,
                published: published.release,
            }),
            _ => Ok(Verdict::Follow),
        };
    };
    if !has_diverged(state, current, skills, on_divergence)? {
        return Ok(Verdict::Follow);
    }
    // A release that a stolen or lost key signed may be replaced. Nothing of it is adopted, and its versions mean nothing.
    let voided = chain.is_voided(&current.key);
    match on_divergence {
        OnDivergence::Stop => Err(PlanError::Diverged(difference(skills, &current.catalog))),
        OnDivergence::Adopt if voided => Err(PlanError::NotOurs(
            "it is signed by a key that was stolen or lost",
        )),
        OnDivergence::Replace if voided => Ok(Verdict::Follow),
        OnDivergence::Replace => Ok(Verdict::Outnumber(&current.catalog)),
        OnDivergence::Adopt => {
            let missing = to_adopt(skills, &current.catalog);
            Ok(if missing.is_empty() {
                Verdict::Outnumber(&current.catalog)
            } else {
                Verdict::Adopt(missing)
            })
        }
    }
}

/// Whether this library neither published nor took the current catalog. Fails when that catalog is older than what was
/// published, or a second one with a published number, unless it is to be replaced.
fn has_diverged(
    state: &CloudState,
    current: &Current,
    skills: &[Skill],
    on_divergence: OnDivergence,
) -> Result<bool, PlanError> {
    let Some(published) = &state.published else {
        // Nothing is recorded, but the skills are the same: the library was moved to this machine.
        let same = Difference {
            release: current.stored.release,
            ..Difference::default()
        };
        return Ok(difference(skills, &current.catalog) != same);
    };
    if current.stored.payload_sha256 == published.payload_sha256 {
        return Ok(false);
    }
    // With `Replace` the owner confirms that an older service was restored on purpose.
    if current.stored.release > published.release || on_divergence == OnDivergence::Replace {
        Ok(true)
    } else if current.stored.release < published.release {
        Err(PlanError::RolledBack {
            current: current.stored.release,
            published: published.release,
        })
    } else {
        Err(PlanError::TwoCatalogs(published.release))
    }
}

/// Builds and signs the release, unless the current one has the same content or an earlier try signed it already.
fn build(
    builder: &ReleaseBuilder<'_>,
    change: &mut Change<'_>,
    mut state: CloudState,
) -> Result<Plan, PlanError> {
    let vault = builder.vault;
    let inputs = builder.inputs()?;
    let not_due = builder.current.filter(|current| !builder.is_due(current));
    if let (Some(current), Some(published)) = (not_due, &state.published)
        && published.payload_sha256 == current.stored.payload_sha256
        && published.inputs == Some(inputs)
    {
        return Ok(Plan::Unchanged(published.clone()));
    }
    let mut release = builder.build()?;
    if let Some(current) = not_due
        && same_content(&release.catalog, current)
    {
        let acknowledged = AcknowledgedRelease {
            inputs: Some(inputs),
            ..current.acknowledged(builder.now)
        };
        if let Some(bytes) = builder.request.current {
            state.write_bytes(vault, change, CatalogFile::Published, bytes)?;
        }
        state.acknowledge(acknowledged.clone());
        state.write(vault, change)?;
        return Ok(Plan::Unchanged(acknowledged));
    }
    let follows = builder.current.map(|current| current.file_sha256);
    if let Some(bytes) = builder.resumable(&state, inputs, follows)? {
        let plan = builder.finish(release, bytes, true)?;
        return Ok(Plan::Publish(Box::new(plan)));
    }
    (release.catalog.release, release.catalog.previous) = builder.number(&state);
    builder.fill_withdrawn(&mut release.catalog)?;
    let bytes = SignedCatalog::sign(
        &release.catalog,
        &builder.chain.envelopes(),
        &vault.keys().release()?,
    )?;
    // Recorded before the bytes can leave: the number is used up even if the push never arrives.
    state.write_bytes(vault, change, CatalogFile::Pending, &bytes)?;
    state.highest_signed = state.highest_signed.max(release.catalog.release);
    state.pending = Some(AcknowledgedRelease {
        release: release.catalog.release,
        payload_sha256: SignedCatalog::parse(&bytes)?.payload_sha256(),
        file_sha256: Digest::of(&bytes),
        expires_at: release.catalog.expires_at,
        skills: release.catalog.skills.len() as u64,
        at: builder.now,
        inputs: Some(inputs),
        follows,
    });
    state.write(vault, change)?;
    let plan = builder.finish(release, bytes, false)?;
    Ok(Plan::Publish(Box::new(plan)))
}

/// The profiles of a release: those of `profiles.toml`, else one for each agent that a manifest names.
fn profile_rules(text: Option<&str>, skills: &[Skill]) -> Result<Vec<ProfileRule>, PlanError> {
    if let Some(text) = text {
        return Ok(ProfileRule::from_toml(text)?);
    }
    let agents: BTreeSet<_> = skills.iter().flat_map(|skill| &skill.row.agents).collect();
    Ok(agents
        .into_iter()
        .map(|agent| ProfileRule::for_agent(agent.clone()))
        .collect())
}

/// Renders the variants that the release's profiles name. Fails on a transform that can't be applied: what was meant
/// for an agent is never left out silently.
fn render(
    vault: &Vault,
    change: &mut Change<'_>,
    skills: &[Skill],
    rules: &[ProfileRule],
) -> Result<Transforms, PlanError> {
    let mut transforms = Transforms::read(vault)?;
    if transforms.is_empty() {
        return Ok(transforms);
    }
    let trusted = vault.trusted()?;
    let agents: BTreeSet<_> = rules.iter().map(|rule| &rule.agent).collect();
    let mut missing = Vec::new();
    for skill in skills {
        let base = Base {
            name: &skill.place.name,
            signed_name: &skill.place.name,
            bundle: skill.place.bundle,
            trusted: &trusted,
        };
        for agent in &agents {
            if is_missing(&transforms, &base, agent)? {
                missing.push((base.clone(), (*agent).clone()));
            }
        }
    }
    if !missing.is_empty() {
        transforms.render(vault, change, &missing)?;
        for (base, agent) in &missing {
            is_missing(&transforms, base, agent)?;
        }
    }
    Ok(transforms)
}

/// Whether a variant has yet to be rendered. Fails when it can't be.
fn is_missing(
    transforms: &Transforms,
    base: &Base<'_>,
    agent: &AgentId,
) -> Result<bool, PlanError> {
    match transforms.lookup(base.name, &base.bundle, agent) {
        Lookup::Missing => Ok(true),
        Lookup::Plain | Lookup::Rendered(_) => Ok(false),
        Lookup::Impossible(reason) => Err(PlanError::Transform {
            skill: base.name.clone(),
            agent: agent.clone(),
            reason,
        }),
    }
}

/// Signs own skills again whose version would fall, or stay with other content, compared with the current catalog.
fn raise_versions(
    vault: &Vault,
    change: &mut Change<'_>,
    skills: &[Skill],
    catalog: &Catalog,
) -> Result<bool, PlanError> {
    let mut behind = BTreeSet::new();
    for skill in skills {
        let name = &skill.place.name;
        if let Some(entry) = catalog.skill(name)
            && entry.bundle_hash != skill.place.bundle
            && entry.version >= skill.row.version
        {
            remove::retire(vault, change, name, entry.version)?;
            behind.insert(name.clone());
        }
    }
    if behind.is_empty() {
        return Ok(false);
    }
    let resigned = sign_again(vault, change, |name, _| behind.contains(name))?;
    match resigned.refused.into_iter().next() {
        // Published as it is, its version would fall or stay.
        Some((name, reason)) => Err(PlanError::Refused { name, reason }),
        None => Ok(true),
    }
}

/// The text of one of the owner's files in the vault's folder; `None` where it is absent.
fn read_text(vault: &Vault, file: &'static str) -> Result<Option<String>, PlanError> {
    let path = vault.paths().root.join(file);
    let Some(bytes) = disk::read(&path, 4 << 20).map_err(VaultError::from)? else {
        return Ok(None);
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| PlanError::NotText { file })
}

/// Records the service's current catalog as known: after its skills were adopted, the next plan starts from it.
pub fn take(
    vault: &Vault,
    base: &str,
    slug: &Slug,
    current: &[u8],
) -> Result<AcknowledgedRelease, PlanError> {
    let mut change = vault.change()?;
    let request = PlanRequest::new(base, slug, Some(current));
    let read = Current::read(vault, &request, current)?;
    let mut state = state::read_or_new(vault, base, slug)?;
    let acknowledged = read.acknowledged(vault.clock().now());
    state.write_bytes(vault, &mut change, CatalogFile::Published, current)?;
    state.acknowledge(acknowledged.clone());
    state.write(vault, &mut change)?;
    Ok(acknowledged)
}
