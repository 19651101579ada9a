//! Sites that list their skills in an index. A downloaded skill must match the digest and the
//! signature that the index lists.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use url::Url;
use vault_format::bundle;
use vault_format::catalog::{Catalog, MAX_OBJECT_BYTES, SignedCatalog};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::manifest::{
    ExportMembers, Manifest, ManifestTrust, Mismatch, Mode, SKILL_MD, SignedManifest,
};
use vault_format::path::FilePath;
use vault_format::provenance::is_archive;
use vault_format::root::{RootChain, RootState, SignerRefusal, SkillPlace, VaultFingerprint};
use vault_gate::{GateOptions, RawFile, is_document_name, name_in_vault};
use vault_shelf::DriftState;
use vault_shelf::fetch::{FetchedSkill, SignedSkill, Upstream};

use super::batch::{Comparison, share_result};
pub use super::index::SCHEMA;
use super::index::{Artifact, Site, SiteEntry};
use super::{Kind, fetch_file, join_url, new_upstream, plain_file, settle_links};
use crate::access::Access;
use crate::archive::{self, MAX_DOWNLOAD_BYTES, MAX_UNPACKED_BYTES, Unpacked};
use crate::error::{FetchError, Result, escape_untrusted};
use crate::listing::{Listing, OfferedSkill};
use crate::opened::{Content, Opened};
use crate::source::{origin_text, skill_identifier, well_known_names};

/// Maximum size of a signed manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 2 << 20;

/// The address of a site, and optionally the name of one of its skills.
pub(crate) struct Address<'a> {
    pub(crate) site: &'a Url,
    pub(crate) skill: Option<&'a str>,
    /// Whether the name may instead be the last part of a site's path.
    pub(crate) or_site: bool,
}

impl Address<'_> {
    /// Fetches the index of the site that the address means, and returns it with the selected
    /// skill. An address such as `https://host/name` means the site at this path if that has an
    /// index; otherwise it means the skill `name` of the site `https://host`.
    async fn fetch_site(&self, access: Access<'_>) -> Result<(Site, Option<&str>)> {
        if let (true, Some(name)) = (self.or_site, self.skill) {
            let below = join_url(self.site, &format!("./{name}/"))?;
            match Site::find_index(access, &below).await {
                // Many servers answer with a page if they lack a file.
                Ok(Some(got)) if !got.content_type.starts_with("text/html") => {
                    return Ok((Site::read_index(access, &below, got)?, None));
                }
                // Stores of files answer with 403.
                Ok(_) | Err(FetchError::NotAllowed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((Site::fetch_index(access, self.site).await?, self.skill))
    }
}

#[async_trait]
impl Kind for Address<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        let (mut site, skill) = self.fetch_site(access).await?;
        let is_selected = |entry: &&SiteEntry| skill.is_none_or(|skill| entry.name == skill);
        let found: Vec<OfferedSkill> = site
            .entries
            .iter()
            .filter(is_selected)
            .map(|entry| OfferedSkill {
                is_too_large: false,
                name: entry.name.clone(),
                folder: entry.name.clone(),
                description: entry.description.clone(),
                document: None,
            })
            .collect();
        if let (Some(skill), true) = (skill, found.is_empty()) {
            return Err(site.missing_skill_error(skill));
        }
        let notices = std::mem::take(&mut site.notices);
        let left_out = std::mem::take(&mut site.left_out);
        let listing = Listing {
            skills: found,
            // A user who names one skill of a site has not asked for the others.
            left_out: if skill.is_some() {
                Vec::new()
            } else {
                left_out
            },
            base: None,
        };
        let mut opened = Opened::new(listing, site);
        opened.notices = notices;
        Ok(opened)
    }

    async fn compare_state(&self, comparison: &Comparison<'_>) -> Result<DriftState> {
        let fetch = async {
            let site = Site::fetch_index(comparison.access, self.site).await;
            site.map(Arc::new)
        };
        let site = share_result(&comparison.batch.sites, self.site.to_string(), fetch).await?;
        match &site.find_entry(self.skill.unwrap_or_default())?.artifact {
            Artifact::SkillMd { digest, .. } | Artifact::Archive { digest, .. } => {
                Ok(comparison.compare_revision(&format!("sha256:{digest}")))
            }
            Artifact::Files(_) => comparison.by_fetching().await,
        }
    }
}

