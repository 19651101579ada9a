//! Collects the closure of a catalog: all objects that it names, directly or through other objects.
//! Checks that they are stored, that each is of the kind that the catalog says, and who signed
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use vault_format::bundle::Bundle;
use vault_format::catalog::{Catalog, CountedCatalog};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::root::RootState;
use vault_policy::profile::ProfileError;
use vault_policy::published::{ProfilesReader, check_variant};
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_ASKED};

use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::namespace::Namespace;
use crate::model::release::{Closure, Node, VariantOrigin};
use crate::uploads;

use super::texts::{ObjectReader, ReadSkill, ReadSkills};

/// Maximum number of hashes that `objects_missing` lists.
const MAX_LISTED: usize = 1000;
/// Maximum number of objects that are read concurrently.
const READS_AT_ONCE: usize = 32;

/// Collects the closure of the catalog. `older` is the closure of the current release `last`, from
/// which unchanged objects are taken over. Fails with 409 and the hashes of objects that are not
/// stored. Fails with 422 if the key that signed a skill never was a publisher's or is revoked, if
/// the signed values of a skill do not follow from its bytes, or if a profile names a skill that it
/// must not name.
pub(super) async fn collect_closure(
    app: &App,
    namespace: &Namespace,
    counted: &CountedCatalog,
    (last, older): (Option<&Catalog>, &Closure),
) -> Result<Closure, Refusal> {
    let catalog = &counted.catalog;
    // After a reset of the pin, the current release belongs to another vault. The checks for that
    // vault do not count for this one.
    let last = last.filter(|last| last.vault_id == catalog.vault_id);
    let nothing = Closure::default();
    let older = last.map_or(&nothing, |_| older);
    let mut walk = ClosureWalk {
        app,
        namespace,
        state: &counted.state,
        catalog,
        older,
        closure: Closure::default(),
        missing: Vec::new(),
        profiles: ProfilesReader::new(catalog),
        profile_fault: None,
        skills: ReadSkills::default(),
    };
    // Checked before any profile is read.
    let bounds = walk.profiles.check_bounds();
    bounds.map_err(|error| refuse_profile(&error))?;
    let leaf = |hash, size| (ObjectKind::Nothing, hash, size);
    let policy: Vec<_> = catalog
        .policy
        .iter()
        .map(|policy| leaf(policy.sha256, policy.size))
        .collect();
    walk.add_objects(Class::Policies, policy).await?;
    let mut named: Vec<_> = catalog
        .skills
        .iter()
        .map(|skill| (ObjectKind::Bundle, skill.bundle_hash, skill.size))
        .collect();
    named.extend(
        catalog
            .index
            .iter()
            .map(|index| leaf(index.bundle_hash, index.size)),
    );
    named.extend(
        catalog
            .profiles
            .iter()
            .map(|profile| (ObjectKind::Profile, profile.bundle_hash, profile.size)),
    );
    // A profile names bundles, a bundle names parts, a part names nothing: at most three rounds.
    while !named.is_empty() {
        named = walk.add_objects(Class::Bundles, named).await?;
    }
    if walk.missing.is_empty() {
        if let Some(fault) = &walk.profile_fault {
            return Err(refuse_profile(fault));
        }
        walk.check_variants()?;
        // Checked for all skills, also those of the current release: their signers may have been
        // revoked since.
        let signers = walk.closure.signers();
        if !signers.keys().all(|key| counted.state.was_publisher(key)) {
            return Err(ErrorCode::CatalogSigner.into());
        }
        let reader = ObjectReader {
            app,
            namespace,
            state: &counted.state,
        };
        reader.check_texts(catalog, last, walk.skills).await?;
        return Ok(walk.closure);
    }
    walk.missing.sort_unstable();
    walk.missing.dedup();
    walk.missing.truncate(MAX_LISTED);
    let missing = Some(walk.missing);
    Err(Refusal::new(ErrorCode::ObjectsMissing).with(|problem| problem.missing = missing))
}

/// The kind of an object, which determines what other objects it may name.
#[derive(Clone, Copy, Eq, PartialEq)]
enum ObjectKind {
    /// An object that names no other, such as a policy or a part of a large file.
    Nothing,
    /// A skill, whose large files are parts.
    Bundle,
    /// A rendered profile, which lists the skills of one agent. It names variants besides the
    /// bundles of the catalog.
    Profile,
    /// A skill as it was rendered for one agent.
    Variant,
}

/// Kind, hash and size of an object, as its name states them.
type NamedObject = (ObjectKind, Digest, u64);

