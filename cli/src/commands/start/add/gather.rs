//! Turns the sources given to `vault add` into skills: folders of this machine, and fetched skills.

use std::io::Read as _;
use std::path::Path;

use vault_format::{manifest::SKILL_MD, provenance::is_archive};
use vault_gate::document::Document;
use vault_library::admit::{self, Options};
use vault_shelf::fetch::FetchedSkill;
use vault_sources::{OfferedSkill, Source, find, locks};

use super::Arguments;
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{Bar, Warning, clean},
    tasks::fetch::{self, Fetching, SkillSelection},
};

/// The number of bytes of a SKILL.md that are read for its description.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 10;

/// An item, or the label of a source with its failure.
pub type GatherResult<T> = Result<T, (String, Failure)>;

/// A skill to add.
pub struct SkillToAdd {
    /// The label in messages.
    pub label: String,
    /// The source of the files.
    pub source: admit::Source,
    /// The options from the command line.
    pub options: Options,
}

/// A parsed source and its label.
struct ParsedSource {
    text: String,
    source: Source,
    tree: Option<String>,
}

/// Resolves all sources to skills, and fetches remote ones. One of several sources may fail without
/// stopping the others.
pub fn gather_items(
    context: &Context,
    arguments: &Arguments,
    strict: bool,
) -> Result<Vec<GatherResult<SkillToAdd>>, Failure> {
    let mut gatherer = Gatherer {
        context,
        arguments,
        strict,
        fetching: None,
    };
    let mut items = Vec::new();
    for source in gatherer.parse_sources()? {
        match source.and_then(|source| {
            gatherer
                .resolve_source(&source)
                .map_err(|error| (source.text, error))
        }) {
            Ok(found) => items.extend(found.into_iter().map(Ok)),
            Err(failed) => items.push(Err(failed)),
        }
    }
    Ok(items)
}

struct Gatherer<'a> {
    context: &'a Context,
    arguments: &'a Arguments,
    strict: bool,
    fetching: Option<Fetching>,
}

