//! What a vault knows that bears on a skill that is about to come in: the version before it with its exceptions, the skill
//! of its name in a linked vault, skills that it is like, names that it is taken for.
//!
//! Likeness is asked of the index, which holds 256 bytes for each skill that was admitted or listed here; what it names is
//! looked up before it is believed. Without an index nothing is known to be alike, and everything else still holds.

use std::thread::{self, JoinHandle};

use vault_skill::bundle::File;
use vault_skill::finding::Finding;
use vault_skill::gate::names as look_alike;
use vault_skill::gate::similar::{self, Alike, DUPLICATE, Similar, Sketch};
use vault_skill::gate::{self, GateOptions, RawFile, Verdict};
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use crate::add::AddError;
use crate::index::{Index, Sketched};
use crate::installed::linked;
use crate::names::{self, Book};
use crate::parallel::joined;
use crate::scan::Place;
use crate::store::{self, Examined, Trusted, Want};
use crate::vault::Vault;

/// Skills that are gated before look-ups are built that cost the same however much the vault holds.
const FEW: usize = 8;
/// Alike skills that are looked up before it is said that there is none.
const LOOKED_UP: usize = 16;

/// What a vault knows, for one command that takes skills in: what the command lets through is known to it as well.
#[derive(Debug)]
pub struct Known<'v> {
    vault: Option<&'v Vault>,
    gated: usize,
    names: Option<Names>,
    likes: Option<Likes>,
}

impl<'v> Known<'v> {
    /// What this vault knows; nothing where there is none yet.
    pub fn of(vault: impl Into<Option<&'v Vault>>) -> Self {
        Self {
            vault: vault.into(),
            gated: 0,
            names: None,
            likes: None,
        }
    }

    /// Gates a skill as the successor of the nearest that is known, with the exceptions of its earlier version.
    pub(crate) fn gate(
        &mut self,
        raw: Vec<RawFile>,
        options: GateOptions<'_>,
    ) -> Result<Verdict, AddError> {
        let (mut verdict, name) = self.gate_but_for_its_name(raw, options)?;
        if let Some(name) = name {
            if let Some(warning) = self.taken_for(&name) {
                verdict.warn(warning);
            }
            if let Some(names) = &mut self.names {
                names.read().add(name.as_str());
            }
        }
        Ok(verdict)
    }

    /// Gates a skill likewise. Where it is let through under a new name, that is given too: [`Self::taken_for`] has what is left to
    /// be said of it, a warning that needs all names, which are read meanwhile.
    pub(crate) fn gate_but_for_its_name(
        &mut self,
        raw: Vec<RawFile>,
        options: GateOptions<'_>,
    ) -> Result<(Verdict, Option<SkillName>), AddError> {
        let Some(vault) = self.vault else {
            return Ok((gate::check(raw, &options), None));
        };
        self.gated += 1;
        let Some((name, author)) = gate::name_in_vault(&raw, &options) else {
            return Ok((gate::check(raw, &options), None));
        };
        let own = version(vault, &name)?;
        let is_new = own.is_none();
        let (mut before, waivers) = match own {
            Some(own) => (own.files, own.manifest.gate.waivers),
            None => (same_name(vault, &name, author.as_deref())?, Vec::new()),
        };
        let sketch = Sketch::of(raw.iter().map(|file| file.bytes.as_slice()));
        // Only a new name is compared; to list the others takes longer than the gate, so both are done at once.
        if is_new && self.names.is_none() {
            self.names = Some(Names::of(vault, name.as_str()));
        }
        let nearest = if is_new {
            self.nearest(vault, &name, &sketch)
        } else {
            None
        };
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
        // What was let through counts for what comes after it, before it is admitted.
        if verdict.package.is_some()
            && let Some(likes) = &mut self.likes
        {
            likes.add(Like {
                name: name.to_string(),
                bundle: None,
                sketch,
            });
        }
        if verdict.package.is_none() && is_new {
            verdict.findings.extend(self.taken_for(&name));
            return Ok((verdict, None));
        }
        Ok((verdict, is_new.then_some(name)))
    }

    /// The warning about a new name, where it is taken for one that is here. Waits until all names are read.
    pub(crate) fn taken_for(&mut self, name: &SkillName) -> Option<Finding> {
        let many = self.gated > FEW;
        let other = self.names.as_mut()?.confusable(name.as_str(), many)?;
        Some(look_alike::finding(name.as_str(), &other))
    }

    /// Keeps the names with a new one that a change has just added, as [`Book::keep`] says.
    pub(crate) fn keep_name(
        &mut self,
        name: &SkillName,
        before: Option<Digest>,
        after: Option<Digest>,
    ) {
        if let (Some(vault), Some(names)) = (self.vault, &mut self.names) {
            names.read().keep(vault, name, before, after);
        }
    }

    /// The installed skill, or the one let through just now, that this one is most like under another name.
    fn nearest(&mut self, vault: &Vault, name: &SkillName, sketch: &Sketch) -> Option<Nearest> {
        if !sketch.is_comparable() {
            return None;
        }
        let many = self.gated > FEW;
        let likes = self.likes.get_or_insert_with(|| Likes::open(vault));
        let found = likes.find(sketch, many);
        found
            .into_iter()
            .take(LOOKED_UP)
            .find_map(|(other, bundle, likeness)| {
                let other: SkillName = other.parse().ok()?;
                let place = match &bundle {
                    None => None,
                    Some(bundle) => Some(installed_as(vault, &other, bundle)?),
                };
                let shown = place
                    .as_ref()
                    .map_or(other, |(place, _)| place.name.clone());
                (shown != *name).then_some(Nearest {
                    name: shown,
                    likeness,
                    place,
                })
            })
    }
}

