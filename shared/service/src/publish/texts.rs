//! Checks the names, versions and search texts of the skills in a release, by deriving them from
//! the bytes of the skills: agents read these texts from the service without verifying the skills.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use vault_format::bundle::{self, Bundle, BundleError};
use vault_format::catalog::{Catalog, SkillEntry};
use vault_format::hash::Digest;
use vault_format::index::{self, IndexEntry};
use vault_format::manifest::{ManifestError, ManifestTrust, Mode, RenderedFrom};
use vault_format::root::{RootState, SkillPlace};
use vault_gate::derived;
use vault_store::objects::Class;

use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::namespace::Namespace;

/// A skill whose bundle has been read and verified.
#[derive(Clone, Debug)]
pub(super) struct ReadSkill {
    pub(super) version: u64,
    pub(super) texts: IndexEntry,
    /// The skill that a variant was rendered from; `None` for a plain skill.
    pub(super) rendered_from: Option<RenderedFrom>,
}

/// Skills that have been read, by the hash of their bundle.
pub(super) type ReadSkills = BTreeMap<Digest, ReadSkill>;

impl ReadSkill {
    /// Verifies the manifest and the files in the bundle, and derives the texts from them. Files
    /// that are stored in parts are not read: they count as executable, and a bundle with such
    /// files is not compared with the canonical encoding.
    pub(super) fn from_bundle(
        state: &RootState,
        bundle: Bundle,
        hash: Digest,
    ) -> Result<Self, Refusal> {
        let trust = ManifestTrust {
            state,
            place: SkillPlace::Listed,
        };
        let (in_parts, signed) = (bundle.paths_in_parts(), bundle.signed_manifest().clone());
        let wrong = |error: BundleError| {
            Refusal::new(ErrorCode::CatalogSchema)
                .detail("A skill of the catalog is not what its manifest says.")
                .cause(error)
        };
        let opened = bundle.open_without_parts(&trust);
        let (manifest, mut files) = opened.map_err(|error| match error {
            BundleError::Manifest(ManifestError::Signer(_)) => ErrorCode::CatalogSigner.into(),
            error => wrong(error),
        })?;
        if in_parts.is_empty() {
            // A skill has exactly one encoding, and machines reject the same content in other
            // bytes.
            let made = bundle::encode(&signed, &manifest, &files).map_err(wrong)?;
            if made.hash != hash {
                return Err(Refusal::new(ErrorCode::CatalogSchema)
                    .detail("A skill of the catalog is not encoded as bundles are."));
            }
        }
        // An action of the skill may run such a file. Its content is not read, so it is unknown
        // whether it is a script, and the manifest must not be rejected for that.
        for file in &mut files {
            if in_parts.contains(file.path.as_str()) {
                file.mode = Mode::Executable;
            }
        }
        let frontmatter = derived::compare_with_files(&manifest, &files);
        let frontmatter = frontmatter.map_err(|mismatch| {
            let text = format!("{}: {mismatch}.", manifest.name);
            Refusal::new(ErrorCode::DerivedMismatch).detail(text)
        })?;
        Ok(Self {
            version: manifest.version,
            texts: derived::index_entry(&manifest, frontmatter.as_ref(), hash),
            rendered_from: manifest.rendered_from,
        })
    }
}

/// Reader for the objects of a namespace.
#[derive(Clone, Copy)]
pub(super) struct ObjectReader<'a> {
    pub(super) app: &'a App,
    pub(super) namespace: &'a Namespace,
    pub(super) state: &'a RootState,
}

impl ObjectReader<'_> {
    /// Compares the names, versions and search texts in a release with those of its skills. For
    /// skills that were not `read` for this release, the texts are taken from the index of the
    /// `last` one; only if the index then does not match, all skills are read.
    pub(super) async fn check_texts(
        &self,
        catalog: &Catalog,
        last: Option<&Catalog>,
        mut read: ReadSkills,
    ) -> Result<(), Refusal> {
        let last_skills = last.map_or(&[][..], |last| &last.skills);
        let before: BTreeMap<_, _> = last_skills
            .iter()
            .map(|skill| (skill.bundle_hash, skill))
            .collect();
        for skill in &catalog.skills {
            // The entry is unchanged since the last release, for which it was compared with the
            // bundle.
            if before.get(&skill.bundle_hash) == Some(&skill) {
                continue;
            }
            let read_skill = self.read_skill(skill, &mut read).await?;
            if read_skill.texts.name != skill.name || read_skill.version != skill.version {
                return Err(Refusal::new(ErrorCode::CatalogSchema).detail(
                    "A skill of the catalog has another name or version in its manifest.",
                ));
            }
        }
        let mut texts: BTreeMap<_, _> = match last {
            Some(last) => self.read_index(last).await?,
            None => BTreeMap::new(),
        };
        let fresh = read.iter();
        texts.extend(fresh.map(|(hash, skill)| (*hash, skill.texts.clone())));
        let skills = catalog.skills.iter();
        let texts_of_skills = skills.filter_map(|skill| texts.get(&skill.bundle_hash).cloned());
        // This usually suffices: a release changes few skills, so the others need not be read.
        if index::is_built_from(catalog, texts_of_skills) {
            return Ok(());
        }
        // The index may have been built by other rules, or the last one could not be read, so the
        // bundles decide.
        let mut all = Vec::with_capacity(catalog.skills.len());
        for skill in &catalog.skills {
            all.push(self.read_skill(skill, &mut read).await?.texts.clone());
        }
        if index::is_built_from(catalog, all) {
            return Ok(());
        }
        Err(Refusal::new(ErrorCode::DerivedMismatch)
            .detail("The index of the catalog is not what its skills say."))
    }

    /// Reads the search texts of a release, by bundle hash. Unreadable parts of the index are left
    /// out.
    async fn read_index(&self, catalog: &Catalog) -> Result<BTreeMap<Digest, IndexEntry>, Refusal> {
        let mut texts = BTreeMap::new();
        for part in &catalog.index {
            let key = self.namespace.object_key(Class::Bundles, part.bundle_hash);
            let bytes = self.app.objects.read_object(&key).await?;
            let parsed =
                bytes.and_then(|bytes| index::parse_object(&bytes, &catalog.vault_id).ok());
            let entries = parsed.unwrap_or_default().into_iter();
            texts.extend(entries.map(|entry| (entry.bundle_hash, entry)));
        }
        Ok(texts)
    }

    /// Returns a skill. Reads its bundle unless that has been read before.
    async fn read_skill<'s>(
        &self,
        skill: &SkillEntry,
        read: &'s mut ReadSkills,
    ) -> Result<&'s ReadSkill, Refusal> {
        let hash = skill.bundle_hash;
        let unread = match read.entry(hash) {
            Entry::Occupied(known) => return Ok(known.into_mut()),
            Entry::Vacant(unread) => unread,
        };
        let key = self.namespace.object_key(Class::Bundles, hash);
        let bytes = self.app.objects.read_object(&key).await?;
        let bundle = bytes.and_then(|bytes| Bundle::parse(&bytes, &hash, skill.size).ok());
        let bundle = bundle.ok_or_else(|| {
            Refusal::new(ErrorCode::CatalogSchema)
                .detail("The catalog names an object of another kind than it says.")
        })?;
        Ok(unread.insert(ReadSkill::from_bundle(self.state, bundle, hash)?))
    }
}
