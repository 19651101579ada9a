//! What is installed, own skills and linked ones, with the cheapest look that still notices every write.
//!
//! A skill whose seal in the index holds costs one look for each of its files; any other is read, verified and noted
//! again. The work is spread over the machine's cores.

use std::path::Path;

use vault_skill::document::Document;
use vault_skill::gate::similar::Sketch;
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use crate::files::tree::Looker;
use crate::files::{self, Kind};
use crate::index::{Buffers, Index, NewRow, Row, StoredRow, Texts};
use crate::links::{self, LinkId};
use crate::parallel::in_parallel;
use crate::store::{self, Damage, Examined, Trusted, Want};
use crate::vault::{Vault, VaultError};

/// Where an installed skill comes from.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// Admitted and signed here.
    Local,
    /// Installed from this linked vault.
    Linked(LinkId),
}

/// A name under which a skill is installed, and the bundle that it stands for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Place {
    pub(crate) name: SkillName,
    /// What the manifest must say, where it was installed under another name.
    pub(crate) signed_name: SkillName,
    pub(crate) origin: Origin,
    pub(crate) bundle: Digest,
}

/// What a look at one installed skill found.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) place: Place,
    pub(crate) state: Result<Row, Damage>,
    /// Where it was read just now.
    pub(crate) texts: Option<Texts>,
}

/// Everything installed, and what lies among it without being a skill.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// One group for the own skills and one for each link.
    pub(crate) groups: Vec<Group>,
    /// Paths relative to the vault.
    pub(crate) strange: Vec<String>,
}

/// Skills of one origin and whom to believe about them.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) trusted: Trusted,
    pub(crate) places: Vec<Place>,
}

/// Lists the links that install skills; reads no skill.
pub(crate) fn places(vault: &Vault) -> Result<Places, VaultError> {
    let mut strange = Vec::new();
    let local = Group {
        trusted: vault.trusted()?,
        places: read_links(&vault.skills(), &Origin::Local, "skills", &mut strange)?,
    };
    let mut groups = vec![local];
    for link in links::all(vault)? {
        groups.extend(link.groups(&mut strange)?);
    }
    Ok(Places { groups, strange })
}

/// The links in one folder of skills; what is no such link goes to `strange`.
pub(crate) fn read_links(
    folder: &Path,
    origin: &Origin,
    shown: &str,
    strange: &mut Vec<String>,
) -> Result<Vec<Place>, VaultError> {
    let names = files::list(folder)?;
    let parts = in_parallel(&names, |names| -> Result<_, VaultError> {
        let (mut places, mut strange) = (Vec::with_capacity(names.len()), Vec::new());
        if names.is_empty() {
            return Ok((places, strange));
        }
        let looker = Looker::new(folder)?;
        let mut target = Vec::new();
        for (name, kind) in names {
            let text = name.to_string_lossy();
            let parsed = text.parse::<SkillName>().ok();
            let bundle = (*kind == Kind::Link && looker.link_target(&text, &mut target))
                .then(|| store::linked_bundle(&target))
                .flatten();
            match (parsed, bundle) {
                (Some(name), Some(bundle)) => places.push(Place {
                    signed_name: name.clone(),
                    name,
                    origin: origin.clone(),
                    bundle,
                }),
                // A link that was replaced between listing and reading shows in the next scan.
                _ => strange.push(format!("{shown}/{text}")),
            }
        }
        Ok((places, strange))
    });
    let mut places = Vec::with_capacity(names.len());
    for part in parts {
        let (more, foreign) = part?;
        places.extend(more);
        strange.extend(foreign);
    }
    Ok(places)
}

/// Of these skills those that are installed, in the groups that [`places`] would give: own ones first. Reads no other link.
pub(crate) fn places_of(vault: &Vault, names: &[SkillName]) -> Result<Vec<Group>, VaultError> {
    let mut groups = vec![Group {
        trusted: vault.trusted()?,
        places: read_named_links(&vault.skills(), &Origin::Local, names),
    }];
    for link in links::all(vault)? {
        groups.extend(link.groups_of(names)?);
    }
    Ok(groups)
}

/// The links of these names in one folder of skills; what is no such link is left out.
pub(crate) fn read_named_links(folder: &Path, origin: &Origin, names: &[SkillName]) -> Vec<Place> {
    let Ok(looker) = Looker::new(folder) else {
        return Vec::new();
    };
    let mut target = Vec::new();
    let mut places = Vec::new();
    for name in names {
        let bundle = looker
            .link_target(name.as_str(), &mut target)
            .then(|| store::linked_bundle(&target))
            .flatten();
        places.extend(bundle.map(|bundle| Place {
            name: name.clone(),
            signed_name: name.clone(),
            origin: origin.clone(),
            bundle,
        }));
    }
    places
}

/// Reads and verifies one installed skill from its bytes, whatever the index says.
pub(crate) fn read_place(
    vault: &Vault,
    place: &Place,
    trusted: &Trusted,
    buffer: &mut Vec<u8>,
) -> Result<NewRow, Damage> {
    let name = Some(&place.signed_name);
    let store = vault.store();
    let examined = store::examine(&store, &place.bundle, name, trusted, Want::Bytes, buffer)?;
    new_row(&place.bundle, examined, trusted)
}

