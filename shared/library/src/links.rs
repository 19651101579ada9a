//! Linked vaults: what is pinned of them, and their skills installed beside the own ones.
//!
//! ```text
//! links/<id>/current        -> states/<n>: the one atomic switch
//! links/<id>/states/<n>/    pin.json (0600), catalog.json (exact bytes), set -> ../../sets/<m>
//! links/<id>/sets/<m>/      set.json, skills/<name> -> the store
//! links/<id>/{pin.json, catalog.json, skills}   constant links through `current`
//! ```
//! [`Link::accept`] decides about bytes and changes nothing; [`install`] stages every bundle, verifies it, and then
//! switches: readers see the old pin, catalog and skills, or the new ones, never a mixture.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vault_skill::bundle::{Bundle, BundleError};
use vault_skill::catalog::{
    self, Accepted, CatalogError, Expectation, ObjectEntry, Side, SignedCatalog, SkillEntry,
    Stored, Trust,
};
use vault_skill::hash::Digest;
use vault_skill::keys::{PublicKey, SecretKey};
use vault_skill::manifest::ManifestExpectation;
use vault_skill::name::{AgentId, SkillName, Slug, VaultId};
use vault_skill::time::Timestamp;
use vault_skill::{bundle, index, profile};

use crate::files::scratch::Scratch;
use crate::files::{self, Batch, FileError};
use crate::index::{Buffers, Index};
use crate::keys::{self, KeyError, KeyKind, SecretFolder};
use crate::profiles;
use crate::remove;
use crate::scan::{self, Group, Origin, Place};
use crate::store::{self, Trusted, Want};
use crate::vault::{Change, Vault, VaultError};

/// Names a linked vault on this machine: its slug and a piece of a hash over its address.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkId(String);

impl LinkId {
    /// The id of the vault `slug` at a base address; the same for the same address, always.
    pub fn of(base: &str, slug: &Slug) -> Self {
        let hash = Digest::of(format!("{base}\n{slug}").as_bytes()).to_string();
        Self(format!("{slug}-{}", &hash[..10]))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Not the name of a link: lower-case letters, digits and hyphens, at most 80.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not the name of a link")]
pub struct BadLinkId;

impl FromStr for LinkId {
    type Err = BadLinkId;

    fn from_str(text: &str) -> Result<Self, BadLinkId> {
        let good = !text.is_empty()
            && text.len() <= 80
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        good.then(|| Self(text.to_owned())).ok_or(BadLinkId)
    }
}

/// What this machine believes of a linked vault.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pin {
    /// The base address, without a slash at its end.
    pub base: String,
    /// The vault's name there.
    pub slug: Slug,
    /// From the first accepted catalog on; with it the four below.
    pub vault_id: Option<VaultId>,
    /// The key that signs its releases.
    pub public_key: Option<PublicKey>,
    /// Keys that it rotated away from.
    pub former_keys: Vec<PublicKey>,
    /// Further keys that may have signed manifests of the current catalog.
    pub signers: Vec<PublicKey>,
    /// Those that were stolen or lost: a manifest by one of them counts only where the current catalog names its bundle.
    pub voided_keys: Vec<PublicKey>,
    /// The last rotation that was followed.
    pub rotation_sequence: u64,
    /// Hash of the key that can replace a lost or stolen release key.
    pub recovery_key_sha256: Option<Digest>,
    /// The last release that was accepted.
    pub release: Option<u64>,
    /// Hash of its signed payload.
    pub payload_sha256: Option<Digest>,
    /// The fingerprint that the first key must have, as it was given to [`expect`]; gone once a key is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_key: Option<String>,
    /// Hash of this machine's device key for the link.
    pub device_key_id: Digest,
    /// When the link was made.
    pub linked_at: Timestamp,
    /// The latest time seen: a clock that was set back does not make an expired catalog good again.
    pub latest_seen_at: Timestamp,
}

impl Pin {
    fn trust(&self) -> Trust {
        Trust {
            vault_id: self.vault_id,
            public_key: self.public_key,
            former_keys: self.former_keys.clone(),
            rotation_sequence: self.rotation_sequence,
            recovery_key_sha256: self.recovery_key_sha256,
            stored: self
                .release
                .zip(self.payload_sha256)
                .map(|(release, payload_sha256)| Stored {
                    release,
                    payload_sha256,
                }),
        }
    }

    fn after(&self, accepted: &Accepted, now: Timestamp) -> Self {
        let trust = &accepted.trust;
        Self {
            signers: accepted.keys.clone(),
            voided_keys: accepted.voided.clone(),
            vault_id: trust.vault_id,
            public_key: trust.public_key,
            former_keys: trust.former_keys.clone(),
            rotation_sequence: trust.rotation_sequence,
            recovery_key_sha256: trust.recovery_key_sha256,
            release: trust.stored.as_ref().map(|stored| stored.release),
            payload_sha256: trust.stored.as_ref().map(|stored| stored.payload_sha256),
            latest_seen_at: self.latest_seen_at.max(now),
            expected_key: None,
            ..self.clone()
        }
    }
}

/// Which skills of a linked vault to install. Conditions are joined by "and"; none means all.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Selection {
    /// What the vault publishes for this agent; without such a profile, skills that name the agent or none.
    pub agent: Option<AgentId>,
    /// Skills with this tag.
    pub tag: Option<String>,
    /// These skills.
    pub skills: Vec<SkillName>,
    /// Another name for the one skill that is named.
    pub install_as: Option<SkillName>,
}

