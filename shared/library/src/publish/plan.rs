//! Planning a release: what it would be made of, whether anything changed, and the signed catalog.
//!
//! A release is this library, exactly. [`plan`] starts from the service's current catalog: one that this library does
//! not know stops it, as does one that lies behind what it published. Whatever is signed is noted before it leaves, so
//! that no number is ever used for two catalogs; an interrupted push goes on with the same bytes.

use std::collections::BTreeSet;

use vault_skill::catalog::{Catalog, SignedCatalog, SkillEntry};
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName, Slug};
use vault_skill::profile::ProfileRule;

use super::build::Build;
use super::current::{Current, Skill, difference, own_skills, same_content, to_adopt};
use super::error::{Difference, PlanError};
use super::release::ReleasePlan;
use super::request::{PlanRequest, Strangers};
use super::state::{self, CloudState, Kept, Known};
use crate::admit::sign_again;
use crate::agents::PROFILES_FILE;
use crate::files;
use crate::remove;
use crate::rotate::Chain;
use crate::transforms::{Base, Lookup, Transforms};
use crate::vault::{Change, Vault, VaultError};

/// What is to be done.
#[derive(Debug)]
pub enum Plan {
    /// The current release is this library already.
    Unchanged(Known),
    /// Fetch these bundles of the current catalog and hand them to [`crate::adopt::adopt`], then plan again.
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
    let mut state = state::state(vault, request.base, request.slug)?
        .unwrap_or_else(|| CloudState::new(request.base, request.slug));
    settle_pending(vault, &mut change, &mut state, current.as_ref())?;
    if state.pending.is_none() {
        // Acknowledging the last release may have been cut short after its last step but one.
        state.drop_pending(vault)?;
    }
    let mut skills = own_skills(vault)?;
    let stranger = stranger(&state, current.as_ref(), &skills, request.strangers)?;
    let chain = Chain::read(vault)?;
    if let (Some(current), true) = (&current, stranger) {
        // What a stolen or lost key signed can be dropped, but nothing of it is taken in, and its versions mean nothing.
        let voided = chain.is_voided(&current.key);
        match request.strangers {
            Strangers::Adopt if voided => {
                return Err(PlanError::NotOurs(
                    "it is signed by a key that was stolen or lost",
                ));
            }
            Strangers::Stop => {
                return Err(PlanError::Diverged(difference(&skills, &current.catalog)));
            }
            Strangers::Adopt => {
                let wanted = to_adopt(&skills, &current.catalog);
                if !wanted.is_empty() {
                    return Ok(Plan::Adopt(wanted));
                }
            }
            Strangers::Replace => {}
        }
        if !voided && raise_versions(vault, &mut change, &skills, &current.catalog)? {
            skills = own_skills(vault)?;
        }
    } else if current.is_none() && state.published.is_some() && request.strangers == Strangers::Stop
    {
        return Err(PlanError::RolledBack {
            current: 0,
            published: state.published.map_or(0, |known| known.release),
        });
    }
    let profiles = read_text(vault, PROFILES_FILE)?;
    let rules = rules(profiles.as_deref(), &skills)?;
    let transforms = render(vault, &mut change, &skills, &rules)?;
    let build = Build {
        vault,
        request,
        rules,
        transforms,
        current: current.as_ref(),
        skills: &skills,
        chain,
        key: vault.keys().public()?,
        policy: read_text(vault, crate::capabilities::POLICY_FILE)?,
        profiles,
        withdrawn: remove::withdrawn(vault)?,
        now: vault.clock().now(),
    };
    build.plan(&mut change, state)
}

/// The profiles of a release: those of `profiles.toml`, else one for each agent that a manifest names.
fn rules(text: Option<&str>, skills: &[Skill]) -> Result<Vec<ProfileRule>, PlanError> {
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
        for agent in &agents {
            let name = &skill.place.name;
            match transforms.lookup(name, &skill.place.bundle, agent) {
                Lookup::Missing => missing.push((
                    Base {
                        name,
                        signed_name: name,
                        bundle: skill.place.bundle,
                        trusted: &trusted,
                    },
                    (*agent).clone(),
                )),
                Lookup::Impossible(reason) => return Err(untransformed(name, agent, &reason)),
                Lookup::Plain | Lookup::Rendered(_) => {}
            }
        }
    }
    if missing.is_empty() {
        return Ok(transforms);
    }
    transforms.render(vault, change, &missing)?;
    for (base, agent) in &missing {
        if let Lookup::Impossible(reason) = transforms.lookup(base.name, &base.bundle, agent) {
            return Err(untransformed(base.name, agent, &reason));
        }
    }
    Ok(transforms)
}

fn untransformed(name: &SkillName, agent: &AgentId, reason: &str) -> PlanError {
    PlanError::Object(format!(
        "{name} can't be rendered for {agent}: {reason}; mend the transform or remove it"
    ))
}

