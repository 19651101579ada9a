//! Published releases, the objects that they name, and the bundles that they withdrew.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `rel/<namespace_id>` | root version, 4 digits, `.`, release number, 16 digits | [`Release`] |
//! | `rel/<namespace_id>` | release number, 16 digits | [`Release`] of an earlier version of vault |
//! | `withdrawn/<slug>` | `<bundle hash>` | [`WithdrawnMark`] |
//!
//! A root version is a signed document with the vault's keys. After a stolen key was revoked by a
//! newer root version, the owner publishes releases with the thief's numbers again, and both stay
//! in the list. Only a release with the same number and root version, after a pin reset, replaces
//! the record.
//!
//! A mark of a withdrawn bundle is only a hint. It costs nothing, because it is read in the same
//! `get_many` as device and namespace. If there is one, the current catalog decides whether the
//! bundle is withdrawn, since the mark may come from a release that lost a race and was never
//! published.

mod peaks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use vault_format::catalog::{FormerSkill, FormerSkills};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{AgentId, NamespaceId, SkillName, Slug};
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::{Document, MAX_KEYS, RecordKey, When, Write};

use super::kept::ObjectName;
use super::usage::Amount;

use crate::ports::Ports;

pub use peaks::SignedPeaks;
pub use vault_api::Release;

use peaks::SignerPeak;

/// Returns the write that stores a release, in place of one with the same number and root version.
pub fn release_write(release: &Release, namespace: &NamespaceId) -> Result<Write, StoreError> {
    Ok(Write::put(
        release_key(namespace, release.root_version, release.release),
        Document::from_value(release)?,
        When::Any,
    ))
}

/// Returns the key of a release under the root version that it names.
pub fn release_key(namespace: &NamespaceId, root_version: u64, release: u64) -> RecordKey {
    RecordKey::new(
        releases_partition(namespace),
        sort_key(root_version, release),
    )
}

/// Finds the newest release with this number: that under the highest root version up to
/// `newest_root`, or else that of an earlier version of vault.
pub async fn find_release(
    ports: &Ports,
    namespace: &NamespaceId,
    newest_root: u64,
    release: u64,
) -> Result<Option<Release>, StoreError> {
    // From the highest root version down: after a revocation, the owner's release must be found and
    // not the thief's with the same number.
    let roots: Vec<u64> = (0..=newest_root).rev().collect();
    for some in roots.chunks(MAX_KEYS) {
        let keys: Vec<_> = some
            .iter()
            .map(|root| release_key(namespace, *root, release))
            .collect();
        if let Some(record) = ports
            .records
            .get_many(&keys)
            .await?
            .into_iter()
            .flatten()
            .next()
        {
            return Ok(Some(record.read()?));
        }
    }
    Ok(None)
}

/// Returns the partition with a namespace's releases, whose keys are those of [`sort_key`].
pub fn releases_partition(namespace: &NamespaceId) -> String {
    format!("rel/{namespace}")
}

/// Formats a root version and a release number as text that sorts like the numbers (2^53 has 16
/// digits). Releases of an earlier version of vault have root version 0 and are stored under their
/// number alone.
pub fn sort_key(root_version: u64, release: u64) -> String {
    match root_version {
        0 => format!("{release:016}"),
        _ => format!("{root_version:04}.{release:016}"),
    }
}

/// The mark that a release withdrew a bundle.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WithdrawnMark {
    /// Id of the namespace whose bundle it is; the key contains only the slug.
    pub namespace_id: NamespaceId,
    /// Number of the first release that withdrew the bundle.
    pub since_release: u64,
}

/// Returns the key of the [`WithdrawnMark`] of a bundle.
pub fn withdrawn_key(slug: &Slug, bundle: &Digest) -> RecordKey {
    RecordKey::new(format!("withdrawn/{slug}"), bundle.to_string())
}

/// An object in a closure, with the hashes of the objects that it names in turn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Size of the object in bytes.
    pub size: u64,
    /// Key that signed the manifest; only for the bundle of a skill.
    pub signer: Option<PublicKey>,
    /// Hashes of the objects that it names: the variants of a profile, the parts of a bundle.
    pub children: Vec<Digest>,
}