impl Selection {
    fn is_all(&self) -> bool {
        self.agent.is_none() && self.tag.is_none() && self.skills.is_empty()
    }
}

/// The content of `set.json`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct SetRecord {
    selection: Selection,
    aliases: Vec<Alias>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Alias {
    installed_as: SkillName,
    name: SkillName,
}

/// Why a link, a catalog or a bundle was refused. Nothing on disk has changed then.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// This vault is not linked.
    #[error("{0} is not linked")]
    Unknown(LinkId),
    /// The catalog is not one to believe.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The vault's key is not the one that was expected.
    #[error("the vault's key has the fingerprint {found}, not {expected}")]
    Fingerprint {
        /// As given by the caller.
        expected: String,
        /// Of the key that signed the catalog.
        found: String,
    },
    /// A skill was asked for that the catalog does not name.
    #[error("the vault has no skill named {0}")]
    NotInCatalog(SkillName),
    /// An index or profile object is missing or wrong.
    #[error("the object {hash} of the catalog is not usable: {reason}")]
    Object {
        /// Its hash.
        hash: Digest,
        /// What is wrong.
        reason: String,
    },
    /// `--as` without exactly one skill.
    #[error("another name can be given to one skill only")]
    OneNameOnly,
    /// A bundle is not what the catalog names.
    #[error("the bundle of {name} is refused: {reason}")]
    Bundle {
        /// The skill.
        name: SkillName,
        /// What is wrong.
        reason: BundleError,
    },
    /// A bundle says the right things in another way of writing than the one that every vault writes.
    #[error("the bundle of {0} is not written in the one way that can be checked again")]
    NotCanonical(SkillName),
    /// A selected bundle was neither staged nor installed.
    #[error("the bundle of {0} was not fetched")]
    NotStaged(SkillName),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for LinkError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<KeyError> for LinkError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}

/// A linked vault as one state of it was read.
#[derive(Clone, Debug)]
pub struct Link {
    id: LinkId,
    folder: PathBuf,
    state: PathBuf,
    pin: Pin,
}

/// All linked vaults in the order of their ids.
pub fn all(vault: &Vault) -> Result<Vec<Link>, VaultError> {
    let mut links = Vec::new();
    for (name, _) in files::list(&links_folder(vault))? {
        let Ok(id) = name.to_string_lossy().parse::<LinkId>() else {
            continue;
        };
        links.extend(find(vault, &id)?);
    }
    Ok(links)
}

/// A linked vault by its id; `None` when it is not linked.
pub fn find(vault: &Vault, id: &LinkId) -> Result<Option<Link>, VaultError> {
    let folder = links_folder(vault).join(id.as_str());
    // A writer may replace the state between the two reads, and removes only the one before the last.
    for _ in 0..3 {
        let Some(target) = files::link_target(&folder.join("current"))? else {
            return Ok(None); // a link whose making was cut short
        };
        let state = folder.join(target);
        if let Some(pin) = crate::vault::read_record(&state.join("pin.json"))? {
            return Ok(Some(Link {
                id: id.clone(),
                folder,
                state,
                pin,
            }));
        }
    }
    Err(VaultError::Damaged {
        path: folder,
        reason: "its pin is missing".to_owned(),
    })
}

fn links_folder(vault: &Vault) -> PathBuf {
    vault.paths().root.join("links")
}

fn devices(vault: &Vault) -> SecretFolder {
    SecretFolder::new(&vault.paths().config, "devices")
}

/// Links a vault: a device key of its own and an empty pin. One that is linked already stays as it is.
pub fn create(vault: &Vault, base: &str, slug: &Slug) -> Result<Link, LinkError> {
    let id = LinkId::of(base, slug);
    if let Some(link) = find(vault, &id)? {
        link.device_key(vault)?;
        return Ok(link);
    }
    let mut change = vault.change()?;
    devices(vault).sweep()?;
    let device_key = match devices(vault).read_key(id.as_str(), KeyKind::Device)? {
        Some(key) => key, // an earlier try got this far
        None => {
            let key = keys::generate(vault.random());
            devices(vault).create_key(id.as_str(), KeyKind::Device, &key)?;
            key
        }
    };
    let now = vault.clock().now();
    let pin = Pin {
        base: base.to_owned(),
        slug: slug.clone(),
        vault_id: None,
        public_key: None,
        former_keys: Vec::new(),
        signers: Vec::new(),
        voided_keys: Vec::new(),
        rotation_sequence: 0,
        recovery_key_sha256: None,
        release: None,
        payload_sha256: None,
        expected_key: None,
        device_key_id: device_key.public().key_id(),
        linked_at: now,
        latest_seen_at: now,
    };
    let folder = links_folder(vault).join(id.as_str());
    files::make_dirs(&folder, 0o700)?;
    for (name, target) in [
        ("pin.json", "current/pin.json"),
        ("catalog.json", "current/catalog.json"),
        ("skills", "current/set/skills"),
    ] {
        let link = folder.join(name);
        if files::kind(&link)?.is_none() {
            files::new_link(&link, Path::new(target))?;
        }
    }
    let state = NewState {
        pin: &pin,
        catalog: None,
        set: Set::Written(&SetRecord::default(), &[]),
    };
    switch(vault, &mut change, &folder, &state)?;
    find(vault, &id)?.ok_or(LinkError::Unknown(id))
}