/// A skill that another one is like.
struct Nearest {
    name: SkillName,
    likeness: f64,
    /// Where it is installed; `None` for what is on its way in.
    place: Option<(Place, Trusted)>,
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

/// Where a bundle is installed, under this name or by a linked vault.
fn installed_as(vault: &Vault, name: &SkillName, bundle: &Digest) -> Option<(Place, Trusted)> {
    if linked_to(vault, name).ok().flatten().as_ref() == Some(bundle) {
        let place = Place {
            name: name.clone(),
            signed_name: name.clone(),
            origin: crate::scan::Origin::Local,
            bundle: *bundle,
        };
        return Some((place, vault.trusted().ok()?));
    }
    linked(vault, |place| place.bundle == *bundle)
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

/// The names, which are read beside other work.
#[derive(Debug)]
struct Names {
    reading: Option<JoinHandle<(Book, Answer)>>,
    book: Book,
    /// For the first name, which is looked for where the names are read; given once.
    first: Option<Answer>,
}

/// A name, and the first by the alphabet of those that it is taken for.
type Answer = (String, Option<String>);

impl Names {
    /// Begins to read those of a vault for the sake of this name.
    fn of(vault: &Vault, first: &str) -> Self {
        let place = names::Place::of(vault);
        let first = first.to_owned();
        let read = move || {
            let mut book = Book::read(&place);
            let taken_for = book.confusable(&first, false);
            (book, (first, taken_for))
        };
        let mut names = Self {
            reading: None,
            book: Book::default(),
            first: None,
        };
        match thread::Builder::new().spawn(read.clone()) {
            Ok(reading) => names.reading = Some(reading),
            // The system has no thread to spare now.
            Err(_) => names.keep(read()),
        }
        names
    }

    fn keep(&mut self, (book, first): (Book, Answer)) {
        self.book = book;
        self.first = Some(first);
    }

    /// Waits for them the first time.
    fn read(&mut self) -> &mut Book {
        if let Some(reading) = self.reading.take() {
            self.keep(joined(reading.join()));
        }
        &mut self.book
    }

    /// The first, by the alphabet, of the names that this one is taken for.
    fn confusable(&mut self, name: &str, many: bool) -> Option<String> {
        self.read();
        match self.first.take() {
            Some((first, taken_for)) if first == name => taken_for,
            _ => self.book.confusable(name, many),
        }
    }
}

/// A skill that another one may be like.
#[derive(Debug)]
struct Like {
    name: String,
    /// `None` for what is on its way in.
    bundle: Option<Digest>,
    sketch: Sketch,
}

impl From<Sketched> for Like {
    fn from(noted: Sketched) -> Self {
        Self {
            name: noted.name,
            bundle: Some(noted.hash),
            sketch: noted.sketch,
        }
    }
}

/// A skill that another one is like: name, bundle, likeness.
type Found = (String, Option<Digest>, f64);

#[derive(Debug)]
struct Likes {
    index: Index,
    /// What is on its way in.
    more: Vec<Like>,
    /// Everything, once many were asked about.
    all: Option<(Vec<Like>, Similar)>,
}

impl Likes {
    fn open(vault: &Vault) -> Self {
        Self {
            index: Index::open(&vault.paths().index()),
            more: Vec::new(),
            all: None,
        }
    }

    fn add(&mut self, like: Like) {
        match &mut self.all {
            None => self.more.push(like),
            Some((all, similar)) => {
                similar.add(like.sketch.clone());
                all.push(like);
            }
        }
    }

    /// The most alike first, then by name.
    fn find(&mut self, sketch: &Sketch, many: bool) -> Vec<Found> {
        let told = |likes: &[Like], found: Vec<Alike>| -> Vec<Found> {
            let of = |alike: &Alike| &likes[alike.number];
            let found = found.iter();
            found
                .map(|alike| (of(alike).name.clone(), of(alike).bundle, alike.likeness))
                .collect()
        };
        let mut found = if many {
            let Self { index, more, all } = self;
            let (all, similar) = all.get_or_insert_with(|| {
                let noted = index.sketches().into_iter().map(Like::from);
                let all: Vec<Like> = noted.chain(more.drain(..)).collect();
                let mut similar = Similar::default();
                for like in &all {
                    similar.add(like.sketch.clone());
                }
                (all, similar)
            });
            told(all, similar.find(sketch))
        } else {
            let near: Vec<Like> = self
                .index
                .sketches_near(sketch)
                .into_iter()
                .map(Like::from)
                .collect();
            let among = |likes: &[Like]| {
                told(
                    likes,
                    similar::among(sketch, likes.iter().map(|like| &like.sketch)),
                )
            };
            [among(&near), among(&self.more)].concat()
        };
        found.sort_by(|a, b| {
            b.2.total_cmp(&a.2)
                .then_with(|| (&a.0, a.1).cmp(&(&b.0, b.1)))
        });
        found
    }
}
