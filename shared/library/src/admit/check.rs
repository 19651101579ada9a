//! What a vault knows that bears on a skill that is about to come in: the version before it with its exceptions, the skill
//! of its name in a linked vault, skills that it is like, names that it is taken for.
//!
//! Likeness is asked of the index, which holds 256 bytes for each skill that was admitted or listed here; what it names is
//! looked up before it is believed. Without an index nothing is known to be alike, and everything else still holds.

use vault_skill::bundle::File;
use vault_skill::finding::Finding;
use vault_skill::gate::names as look_alike;
use vault_skill::gate::similar::{self, DUPLICATE, Sketch};
use vault_skill::gate::{self, GateOptions, RawFile, Verdict};
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use super::compare::{ComparedSkills, Nearest};
use crate::add::AddError;
use crate::installed::linked;
use crate::scan::Place;
use crate::store::{self, Examined, Trusted, Want};
use crate::vault::Vault;

/// What a vault knows, for one command that takes skills in: what the command lets through is known to it as well.
#[derive(Debug)]
pub struct Known<'v> {
    vault: Option<&'v Vault>,
    compared: Option<ComparedSkills>,
}

impl<'v> Known<'v> {
    /// What this vault knows; nothing where there is none yet.
    pub fn of(vault: impl Into<Option<&'v Vault>>) -> Self {
        Self {
            vault: vault.into(),
            compared: None,
        }
    }

    /// Gates a skill as the successor of the nearest that is known, with the exceptions of its earlier version.
    pub(crate) fn gate(
        &mut self,
        raw: Vec<RawFile>,
        options: GateOptions<'_>,
    ) -> Result<Verdict, AddError> {
        let (Some(vault), Some((name, author))) = (self.vault, gate::name_in_vault(&raw, &options))
        else {
            return Ok(gate::check(raw, &options));
        };
        let own = version(vault, &name)?;
        let is_new = own.is_none();
        let (mut before, waivers) = match own {
            Some(own) => (own.files, own.manifest.gate.waivers),
            None => (same_name(vault, &name, author.as_deref())?, Vec::new()),
        };
        let sketch = Sketch::of(raw.iter().map(|file| file.bytes.as_slice()));
        let mut nearest = None;
        let mut confusable = None;
        if is_new {
            let compared = match &mut self.compared {
                Some(compared) => compared,
                none => none.insert(ComparedSkills::read(vault)?),
            };
            nearest = compared.nearest(&name, &sketch);
            confusable = compared.confusable_with(&name).map(str::to_owned);
        }
        if let Some(nearest) = &nearest
            && before.is_empty()
        {
            before = nearest.files(vault);
        }
        let options = GateOptions {
            waivers,
            before: &before,
            ..options
        };
        let mut verdict = gate::check(raw, &options);
        if let Some(nearest) = nearest {
            verdict.warn(nearest.warning());
        }
        if let Some(other) = confusable {
            verdict.warn(look_alike::finding(name.as_str(), &other));
        }
        // What was let through counts for what comes after it, before it is admitted.
        if verdict.package.is_some()
            && let Some(compared) = &mut self.compared
        {
            compared.add(&name, sketch);
        }
        Ok(verdict)
    }
}

impl Nearest {
    /// The verified files of a skill that is nearly the same; empty for others.
    fn files(&self, vault: &Vault) -> Vec<File> {
        match &self.place {
            Some((place, trusted)) if self.likeness >= DUPLICATE => {
                let examined = examine(vault, &place.signed_name, &place.bundle, trusted);
                examined.map_or_else(Vec::new, |examined| examined.files)
            }
            _ => Vec::new(),
        }
    }

    fn warning(&self) -> Finding {
        let hint = format!(
            "vault show {} shows that one; keep one of them, or let each say what it alone is for",
            self.name
        );
        similar::finding(self.name.as_str(), self.likeness, &hint)
    }
}

/// The installed version of a name with its verified bytes, where it is intact.
fn version(vault: &Vault, name: &SkillName) -> Result<Option<Examined>, AddError> {
    let Some(bundle) = linked_to(vault, name)? else {
        return Ok(None);
    };
    Ok(examine(vault, name, &bundle, &vault.trusted()?))
}

/// The bundle that an own skill's link names.
fn linked_to(vault: &Vault, name: &SkillName) -> Result<Option<Digest>, AddError> {
    Ok(store::bundle_at(&vault.skills().join(name.as_str()))?)
}

/// The files of the skill that goes by this name, or by the author's, in this vault or in a linked one.
fn same_name(vault: &Vault, name: &SkillName, author: Option<&str>) -> Result<Vec<File>, AddError> {
    let author = author.and_then(|author| author.parse::<SkillName>().ok());
    if let Some(author) = &author
        && let Some(own) = version(vault, author)?
    {
        return Ok(own.files);
    }
    let wanted = |place: &Place| place.name == *name || author.as_ref() == Some(&place.name);
    let found = linked(vault, wanted)
        .and_then(|(place, trusted)| examine(vault, &place.signed_name, &place.bundle, &trusted))
        .map(|examined| examined.files);
    Ok(found.unwrap_or_default())
}

/// The first skill of a linked vault that is wanted. A linked vault that cannot be read is none here; others say so.
fn linked(vault: &Vault, wanted: impl Fn(&Place) -> bool) -> Option<(Place, Trusted)> {
    let links = linked::all(vault).unwrap_or_default();
    let groups = links
        .iter()
        .filter_map(|link| link.groups(&mut Vec::new()).ok());
    groups.flatten().find_map(|group| {
        let place = group.places.into_iter().find(|place| wanted(place))?;
        Some((place, group.trusted))
    })
}

/// The verified bytes of a bundle that was signed under this name, where it is intact.
fn examine(
    vault: &Vault,
    signed_name: &SkillName,
    bundle: &Digest,
    trusted: &Trusted,
) -> Option<Examined> {
    let (store, name) = (vault.store(), Some(signed_name));
    store::examine(&store, bundle, name, trusted, Want::Bytes, &mut Vec::new()).ok()
}