/// Notes which fingerprint the vault's key must have, where none is pinned yet: whoever pulls first pins no other, also
/// when nobody says so again. Where a key is pinned this changes nothing.
pub fn expect(vault: &Vault, id: &LinkId, fingerprint: &str) -> Result<(), LinkError> {
    let is_news = |link: &Link| {
        link.pin.public_key.is_none() && link.pin.expected_key.as_deref() != Some(fingerprint)
    };
    let found = || find(vault, id)?.ok_or_else(|| LinkError::Unknown(id.clone()));
    if !is_news(&found()?) {
        return Ok(());
    }
    let mut change = vault.change()?;
    let link = found()?;
    if !is_news(&link) {
        return Ok(());
    }
    let pin = Pin {
        expected_key: Some(fingerprint.to_owned()),
        ..link.pin
    };
    Ok(change.write_record(&link.state.join("pin.json"), &pin, 0o600)?)
}

/// Removes a link, its skills and its device key; true when there was one. Bundles that nothing else uses go too.
pub fn remove(vault: &Vault, id: &LinkId) -> Result<bool, LinkError> {
    let mut change = vault.change()?;
    let folder = links_folder(vault).join(id.as_str());
    let existed = files::kind(&folder)?.is_some();
    if existed {
        if let Some(link) = find(vault, id)? {
            let names: Vec<_> = installed(&link)?.into_keys().collect();
            profiles::withdraw(vault, &mut change, &names, &[])?;
        }
        change.switching()?;
        let aside = vault.scratch()?;
        files::rename(&folder, &aside.path().join(id.as_str()))?;
        files::sync_dir(&links_folder(vault))?;
        drop(aside);
        remove::collect_foreign(vault, &change)?;
    }
    devices(vault).remove(id.as_str())?;
    Ok(existed)
}

impl Link {
    /// Its id.
    pub fn id(&self) -> &LinkId {
        &self.id
    }

    /// What is pinned.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// This machine's key for it. Fails when the file is missing, open to others, or another key.
    pub fn device_key(&self, vault: &Vault) -> Result<SecretKey, KeyError> {
        let folder = devices(vault);
        let path = folder.path_of(self.id.as_str());
        let key = folder
            .read_key(self.id.as_str(), KeyKind::Device)?
            .ok_or_else(|| KeyError::Missing(path.clone()))?;
        if key.public().key_id() == self.pin.device_key_id {
            Ok(key)
        } else {
            Err(KeyError::Mismatch(path))
        }
    }

    /// The exact bytes of the current catalog; `None` before the first.
    pub fn catalog_bytes(&self) -> Result<Option<Vec<u8>>, VaultError> {
        let path = self.state.join("catalog.json");
        Ok(files::read(&path, catalog::MAX_OBJECT_BYTES as u64)?)
    }

    /// What was selected at the last pull.
    pub fn selection(&self) -> Result<Selection, VaultError> {
        Ok(self.record()?.selection)
    }

    fn record(&self) -> Result<SetRecord, VaultError> {
        let record = crate::vault::read_record(&self.state.join("set/set.json"))?;
        Ok(record.unwrap_or_default())
    }

    /// The installed skills with whom to believe about them; none before the first catalog. After a key was stolen
    /// there are two groups: what the current catalog names, and what it does not, where the stolen key counts nothing.
    pub(crate) fn groups(&self, strange: &mut Vec<String>) -> Result<Vec<Group>, VaultError> {
        let origin = Origin::Linked(self.id.clone());
        let shown = format!("links/{}/skills", self.id);
        let skills = self.state.join("set/skills");
        self.grouped(|| scan::read_links(&skills, &origin, &shown, strange))
    }

    /// Of these skills those that it installs, and whom to believe about them.
    pub(crate) fn groups_of(&self, names: &[SkillName]) -> Result<Vec<Group>, VaultError> {
        let origin = Origin::Linked(self.id.clone());
        let skills = self.state.join("set/skills");
        self.grouped(|| Ok(scan::read_named_links(&skills, &origin, names)))
    }

    /// What tells whether this link installs the same skills as before and believes the same keys, without reading its skills.
    pub(crate) fn evidence(&self, out: &mut scan::Evidence) {
        out.say(self.id.as_str());
        out.say(&self.state.to_string_lossy());
        out.say(&format!("{:?}", self.pin.vault_id));
        for key in self.pin.signers.iter().chain(&self.pin.voided_keys) {
            out.say(&key.to_string());
        }
        let set = self.state.join("set");
        let target = files::link_target(&set).ok().flatten().unwrap_or_default();
        out.say(&target.to_string_lossy());
        for path in ["set/skills", "set/set.json", "catalog.json"] {
            out.look(&self.state, path);
        }
    }