/// The downloaded files of a skill of a site.
struct SiteFiles {
    files: Vec<RawFile>,
    /// The digest to record, by which later changes are found.
    digest: Digest,
    /// The links that were replaced by copies, by their paths in the skill.
    copied_links: Vec<String>,
}

/// A verified signature of a skill. It is valid under the root versions (lists of the vault's keys)
/// that came with it; the caller checks whether they belong to the expected vault.
struct Signature {
    /// The vault that signed, as the fingerprint of its first root version.
    vault: VaultFingerprint,
    /// The number of the newest root version.
    root_version: u64,
    /// Version number in the signed manifest.
    version: u64,
}

impl Site {
    async fn files_of(&self, access: Access<'_>, entry: &SiteEntry) -> Result<SiteFiles> {
        let plain = |files, digest| SiteFiles {
            files,
            digest,
            copied_links: Vec::new(),
        };
        match &entry.artifact {
            Artifact::SkillMd { url, digest } => {
                let body = self.fetch_artifact(access, url, digest).await?;
                Ok(plain(vec![plain_file(SKILL_MD, body)], *digest))
            }
            Artifact::Archive { url, digest } => {
                let body = self.fetch_artifact(access, url, digest).await?;
                let Unpacked { mut files, links } = archive::unpack_archive(url, body).await?;
                let copied_links = settle_links(access, (url, ""), &mut files, &links)?;
                if files.iter().any(|file| is_document_name(&file.path)) {
                    Ok(SiteFiles {
                        files,
                        digest: *digest,
                        copied_links,
                    })
                } else {
                    let reason = format!("the archive has no {SKILL_MD} at its root");
                    Err(FetchError::content_error(url, reason))
                }
            }
            Artifact::Files(paths) => {
                let files = self.listed_files(access, entry, paths).await?;
                // The older index has no digests, so compute one over all files to detect changes.
                let digest = content_digest(&files);
                Ok(plain(files, digest))
            }
        }
    }

    /// Verifies the signed manifest of a skill against exactly these files and the name in the
    /// index. Returns the vault and the signed version. Fails if the signature is invalid,
    /// or if the policy does not list the signer.
    async fn verify_signature(
        &self,
        access: Access<'_>,
        entry: &SiteEntry,
        signed: &SignedSkill,
        files: &mut [RawFile],
    ) -> Result<Signature> {
        let key = signed.public_key;
        access
            .policy
            .check_signer(&origin_text(&self.origin), &key)?;
        let at = join_url(&self.base, &signed.manifest)?;
        access.policy.check_redirect(&self.origin, &at)?;
        let wrong = |reason: String| FetchError::Signer {
            place: escape_untrusted(at.as_str()),
            reason,
        };
        let got = access.fetch_if_found(&at, MAX_MANIFEST_BYTES).await?;
        let body = got
            .ok_or_else(|| wrong("it does not exist, although the index names it".to_owned()))?
            .body;
        // The vault's root versions come with the manifest. They tell whether the key is a
        // publisher's. The caller compares afterwards whether they belong to the pinned vault.
        let export: ExportMembers = json::parse(&body).map_err(|error| wrong(error.to_string()))?;
        let roots = export.roots;
        let roots = roots.ok_or_else(|| wrong("it carries no keys of its vault".to_owned()))?;
        let chain = RootChain::verify(&roots).map_err(|error| wrong(error.to_string()))?;
        let state = RootState::new(chain, BTreeSet::new());
        let released = match &export.catalog {
            Some(name) => self.fetch_release(access, &at, name, &state).await?,
            None => None,
        };
        // Accept every signer whom a release could confirm. Once the bundle is known, the code
        // below decides whether this signer is accepted.
        let trust = ManifestTrust {
            state: &state,
            place: SkillPlace::Archive { listed: true },
        };
        // The hash of a bundle covers the envelope as its signer wrote it, without the members that
        // an export adds.
        let envelope = Envelope::parse(&body).map_err(|error| wrong(error.to_string()))?;
        let signed = SignedManifest::parse(&envelope.to_bytes());
        let signed = signed.map_err(|error| wrong(error.to_string()))?;
        let manifest = signed
            .verify_signature(&trust)
            .map_err(|error| wrong(error.to_string()))?;
        if signed.signer(&state) != Some(key) {
            return Err(wrong(
                "it is signed by another key than the index names".to_owned(),
            ));
        }
        // A valid signature over another skill proves nothing about this one.
        if manifest.name.as_str() != entry.name {
            return Err(wrong(format!("it is of {}", manifest.name)));
        }
        let bundle = entry.match_files(files, &signed, &manifest);
        let bundle = bundle.map_err(|error| wrong(error.to_string()))?;
        let listed = released.zip(bundle).is_some_and(|(catalog, bundle)| {
            let mut skills = catalog.skills.iter();
            skills.any(|skill| skill.bundle_hash == bundle)
        });
        match state.judge_signer(Some(&key), SkillPlace::Archive { listed }) {
            Ok(()) => {}
            Err(SignerRefusal::NotReleased) => {
                return Err(FetchError::ReleaseAwaited {
                    place: escape_untrusted(at.as_str()),
                });
            }
            Err(refusal) => return Err(wrong(refusal.to_string())),
        }
        Ok(Signature {
            vault: VaultFingerprint::new(1, state.chain().root1_sha256()),
            root_version: state.chain().version(),
            version: manifest.version,
        })
    }

