//! The skills that a source offers, and the choice among them. The same rules apply to every kind
//! of source.
//!
//! Each skill that was found is either offered or left out with a reason. After a choice, each
//! offered skill is either chosen or left out. So the numbers of a report always add up.

use std::collections::BTreeSet;

use vault_format::hash::Digest;
use vault_gate::skill_folders::{LeftOut, LeftOutReason};

/// Maximum number of skills that one command takes from a source, unless the user names another
/// number.
pub const DEFAULT_MAX_SKILLS: usize = 2_000;
/// Maximum number of skills in the list of one source.
pub const MAX_LISTED: usize = 20_000;

/// A skill that an opened source offers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OfferedSkill {
    /// The name in its SKILL.md or in the site's index; the folder's name if the SKILL.md cannot be
    /// parsed.
    pub name: String,
    /// The folder in the source; empty for the root.
    pub folder: String,
    /// The description in the SKILL.md or the index; `None` if it is not known.
    pub description: Option<String>,
    /// SHA-256 of its SKILL.md, if that was read for the list.
    pub document: Option<Digest>,
    /// Whether its SKILL.md is too large to be read for the list. Its own name is then unknown, so
    /// it may be the skill of any name that a user gives.
    pub is_too_large: bool,
}

impl OfferedSkill {
    /// Returns the folder in a form that selects the skill, even if the same text is also a name.
    pub fn as_path(&self) -> String {
        match self.folder.as_str() {
            "" => ".".to_owned(),
            folder if folder.contains('/') => folder.to_owned(),
            folder => format!("./{folder}"),
        }
    }
}

/// All skills of a source.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The skills that can be chosen, in a stable order.
    pub skills: Vec<OfferedSkill>,
    /// The skills that cannot be chosen, with the reasons.
    pub left_out: Vec<LeftOut>,
    /// The folder whose skill is used when the user names none; `None` if the source has no such
    /// folder.
    pub(crate) base: Option<String>,
}

/// The skills that the user selects.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// Selected names or folders.
    pub names: &'a [String],
    /// Whether all skills are selected.
    pub all: bool,
    /// Maximum number of skills that the selection may cover. With more, [`Listing::choose`] fails.
    pub max_skills: usize,
}

/// The outcome of a choice: every skill of the listing is in one of the two lists.
#[derive(Clone, Debug)]
pub struct Choice<'l> {
    /// The chosen skills, in the order of the selection.
    pub chosen: Vec<&'l OfferedSkill>,
    /// All other skills, with the reasons.
    pub left_out: Vec<LeftOut>,
}

/// The reason why nothing could be chosen.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// No skill has this name.
    #[error("no skill {0}")]
    Unknown(String),
    /// The skill of this name cannot be chosen. Holds it with the reason.
    #[error("{} is left out: {}", .0.path, .0.reason)]
    LeftOut(LeftOut),
    /// Several skills have this name. Holds their folders.
    #[error("{} skills named {name}", folders.len())]
    Ambiguous {
        /// The ambiguous name.
        name: String,
        /// The folders of the skills with this name.
        folders: Vec<String>,
    },
    /// The selection covers more skills than allowed.
    #[error("{found} skills, more than {limit}")]
    TooMany {
        /// The number of skills that the selection covers.
        found: usize,
        /// The largest number of skills that the user allows.
        limit: usize,
    },
    /// The source has several skills, and the selection names none.
    #[error("several skills")]
    Unclear,
    /// The selection names none, and the source has one skill and a part that cannot be read, in
    /// which there may be another skill.
    #[error("{skill} may not be the only skill: {}: {}", fault.path, fault.reason)]
    Incomplete {
        /// Name of the one known skill, which selects it.
        skill: String,
        /// The part that cannot be read.
        fault: LeftOut,
    },
}

impl Listing {
    /// Creates the list of a source of which no skill can be fetched.
    pub fn of_left_out(left_out: Vec<LeftOut>) -> Self {
        Self {
            left_out,
            ..Self::default()
        }
    }

    /// Finds a skill by its folder if the text is a path, and otherwise by its own name or its
    /// folder's name. Fails if the name fits several skills, because a signature must not depend on
    /// their order.
    pub fn find_skill(&self, name: &str) -> Result<&OfferedSkill, ChoiceError> {
        if let Some(folder) = named_folder(name) {
            // Do not compare names here: any skill can give itself the text of a path as its name.
            let exact = self.skills.iter().find(|found| found.folder == folder);
            return exact.ok_or_else(|| self.missing_name(name, folder));
        }
        let fitting = self.skills_possibly_named(name);
        match fitting[..] {
            [only] => Ok(only),
            [] => Err(self.missing_name(name, name)),
            _ => Err(ChoiceError::Ambiguous {
                name: name.to_owned(),
                folders: fitting.iter().map(|found| found.as_path()).collect(),
            }),
        }
    }