    fn grouped(
        &self,
        read: impl FnOnce() -> Result<Vec<Place>, VaultError>,
    ) -> Result<Vec<Group>, VaultError> {
        let Some(vault_id) = self.pin.vault_id else {
            return Ok(Vec::new());
        };
        let mut places = read()?;
        if let Some(bytes) = files::read(&self.state.join("set/set.json"), 4 << 20)? {
            let record: SetRecord =
                vault_skill::json::parse(&bytes).map_err(|reason| VaultError::Damaged {
                    path: self.state.join("set/set.json"),
                    reason: reason.to_string(),
                })?;
            for alias in record.aliases {
                for place in &mut places {
                    if place.name == alias.installed_as {
                        place.signed_name = alias.name.clone();
                    }
                }
            }
        }
        let keys = self.pin.signers.clone();
        if self.pin.voided_keys.is_empty() {
            let trusted = Trusted { vault_id, keys };
            return Ok(vec![Group { trusted, places }]);
        }
        let named: BTreeSet<_> = self
            .catalog_bytes()?
            .and_then(|bytes| SignedCatalog::parse(&bytes).ok()?.verify().ok())
            .map(|catalog| {
                catalog
                    .skills
                    .iter()
                    .map(|entry| entry.bundle_hash)
                    .collect()
            })
            .unwrap_or_default();
        let (named, others): (Vec<_>, Vec<_>) = places
            .into_iter()
            .partition(|place| named.contains(&place.bundle));
        let good = keys
            .iter()
            .filter(|key| !self.pin.voided_keys.contains(key))
            .copied()
            .collect();
        let group = |keys, places| Group {
            trusted: Trusted { vault_id, keys },
            places,
        };
        Ok(vec![group(keys, named), group(good, others)])
    }

    /// Decides about a catalog's exact bytes: signature, rotations, vault, slug, audience, release, expiry. Writes
    /// nothing. `expect_key` is a fingerprint as [`PublicKey::fingerprint`] prints it, in place of the one that
    /// [`expect`] noted; with `repin` the pin, and what was noted, is forgotten first.
    pub fn accept(
        &self,
        vault: &Vault,
        bytes: &[u8],
        expect_key: Option<&str>,
        repin: bool,
    ) -> Result<Offer, LinkError> {
        let now = vault.clock().now();
        let before = if repin {
            Trust::default()
        } else {
            self.pin.trust()
        };
        let expectation = Expectation {
            side: Side::Client,
            base: &self.pin.base,
            slug: &self.pin.slug,
            now,
            latest_seen_at: Some(self.pin.latest_seen_at),
            history: &|_| None,
        };
        let accepted = catalog::accept(bytes, &before, &expectation)?;
        let noted = self
            .pin
            .expected_key
            .as_deref()
            .filter(|_| !repin && before.public_key.is_none());
        if let Some(expected) = expect_key.or(noted) {
            let found = accepted.catalog.public_key.fingerprint();
            if !expected.trim().eq_ignore_ascii_case(&found) {
                return Err(LinkError::Fingerprint {
                    expected: expected.to_owned(),
                    found,
                });
            }
        }
        Ok(Offer {
            link: self.id.clone(),
            bytes: bytes.to_vec(),
            first: before.public_key.is_none(),
            pin: self.pin.after(&accepted, now),
            accepted,
            expect_key: expect_key.map(str::to_owned),
            repin,
        })
    }
}

/// A catalog that was found good, not yet acted on.
#[derive(Clone, Debug)]
pub struct Offer {
    link: LinkId,
    bytes: Vec<u8>,
    first: bool,
    pin: Pin,
    accepted: Accepted,
    expect_key: Option<String>,
    repin: bool,
}

/// A skill that a selection takes from the catalog.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chosen {
    /// Its name in the linked vault.
    pub name: SkillName,
    /// Its version there.
    pub version: u64,
    /// The bundle; that of a rendered variant where a profile says so.
    pub bundle_hash: Digest,
    /// Exact size of the bundle, in bytes.
    pub size: u64,
    /// What it is installed as.
    pub installed_as: SkillName,
}

impl Offer {
    /// The accepted catalog with its warnings.
    pub fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Whether this catalog's key is pinned by it, with nothing pinned before.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// The objects that [`Self::choose`] has to read for this selection; only active devices get them.
    pub fn objects_for(&self, selection: &Selection) -> Vec<ObjectEntry> {
        let catalog = &self.accepted.catalog;
        let mut objects = Vec::new();
        let profiles: Vec<_> = self.profiles_of(selection).collect();
        if selection.tag.is_some() || (selection.agent.is_some() && profiles.is_empty()) {
            objects.extend(catalog.index.iter().copied());
        }
        objects.extend(profiles);
        objects
    }