/// Data from the manifest of a variant: a rendering of a skill for one agent. Profiles of later
/// releases are compared with it, so that the bundle need not be read again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VariantOrigin {
    /// Skill that was rendered.
    pub name: SkillName,
    /// Version of the skill that was rendered.
    pub version: u64,
    /// Agent that it was rendered for.
    pub agent: AgentId,
}

/// The closure of a release: the list of all objects that the release names, directly or through
/// others. It is stored as an object of the class `closures`.
///
/// In the stored text, first comes a line for each key that signed a skill: `k` and the key,
/// because keys are expensive to parse. Then a line for each object, short enough that the list of
/// the largest catalog stays well below 4 MiB: the first letter of the class, hash, size, the
/// position of the signer's key from 0 or `-`, and the hashes of the objects that it names. Then a
/// line for each variant of a skill: `v`, bundle hash, name, version, agent. Last a line for each
/// skill of an earlier release: `f`, name, version, bundle hash, the position of the signer's key
/// or `-`. At the end a line for each key that signed more in a former release: `s`, the position of
/// the key or `-` for all keys together, bytes, time until which they count, bundles, time until
/// which they count.
///
/// The first line has the number 3 if there are variants, and 4 if there are lines with `s`, because
/// earlier versions of vault reject their lines.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Closure {
    nodes: BTreeMap<(NamedClass, Digest), Node>,
    /// Variants of skills among the bundles, by bundle hash.
    variants: BTreeMap<Digest, VariantOrigin>,
    /// Skills that earlier releases had and this one has not.
    pub former: FormerSkills,
    /// The largest amounts that keys signed in one release of the last 30 days, for keys that
    /// signed less in this release.
    pub signed: SignedPeaks,
}

/// Classes of the objects that a release names.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum NamedClass {
    Bundle,
    Policy,
}

const HEAD: &str = "vault.closure/2\n";
const HEAD_WITH_VARIANTS: &str = "vault.closure/3\n";
const HEAD_WITH_PEAKS: &str = "vault.closure/4\n";

impl Closure {
    /// Adds an object with this class and hash to the list, in place of an earlier entry.
    pub fn insert(&mut self, class: Class, digest: Digest, node: Node) {
        self.nodes.insert((named_class(class), digest), node);
    }

    /// Returns the object with this class and hash, if the release names it.
    pub fn node(&self, class: Class, digest: &Digest) -> Option<&Node> {
        self.nodes.get(&(named_class(class), *digest))
    }

    /// Records the origin of a bundle that is a variant of a skill.
    pub fn insert_variant(&mut self, digest: Digest, origin: VariantOrigin) {
        self.variants.insert(digest, origin);
    }

    /// Returns the origin of a variant; `None` if the list does not contain it.
    pub fn variant(&self, digest: &Digest) -> Option<&VariantOrigin> {
        self.variants.get(digest)
    }

    /// Returns the hashes of all bundles, which devices may request.
    pub fn bundle_hashes(&self) -> impl Iterator<Item = Digest> {
        let keys = self.nodes.keys();
        keys.filter(|(class, _)| *class == NamedClass::Bundle)
            .map(|(_, digest)| *digest)
    }

    /// Returns the names of all objects of the release, sorted by class and hash.
    pub fn object_names(&self) -> impl Iterator<Item = ObjectName> {
        self.nodes.keys().map(|(class, digest)| {
            let class = match class {
                NamedClass::Bundle => Class::Bundles,
                NamedClass::Policy => Class::Policies,
            };
            ObjectName::new(class, *digest)
        })
    }

    /// Returns the keys that signed skills, each with one bundle that it signed.
    pub fn signers(&self) -> BTreeMap<PublicKey, Digest> {
        let signed = self.nodes.iter();
        signed
            .filter_map(|((_, digest), node)| Some((node.signer?, *digest)))
            .collect()
    }

