//! Planning a release: what it would be made of, whether anything changed, and the signed catalog.
//!
//! A release is this library, exactly. [`plan`] starts from the service's current catalog: one that this library does
//! not know stops it, as does one that lies behind what it published. Whatever is signed is noted before it leaves, so
//! that no number is ever used for two catalogs; an interrupted push goes on with the same bytes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use vault_skill::catalog::{
    Catalog, CatalogError, MAX_WITHDRAWN, ObjectEntry, PolicyEntry, ProfileEntry, Schema,
    SignedCatalog, SkillEntry, Stored, Withdrawn,
};
use vault_skill::hash::Digest;
use vault_skill::index::{self, IndexEntry};
use vault_skill::json;
use vault_skill::keys::PublicKey;
use vault_skill::name::{AgentId, SkillName, Slug};
use vault_skill::policy::{Policy, PolicyError};
use vault_skill::profile::{Profile, ProfileRule, ProfileSkill, RulesError};
use vault_skill::time::Timestamp;
use vault_store::objects::Class;

use crate::cloud::{self, CloudState, Kept, Known};
use crate::files;
use crate::index::{Index, Row, Texts};
use crate::keys::KeyError;
use crate::profiles::PROFILES_FILE;
use crate::remove;
use crate::rotate::{self, Chain};
use crate::scan::{self, Origin, Place};
use crate::store::{self, Damage, Trusted, Want};
use crate::transforms::{Base, Lookup, Transforms, Variant};
use crate::vault::{Change, Vault, VaultError};

/// Changes when the same content would be built into other objects.
const BUILD: u32 = 1;
/// Days that a release counts, unless asked otherwise.
pub const DEFAULT_DAYS: i64 = 90;
/// With fewer days left a release is renewed though nothing changed.
pub const RENEW_DAYS: i64 = 30;
/// Days that withdrawn bytes stay named.
const WITHDRAWN_DAYS: i64 = 400;

/// What to plan.
#[derive(Clone, Debug)]
pub struct PlanRequest<'a> {
    /// The base address that is published to, without a slash at its end.
    pub base: &'a str,
    /// The namespace.
    pub slug: &'a Slug,
    /// Further base addresses that may serve the release, for a vault that moves.
    pub also_served_from: &'a [String],
    /// The exact bytes of the service's current catalog; `None` when it has none.
    pub current: Option<&'a [u8]>,
    /// What to do about a current catalog that this library does not know.
    pub strangers: Strangers,
    /// Sign a new release though nothing changed.
    pub renew: bool,
    /// Days until it expires, 1 to 400.
    pub days: i64,
}

impl<'a> PlanRequest<'a> {
    /// A plain sync against a current catalog.
    pub fn new(base: &'a str, slug: &'a Slug, current: Option<&'a [u8]>) -> Self {
        Self {
            base,
            slug,
            also_served_from: &[],
            current,
            strangers: Strangers::Stop,
            renew: false,
            days: DEFAULT_DAYS,
        }
    }
}

/// What to do where somebody else with the vault's key published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Strangers {
    /// Stop and say what differs.
    Stop,
    /// Take their skills in first: [`Plan::Adopt`] names the bundles to fetch.
    Adopt,
    /// Drop them: the release is this library.
    Replace,
}

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

/// How the current catalog differs from this library.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// The service's release.
    pub release: u64,
    /// In the service's release alone.
    pub theirs: Vec<SkillName>,
    /// In this library alone.
    pub ours: Vec<SkillName>,
    /// In both, with other content.
    pub differing: Vec<SkillName>,
}