/// What tells cheaply whether the same skills are installed as before: the generation number, whom the vault believes, and looks at the
/// folders whose links install skills. It says nothing of the bytes of a skill.
pub(crate) struct Evidence {
    said: Vec<u8>,
    /// When the youngest of the folders was changed.
    youngest: (i64, u64),
}

impl Evidence {
    /// The evidence as it is now; `None` while a writer is at work, or where something of it can't be read.
    pub(crate) fn of(vault: &Vault) -> Option<Self> {
        let generation = vault.generation().ok()?;
        let trusted = vault.trusted().ok()?;
        let mut evidence = Self::of_places(vault, generation)?;
        evidence.say(&trusted.vault_id.to_string());
        for key in &trusted.keys {
            evidence.say(&key.to_string());
        }
        evidence.look(&vault.paths().root, "store");
        generation.is_multiple_of(2).then_some(evidence)
    }

    /// What tells whether the names are the same, were this the generation; `None` where something of it can't be read.
    pub(crate) fn of_places(vault: &Vault, generation: u64) -> Option<Self> {
        let mut evidence = Self {
            said: Vec::new(),
            youngest: (0, 0),
        };
        evidence.say(&generation.to_string());
        for folder in ["skills", "links"] {
            evidence.look(&vault.paths().root, folder);
        }
        for link in links::all(vault).ok()? {
            link.evidence(&mut evidence);
        }
        Some(evidence)
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.said.extend((text.len() as u64).to_le_bytes());
        self.said.extend_from_slice(text.as_bytes());
    }

    /// Notes what a look at a path below a folder says, its absence too.
    pub(crate) fn look(&mut self, folder: &Path, path: &str) {
        let facts = Looker::new(folder)
            .ok()
            .and_then(|looker| looker.look(path.as_bytes()));
        self.say(if facts.is_some() { path } else { "" });
        if let Some(facts) = facts {
            facts.append_to(&mut self.said);
            self.youngest = self.youngest.max(facts.changed);
        }
    }

    /// The evidence in short, to be compared.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.said)
    }

    /// Whether any later change will show: within one tick of the file system's clock two changes look like one.
    pub(crate) fn is_settled(&self, settled_before: (i64, u64)) -> bool {
        self.youngest < settled_before
    }
}

/// How often a reader starts anew. Each time a writer made a whole switch meanwhile, so this ends by itself; the bound is
/// for safety.
pub(crate) const TRIES: u32 = 100;

/// Looks at everything installed. Damaged skills are in the result; only a vault that can't be listed is an error.
pub(crate) fn scan(vault: &Vault) -> Result<Vec<Seen>, VaultError> {
    let mut index = Index::open(&vault.paths().index());
    let rows = index.rows();
    let mut tries = TRIES;
    loop {
        let (seen, fresh) = scan_once(vault, &rows)?;
        note(vault, &mut index, &fresh);
        let damaged: Vec<_> = seen
            .iter()
            .filter(|seen| seen.state.is_err())
            .map(|seen| seen.place.clone())
            .collect();
        tries -= 1;
        // A writer may have switched between our reading of a link and of the store: then the link is another now.
        if tries == 0 || still_linked(vault, &damaged)? {
            return Ok(seen);
        }
    }
}

/// Whether what was found damaged is still what is installed.
pub(crate) fn still_linked(vault: &Vault, damaged: &[Place]) -> Result<bool, VaultError> {
    if damaged.is_empty() {
        return Ok(true);
    }
    let now: std::collections::HashSet<_> = places(vault)?
        .groups
        .into_iter()
        .flat_map(|group| group.places)
        .collect();
    Ok(damaged.iter().all(|place| now.contains(place)))
}

fn scan_once(vault: &Vault, rows: &Rows) -> Result<(Vec<Seen>, Vec<NewRow>), VaultError> {
    let places = places(vault)?;
    let store = vault.store();
    let mut seen = Vec::new();
    let mut fresh = Vec::new();
    for group in places.groups {
        let (found, new) = look_at(&store, &group, rows);
        seen.extend(found);
        fresh.extend(new);
    }
    Ok((seen, fresh))
}

/// The texts of one skill, read and verified afresh.
pub(crate) fn read_texts(
    vault: &Vault,
    place: &Place,
    buffer: &mut Vec<u8>,
) -> Result<Texts, Damage> {
    let group = places(vault)
        .ok()
        .and_then(|places| {
            places
                .groups
                .into_iter()
                .find(|group| group.places.contains(place))
        })
        .ok_or_else(|| Damage::Missing(place.name.to_string()))?;
    let examined = store::examine(
        &vault.store(),
        &place.bundle,
        Some(&place.signed_name),
        &group.trusted,
        Want::Bytes,
        buffer,
    )?;
    Ok(texts(&examined))
}