    /// Returns the objects that `newer` no longer names.
    pub fn dropped_by(&self, newer: &Self) -> Vec<ObjectName> {
        let held = |name: &ObjectName| newer.node(name.class, &name.digest).is_some();
        self.object_names().filter(|name| !held(name)).collect()
    }

    /// Returns a closure with only the objects that `older` lacks, and without former skills.
    #[must_use]
    pub fn difference_from(&self, older: &Self) -> Self {
        let nodes = self.nodes.iter();
        let nodes = nodes.filter(|(name, _)| !older.nodes.contains_key(name));
        let variants = self.variants.iter();
        let variants = variants.filter(|(digest, _)| older.node(Class::Bundles, digest).is_none());
        Self {
            nodes: nodes.map(|(name, node)| (*name, node.clone())).collect(),
            variants: variants
                .map(|(digest, origin)| (*digest, origin.clone()))
                .collect(),
            ..Self::default()
        }
    }

    /// Copies an object and all objects below it from `older`. Returns false if `older` does not
    /// have it with this size.
    pub fn copy_from(&mut self, older: &Self, class: Class, digest: Digest, size: u64) -> bool {
        // With another size, the new catalog contradicts the checked list, so the object has to be
        // checked again.
        let Some(node) = older.node(class, &digest).filter(|node| node.size == size) else {
            return false;
        };
        let children = node.children.clone();
        self.insert(class, digest, node.clone());
        if let Some(origin) = older.variant(&digest) {
            self.insert_variant(digest, origin.clone());
        }
        for child in children {
            if let Some(below) = older.node(Class::Bundles, &child)
                // A shared part is copied once, and a damaged list that contains a loop cannot
                // recurse for ever.
                && self.node(Class::Bundles, &child).is_none()
            {
                let size = below.size;
                self.copy_from(older, Class::Bundles, child, size);
            }
        }
        true
    }

    /// Returns the amount of all objects but these.
    pub fn amount_without(&self, names: &BTreeSet<ObjectName>) -> Amount {
        let sizes = self.nodes.values().map(|node| node.size);
        let counted = self.object_names().zip(sizes);
        counted
            .filter(|(name, _)| !names.contains(name))
            .map(|(_, size)| Amount::of_object(size))
            .fold(Amount::default(), |all, one| all + one)
    }

    /// Returns the size of all objects together, in bytes.
    pub fn total_size(&self) -> u64 {
        self.nodes.values().map(|node| node.size).sum()
    }

