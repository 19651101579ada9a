//! The JSON form of a manifest's payload, for the writer and the reader.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::{ActionSpec, FileEntry, Gate, Manifest, ManifestError, Mode, RenderedFrom, SCHEMA};
use crate::hash::Digest;
use crate::json;
use crate::name::{ActionName, AgentId, SkillName};
use crate::provenance::{BadProvenance, Provenance};
use crate::root::VaultId;
use crate::time::Timestamp;

impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            schema: &'static str,
            vault_id: VaultId,
            name: &'a SkillName,
            #[serde(skip_serializing_if = "Option::is_none")]
            frontmatter_name: Option<&'a str>,
            version: u64,
            signed_at: Timestamp,
            files: &'a [FileEntry],
            actions: &'a BTreeMap<ActionName, ActionSpec>,
            agents: &'a [AgentId],
            #[serde(skip_serializing_if = "Option::is_none")]
            rendered_from: Option<&'a RenderedFrom>,
            provenance: &'a Provenance,
            gate: &'a Gate,
        }
        Written {
            schema: SCHEMA,
            vault_id: self.vault_id,
            name: &self.name,
            frontmatter_name: self.frontmatter_name.as_deref(),
            version: self.version,
            signed_at: self.signed_at,
            files: &self.files,
            actions: &self.actions,
            agents: &self.agents,
            rendered_from: self.rendered_from.as_ref(),
            provenance: &self.provenance,
            gate: &self.gate,
        }
        .serialize(serializer)
    }
}

/// The payload as parsed JSON. Members whose errors have a code of their own are still plain text;
/// `open` checks them.
#[derive(Deserialize)]
pub(super) struct Wire<'a> {
    #[serde(borrow)]
    schema: Cow<'a, str>,
    vault_id: VaultId,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, deserialize_with = "json::optional")]
    frontmatter_name: Option<String>,
    version: u64,
    signed_at: Timestamp,
    #[serde(borrow)]
    files: Vec<FileWire<'a>>,
    // A derived map would keep the last of two actions of one name, and another reader the first.
    #[serde(deserialize_with = "json::unique_map")]
    actions: BTreeMap<String, ActionSpec>,
    agents: Vec<AgentId>,
    #[serde(default, deserialize_with = "json::optional")]
    rendered_from: Option<RenderedFrom>,
    #[serde(borrow)]
    provenance: ProvenanceWire<'a>,
    gate: Gate,
}

#[derive(Deserialize)]
struct FileWire<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    size: u64,
    sha256: Digest,
    #[serde(borrow)]
    mode: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ProvenanceWire<'a> {
    #[serde(borrow)]
    identifier: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(deserialize_with = "json::nullable")]
    revision: Option<String>,
    fetched_at: Timestamp,
}

impl Wire<'_> {
    pub(super) fn open(self) -> Result<Manifest, ManifestError> {
        if self.schema != SCHEMA {
            return Err(ManifestError::Schema);
        }
        let action = |(name, action): (String, _)| match name.parse() {
            Ok(name) => Ok((name, action)),
            Err(_) => Err(ManifestError::Actions(
                "the name of an action breaks the grammar or is reserved",
            )),
        };
        Ok(Manifest {
            vault_id: self.vault_id,
            name: self
                .name
                .parse()
                .map_err(|_| ManifestError::Name("the name breaks the grammar of skill names"))?,
            frontmatter_name: self.frontmatter_name,
            version: self.version,
            signed_at: self.signed_at,
            files: self
                .files
                .into_iter()
                .map(FileWire::open)
                .collect::<Result<_, _>>()?,
            actions: self
                .actions
                .into_iter()
                .map(action)
                .collect::<Result<_, _>>()?,
            agents: self.agents,
            rendered_from: self.rendered_from,
            provenance: self.provenance.open()?,
            gate: self.gate,
        })
    }
}

impl FileWire<'_> {
    fn open(self) -> Result<FileEntry, ManifestError> {
        let mode = Mode::parse(&self.mode).ok_or(ManifestError::Mode)?;
        Ok(FileEntry {
            path: self.path.parse()?,
            size: self.size,
            sha256: self.sha256,
            mode,
        })
    }
}

impl ProvenanceWire<'_> {
    fn open(self) -> Result<Provenance, BadProvenance> {
        let provenance = Provenance {
            identifier: self.identifier.parse()?,
            revision: self.revision,
            fetched_at: self.fetched_at,
        };
        // A program that reads `kind` and one that reads `identifier` must not see different kinds
        // of source.
        if provenance.kind().as_str() == self.kind {
            Ok(provenance)
        } else {
            Err(BadProvenance::Kind)
        }
    }
}