    /// Returns the skills whose own name, or whose folder's name, is `name`. If there are any, also
    /// returns the skills whose SKILL.md was too large to read: the name in it may be `name` too.
    pub fn skills_possibly_named(&self, name: &str) -> Vec<&OfferedSkill> {
        let fits = |found: &OfferedSkill| {
            found.name == name || last_part(&found.folder).as_deref() == Some(name)
        };
        if !self.skills.iter().any(fits) {
            return Vec::new();
        }
        let may_fit = |found: &&OfferedSkill| found.is_too_large || fits(found);
        self.skills.iter().filter(may_fit).collect()
    }

    /// Returns the error for a text that selects no skill. `folder` is the text read as a folder.
    fn missing_name(&self, name: &str, folder: &str) -> ChoiceError {
        let named =
            |left: &&LeftOut| left.path == folder || last_part(&left.path).as_deref() == Some(name);
        match self.left_out.iter().find(named) {
            Some(left) => ChoiceError::LeftOut(left.clone()),
            None => ChoiceError::Unknown(name.to_owned()),
        }
    }

    /// Returns the skill to use when the user names none: the only skill, or else the one in the
    /// folder that the source names (by default the root).
    pub fn default_skill(&self) -> Option<&OfferedSkill> {
        match &self.skills[..] {
            [only] => Some(only),
            // If the base folder contains a skill, that skill is the first one in the list.
            [first, ..] => (self.base.as_ref() == Some(&first.folder)).then_some(first),
            [] => None,
        }
    }

    /// Returns the skill for a user who names none: [`Listing::default_skill`]. Fails if that is
    /// the only known skill and an unreadable part of the source may have another.
    pub fn unnamed_skill(&self) -> Result<&OfferedSkill, ChoiceError> {
        let skill = self.default_skill().ok_or(ChoiceError::Unclear)?;
        let mut left_out = self.left_out.iter();
        match left_out.find(|left| left.reason.is_fault()) {
            // If the skill is in the folder that the source names, the user means that one.
            Some(fault) if self.base.as_ref() != Some(&skill.folder) => {
                Err(ChoiceError::Incomplete {
                    skill: skill.name.clone(),
                    fault: fault.clone(),
                })
            }
            _ => Ok(skill),
        }
    }