/// Notes what was verified just now; failing to costs the next scan some work and nothing else.
pub(crate) fn note(vault: &Vault, index: &mut Index, fresh: &[NewRow]) {
    if fresh.is_empty() {
        return;
    }
    if let Ok(settled) = vault
        .scratch()
        .and_then(|scratch| files::settled_before(scratch.path()))
    {
        index.note(fresh, settled);
    }
}

type Rows = std::collections::HashMap<Digest, StoredRow>;

fn look_at(store: &Path, group: &Group, rows: &Rows) -> (Vec<Seen>, Vec<NewRow>) {
    let parts = in_parallel(&group.places, |places| {
        let looker = Looker::new(store).ok();
        let signers: Vec<String> = group.trusted.keys.iter().map(ToString::to_string).collect();
        let mut eye = Eye {
            store,
            trusted: &group.trusted,
            looker,
            signers,
            buffers: Buffers::default(),
            bytes: Vec::new(),
            fresh: Vec::new(),
        };
        let seen: Vec<_> = places.iter().map(|place| eye.look(place, rows)).collect();
        (seen, eye.fresh)
    });
    let mut all = (Vec::with_capacity(group.places.len()), Vec::new());
    for (seen, fresh) in parts {
        all.0.extend(seen);
        all.1.extend(fresh);
    }
    all
}

struct Eye<'a> {
    store: &'a Path,
    trusted: &'a Trusted,
    looker: Option<Looker>,
    signers: Vec<String>,
    buffers: Buffers,
    bytes: Vec<u8>,
    fresh: Vec<NewRow>,
}

impl Eye<'_> {
    fn look(&mut self, place: &Place, rows: &Rows) -> Seen {
        let (state, texts) = match self.known(place, rows) {
            Some(row) => (Ok(row), None),
            None => match self.read(place) {
                Ok((row, texts)) => (Ok(row), Some(texts)),
                Err(damage) => (Err(damage), None),
            },
        };
        Seen {
            place: place.clone(),
            state,
            texts,
        }
    }

    fn known(&mut self, place: &Place, rows: &Rows) -> Option<Row> {
        let stored = rows.get(&place.bundle)?;
        let looker = self.looker.as_ref()?;
        let believed = stored.name() == place.signed_name.as_str()
            && self.signers.iter().any(|key| key == stored.signer());
        if believed && stored.holds(looker, &place.bundle.to_string(), &mut self.buffers) {
            stored.parse()
        } else {
            None
        }
    }

    fn read(&mut self, place: &Place) -> Result<(Row, Texts), Damage> {
        let examined = store::examine_many(
            self.looker.as_ref(),
            self.store,
            &place.bundle,
            Some(&place.signed_name),
            self.trusted,
            Want::Bytes,
            &mut self.bytes,
        )?;
        let new = new_row(&place.bundle, examined, self.trusted)?;
        let read = (new.row.clone(), new.texts.clone());
        self.fresh.push(new);
        Ok(read)
    }
}

/// What the index notes of a skill that was just verified, its bytes kept.
pub(crate) fn new_row(
    hash: &Digest,
    examined: Examined,
    trusted: &Trusted,
) -> Result<NewRow, Damage> {
    let encoded = store::encode(hash, &examined)?;
    let signer = examined
        .signed
        .signer(&trusted.keys)
        .copied()
        .ok_or_else(|| Damage::Missing("a signature".to_owned()))?;
    let texts = texts(&examined);
    let sketch = Sketch::of(examined.files.iter().map(|file| file.bytes.as_slice()));
    let manifest = examined.manifest;
    let parts = encoded
        .parts
        .iter()
        .map(|part| (part.hash, part.bytes.len() as u64))
        .collect();
    Ok(NewRow {
        hash: *hash,
        row: Row::new(
            manifest.name,
            manifest.version,
            signer,
            (encoded.bytes.len() as u64, parts),
            manifest.agents,
            examined.looks.paths,
        ),
        texts,
        facts: examined.looks.facts,
        sketch,
    })
}

/// What search reads; a skill whose frontmatter an older version let in is found by its name alone.
fn texts(examined: &Examined) -> Texts {
    let manifest = &examined.manifest;
    let document = examined
        .files
        .iter()
        .find(|file| file.path.as_str() == "SKILL.md")
        .and_then(|file| Document::parse_known(&file.bytes, &manifest.name).ok());
    let mut texts = Texts {
        agents: manifest.agents.clone(),
        actions: manifest.actions.keys().cloned().collect(),
        provenance: manifest.provenance.identifier.to_string(),
        ..Texts::default()
    };
    if let Some(document) = document {
        let frontmatter = document.frontmatter();
        texts.description.clone_from(&frontmatter.description);
        texts.tags.clone_from(&frontmatter.tags);
        texts.categories.clone_from(&frontmatter.categories);
        texts.when_to_use = frontmatter.when_to_use.clone().unwrap_or_default();
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_answers_keep_their_order() {
        for count in [0, 1, 15, 16, 63, 64, 65, 1_000, 10_001] {
            let items: Vec<usize> = (0..count).collect();
            let parts = in_parallel(&items, <[usize]>::to_vec);
            assert_eq!(parts.concat(), items, "{count}");
        }
    }
}