/// State of the collection of a closure.
struct ClosureWalk<'a> {
    app: &'a App,
    namespace: &'a Namespace,
    state: &'a RootState,
    catalog: &'a Catalog,
    older: &'a Closure,
    closure: Closure,
    missing: Vec<Digest>,
    /// The profiles that have been read, against which their variants are checked at the end.
    profiles: ProfilesReader<'a>,
    /// The first fault of a profile. Missing objects are reported first.
    profile_fault: Option<ProfileError>,
    /// The skills whose bundles have been read, with the texts that the index must contain.
    skills: ReadSkills,
}

impl ClosureWalk<'_> {
    /// Adds objects of one class. Returns the objects that they name and that have not been added
    /// yet.
    async fn add_objects(
        &mut self,
        class: Class,
        named: Vec<NamedObject>,
    ) -> Result<Vec<NamedObject>, Refusal> {
        let mut fresh: BTreeMap<Digest, (ObjectKind, u64)> = BTreeMap::new();
        for (reading, hash, size) in named {
            // An object that was recorded as another kind is read again, and refused if it is not
            // of this kind: only a skill has a signer.
            let size_in = |closure: &Closure| {
                let node = closure.node(class, &hash)?;
                let fits = match reading {
                    ObjectKind::Nothing => true,
                    ObjectKind::Bundle | ObjectKind::Variant => node.signer.is_some(),
                    // A profile without variants looks like any other object, so it is read again.
                    ObjectKind::Profile => false,
                };
                fits.then_some(node.size)
            };
            match size_in(&self.closure) {
                Some(held) if held == size => {}
                // An object has only one size, so one of the two sizes is wrong, and no upload can
                // ever fit it.
                Some(_) => self.missing.push(hash),
                // The object and those that it names were verified for the current release, so they
                // are taken over without a read.
                None if self.is_known(reading, &hash) && size_in(self.older) == Some(size) => {
                    self.closure.copy_from(self.older, class, hash, size);
                }
                None => {
                    let known_size = fresh.entry(hash).or_insert((reading, size));
                    if known_size.1 != size {
                        self.missing.push(hash);
                    }
                    // The catalog names the object as two kinds. It is read as the kind that may
                    // name others, and refused if it is not of that kind.
                    if known_size.0 == ObjectKind::Nothing {
                        known_size.0 = reading;
                    }
                }
            }
        }
        let sizes: Vec<_> = fresh
            .iter()
            .map(|(hash, (_, size))| (self.namespace.object_key(class, *hash), *size))
            .collect();
        for chunk in sizes.chunks(MAX_ASKED) {
            // An object that garbage collection has marked may soon be deleted. It counts as
            // missing, so that the client uploads it again.
            for key in uploads::list_missing(self.app, self.namespace.id, chunk).await? {
                fresh.remove(&key.digest);
                self.missing.push(key.digest);
            }
        }
        let mut below = Vec::new();
        let mut unread = Vec::new();
        for (hash, (reading, size)) in fresh {
            if reading == ObjectKind::Nothing {
                let node = Node {
                    size,
                    signer: None,
                    children: Vec::new(),
                };
                self.closure.insert(class, hash, node);
            } else {
                unread.push((reading, hash, size));
            }
        }
        // Read in small groups, because a release may name thousands of bundles of up to 4 MiB
        // each.
        for chunk in unread.chunks(READS_AT_ONCE) {
            below.extend(self.read_objects(chunk).await?);
        }
        Ok(below)
    }

    /// Whether the closure of the current release has all that this object is compared with.
    fn is_known(&self, kind: ObjectKind, hash: &Digest) -> bool {
        match kind {
            ObjectKind::Nothing | ObjectKind::Bundle => true,
            // The skills of a profile must be compared with those of this catalog.
            ObjectKind::Profile => false,
            ObjectKind::Variant => self.older.variant(hash).is_some(),
        }
    }

    /// Reads bundles and profiles concurrently, and adds them with the objects that they name.
    async fn read_objects(&mut self, chunk: &[NamedObject]) -> Result<Vec<NamedObject>, Refusal> {
        let mut readings = JoinSet::new();
        for (reading, hash, size) in chunk.iter().copied() {
            let objects = Arc::clone(&self.app.objects);
            let key = self.namespace.object_key(Class::Bundles, hash);
            readings.spawn(async move {
                let bytes = objects.read_object(&key).await?;
                Ok::<_, StoreError>((reading, hash, size, bytes))
            });
        }
        let mut all = Vec::new();
        while let Some(outcome) = readings.join_next().await {
            let (reading, hash, size, bytes) =
                outcome.map_err(|error| Refusal::new(ErrorCode::Internal).cause(error))??;
            // The object was stored a moment ago, but garbage collection was faster.
            let Some(bytes) = bytes else {
                self.missing.push(hash);
                continue;
            };
            let ParsedObject {
                signer,
                below,
                skill,
            } = match reading {
                ObjectKind::Profile => self.read_profile(&bytes, hash),
                _ => parse_object(self.state, reading, &bytes, &hash, size)?,
            };
            let variant = skill.as_ref().filter(|_| reading == ObjectKind::Variant);
            if let Some(origin) = variant.and_then(variant_origin) {
                self.closure.insert_variant(hash, origin);
            }
            self.skills.extend(skill.map(|skill| (hash, skill)));
            let node = Node {
                size,
                signer,
                children: below.iter().map(|(_, hash, _)| *hash).collect(),
            };
            self.closure.insert(Class::Bundles, hash, node);
            all.extend(below);
        }
        Ok(all)
    }

    /// Reads a profile with the checks that devices make, and returns the variants that it names.
    /// All other bundles that it names are in the catalog.
    fn read_profile(&mut self, bytes: &[u8], hash: Digest) -> ParsedObject {
        let catalog = self.catalog;
        let mut below = Vec::new();
        // The release will be refused, so no further profile is parsed.
        if self.profile_fault.is_some() {
            return ParsedObject::default();
        }
        let entries = catalog.profiles.iter();
        for entry in entries.filter(|entry| entry.bundle_hash == hash) {
            let added = self.profiles.add(entry, bytes);
            // Checked after each profile, so that memory stays within the bounds.
            let added = added.and_then(|()| self.profiles.check_bounds());
            if let Err(fault) = added {
                self.profile_fault.get_or_insert(fault);
                continue;
            }
            let published = self.profiles.published().agent(&entry.agent);
            let skills = published.iter().flat_map(|agent| agent.skills.values());
            let variants = skills.flatten();
            below = variants
                .map(|variant| (ObjectKind::Variant, variant.bundle_hash, variant.size))
                .collect();
        }
        ParsedObject {
            below,
            ..ParsedObject::default()
        }
    }

    /// Checks that each variant was rendered from the skill of the catalog, for the agent of its
    /// profile.
    fn check_variants(&self) -> Result<(), Refusal> {
        for (agent, variant) in self.profiles.published().variants() {
            // A profile may only name skills of the catalog.
            let Some(plain) = self.catalog.skill(&variant.name) else {
                return Err(ErrorCode::CatalogSchema.into());
            };
            // A bundle without an origin is no variant, and `check_variant` refuses it.
            let origin = self.closure.variant(&variant.bundle_hash);
            let signed = origin.map(|it| (&it.name, it.version, &it.agent));
            let checked = check_variant(plain, agent, signed);
            checked.map_err(|error| refuse_profile(&error))?;
        }
        Ok(())
    }
}