    fn profiles_of<'a>(
        &'a self,
        selection: &'a Selection,
    ) -> impl Iterator<Item = ObjectEntry> + 'a {
        self.accepted
            .catalog
            .profiles
            .iter()
            .filter(|entry| Some(&entry.agent) == selection.agent.as_ref())
            .map(|entry| ObjectEntry {
                bundle_hash: entry.bundle_hash,
                size: entry.size,
            })
    }

    /// What a selection takes; `object` gives the bytes of those that [`Self::objects_for`] named.
    pub fn choose(
        &self,
        selection: &Selection,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Vec<Chosen>, LinkError> {
        if selection.install_as.is_some() && selection.skills.len() != 1 {
            return Err(LinkError::OneNameOnly);
        }
        let catalog = &self.accepted.catalog;
        let mut chosen: BTreeMap<SkillName, Chosen> = catalog
            .skills
            .iter()
            .map(|entry| (entry.name.clone(), choose_entry(entry)))
            .collect();
        for name in &selection.skills {
            if !chosen.contains_key(name) {
                return Err(LinkError::NotInCatalog(name.clone()));
            }
        }
        if !selection.skills.is_empty() {
            chosen.retain(|name, _| selection.skills.contains(name));
        }
        let entries = if selection.is_all() {
            Vec::new()
        } else {
            self.read_index(selection, object)?
        };
        if let Some(tag) = &selection.tag {
            let tagged: BTreeSet<_> = entries
                .iter()
                .filter(|entry| entry.tags.contains(tag))
                .map(|entry| &entry.name)
                .collect();
            chosen.retain(|name, _| tagged.contains(name));
        }
        if let Some(agent) = &selection.agent {
            self.choose_for(agent, selection, &entries, object, &mut chosen)?;
        }
        let mut chosen: Vec<_> = chosen.into_values().collect();
        if let (Some(name), [only]) = (&selection.install_as, chosen.as_mut_slice()) {
            only.installed_as = name.clone();
        }
        Ok(chosen)
    }

    fn choose_for(
        &self,
        agent: &AgentId,
        selection: &Selection,
        entries: &[index::IndexEntry],
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
        chosen: &mut BTreeMap<SkillName, Chosen>,
    ) -> Result<(), LinkError> {
        let mut published = BTreeMap::new();
        let mut any = false;
        for entry in self.profiles_of(selection) {
            any = true;
            let bytes = fetched(&entry, object)?;
            let profile = profile::Profile::parse(&bytes)
                .map_err(|reason| unusable(&entry, reason.to_string()))?;
            if profile.agent != *agent {
                return Err(unusable(&entry, "it is for another agent".to_owned()));
            }
            for skill in profile.skills {
                published.insert(skill.name.clone(), skill);
            }
        }
        if any {
            chosen.retain(|name, chosen| {
                let Some(skill) = published.get(name) else {
                    return false;
                };
                chosen.bundle_hash = skill.bundle_hash;
                chosen.size = skill.size;
                true
            });
        } else {
            let wanted: BTreeSet<_> = entries
                .iter()
                .filter(|entry| entry.agents.is_empty() || entry.agents.contains(agent))
                .map(|entry| &entry.name)
                .collect();
            chosen.retain(|name, _| wanted.contains(name));
        }
        Ok(())
    }

    fn read_index(
        &self,
        selection: &Selection,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Vec<index::IndexEntry>, LinkError> {
        let wanted = self.objects_for(selection);
        let mut entries = Vec::new();
        for entry in &self.accepted.catalog.index {
            if wanted
                .iter()
                .any(|object| object.bundle_hash == entry.bundle_hash)
            {
                let bytes = fetched(entry, object)?;
                let part = index::parse(&bytes, &self.accepted.catalog.vault_id)
                    .map_err(|reason| unusable(entry, reason.to_string()))?;
                entries.extend(part);
            }
        }
        Ok(entries)
    }

    /// Of the chosen skills those whose bundle is not installed yet in good shape.
    pub fn missing(&self, vault: &Vault, chosen: &[Chosen]) -> Result<Vec<Chosen>, LinkError> {
        let store = vault.store();
        let trusted = self.trusted();
        let rows = Index::open(&vault.paths().index()).rows();
        let looker = files::tree::Looker::new(&store)?;
        let signers: Vec<String> = trusted.keys.iter().map(ToString::to_string).collect();
        let mut buffers = Buffers::default();
        let mut bytes = Vec::new();
        let mut missing = Vec::new();
        for skill in chosen {
            let hash = skill.bundle_hash;
            let noted = rows.get(&hash).is_some_and(|row| {
                row.name() == skill.name.as_str()
                    && signers.iter().any(|key| key == row.signer())
                    && row.holds(&looker, &hash.to_string(), &mut buffers)
            });
            if noted {
                continue;
            }
            let good = store::examine(
                &store,
                &hash,
                Some(&skill.name),
                &trusted,
                Want::Bytes,
                &mut bytes,
            )
            .and_then(|examined| store::encode(&hash, &examined))
            .is_ok();
            if !good {
                missing.push(skill.clone());
            }
        }
        Ok(missing)
    }

    fn trusted(&self) -> Trusted {
        Trusted {
            vault_id: self.accepted.catalog.vault_id,
            keys: self.accepted.keys.clone(),
        }
    }
}

fn choose_entry(entry: &SkillEntry) -> Chosen {
    Chosen {
        name: entry.name.clone(),
        version: entry.version,
        bundle_hash: entry.bundle_hash,
        size: entry.size,
        installed_as: entry.name.clone(),
    }
}

fn fetched(
    entry: &ObjectEntry,
    object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, LinkError> {
    let bytes = object(&entry.bundle_hash)
        .ok_or_else(|| unusable(entry, "it was not fetched".to_owned()))?;
    if bytes.len() as u64 != entry.size || Digest::of(&bytes) != entry.bundle_hash {
        return Err(unusable(
            entry,
            "its bytes are not those that were signed for".to_owned(),
        ));
    }
    Ok(bytes)
}

fn unusable(entry: &ObjectEntry, reason: String) -> LinkError {
    LinkError::Object {
        hash: entry.bundle_hash,
        reason,
    }
}

/// Fetched bundles, verified and written aside, waiting for [`install`]. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Staged {
    aside: Scratch,
    batch: Batch,
    hashes: BTreeSet<Digest>,
}

impl Staged {
    /// An empty one; takes no lock, so that fetching for minutes keeps no other writer out.
    pub fn new(vault: &Vault) -> Result<Self, LinkError> {
        Ok(Self {
            aside: vault.scratch()?,
            batch: Batch::default(),
            hashes: BTreeSet::new(),
        })
    }

    /// The parts that have to be fetched besides, with their sizes. Fails when the bytes are not the catalog's.
    pub fn parts(skill: &Chosen, bytes: &[u8]) -> Result<Vec<(Digest, u64)>, LinkError> {
        let bundle = parse(skill, bytes)?;
        Ok(bundle
            .parts()
            .map(|part| (part.bundle_hash, part.size))
            .collect())
    }

    /// Verifies a fetched bundle (hash and size as signed, manifest, every file) and writes it aside.
    pub fn add(
        &mut self,
        offer: &Offer,
        skill: &Chosen,
        bytes: &[u8],
        parts: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<(), LinkError> {
        if !self.hashes.insert(skill.bundle_hash) {
            return Ok(());
        }
        let refused = |reason| LinkError::Bundle {
            name: skill.name.clone(),
            reason,
        };
        let catalog = &offer.accepted.catalog;
        let expected = ManifestExpectation {
            vault_id: catalog.vault_id,
            name: &skill.name,
            version: Some(skill.version),
            stored_version: None,
        };
        let opened = parse(skill, bytes)?
            .open(parts, &offer.accepted.keys, &expected)
            .map_err(refused)?;
        // The integrity check encodes it again from the store: it must come out the same, now and then.
        let again =
            bundle::encode(&opened.signed, &opened.manifest, &opened.files).map_err(refused)?;
        if again.hash != skill.bundle_hash {
            return Err(LinkError::NotCanonical(skill.name.clone()));
        }
        store::stage(
            &mut self.batch,
            self.aside.path(),
            &skill.bundle_hash,
            opened.signed.as_bytes(),
            &opened.files,
        )?;
        Ok(())
    }
}

fn parse(skill: &Chosen, bytes: &[u8]) -> Result<Bundle, LinkError> {
    Bundle::parse(bytes, &skill.bundle_hash, skill.size).map_err(|reason| LinkError::Bundle {
        name: skill.name.clone(),
        reason,
    })
}

/// What a pull changed.
#[derive(Clone, Debug, Default)]
pub struct PullReport {
    /// The release now.
    pub release: u64,
    /// Newly installed, by the name they are installed as.
    pub installed: Vec<SkillName>,
    /// Installed before from other bytes.
    pub updated: Vec<SkillName>,
    /// Uninstalled: gone from the catalog or from the selection.
    pub removed: Vec<SkillName>,
    /// Left as they were.
    pub unchanged: usize,
    /// Withdrawn bundles whose bytes were removed.
    pub withdrawn: Vec<(SkillName, String)>,
    /// Installed here, but an own skill, or one of another link, of that name stands before them.
    pub shadowed: Vec<SkillName>,
    /// Withdrawn bytes that stay, since an own skill consists of them.
    pub kept: Vec<SkillName>,
}

/// Pins an accepted catalog without touching the installed skills: what a device does that was not admitted yet.
pub fn pin_only(vault: &Vault, offer: &Offer) -> Result<PullReport, LinkError> {
    commit(vault, offer, None)
}

/// Makes the linked set equal to what was chosen. All or nothing: every chosen bundle must be staged or installed
/// already; a failed check changes nothing on disk.
pub fn install(
    vault: &Vault,
    offer: &Offer,
    selection: &Selection,
    chosen: &[Chosen],
    staged: Staged,
) -> Result<PullReport, LinkError> {
    commit(vault, offer, Some((selection, chosen, staged)))
}

fn commit(
    vault: &Vault,
    offer: &Offer,
    set: Option<(&Selection, &[Chosen], Staged)>,
) -> Result<PullReport, LinkError> {
    let mut change = vault.change()?;
    let link = find(vault, &offer.link)?.ok_or_else(|| LinkError::Unknown(offer.link.clone()))?;
    // Another pull may have been faster: what counts is what is pinned now.
    let offer = link.accept(
        vault,
        &offer.bytes,
        offer.expect_key.as_deref(),
        offer.repin,
    )?;
    let before = installed(&link)?;
    let mut report = PullReport {
        release: offer.accepted.catalog.release,
        ..PullReport::default()
    };
    let withdrawn: HashMap<Digest, &SkillName> = offer
        .accepted
        .catalog
        .withdrawn
        .iter()
        .map(|entry| (entry.bundle_hash, &entry.name))
        .collect();
    let (record, skills) = match set {
        Some((selection, chosen, staged)) => {
            admit(vault, &offer, chosen, staged)?;
            let record = SetRecord {
                selection: selection.clone(),
                aliases: aliases(chosen),
            };
            let skills: Vec<_> = chosen
                .iter()
                .map(|skill| (skill.installed_as.clone(), skill.bundle_hash))
                .collect();
            (record, skills)
        }
        // Pinned only: what is installed stays, but for what was withdrawn.
        None => {
            let skills = before
                .iter()
                .filter(|(_, hash)| !withdrawn.contains_key(*hash))
                .map(|(name, hash)| (name.clone(), *hash))
                .collect();
            (link.record()?, skills)
        }
    };
    compare(&before, &skills, &mut report);
    let after: BTreeMap<_, _> = skills.iter().cloned().collect();
    let same_set = before == after && link.record()? == record;
    let state = NewState {
        pin: &offer.pin,
        catalog: Some(&offer.bytes),
        set: if same_set {
            Set::Kept(&link)
        } else {
            Set::Written(&record, &skills)
        },
    };
    if same_set && link.catalog_bytes()?.as_deref() == Some(&offer.bytes) {
        // Nothing but the time: one file, replaced in one step.
        change.write_record(&link.state.join("pin.json"), &offer.pin, 0o600)?;
    } else {
        // No agent may be left with a link that leads nowhere.
        let gone: Vec<_> = before
            .keys()
            .filter(|name| !after.contains_key(*name))
            .cloned()
            .collect();
        profiles::withdraw(vault, &mut change, &gone, &[])?;
        switch(vault, &mut change, &link.folder, &state)?;
    }
    report.shadowed = shadowed(vault, &link.id, &skills)?;
    withdraw(vault, &mut change, &link, &offer, &withdrawn, &mut report)?;
    // Also where nothing changed now: the pull before may have been cut short after its switch.
    remove::collect_foreign(vault, &change)?;
    Ok(report)
}

fn aliases(chosen: &[Chosen]) -> Vec<Alias> {
    chosen
        .iter()
        .filter(|skill| skill.installed_as != skill.name)
        .map(|skill| Alias {
            installed_as: skill.installed_as.clone(),
            name: skill.name.clone(),
        })
        .collect()
}

/// Flushes what was staged and moves it into the store, once every chosen bundle is there or staged.
fn admit(vault: &Vault, offer: &Offer, chosen: &[Chosen], staged: Staged) -> Result<(), LinkError> {
    let Staged {
        aside,
        batch,
        hashes,
    } = staged;
    let wanted: Vec<_> = chosen
        .iter()
        .filter(|skill| !hashes.contains(&skill.bundle_hash))
        .cloned()
        .collect();
    if let Some(skill) = offer.missing(vault, &wanted)?.into_iter().next() {
        return Err(LinkError::NotStaged(skill.name));
    }
    let chosen: BTreeSet<_> = chosen.iter().map(|skill| skill.bundle_hash).collect();
    let hashes: Vec<_> = hashes.intersection(&chosen).copied().collect();
    if !hashes.is_empty() {
        batch.flush(aside.path())?;
        store::admit(&vault.store(), aside.path(), &hashes, &offer.trusted())?;
    }
    Ok(())
}

fn installed(link: &Link) -> Result<BTreeMap<SkillName, Digest>, VaultError> {
    let mut strange = Vec::new();
    let origin = Origin::Linked(link.id.clone());
    let places = scan::read_links(&link.state.join("set/skills"), &origin, "", &mut strange)?;
    Ok(places
        .into_iter()
        .map(|place| (place.name, place.bundle))
        .collect())
}

fn compare(
    before: &BTreeMap<SkillName, Digest>,
    skills: &[(SkillName, Digest)],
    report: &mut PullReport,
) {
    let after: BTreeMap<_, _> = skills.iter().cloned().collect();
    for (name, hash) in &after {
        match before.get(name) {
            None => report.installed.push(name.clone()),
            Some(old) if old != hash => report.updated.push(name.clone()),
            Some(_) => report.unchanged += 1,
        }
    }
    report.removed = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .cloned()
        .collect();
}

fn shadowed(
    vault: &Vault,
    link: &LinkId,
    skills: &[(SkillName, Digest)],
) -> Result<Vec<SkillName>, VaultError> {
    let taken: BTreeSet<_> = scan::places(vault)?
        .groups
        .into_iter()
        .flat_map(|group| group.places)
        .filter(|place| match &place.origin {
            Origin::Local => true,
            Origin::Linked(other) => other < link,
        })
        .map(|place| place.name)
        .collect();
    Ok(skills
        .iter()
        .map(|(name, _)| name)
        .filter(|name| taken.contains(*name))
        .cloned()
        .collect())
}

/// Removes withdrawn bytes wherever they are: other links to the same vault, and the store.
fn withdraw(
    vault: &Vault,
    change: &mut Change<'_>,
    link: &Link,
    offer: &Offer,
    withdrawn: &HashMap<Digest, &SkillName>,
    report: &mut PullReport,
) -> Result<(), LinkError> {
    if withdrawn.is_empty() {
        return Ok(());
    }
    let reasons: HashMap<Digest, &str> = offer
        .accepted
        .catalog
        .withdrawn
        .iter()
        .map(|entry| (entry.bundle_hash, entry.reason.as_str()))
        .collect();
    for other in all(vault)? {
        let same_vault = other.pin.vault_id == Some(offer.accepted.catalog.vault_id);
        if other.id == link.id || !same_vault {
            continue;
        }
        let before = installed(&other)?;
        let skills: Vec<_> = before
            .iter()
            .filter(|(_, hash)| !withdrawn.contains_key(*hash))
            .map(|(name, hash)| (name.clone(), *hash))
            .collect();
        if skills.len() < before.len() {
            let record = other.record()?;
            let catalog = other.catalog_bytes()?;
            let state = NewState {
                pin: &other.pin,
                catalog: catalog.as_deref(),
                set: Set::Written(&record, &skills),
            };
            switch(vault, change, &other.folder, &state)?;
        }
    }
    let mut strange = Vec::new();
    let own: BTreeSet<_> = scan::read_links(&vault.skills(), &Origin::Local, "", &mut strange)?
        .into_iter()
        .map(|place| place.bundle)
        .collect();
    let (kept, doomed): (Vec<_>, Vec<_>) = withdrawn
        .keys()
        .copied()
        .partition(|hash| own.contains(hash));
    report.kept = kept.iter().map(|hash| withdrawn[hash].clone()).collect();
    let aside = vault.scratch()?;
    let dropped = store::drop_bundles(&vault.store(), aside.path(), doomed)?;
    for hash in &dropped {
        report.withdrawn.push((
            withdrawn[hash].clone(),
            reasons.get(hash).copied().unwrap_or_default().to_owned(),
        ));
    }
    report.withdrawn.sort();
    Index::open(&vault.paths().index()).forget(&dropped);
    Ok(())
}

/// A state to switch a link to.
struct NewState<'a> {
    pin: &'a Pin,
    catalog: Option<&'a [u8]>,
    set: Set<'a>,
}

enum Set<'a> {
    /// The set that this state of the link names.
    Kept(&'a Link),
    /// A new one.
    Written(&'a SetRecord, &'a [(SkillName, Digest)]),
}

/// Writes set and state under fresh numbers, flushes, switches `current`, and removes those before the last.
fn switch(
    vault: &Vault,
    change: &mut Change<'_>,
    folder: &Path,
    state: &NewState<'_>,
) -> Result<(), LinkError> {
    let (states, sets) = (folder.join("states"), folder.join("sets"));
    files::make_dirs(&states, 0o700)?;
    files::make_dirs(&sets, 0o700)?;
    let aside = vault.scratch()?;
    let mut batch = Batch::default();
    let set_number = match &state.set {
        Set::Kept(link) => current_set(link)?,
        Set::Written(record, skills) => {
            let number = next_number(&sets)?;
            let staged = aside.path().join("set");
            batch.folder(&staged, 0o700)?;
            batch.file(
                &staged.join("set.json"),
                &vault_skill::json::to_bytes(record),
                0o600,
            )?;
            let links = staged.join("skills");
            batch.folder(&links, 0o755)?;
            for (name, hash) in *skills {
                files::new_link(&links.join(name.as_str()), &store::link_target(hash, 5))?;
            }
            number
        }
    };
    let staged = aside.path().join("state");
    batch.folder(&staged, 0o700)?;
    batch.file(
        &staged.join("pin.json"),
        &vault_skill::json::to_bytes(state.pin),
        0o600,
    )?;
    if let Some(bytes) = state.catalog {
        batch.file(&staged.join("catalog.json"), bytes, 0o600)?;
    }
    files::new_link(
        &staged.join("set"),
        &Path::new("../../sets").join(set_number.to_string()),
    )?;
    batch.flush(aside.path())?;
    if matches!(state.set, Set::Written(..)) {
        files::rename(
            &aside.path().join("set"),
            &sets.join(set_number.to_string()),
        )?;
        files::sync_dir(&sets)?;
    }
    let number = next_number(&states)?;
    files::rename(&staged, &states.join(number.to_string()))?;
    files::sync_dir(&states)?;
    change.switching()?;
    files::switch_link(
        &folder.join("current"),
        &Path::new("states").join(number.to_string()),
        aside.path(),
    )?;
    files::sync_dir(folder)?;
    tidy(folder, number)
}

fn current_set(link: &Link) -> Result<u64, LinkError> {
    files::link_target(&link.state.join("set"))?
        .and_then(|target| target.file_name()?.to_str()?.parse().ok())
        .ok_or_else(|| {
            LinkError::Vault(VaultError::Damaged {
                path: link.state.join("set"),
                reason: "it names no set".to_owned(),
            })
        })
}

fn numbers(folder: &Path) -> Result<Vec<u64>, FileError> {
    Ok(files::list(folder)?
        .into_iter()
        .filter_map(|(name, _)| name.to_str()?.parse().ok())
        .collect())
}

fn next_number(folder: &Path) -> Result<u64, FileError> {
    Ok(numbers(folder)?.into_iter().max().unwrap_or(0) + 1)
}

/// Removes states and sets that neither the current state nor the one before it names: a reader may be in that one.
fn tidy(folder: &Path, current: u64) -> Result<(), LinkError> {
    let states = folder.join("states");
    let mut kept: Vec<_> = numbers(&states)?
        .into_iter()
        .filter(|number| *number <= current)
        .collect();
    kept.sort_unstable();
    let kept = kept.split_off(kept.len().saturating_sub(2));
    let mut sets = BTreeSet::new();
    for number in &kept {
        let target = files::link_target(&states.join(number.to_string()).join("set"))?;
        sets.extend(target.and_then(|target| target.file_name()?.to_str()?.parse::<u64>().ok()));
    }
    for number in numbers(&states)? {
        if !kept.contains(&number) {
            files::remove_tree(&states.join(number.to_string()))?;
        }
    }
    for number in numbers(&folder.join("sets"))? {
        if !sets.contains(&number) {
            files::remove_tree(&folder.join("sets").join(number.to_string()))?;
        }
    }
    Ok(())
}