    /// Fetches and verifies the release in the file of this name beside a manifest. Returns `None`
    /// if the file does not exist. Fails unless enough publishers have signed the release.
    async fn fetch_release(
        &self,
        access: Access<'_>,
        manifest: &Url,
        name: &str,
        state: &RootState,
    ) -> Result<Option<Catalog>> {
        let wrong = |reason: String| FetchError::Signer {
            place: escape_untrusted(manifest.as_str()),
            reason,
        };
        // Accept only a file beside the manifest: a manifest must not direct the request to another
        // folder or host.
        let path = name.parse::<FilePath>();
        let is_beside = path.is_ok_and(|path| path.directory().is_none());
        let at = is_beside.then(|| manifest.join(name).ok()).flatten();
        let at =
            at.ok_or_else(|| wrong("the release that it names is not beside it".to_owned()))?;
        access.policy.check_redirect(&self.origin, &at)?;
        let Some(got) = access.fetch_if_found(&at, MAX_OBJECT_BYTES as u64).await? else {
            return Ok(None);
        };
        let file = SignedCatalog::parse(&got.body).map_err(|error| wrong(error.to_string()))?;
        let catalog = file.read_carried(state);
        catalog.map(Some).map_err(|error| wrong(error.to_string()))
    }

    async fn fetch_artifact(
        &self,
        access: Access<'_>,
        url: &str,
        digest: &Digest,
    ) -> Result<Vec<u8>> {
        let release_url = join_url(&self.base, url)?;
        access.policy.check_redirect(&self.origin, &release_url)?;
        let got = access
            .fetch_required(&release_url, MAX_DOWNLOAD_BYTES)
            .await?;
        let body = got.body;
        // Check the digest before any parser reads the bytes.
        let found = Digest::of(&body);
        if found != *digest {
            return Err(FetchError::Digest {
                place: escape_untrusted(release_url.as_str()),
                wanted: digest.to_string(),
                found: found.to_string(),
            });
        }
        Ok(body)
    }

    /// Fetches the files of a skill from an older index. They are below the site's folder.
    async fn listed_files(
        &self,
        access: Access<'_>,
        entry: &SiteEntry,
        paths: &[String],
    ) -> Result<Vec<RawFile>> {
        let mut left = MAX_UNPACKED_BYTES;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            // The path comes from the index and becomes part of an address.
            let fine = path.split('/').all(|part| {
                !matches!(part, "" | "." | "..") && !part.contains(['\\', '%', '?', '#', '\0'])
            });
            // The files are beside the index, wherever the index was found.
            let folder = self.base.join(&format!("./{}/", entry.name)).ok();
            let at = folder
                .and_then(|folder| {
                    let at = folder.join(&format!("./{path}")).ok()?;
                    // Check the parsed URL too, because the URL parser normalizes paths.
                    at.path().starts_with(folder.path()).then_some(at)
                })
                .filter(|_| fine)
                .ok_or_else(|| {
                    FetchError::content_error(
                        &self.base,
                        format!(
                            "{} is not the path of a skill's file",
                            escape_untrusted(path)
                        ),
                    )
                })?;
            // A redirect may have led to the index on another host.
            access.policy.check_redirect(&self.origin, &at)?;
            // The limit applies to all files together, as for an archive.
            let max = left.min(MAX_DOWNLOAD_BYTES);
            let body = fetch_file(access, &at, max).await?;
            left -= body.len() as u64;
            files.push(plain_file(path, body));
        }
        Ok(files)
    }
}