/// Returns the skill, version and agent that a bundle says it was rendered from; `None` for a plain
/// skill.
fn variant_origin(skill: &ReadSkill) -> Option<VariantOrigin> {
    let from = skill.rendered_from.as_ref()?;
    Some(VariantOrigin {
        name: skill.texts.name.clone(),
        version: skill.version,
        agent: from.agent.clone(),
    })
}

fn refuse_profile(error: &ProfileError) -> Refusal {
    Refusal::new(ErrorCode::CatalogSchema).detail(format!("{error}."))
}

/// The content of an object that this module needs.
#[derive(Default)]
struct ParsedObject {
    /// The signing key, if the object is a skill.
    signer: Option<PublicKey>,
    /// Objects that the parsed object names, still to be added to the closure.
    below: Vec<NamedObject>,
    skill: Option<ReadSkill>,
}

/// Parses an object: its signer and texts if it is a skill, and the objects that it names. Fails
/// with 422 `catalog_schema` if it is of another kind than the catalog says.
fn parse_object(
    state: &RootState,
    reading: ObjectKind,
    bytes: &[u8],
    hash: &Digest,
    size: u64,
) -> Result<ParsedObject, Refusal> {
    let wrong = || {
        Refusal::new(ErrorCode::CatalogSchema)
            .detail("The catalog names an object of another kind than it says.")
    };
    match reading {
        // `read_profile` parses profiles, together with the catalog.
        ObjectKind::Nothing | ObjectKind::Profile => Ok(ParsedObject::default()),
        ObjectKind::Bundle | ObjectKind::Variant => {
            let bundle = Bundle::parse(bytes, hash, size).map_err(|_| wrong())?;
            let signer = bundle
                .signed_manifest()
                .signer(state)
                .ok_or(ErrorCode::CatalogSigner)?;
            let parts = bundle.part_refs();
            let parts = parts.map(|part| (ObjectKind::Nothing, part.bundle_hash, part.size));
            Ok(ParsedObject {
                signer: Some(signer),
                below: parts.collect(),
                skill: Some(ReadSkill::from_bundle(state, bundle, *hash)?),
            })
        }
    }
}