    /// Chooses the selected skills. Fails if a name fits none or several skills, or if several
    /// skills are offered and none is named.
    pub fn choose(&self, selection: Selection<'_>) -> Result<Choice<'_>, ChoiceError> {
        let chosen = if selection.all {
            self.skills.iter().collect()
        } else if selection.names.is_empty() {
            vec![self.unnamed_skill()?]
        } else {
            let named = selection.names.iter().map(|name| self.find_skill(name));
            named.collect::<Result<Vec<_>, _>>()?
        };
        let choice = self.with_chosen(chosen);
        if choice.chosen.len() > selection.max_skills {
            return Err(ChoiceError::TooMany {
                found: choice.chosen.len(),
                limit: selection.max_skills,
            });
        }
        Ok(choice)
    }

    /// Returns the choice of these skills of the listing. A skill that is named twice is chosen
    /// once.
    pub fn with_chosen<'l>(&'l self, named: Vec<&'l OfferedSkill>) -> Choice<'l> {
        let mut folders = BTreeSet::new();
        let chosen: Vec<&OfferedSkill> = named
            .into_iter()
            .filter(|found| folders.insert(found.folder.as_str()))
            .collect();
        let others = self
            .skills
            .iter()
            .filter(|found| !folders.contains(found.folder.as_str()))
            .map(|found| LeftOut::new(&found.folder, LeftOutReason::NotChosen));
        let left_out = self.left_out.iter().cloned().chain(others).collect();
        Choice { chosen, left_out }
    }
}

/// Returns the folder that a text names; empty for the root. `None` if the text is a name and not a
/// path: it contains no slash and is not `.`.
fn named_folder(text: &str) -> Option<&str> {
    if text == "." {
        return Some("");
    }
    let folder = text.strip_prefix("./").unwrap_or(text);
    text.contains('/').then(|| folder.trim_end_matches('/'))
}

/// Returns the last part of a path; `None` for an empty one.
pub(crate) fn last_part(path: &str) -> Option<String> {
    path.rsplit('/')
        .next()
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(skills: &[(&str, &str)]) -> Listing {
        let skills = skills.iter().map(|(folder, name)| OfferedSkill {
            name: (*name).to_owned(),
            folder: (*folder).to_owned(),
            description: None,
            document: None,
            is_too_large: false,
        });
        Listing {
            skills: skills.collect(),
            left_out: vec![LeftOut::new("mods/gone", LeftOutReason::Submodule)],
            base: Some(String::new()),
        }
    }

    fn choose<'l>(listing: &'l Listing, names: &[&str]) -> Result<Vec<&'l str>, ChoiceError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let selection = Selection {
            names: &names,
            all: false,
            max_skills: 2,
        };
        let choice = listing.choose(selection)?;
        let listed = listing.skills.len() + listing.left_out.len();
        assert_eq!(choice.chosen.len() + choice.left_out.len(), listed);
        Ok(choice
            .chosen
            .iter()
            .map(|found| found.folder.as_str())
            .collect())
    }

    #[test]
    fn a_name_selects_one_skill_by_its_own_name_its_folder_or_its_path() {
        let listing = listing(&[
            ("", "root"),
            ("a/x", "one"),
            ("b/two", "two"),
            ("c/one", "y"),
            ("d", "x"),
        ]);
        for (names, folders) in [
            (&[][..], &[""][..]),
            (&["root"], &[""]),
            (&["d"], &["d"]),
            (&["./d", "."], &["d", ""]),
            (&["two"], &["b/two"]),
            (&["c/one"], &["c/one"]),
            (&["y", "two"], &["c/one", "b/two"]),
            (&["two", "b/two"], &["b/two"]),
            // A skill that is named twice counts once, also for the limit of two.
            (&["two", "b/two", "./b/two"], &["b/two"]),
        ] {
            assert_eq!(choose(&listing, names).unwrap(), folders, "{names:?}");
        }
        let ambiguous = ChoiceError::Ambiguous {
            name: "one".to_owned(),
            folders: vec!["a/x".to_owned(), "c/one".to_owned()],
        };
        for (names, error) in [
            (&["one"][..], ambiguous),
            (&["three"], ChoiceError::Unknown("three".to_owned())),
            (&["gone"], ChoiceError::LeftOut(listing.left_out[0].clone())),
            (
                &["root", "d", "y"],
                ChoiceError::TooMany { found: 3, limit: 2 },
            ),
        ] {
            assert_eq!(choose(&listing, names), Err(error), "{names:?}");
        }
    }

    #[test]
    fn a_path_selects_no_skill_by_the_name_that_it_gives_itself() {
        let listing = listing(&[("evil", "./pdf"), ("other", "a/pdf"), ("third", ".")]);
        for name in ["./pdf", "a/pdf", "/evil", "."] {
            let unknown = ChoiceError::Unknown(name.to_owned());
            assert_eq!(choose(&listing, &[name]), Err(unknown), "{name}");
        }
        let left_out = ChoiceError::LeftOut(listing.left_out[0].clone());
        assert_eq!(choose(&listing, &["./mods/gone"]), Err(left_out));
        assert_eq!(choose(&listing, &["./evil/"]).unwrap(), ["evil"]);
    }

    #[test]
    fn a_name_does_not_pass_over_a_skill_whose_name_is_unknown() {
        let mut listing = listing(&[("a", "a"), ("b", "b")]);
        listing.skills[1].is_too_large = true;
        let ambiguous = ChoiceError::Ambiguous {
            name: "a".to_owned(),
            folders: vec!["./a".to_owned(), "./b".to_owned()],
        };
        assert_eq!(choose(&listing, &["a"]), Err(ambiguous));
        assert_eq!(choose(&listing, &["./a"]).unwrap(), ["a"]);
        assert_eq!(choose(&listing, &["b"]).unwrap(), ["b"]);
    }

    #[test]
    fn without_a_name_several_skills_are_a_question() {
        let several = listing(&[("a", "a"), ("b", "b")]);
        assert_eq!(choose(&several, &[]), Err(ChoiceError::Unclear));
        assert_eq!(choose(&listing(&[("a", "a")]), &[]).unwrap(), ["a"]);
        assert_eq!(choose(&listing(&[]), &[]), Err(ChoiceError::Unclear));
    }

    #[test]
    fn without_a_name_the_only_skill_is_not_taken_from_a_source_that_was_not_read_whole() {
        let fault = LeftOut::new("b", LeftOutReason::BadEntry("it lists no files".to_owned()));
        for (folder, is_taken) in [("a", false), ("", true)] {
            let mut listing = listing(&[(folder, "a")]);
            listing.left_out.push(fault.clone());
            let incomplete = ChoiceError::Incomplete {
                skill: "a".to_owned(),
                fault: fault.clone(),
            };
            let taken = choose(&listing, &[]);
            let expected = if is_taken {
                Ok(vec![folder])
            } else {
                Err(incomplete)
            };
            assert_eq!(taken, expected);
            assert_eq!(choose(&listing, &["a"]).unwrap(), [folder]);
        }
    }
}