impl SiteEntry {
    /// Fails if the SKILL.md belongs to a skill of another name than the one that the user chose.
    fn check_name(&self, files: &[RawFile]) -> Result<()> {
        let options = GateOptions {
            folder: Some(&self.name),
            ..GateOptions::default()
        };
        // A SKILL.md that cannot be read passes: the later scan reports it.
        match name_in_vault(files, &options) {
            // The index may list the name that the author wrote, or the one that the vault derives
            // from it.
            Some((name, author))
                if !name.as_str().eq_ignore_ascii_case(&self.name)
                    && author.as_ref() != Some(&self.name) =>
            {
                let place = escape_untrusted(&self.name);
                let reason = format!("its SKILL.md is that of another skill, {name}");
                Err(FetchError::content_error(place, reason))
            }
            _ => Ok(()),
        }
    }

    /// Checks that these are exactly the signed files. Returns the SHA-256 of their bundle.
    fn match_files(
        &self,
        files: &mut [RawFile],
        signed: &SignedManifest,
        manifest: &Manifest,
    ) -> Result<Option<Digest>, Mismatch> {
        // A single file is served without its mode, so take the mode from the signed manifest.
        if let (Artifact::SkillMd { .. }, [only], [signed]) =
            (&self.artifact, &mut *files, &manifest.files[..])
        {
            only.mode = signed.mode;
        }
        let found = files
            .iter()
            .map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice()));
        manifest.compare_files(found)?;
        let bytes = |path: &FilePath| {
            let file = files.iter().find(|file| file.path == path.as_str())?;
            Some(file.bytes.clone())
        };
        // A release lists bundles by their hashes, so compute the hash from the files at hand.
        Ok(bundle::compute_bundle_hash(signed, manifest, bytes))
    }
}

#[async_trait]
impl Content for Site {
    async fn take_skill(&self, access: Access<'_>, found: &OfferedSkill) -> Result<FetchedSkill> {
        let entry = self.find_entry(&found.folder)?;
        access
            .policy
            .check_names(&well_known_names(&self.origin, Some(&entry.name)))?;
        let SiteFiles {
            mut files,
            digest,
            copied_links,
        } = self.files_of(access, entry).await?;
        let signature = match &entry.signed {
            Some(signed) => Some(
                self.verify_signature(access, entry, signed, &mut files)
                    .await?,
            ),
            None => None,
        };
        entry.check_name(&files)?;
        let identifier = skill_identifier(&self.origin, &entry.name);
        // The skill is recorded under an address that ends with its name, and an address with such
        // an ending is that of another kind of source.
        if identifier.starts_with("https:")
            && (is_archive(&entry.name)
                || is_document_name(&entry.name)
                || entry.name == "index.json")
        {
            let reason = format!("{} cannot be the name of a skill", entry.name);
            return Err(FetchError::content_error(&self.base, reason));
        }
        // An identifier is written as HTTPS, so an address with plain HTTP is recorded beside it.
        let address = match identifier.strip_prefix("https:https:") {
            Some(rest) => format!("http:{rest}"),
            None => origin_text(&self.origin),
        };
        Ok(FetchedSkill {
            files,
            folder: Some(entry.name.clone()),
            upstream: Upstream {
                address: (self.origin.scheme() == "http").then_some(address),
                signer: signature.as_ref().map(|signature| signature.vault),
                root_version: signature.as_ref().map(|signature| signature.root_version),
                signed_version: signature.map(|signature| signature.version),
                copied_links,
                ..new_upstream(&identifier, format!("sha256:{digest}"))?
            },
        })
    }
}

/// Computes one digest for a set of files: the SHA-256 of one line `<mode> <sha256> <path>` per
/// file, sorted by path. It depends only on the files, not on their location or signer.
pub fn content_digest(files: &[RawFile]) -> Digest {
    digest_of(
        files
            .iter()
            .map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice())),
    )
}

/// Like [`content_digest`], for files given as path, mode and bytes.
pub fn digest_of<'a>(files: impl Iterator<Item = (&'a str, Mode, &'a [u8])>) -> Digest {
    let mut lines: Vec<(&str, String)> = files
        .map(|(path, mode, bytes)| {
            (
                path,
                format!("{:04o} {} {path}\n", mode.bits(), Digest::of(bytes)),
            )
        })
        .collect();
    lines.sort_unstable();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    Digest::of(text.as_bytes())
}