    /// Returns the number of objects that the release names.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the release names no object.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Formats the closure as the bytes in which it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = String::with_capacity(HEAD.len() + self.nodes.len() * 80);
        let peaks = &self.signed.of_signers;
        text.push_str(match (peaks.is_empty(), self.variants.is_empty()) {
            (true, true) => HEAD,
            (true, false) => HEAD_WITH_VARIANTS,
            (false, _) => HEAD_WITH_PEAKS,
        });
        let former = self.former.skills.values();
        let mut signers: BTreeSet<_> = former.filter_map(|former| former.signer).collect();
        signers.extend(self.signers().into_keys());
        signers.extend(peaks.keys().flatten());
        for signer in &signers {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "k {signer}");
        }
        let place = |signer: Option<PublicKey>| {
            let place = signer.and_then(|signer| signers.iter().position(|key| *key == signer));
            place.map_or_else(|| "-".to_owned(), |place| place.to_string())
        };
        for ((class, digest), node) in &self.nodes {
            let letter = match class {
                NamedClass::Bundle => 'b',
                NamedClass::Policy => 'p',
            };
            let place = place(node.signer);
            let _ = write!(text, "{letter} {digest} {} {place}", node.size);
            for child in &node.children {
                let _ = write!(text, " {child}");
            }
            text.push('\n');
        }
        for (digest, origin) in &self.variants {
            let VariantOrigin {
                name,
                version,
                agent,
            } = origin;
            let _ = writeln!(text, "v {digest} {name} {version} {agent}");
        }
        for (name, former) in &self.former.skills {
            let (version, bundle) = (former.version, former.bundle_hash);
            let _ = writeln!(text, "f {name} {version} {bundle} {}", place(former.signer));
        }
        for (signer, peak) in peaks {
            let _ = writeln!(text, "s {} {peak}", place(*signer));
        }
        text.into_bytes()
    }

    /// Parses a stored closure; fails with `Corrupt` if the bytes have another form.
    pub fn parse(bytes: &[u8]) -> Result<Self, StoreError> {
        let damaged =
            || StoreError::Corrupt("a list of a release's objects does not read".to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        // The first line has the version: a list of another version is an error.
        let mut heads = [HEAD, HEAD_WITH_VARIANTS, HEAD_WITH_PEAKS].into_iter();
        let lines = heads.find_map(|head| text.strip_prefix(head));
        let lines = lines.ok_or_else(damaged)?;
        let mut closure = Self::default();
        let mut signers: Vec<PublicKey> = Vec::new();
        let signer_at = |place: &str, signers: &[PublicKey]| {
            if place == "-" {
                return Ok(None);
            }
            let place: usize = place.parse().map_err(|_| damaged())?;
            signers.get(place).copied().map(Some).ok_or_else(damaged)
        };
        for line in lines.lines() {
            let mut words = line.split(' ');
            let kind = words.next();
            let mut next = || words.next().ok_or_else(damaged);
            let class = match kind {
                Some("k") => {
                    signers.push(next()?.parse().map_err(|_| damaged())?);
                    continue;
                }
                Some("f") => {
                    let name = next()?.parse().map_err(|_| damaged())?;
                    let former = FormerSkill {
                        version: next()?.parse().map_err(|_| damaged())?,
                        bundle_hash: next()?.parse().map_err(|_| damaged())?,
                        signer: signer_at(next()?, &signers)?,
                    };
                    closure.former.skills.insert(name, former);
                    continue;
                }
                Some("v") => {
                    let digest = next()?.parse().map_err(|_| damaged())?;
                    let origin = VariantOrigin {
                        name: next()?.parse().map_err(|_| damaged())?,
                        version: next()?.parse().map_err(|_| damaged())?,
                        agent: next()?.parse().map_err(|_| damaged())?,
                    };
                    closure.variants.insert(digest, origin);
                    continue;
                }
                Some("s") => {
                    let signer = signer_at(next()?, &signers)?;
                    let peak = SignerPeak::parse(words).ok_or_else(damaged)?;
                    closure.signed.of_signers.insert(signer, peak);
                    continue;
                }
                Some("b") => NamedClass::Bundle,
                Some("p") => NamedClass::Policy,
                _ => return Err(damaged()),
            };
            let digest: Digest = next()?.parse().map_err(|_| damaged())?;
            let size = next()?.parse().map_err(|_| damaged())?;
            let signer = signer_at(next()?, &signers)?;
            let children = words
                .map(|word| word.parse().map_err(|_| damaged()))
                .collect::<Result<_, _>>()?;
            let node = Node {
                size,
                signer,
                children,
            };
            closure.nodes.insert((class, digest), node);
        }
        Ok(closure)
    }
}

const fn named_class(class: Class) -> NamedClass {
    match class {
        Class::Policies => NamedClass::Policy,
        _ => NamedClass::Bundle,
    }
}

#[cfg(test)]
mod tests {
    use vault_format::keys::SecretKey;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn leaf(size: u64) -> Node {
        Node {
            size,
            signer: None,
            children: Vec::new(),
        }
    }

    fn origin() -> VariantOrigin {
        VariantOrigin {
            name: "skill".parse().unwrap(),
            version: 4,
            agent: "codex".parse().unwrap(),
        }
    }