/// A push whose answer was lost did succeed when the service shows its catalog.
fn settle_pending(
    vault: &Vault,
    change: &mut Change<'_>,
    state: &mut CloudState,
    current: Option<&Current>,
) -> Result<(), PlanError> {
    let (Some(pending), Some(current)) = (&state.pending, current) else {
        return Ok(());
    };
    if pending.payload_sha256 != current.stored.payload_sha256 {
        return Ok(());
    }
    let known = Known {
        file_sha256: current.file_sha256,
        ..pending.clone()
    };
    if let Some(bytes) = state.bytes(vault, Kept::Pending)? {
        state.write_bytes(vault, change, Kept::Published, &bytes)?;
    }
    state.acknowledge(known);
    state.pending = None;
    state.write(vault, change)?;
    Ok(state.drop_pending(vault)?)
}

/// Whether the current catalog is one that this library neither published nor took. Fails when it is behind, or a
/// second one with a published number, unless it is to be replaced.
fn stranger(
    state: &CloudState,
    current: Option<&Current>,
    skills: &[Skill],
    strangers: Strangers,
) -> Result<bool, PlanError> {
    let Some(current) = current else {
        return Ok(false);
    };
    let Some(published) = &state.published else {
        // Nothing remembered, but the same skills: a library that was moved here.
        return Ok(difference(skills, &current.catalog)
            != Difference {
                release: current.stored.release,
                ..Difference::default()
            });
    };
    if current.stored.payload_sha256 == published.payload_sha256 {
        return Ok(false);
    }
    match current.stored.release.cmp(&published.release) {
        // A service that was restored on purpose: the owner says so, and goes on above every number that was used.
        std::cmp::Ordering::Less | std::cmp::Ordering::Equal if strangers == Strangers::Replace => {
            Ok(true)
        }
        std::cmp::Ordering::Less => Err(PlanError::RolledBack {
            current: current.stored.release,
            published: published.release,
        }),
        std::cmp::Ordering::Equal => Err(PlanError::TwoCatalogs(published.release)),
        std::cmp::Ordering::Greater => Ok(true),
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

fn read_text(vault: &Vault, name: &str) -> Result<Option<String>, PlanError> {
    let path = vault.paths().root.join(name);
    let Some(bytes) = files::read(&path, 4 << 20).map_err(VaultError::from)? else {
        return Ok(None);
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| PlanError::Object(format!("{name} is not UTF-8")))
}

impl Build<'_> {
    fn plan(self, change: &mut Change<'_>, mut state: CloudState) -> Result<Plan, PlanError> {
        let inputs = self.inputs()?;
        if let (Some(current), Some(published)) = (self.current, &state.published)
            && published.payload_sha256 == current.stored.payload_sha256
            && published.inputs == Some(inputs)
            && !self.due(current)
        {
            return Ok(Plan::Unchanged(published.clone()));
        }
        let mut release = self.build()?;
        let follows = self.current.map(|current| current.file_sha256);
        if let Some(current) = self.current
            && !self.due(current)
            && same_content(&release.catalog, current)
        {
            let known = Known {
                inputs: Some(inputs),
                ..current.known(self.now)
            };
            if let Some(bytes) = self.request.current {
                state.write_bytes(self.vault, change, Kept::Published, bytes)?;
            }
            state.acknowledge(known.clone());
            state.write(self.vault, change)?;
            return Ok(Plan::Unchanged(known));
        }
        if let Some(bytes) = self.resumable(&state, inputs, follows)? {
            let file = SignedCatalog::parse(&bytes)?;
            let catalog = file.verify()?;
            return Ok(Plan::Publish(Box::new(
                self.ready(release, &catalog, &file, bytes, true),
            )));
        }
        let (number, previous) = self.number(&state);
        release.catalog.release = number;
        release.catalog.previous = previous;
        self.fill_withdrawn(&mut release.catalog)?;
        let bytes = SignedCatalog::sign(
            &release.catalog,
            &self.chain.envelopes(),
            &self.vault.keys().release()?,
        )?;
        let file = SignedCatalog::parse(&bytes)?;
        // Noted before the bytes can leave: the number is used up even when the push never arrives.
        state.write_bytes(self.vault, change, Kept::Pending, &bytes)?;
        state.highest_signed = state.highest_signed.max(number);
        state.pending = Some(Known {
            release: number,
            payload_sha256: file.payload_sha256(),
            file_sha256: Digest::of(&bytes),
            expires_at: release.catalog.expires_at,
            skills: release.catalog.skills.len() as u64,
            at: self.now,
            inputs: Some(inputs),
            follows,
        });
        state.write(self.vault, change)?;
        let catalog = release.catalog.clone();
        Ok(Plan::Publish(Box::new(
            self.ready(release, &catalog, &file, bytes, false),
        )))
    }
}

/// Takes the service's current catalog as known: after its skills were adopted, the next plan starts from it.
pub fn take(vault: &Vault, base: &str, slug: &Slug, current: &[u8]) -> Result<Known, PlanError> {
    let mut change = vault.change()?;
    let request = PlanRequest::new(base, slug, Some(current));
    let read = Current::read(vault, &request, current)?;
    let mut state = state::state(vault, base, slug)?.unwrap_or_else(|| CloudState::new(base, slug));
    let known = read.known(vault.clock().now());
    state.write_bytes(vault, &mut change, Kept::Published, current)?;
    state.acknowledge(known.clone());
    state.write(vault, &mut change)?;
    Ok(known)
}