/// Why no release was planned. Nothing was signed then.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The current catalog was not published from this library.
    #[error("release {} of the service was not published from this library", .0.release)]
    Diverged(Difference),
    /// The service shows an older release than it had acknowledged.
    #[error(
        "the service shows release {current}, but release {published} was published: it was rolled back"
    )]
    RolledBack {
        /// What the service shows; 0 for nothing.
        current: u64,
        /// What it had acknowledged.
        published: u64,
    },
    /// The service shows another catalog with a number that this library published.
    #[error("the service shows another release {0} than the one that was published")]
    TwoCatalogs(u64),
    /// The current catalog is not one of this vault.
    #[error("the service's current catalog is not this vault's: {0}")]
    NotOurs(&'static str),
    /// The current catalog can't be read, or the new one can't be signed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Skills are not as they were signed; they are not published.
    #[error("{} of the installed skills are not as they were signed, first {}", .0.len(), .0.first().map_or("", |(name, _)| name.as_str()))]
    Damaged(Vec<(SkillName, Damage)>),
    /// policy.toml has an error.
    #[error("policy.toml: {0}")]
    Policy(#[from] PolicyError),
    /// profiles.toml has an error.
    #[error("profiles.toml: {0}")]
    Profiles(#[from] RulesError),
    /// An object can't be made.
    #[error("{0}")]
    Object(String),
    /// A skill changed or went while the release was being uploaded; plan again.
    #[error("{0} changed while the release was being published; sync again")]
    Moved(SkillName),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<KeyError> for PlanError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}

/// An object that the namespace must have before the catalog is put.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedObject {
    /// Where it belongs: bundles or policies.
    pub class: Class,
    /// Its hash.
    pub sha256: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Whether the current catalog names it, or the skill it is a part of: then the namespace had it.
    pub known: bool,
    source: Source,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Source {
    Skill(SkillName, Digest),
    Made(usize),
}

/// A signed release, ready to be uploaded.
#[derive(Clone, Debug)]
pub struct ReleasePlan {
    /// Its number.
    pub release: u64,
    /// The catalog's exact bytes.
    pub catalog: Vec<u8>,
    /// SHA-256 of those bytes.
    pub file_sha256: Digest,
    /// SHA-256 of the signed payload.
    pub payload_sha256: Digest,
    /// File hash of the catalog that it replaces, for `If-Match`; `None` for `If-None-Match: *`.
    pub follows: Option<Digest>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Every object that it names, each once.
    pub objects: Vec<PlannedObject>,
    /// Skills that the current release lacks.
    pub added: Vec<SkillName>,
    /// Skills with other content than in the current release.
    pub changed: Vec<SkillName>,
    /// Skills that only the current release has.
    pub removed: Vec<SkillName>,
    /// How many skills it names.
    pub skills: usize,
    /// Whether these bytes had been signed at an earlier try.
    pub resumed: bool,
    base: String,
    slug: Slug,
    made: Vec<Vec<u8>>,
    trusted: Trusted,
}

impl ReleasePlan {
    /// The exact bytes of an object. Fails when the skill it is made of changed meanwhile.
    pub fn read(&self, vault: &Vault, object: &PlannedObject) -> Result<Vec<u8>, PlanError> {
        match &object.source {
            Source::Made(at) => Ok(self.made[*at].clone()),
            Source::Skill(name, bundle) => {
                let encoded = store::examine(
                    &vault.store(),
                    bundle,
                    Some(name),
                    &self.trusted,
                    Want::Bytes,
                    &mut Vec::new(),
                )
                .and_then(|examined| store::encode(bundle, &examined))
                .map_err(|_| PlanError::Moved(name.clone()))?;
                if object.sha256 == *bundle {
                    return Ok(encoded.bytes);
                }
                encoded
                    .parts
                    .into_iter()
                    .find(|part| part.hash == object.sha256)
                    .map(|part| part.bytes)
                    .ok_or_else(|| PlanError::Moved(name.clone()))
            }
        }
    }
}

/// Plans a release against the service's current catalog. Takes the writer lock; signs only when something changed.
pub fn plan(vault: &Vault, request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    let mut change = vault.change()?;
    let current = request
        .current
        .map(|bytes| Current::read(vault, request, bytes))
        .transpose()?;
    let mut state = cloud::state(vault, request.base, request.slug)?
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

/// The service's current catalog, believed as far as this vault's own keys say so.
struct Current {
    catalog: Catalog,
    stored: Stored,
    file_sha256: Digest,
    key: PublicKey,
}

impl Current {
    fn read(vault: &Vault, request: &PlanRequest<'_>, bytes: &[u8]) -> Result<Self, PlanError> {
        let file = SignedCatalog::parse(bytes)?;
        let catalog = file.verify()?;
        let keys = Chain::read(vault)?.all_keys(vault.keys().public()?);
        if catalog.vault_id != *vault.id() {
            return Err(PlanError::NotOurs("it has another vault id"));
        }
        if !keys.contains(file.public_key()) {
            return Err(PlanError::NotOurs("it is signed by a key that is not ours"));
        }
        if catalog.slug != *request.slug {
            return Err(PlanError::NotOurs("it is for another namespace"));
        }
        Ok(Self {
            stored: Stored {
                release: catalog.release,
                payload_sha256: file.payload_sha256(),
            },
            file_sha256: Digest::of(bytes),
            key: *file.public_key(),
            catalog,
        })
    }

    fn known(&self, at: Timestamp) -> Known {
        Known {
            release: self.stored.release,
            payload_sha256: self.stored.payload_sha256,
            file_sha256: self.file_sha256,
            expires_at: self.catalog.expires_at,
            skills: self.catalog.skills.len() as u64,
            at,
            inputs: None,
            follows: None,
        }
    }
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

/// An own skill as the release names it.
struct Skill {
    place: Place,
    row: Row,
    texts: Option<Texts>,
}

fn own_skills(vault: &Vault) -> Result<Vec<Skill>, PlanError> {
    let mut skills = Vec::new();
    let mut damaged = Vec::new();
    for seen in scan::scan(vault)? {
        if seen.place.origin != Origin::Local {
            continue;
        }
        match seen.state {
            Ok(row) => skills.push(Skill {
                place: seen.place,
                row,
                texts: seen.texts,
            }),
            Err(damage) => damaged.push((seen.place.name, damage)),
        }
    }
    if !damaged.is_empty() {
        return Err(PlanError::Damaged(damaged));
    }
    skills.sort_by(|a, b| a.place.name.cmp(&b.place.name));
    Ok(skills)
}

fn difference(skills: &[Skill], catalog: &Catalog) -> Difference {
    let ours: BTreeMap<_, _> = skills
        .iter()
        .map(|skill| (&skill.place.name, skill.place.bundle))
        .collect();
    let mut difference = Difference {
        release: catalog.release,
        ..Difference::default()
    };
    for entry in &catalog.skills {
        match ours.get(&entry.name) {
            None => difference.theirs.push(entry.name.clone()),
            Some(bundle) if *bundle != entry.bundle_hash => {
                difference.differing.push(entry.name.clone());
            }
            Some(_) => {}
        }
    }
    difference.ours = ours
        .into_keys()
        .filter(|name| catalog.skill(name).is_none())
        .cloned()
        .collect();
    difference
}

/// Theirs where we have none, or none as high.
fn to_adopt(skills: &[Skill], catalog: &Catalog) -> Vec<SkillEntry> {
    let ours: HashMap<_, _> = skills
        .iter()
        .map(|skill| (&skill.place.name, skill))
        .collect();
    catalog
        .skills
        .iter()
        .filter(|entry| {
            ours.get(&entry.name).is_none_or(|skill| {
                skill.place.bundle != entry.bundle_hash && skill.row.version <= entry.version
            })
        })
        .cloned()
        .collect()
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
    rotate::sign_again(vault, change, |name, _| behind.contains(name))?;
    Ok(true)
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

/// All that a release is made of.
struct Build<'a> {
    vault: &'a Vault,
    request: &'a PlanRequest<'a>,
    current: Option<&'a Current>,
    skills: &'a [Skill],
    chain: Chain,
    key: PublicKey,
    policy: Option<String>,
    profiles: Option<String>,
    rules: Vec<ProfileRule>,
    transforms: Transforms,
    withdrawn: Vec<remove::WithdrawnBundle>,
    now: Timestamp,
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
            return Ok(self.ready(release, &catalog, &file, bytes, true));
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
        Ok(self.ready(release, &catalog, &file, bytes, false))
    }

    /// Whether a release is asked for though nothing changed.
    fn due(&self, current: &Current) -> bool {
        self.request.renew
            || current.catalog.expires_at < self.now.plus_days(RENEW_DAYS)
            || current.key != self.key
    }

    fn audience(&self) -> Vec<String> {
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

    fn variant(&self, skill: &Skill, agent: &AgentId) -> Option<&Variant> {
        match self
            .transforms
            .lookup(&skill.place.name, &skill.place.bundle, agent)
        {
            Lookup::Rendered(variant) => Some(variant),
            _ => None,
        }
    }

    /// The variants that profiles may name, with the skills that they are of.
    fn variants(&self) -> impl Iterator<Item = (&Skill, &Variant)> {
        let agents: BTreeSet<_> = self.rules.iter().map(|rule| &rule.agent).collect();
        let none = self.transforms.is_empty();
        self.skills
            .iter()
            .filter(move |_| !none)
            .flat_map(move |skill| {
                agents
                    .clone()
                    .into_iter()
                    .filter_map(move |agent| Some((skill, self.variant(skill, agent)?)))
            })
    }

    /// Hash over everything that decides about the content of the objects and the catalog.
    fn inputs(&self) -> Result<Digest, PlanError> {
        let mut bytes = Vec::with_capacity(self.skills.len() * 64);
        for skill in self.skills {
            bytes.extend_from_slice(skill.place.name.as_str().as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(&skill.row.version.to_le_bytes());
            bytes.extend_from_slice(skill.place.bundle.as_bytes());
        }
        let rest = serde_json::json!({
            "build": BUILD,
            "audience": self.audience(),
            "key": self.key,
            "recovery": self.vault.keys().recovery_sha256()?,
            "rotations": self.chain.envelopes(),
            "policy": self.policy,
            "profiles": self.profiles,
            "variants": self.variants().filter_map(|(_, variant)| variant.bundle).collect::<Vec<_>>(),
            "withdrawn": self.withdrawn,
        });
        bytes.extend_from_slice(&json::to_bytes(&rest));
        Ok(Digest::of(&bytes))
    }

    fn resumable(
        &self,
        state: &CloudState,
        inputs: Digest,
        follows: Option<Digest>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let Some(pending) = &state.pending else {
            return Ok(None);
        };
        let fits = pending.inputs == Some(inputs)
            && pending.follows == follows
            && pending.expires_at > self.now.plus_days(RENEW_DAYS)
            && !self.request.renew;
        if !fits {
            return Ok(None);
        }
        let bytes = state.bytes(self.vault, Kept::Pending)?;
        Ok(bytes.filter(|bytes| Digest::of(bytes) == pending.file_sha256))
    }

    /// The release's number, and the release that it follows.
    fn number(&self, state: &CloudState) -> (u64, Option<Stored>) {
        let floor = self.chain.last().map_or(1, |last| last.effective_release);
        let above_signed = state.highest_signed + 1;
        match self.current {
            // After a stolen or lost key: what it signed is void, and the count goes on from before.
            Some(current) if current.key != self.key && self.was_voided(&current.key) => {
                let before = self
                    .voided_from(&current.key)
                    .unwrap_or(1)
                    .saturating_sub(1);
                let previous = state.payload_of(before).map(|payload_sha256| Stored {
                    release: before,
                    payload_sha256,
                });
                let previous = previous
                    .or_else(|| (current.stored.release == before).then_some(current.stored));
                (floor.max(above_signed), previous)
            }
            Some(current) => (
                floor.max(above_signed).max(current.stored.release + 1),
                Some(current.stored),
            ),
            None => {
                let last = state.pending.as_ref().or(state.published.as_ref());
                let previous = last.map(|known| Stored {
                    release: known.release,
                    payload_sha256: known.payload_sha256,
                });
                (floor.max(above_signed), previous)
            }
        }
    }

    fn was_voided(&self, key: &PublicKey) -> bool {
        self.voided_from(key).is_some()
    }

    fn voided_from(&self, key: &PublicKey) -> Option<u64> {
        self.chain
            .statements
            .iter()
            .map(|(_, statement)| statement)
            .find(|statement| statement.reason.voids_old_key() && statement.from == *key)
            .map(|statement| statement.effective_release)
    }

    fn build(&self) -> Result<Made, PlanError> {
        let texts = self.texts()?;
        let mut made = Made {
            catalog: Catalog {
                schema: Schema,
                vault_id: *self.vault.id(),
                slug: self.request.slug.clone(),
                audience: self.audience(),
                release: 1,
                issued_at: self.now,
                expires_at: self.now.plus_days(self.request.days),
                public_key: self.key,
                recovery_key_sha256: self.vault.keys().recovery_sha256()?,
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
            let texts = texts.get(&skill.place.bundle).cloned().unwrap_or_default();
            IndexEntry {
                name: skill.place.name.clone(),
                bundle_hash: skill.place.bundle,
                description: texts.description,
                tags: texts.tags,
                categories: texts.categories,
                when_to_use: texts.when_to_use,
                agents: texts.agents,
                actions: texts.actions,
            }
        });
        for object in index::build(self.vault.id(), entries) {
            let (bundle_hash, size) = made.add(Class::Bundles, object);
            made.catalog.index.push(ObjectEntry { bundle_hash, size });
        }
        if let Some(text) = &self.policy {
            let policy = Policy::from_toml(text)?;
            let (sha256, size) = made.add(Class::Policies, policy.to_object());
            made.catalog.policy = Some(PolicyEntry { sha256, size });
        }
        for profile in self.profiles(&texts) {
            let (bundle_hash, size) = made.add(Class::Bundles, profile.to_object());
            made.catalog.profiles.push(ProfileEntry {
                name: profile.name,
                agent: profile.agent,
                bundle_hash,
                size,
            });
        }
        for object in &made.objects {
            if object.1.len() > vault_skill::catalog::MAX_OBJECT_BYTES {
                return Err(PlanError::Object(
                    "an index, profile or policy object is over 4 MiB".to_owned(),
                ));
            }
        }
        self.fill_withdrawn(&mut made.catalog)?;
        Ok(made)
    }

    /// Texts of every skill; what the index does not know is read and verified again.
    fn texts(&self) -> Result<HashMap<Digest, Texts>, PlanError> {
        let mut known = Index::open(&self.vault.paths().index()).texts();
        let mut buffer = Vec::new();
        for skill in self.skills {
            if let Some(texts) = &skill.texts {
                known.insert(skill.place.bundle, texts.clone());
            } else if let Entry::Vacant(unknown) = known.entry(skill.place.bundle) {
                let texts =
                    scan::read_texts(self.vault, &skill.place, &mut buffer).map_err(|damage| {
                        PlanError::Damaged(vec![(skill.place.name.clone(), damage)])
                    })?;
                unknown.insert(texts);
            }
        }
        Ok(known)
    }

    fn profiles(&self, texts: &HashMap<Digest, Texts>) -> Vec<Profile> {
        self.rules
            .iter()
            .map(|rule| Profile {
                skills: self
                    .skills
                    .iter()
                    .filter(|skill| {
                        let tags = texts
                            .get(&skill.place.bundle)
                            .map_or(&[][..], |texts| &texts.tags);
                        rule.selects(&skill.row.agents, tags)
                    })
                    .map(|skill| {
                        let (bundle_hash, size) = self
                            .variant(skill, &rule.agent)
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

    /// What this vault withdrew in the last 400 days, with the release that said so first; what the current catalog
    /// withdraws besides (another library with this key) stays.
    fn fill_withdrawn(&self, catalog: &mut Catalog) -> Result<(), PlanError> {
        let before = self
            .current
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

    fn ready(
        &self,
        made: Made,
        catalog: &Catalog,
        file: &SignedCatalog,
        bytes: Vec<u8>,
        resumed: bool,
    ) -> Plan {
        let difference = self
            .current
            .map(|current| difference(self.skills, &current.catalog));
        let (added, changed, removed) = match difference {
            Some(difference) => (difference.ours, difference.differing, difference.theirs),
            None => (
                self.skills
                    .iter()
                    .map(|skill| skill.place.name.clone())
                    .collect(),
                Vec::new(),
                Vec::new(),
            ),
        };
        let (objects, contents) = self.objects(made);
        Plan::Publish(Box::new(ReleasePlan {
            release: catalog.release,
            file_sha256: Digest::of(&bytes),
            payload_sha256: file.payload_sha256(),
            follows: self.current.map(|current| current.file_sha256),
            expires_at: catalog.expires_at,
            objects,
            added,
            changed,
            removed,
            skills: catalog.skills.len(),
            resumed,
            base: self.request.base.to_owned(),
            slug: self.request.slug.clone(),
            made: contents,
            trusted: Trusted {
                vault_id: *self.vault.id(),
                keys: self.chain.all_keys(self.key),
            },
            catalog: bytes,
        }))
    }

    fn objects(&self, made: Made) -> (Vec<PlannedObject>, Vec<Vec<u8>>) {
        let mut named = BTreeSet::new();
        if let Some(current) = self.current {
            let old = &current.catalog;
            named.extend(old.skills.iter().map(|entry| entry.bundle_hash));
            named.extend(old.index.iter().map(|entry| entry.bundle_hash));
            named.extend(old.profiles.iter().map(|entry| entry.bundle_hash));
            named.extend(old.policy.iter().map(|entry| entry.sha256));
        }
        let mut objects = Vec::new();
        let mut seen = BTreeSet::new();
        for skill in self.skills {
            let bundle = skill.place.bundle;
            let known = named.contains(&bundle);
            let parts = skill.row.parts.iter().copied();
            for (sha256, size) in std::iter::once((bundle, skill.row.size)).chain(parts) {
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
        for (skill, variant) in self.variants() {
            let Some(bundle) = variant.bundle else {
                continue;
            };
            let parts = variant.parts.iter().map(|part| (part.sha256, part.size));
            for (sha256, size) in std::iter::once((bundle, variant.size)).chain(parts) {
                if seen.insert(sha256) {
                    objects.push(PlannedObject {
                        class: Class::Bundles,
                        sha256,
                        size,
                        known: false,
                        source: Source::Skill(skill.place.name.clone(), bundle),
                    });
                }
            }
        }
        let mut contents = Vec::new();
        for (class, bytes) in made.objects {
            let sha256 = Digest::of(&bytes);
            objects.push(PlannedObject {
                class,
                sha256,
                size: bytes.len() as u64,
                known: named.contains(&sha256),
                source: Source::Made(contents.len()),
            });
            contents.push(bytes);
        }
        (objects, contents)
    }
}

fn skill_entry(skill: &Skill) -> SkillEntry {
    SkillEntry {
        name: skill.place.name.clone(),
        version: skill.row.version,
        bundle_hash: skill.place.bundle,
        size: skill.row.size,
    }
}

/// A catalog that is not signed yet, and the objects that were made for it.
struct Made {
    catalog: Catalog,
    objects: Vec<(Class, Vec<u8>)>,
}

impl Made {
    fn add(&mut self, class: Class, bytes: Vec<u8>) -> (Digest, u64) {
        let named = (Digest::of(&bytes), bytes.len() as u64);
        let there = self
            .objects
            .iter()
            .any(|(other, object)| *other == class && *object == bytes);
        if !there {
            self.objects.push((class, bytes));
        }
        named
    }
}

/// Notes that the service took a planned release.
pub fn published(vault: &Vault, plan: &ReleasePlan) -> Result<Known, PlanError> {
    let mut change = vault.change()?;
    let mut state = cloud::state(vault, &plan.base, &plan.slug)?
        .unwrap_or_else(|| CloudState::new(&plan.base, &plan.slug));
    let pending = state
        .pending
        .clone()
        .filter(|pending| pending.payload_sha256 == plan.payload_sha256);
    let known = Known {
        release: plan.release,
        payload_sha256: plan.payload_sha256,
        file_sha256: plan.file_sha256,
        expires_at: plan.expires_at,
        skills: plan.skills as u64,
        at: vault.clock().now(),
        inputs: pending.as_ref().and_then(|pending| pending.inputs),
        follows: plan.follows,
    };
    state.write_bytes(vault, &mut change, Kept::Published, &plan.catalog)?;
    state.acknowledge(known.clone());
    if pending.is_some() {
        state.pending = None;
    }
    state.write(vault, &mut change)?;
    if state.pending.is_none() {
        state.drop_pending(vault)?;
    }
    Ok(known)
}

/// Takes the service's current catalog as known: after its skills were adopted, the next plan starts from it.
pub fn take(vault: &Vault, base: &str, slug: &Slug, current: &[u8]) -> Result<Known, PlanError> {
    let mut change = vault.change()?;
    let request = PlanRequest::new(base, slug, Some(current));
    let read = Current::read(vault, &request, current)?;
    let mut state = cloud::state(vault, base, slug)?.unwrap_or_else(|| CloudState::new(base, slug));
    let known = read.known(vault.clock().now());
    state.write_bytes(vault, &mut change, Kept::Published, current)?;
    state.acknowledge(known.clone());
    state.write(vault, &mut change)?;
    Ok(known)
}

/// Whether two releases offer the same, whatever their numbers and times.
fn same_content(new: &Catalog, current: &Current) -> bool {
    let old = &current.catalog;
    let withdrawn = |catalog: &Catalog| {
        catalog
            .withdrawn
            .iter()
            .map(|entry| entry.bundle_hash)
            .collect::<BTreeSet<_>>()
    };
    new.skills == old.skills
        && new.index == old.index
        && new.policy == old.policy
        && new.profiles == old.profiles
        && new.audience == old.audience
        && new.public_key == old.public_key
        && new.recovery_key_sha256 == old.recovery_key_sha256
        && withdrawn(new) == withdrawn(old)
}