    #[test]
    fn a_closure_survives_a_round_trip() {
        let mut closure = Closure::default();
        closure.insert(
            Class::Bundles,
            digest("skill"),
            Node {
                size: 7,
                signer: Some(SecretKey::from_seed([1; 32]).public()),
                children: vec![digest("part 1"), digest("part 2")],
            },
        );
        closure.insert(Class::Bundles, digest("part 1"), leaf(3));
        closure.insert(Class::Bundles, digest("part 2"), leaf(4));
        closure.insert(Class::Policies, digest("policy"), leaf(5));
        for (name, seed) in [
            ("gone", Some([1; 32])),
            ("gone-too", Some([2; 32])),
            ("old", None),
        ] {
            let former = FormerSkill {
                version: 3,
                bundle_hash: digest(name),
                signer: seed.map(|seed| SecretKey::from_seed(seed).public()),
            };
            closure.former.skills.insert(name.parse().unwrap(), former);
        }
        assert_eq!(Closure::parse(&closure.to_bytes()).unwrap(), closure);
        assert!(closure.to_bytes().starts_with(HEAD.as_bytes()));
        let mut with_variant = closure.clone();
        with_variant.insert_variant(digest("skill"), origin());
        let bytes = with_variant.to_bytes();
        assert!(bytes.starts_with(HEAD_WITH_VARIANTS.as_bytes()));
        assert_eq!(Closure::parse(&bytes).unwrap(), with_variant);
        assert_eq!(closure.total_size(), 19);
        assert!(
            closure.bundle_hashes().all(|hash| hash != digest("policy")),
            "devices never read policies"
        );
        for damaged in [
            &b""[..],
            b"vault.closure/1\n",
            b"vault.closure/2\nx\n",
            b"vault.closure/2\nb 00 1 -\n",
            b"vault.closure/2\nk x\n",
            b"vault.closure/2\nf name 1\n",
            b"vault.closure/3\nv name 1\n",
            b"vault.closure/4\ns - 1 2 3\n",
            b"vault.closure/4\ns 0 1 2 3 4\n",
            format!("vault.closure/2\nb {} 1 0\n", digest("no such key")).as_bytes(),
        ] {
            assert!(Closure::parse(damaged).is_err());
        }
    }

    #[test]
    fn what_an_older_release_has_is_left_out_and_the_rest_is_whole() {
        let signer = Some(SecretKey::from_seed([1; 32]).public());
        let skill = |child: &str| Node {
            size: 7,
            signer,
            children: vec![digest(child)],
        };
        let mut older = Closure::default();
        older.insert(Class::Bundles, digest("kept"), skill("shared part"));
        older.insert(Class::Bundles, digest("shared part"), leaf(3));
        older.insert(Class::Bundles, digest("policy"), leaf(5));
        let mut newer = older.clone();
        newer.insert(Class::Bundles, digest("new"), skill("shared part"));
        newer.insert(Class::Policies, digest("policy"), leaf(5));
        let added = newer.difference_from(&older);
        assert_eq!(added.len(), 2, "another class is another object");
        let read = Closure::parse(&added.to_bytes()).unwrap();
        assert_eq!(read, added);
        assert_eq!(
            read.node(Class::Bundles, &digest("new")),
            Some(&skill("shared part"))
        );
        assert!(newer.difference_from(&newer).is_empty());
    }

    #[test]
    fn what_did_not_change_brings_its_parts_along() {
        let mut older = Closure::default();
        older.insert(
            Class::Bundles,
            digest("profile"),
            Node {
                size: 1,
                signer: None,
                children: vec![digest("variant")],
            },
        );
        older.insert(
            Class::Bundles,
            digest("variant"),
            Node {
                size: 2,
                signer: None,
                children: vec![digest("part")],
            },
        );
        older.insert_variant(digest("variant"), origin());
        older.insert(Class::Bundles, digest("part"), leaf(3));
        older.insert(Class::Bundles, digest("other"), leaf(4));
        let mut newer = Closure::default();
        assert!(newer.copy_from(&older, Class::Bundles, digest("profile"), 1));
        assert_eq!(newer.total_size(), 6);
        assert_eq!(newer.variant(&digest("variant")), Some(&origin()));
        assert!(
            !newer.copy_from(&older, Class::Bundles, digest("other"), 5),
            "another size is another object"
        );
        assert!(
            !newer.copy_from(&older, Class::Policies, digest("other"), 4),
            "another class is another object"
        );
        assert_eq!(newer.len(), 3);
    }
}