impl Gatherer<'_> {
    /// The sources of the command line, or with `--from-lock` those of another tool's lock file.
    fn parse_sources(&self) -> Result<Vec<GatherResult<ParsedSource>>, Failure> {
        let (context, arguments) = (self.context, self.arguments);
        let mut options = fetch::parse_options(context)?;
        if let Some(path) = &arguments.from_lock {
            let bytes =
                std::fs::read(path).map_err(|error| Failure::io("reading", path, &error))?;
            if bytes.len() as u64 > locks::MAX_LOCK_BYTES {
                return Err(fail!(LockTooLarge, "the lock file is larger than 4 MiB"));
            }
            let folder = path.parent().unwrap_or(Path::new("."));
            let entries = locks::parse_lock(&bytes, folder, &options).map_err(|reason| {
                fail!(LockInvalid, "{}: {}", path.display(), clean(&reason, 300))
            })?;
            let parsed = entries.into_iter().map(|entry| match entry.source {
                Ok(source) => Ok(ParsedSource {
                    text: entry.name,
                    source,
                    tree: entry.tree,
                }),
                Err(bad) => Err((entry.name, fetch::bad_source(&bad))),
            });
            return Ok(parsed.collect());
        }
        // The user wrote these sources, so one may be a site on this machine.
        options.local_sites = true;
        let (path, reference) = (arguments.path.as_deref(), arguments.reference.as_deref());
        let mut sources = Vec::new();
        for text in arguments.sources.clone() {
            let parsed = fetch::parse_source(context, &text, &options)
                .and_then(|source| fetch::refine_source(source, path, reference));
            sources.push(match parsed {
                Ok(source) => Ok(ParsedSource {
                    text,
                    source,
                    tree: None,
                }),
                // One bad source does not stop the others. Alone, it is the failure of the command.
                Err(failure) if arguments.sources.len() > 1 => Err((text, failure)),
                Err(failure) => return Err(failure),
            });
        }
        Ok(sources)
    }

    fn resolve_source(&mut self, source: &ParsedSource) -> Result<Vec<SkillToAdd>, Failure> {
        match &source.source {
            // A path that is neither a folder nor an archive is a SKILL.md or does not exist. The
            // library handles the first and reports the second.
            Source::Local(path) if path.is_dir() || !is_archive(&path.to_string_lossy()) => {
                self.items_in_folder(path)
            }
            _ => self.fetch_items(source),
        }
    }

    fn skill_selection(&self) -> SkillSelection<'_> {
        SkillSelection {
            names: &self.arguments.skills,
            all: self.arguments.all,
        }
    }

    /// The skill in a folder, or the skills below it if the folder is not a skill itself.
    fn items_in_folder(&self, path: &Path) -> Result<Vec<SkillToAdd>, Failure> {
        let shown = path.display().to_string();
        // `symlink_metadata` also sees a broken link: a folder with one is a damaged skill and not
        // a folder of skills.
        let is_skill = !path.is_dir() || path.join(SKILL_MD).symlink_metadata().is_ok();
        let below = if is_skill {
            Vec::new()
        } else {
            find::local_skills(path)
        };
        let below_found = below.into_iter().map(|folder| OfferedSkill {
            name: folder.rsplit('/').next().unwrap_or_default().to_owned(),
            description: read_description(&path.join(&folder)),
            folder,
        });
        let skills_below: Vec<OfferedSkill> = below_found.collect();
        let only = match &skills_below[..] {
            // Either this is one skill, or the library reports why it is not.
            [] => return Ok(vec![self.folder_item(shown)]),
            [only] => Some(only),
            _ => None,
        };
        let chosen = fetch::choose_skills(
            self.context,
            &shown,
            &skills_below,
            only,
            self.skill_selection(),
        )?;
        let root = Path::new(shown.trim_end_matches('/'));
        let items = chosen.into_iter().map(|found| {
            let folder = root.join(&found.folder);
            self.folder_item(folder.display().to_string())
        });
        Ok(items.collect())
    }

    fn folder_item(&self, folder: String) -> SkillToAdd {
        let source = admit::Source::Folder(folder.clone());
        SkillToAdd {
            label: folder,
            source,
            options: self.admit_options(),
        }
    }

    fn admit_options(&self) -> Options {
        Options {
            name: self.arguments.name.clone(),
            agents: self.arguments.agents.clone(),
            provenance: self.arguments.provenance.clone(),
            replace: self.arguments.replace,
            strict: self.strict,
            hints: self.context.ui.is_verbose(),
            allow: self.arguments.allow.clone(),
            reason: self.arguments.reason.clone(),
            include: self.arguments.include.clone(),
            ..Options::default()
        }
    }

    fn fetch_items(&mut self, parsed: &ParsedSource) -> Result<Vec<SkillToAdd>, Failure> {
        let (context, arguments) = (self.context, self.arguments);
        let is_local = matches!(parsed.source, Source::Local(_));
        // An archive of this machine passes through the fetcher too, and must work with
        // `--offline`.
        if !is_local {
            context.require_network()?;
        }
        // Created with the first source that needs it, because most commands add folders and need
        // no HTTP client.
        if self.fetching.is_none() {
            self.fetching = Some(Fetching::new(context)?);
        }
        let Some(fetching) = &self.fetching else {
            return Ok(Vec::new());
        };
        let shown = parsed.source.display_name();
        let bar = context
            .ui
            .start_spinner(format!("Fetching {}", clean(&shown, 100)));
        let skills = context.block_on(self.download_skills(fetching, &parsed.source, &bar));
        drop(bar);
        let skills = skills?;
        if arguments.name.is_some() && skills.len() > 1 {
            return Err(super::name_needs_one());
        }
        let items = skills.into_iter().map(|(name, skill)| {
            // The lock of another tool pins no content for vault. A changed tree is only a warning,
            // because the gate judges what was fetched.
            if let (Some(noted), Some(tree)) = (&parsed.tree, &skill.upstream.tree)
                && noted != tree
            {
                let name = clean(&name, 64);
                let text = format!("{name} changed after the lock file was written");
                context.ui.warn(Warning::new("source_moved", text));
            }
            // Skills of one source need labels that differ. A label that ends in the name needs no
            // second one.
            let is_named = shown.rsplit('/').next() == Some(name.as_str());
            let shown = if is_local || is_named || skill.upstream.path.is_none() {
                shown.clone()
            } else {
                format!("{shown} ({name})")
            };
            let source = admit::Source::Fetched(Box::new(skill));
            // An absolute path, so that later commands find the archive from any folder.
            let archive = match &parsed.source {
                Source::Local(path) => path.canonicalize().ok(),
                _ => None,
            };
            SkillToAdd {
                label: shown,
                source,
                options: Options {
                    archive,
                    ..self.admit_options()
                },
            }
        });
        Ok(items.collect())
    }

    /// Opens a source, lets the user choose among its skills, and downloads the chosen ones.
    /// Returns each with its name at the source.
    async fn download_skills(
        &self,
        fetching: &Fetching,
        source: &Source,
        bar: &Bar,
    ) -> Result<Vec<(String, FetchedSkill)>, Failure> {
        let failed = |error: vault_sources::FetchError| fetch::fetch_failure(&error);
        let (fetcher, policy) = (&fetching.fetcher, &fetching.policy);
        let plugin = self.arguments.plugin.as_deref();
        let opened = fetcher
            .open_source(source, plugin, policy)
            .await
            .map_err(failed)?;
        let shown = source.display_name();
        for notice in &opened.notices {
            let mut warning = Warning::new("source_notice", clean(notice, 400));
            warning.path = Some(clean(&shown, 200));
            self.context.ui.warn(warning);
        }
        // `owner/repository@name` selects a skill, unless flags select.
        let in_source = match source {
            Source::Git(git) => git.skill.clone().map(|skill| (git, [skill])),
            _ => None,
        };
        let selection = match (&in_source, self.skill_selection()) {
            (
                Some((_, names)),
                SkillSelection {
                    names: [],
                    all: false,
                },
            ) => SkillSelection { names, all: false },
            (_, selection) => selection,
        };
        let chosen = fetch::choose_skills(
            self.context,
            &shown,
            &opened.skills,
            opened.default_skill(),
            selection,
        );
        let chosen = match (chosen, &in_source) {
            // `@` selects a skill, but many people expect it to select a branch or tag. The
            // repository is asked only after the failure, because this takes a request.
            (Err(failure), Some((git, [name])))
                if failure.code == ErrorCode::SkillNotInSource
                    && fetcher.has_reference(git, name).await =>
            {
                return Err(failure.hint(format!(
                    "{name} is a branch, tag or commit there: write #{name} in place of @{name}"
                )));
            }
            (chosen, _) => chosen?,
        };
        let mut skills = Vec::new();
        for found in chosen {
            bar.set_message(&format!("Fetching {}", clean(&found.name, 100)));
            let skill = fetcher
                .take_skill(&opened, found, policy)
                .await
                .map_err(failed)?;
            skills.push((found.name.clone(), skill));
        }
        Ok(skills)
    }
}

/// Returns the description shown in the picker, if SKILL.md can be parsed.
fn read_description(folder: &Path) -> Option<String> {
    let file = std::fs::File::open(folder.join(SKILL_MD)).ok()?;
    let mut bytes = Vec::new();
    // The gate has not seen this file yet, so its size is not bounded.
    file.take(MAX_DESCRIPTION_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    let document = Document::parse(&bytes).ok()?;
    Some(document.frontmatter().description.clone())
}
