//! Resolves the sources given to `vault add` to single skills: lists the skills of each source,
//! selects among them by flags or by asking, and downloads those of remote sources.

use std::path::{Path, PathBuf};

use vault_format::{credentials::without_credentials, provenance::is_archive};
use vault_library::admit::{self, Options};
use vault_shelf::fetch::FetchedSkill;
use vault_sources::{
    FetchError, GitSource, LeftOut, Listing, OfferedSkill, Opened, Part, Selection, Source, locks,
};

use super::Arguments;
use super::report::{LeftOutSkill, SourcePart, SourcePlace};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{Bar, Warning, clean},
    tasks::fetch::{self, Fetching},
};

/// What became of one skill, or the failure of a source or skill with the place that failed.
pub type GatherResult<T> = Result<T, (SourcePlace, Failure)>;

/// A skill that `vault add` was asked to add, with its files already found or fetched.
pub struct SkillToAdd {
    /// The source, or the skill in it, as messages and `--json` name it.
    pub place: SourcePlace,
    /// The folder with the skill's files, or the fetched files.
    pub source: admit::Source,
    /// The options of the command line for scanning and admitting it.
    pub options: Options,
}

/// A parsed source with the parts of it that the flags or a lock file select.
struct ParsedSource {
    text: String,
    source: Source,
    /// The folder of this machine that the user named, if `--path` selects another one below it.
    top: Option<PathBuf>,
    /// The folder inside the archive that `--path` selects; `None` if the source is no archive.
    inside: Option<String>,
    /// The name of the skill, if the source is an entry of another tool's lock file.
    skill: Option<String>,
    tree: Option<String>,
}

/// The skills of all sources. Each listed skill is either in `items` or in `left_out`.
pub struct Gathered {
    /// The skills to add, and the sources and skills that failed.
    pub items: Vec<GatherResult<SkillToAdd>>,
    /// The listed skills that are not added, each with the reason.
    pub left_out: Vec<LeftOutSkill>,
    /// The number of failures in `items` that are about a whole source.
    pub failed_sources: usize,
}

/// Resolves all sources of the arguments to skills, and fetches remote ones. If one of several
/// sources fails, the others are still resolved.
pub fn gather_items(
    context: &Context,
    arguments: &Arguments,
    strict: bool,
) -> Result<Gathered, Failure> {
    let mut gatherer = Gatherer {
        context,
        arguments,
        strict,
        fetching: None,
        left_out: Vec::new(),
    };
    let (mut items, mut failed_sources) = (Vec::new(), 0);
    for source in gatherer.parse_sources()? {
        match source.and_then(|source| {
            gatherer
                .resolve_source(&source)
                .map_err(|error| (source.text.into(), error))
        }) {
            Ok(found) => items.extend(found),
            Err(failed) => {
                failed_sources += 1;
                items.push(Err(failed));
            }
        }
    }
    // Each source is within the limit. It holds for the command, and so for all of them together.
    let chosen = items.iter().filter(|item| item.is_ok()).count();
    if chosen > arguments.max_skills {
        return Err(fetch::too_many_skills(
            "the sources have",
            chosen,
            arguments.max_skills,
        ));
    }
    Ok(Gathered {
        items,
        left_out: gatherer.left_out,
        failed_sources,
    })
}

struct Gatherer<'a> {
    context: &'a Context,
    arguments: &'a Arguments,
    strict: bool,
    fetching: Option<Fetching>,
    left_out: Vec<LeftOutSkill>,
}

/// A chosen skill of a source that was opened by the fetcher.
struct Downloaded {
    /// The skill's name in the source, which `--name` may replace.
    name: String,
    /// The folder or index entry in the source; empty for the root.
    folder: String,
    /// Whether the name of the source suffices as the label.
    is_told: bool,
    content: Result<Content, Failure>,
}

/// Where the files of a chosen skill are.
enum Content {
    /// A local folder, which the library reads itself: its label and its source.
    Folder(String, admit::Source),
    Fetched(Box<FetchedSkill>),
}

impl Gatherer<'_> {
    /// Parses the sources of the command line, or with `--from-lock` those of another tool's lock
    /// file.
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
                    top: None,
                    inside: None,
                    skill: entry.skill,
                    tree: entry.tree,
                }),
                Err(bad) => Err((entry.name.into(), fetch::bad_source(&bad))),
            });
            return Ok(parsed.collect());
        }
        // The user typed these sources, so one may be a site on this machine.
        options.local_sites = true;
        let (path, reference) = (arguments.path.as_deref(), arguments.reference.as_deref());
        let mut sources = Vec::new();
        for text in arguments.sources.clone() {
            let parsed = fetch::parse_source(context, &text, &options).and_then(|source| {
                self.check_selection(&source)?;
                let top = match &source {
                    Source::Local(top) => path.map(|_| top.clone()),
                    _ => None,
                };
                let (source, inside) = fetch::refine_source(source, path, reference)?;
                Ok((source, top, inside.map(str::to_owned)))
            });
            sources.push(match parsed {
                Ok((source, top, inside)) => Ok(ParsedSource {
                    text,
                    source,
                    top,
                    inside,
                    skill: None,
                    tree: None,
                }),
                // One bad source must not stop the others. A single bad source fails the command.
                Err(failure) if arguments.sources.len() > 1 => {
                    Err((without_credentials(&text).into(), failure))
                }
                Err(failure) => return Err(failure),
            });
        }
        Ok(sources)
    }

    fn resolve_source(
        &mut self,
        source: &ParsedSource,
    ) -> Result<Vec<GatherResult<SkillToAdd>>, Failure> {
        match &source.source {
            // A path that is neither a folder nor an archive is a SKILL.md or does not exist; the
            // library handles both. A plugin may be at another source, so leave it to the fetcher.
            Source::Local(path)
                if self.arguments.plugin.is_none()
                    && (path.is_dir() || !is_archive(&path.to_string_lossy())) =>
            {
                self.items_in_folder(path, source)
            }
            _ => self.fetch_items(source),
        }
    }

    /// Fails if both the source (`owner/repository@name`) and a flag select skills, because one of
    /// them would be ignored.
    fn check_selection(&self, source: &Source) -> Result<(), Failure> {
        let Source::Git(GitSource {
            skill: Some(skill), ..
        }) = source
        else {
            return Ok(());
        };
        let flag = match (self.arguments.all, self.arguments.skills.as_slice()) {
            (true, _) => "--all",
            (false, []) => return Ok(()),
            (false, _) => "--skill",
        };
        let skill = clean(skill, 64);
        Err(fail!(
            Usage,
            "the source names the skill {skill}, so {flag} cannot select others"
        )
        .hint(format!("leave out @{skill} or {flag}")))
    }

    fn skill_selection<'s>(&'s self, source: &'s ParsedSource) -> Selection<'s> {
        let names = source.skill.as_ref().map(std::slice::from_ref);
        Selection {
            names: names.unwrap_or(&self.arguments.skills),
            all: self.arguments.all,
            max_skills: self.arguments.max_skills,
        }
    }

    /// Records the skills that are left out. With `--all`, returns the faulty ones as failures
    /// instead: the user wanted all skills and must learn that some cannot be added.
    fn leave_out(&mut self, source: &str, left_out: Vec<LeftOut>) -> Vec<GatherResult<SkillToAdd>> {
        let is_fault = |left: &LeftOut| self.arguments.all && left.reason.is_fault();
        let (faults, left_out): (Vec<_>, Vec<_>) = left_out.into_iter().partition(is_fault);
        let left_out = left_out.into_iter().map(|left| LeftOutSkill {
            source: clean(source, 200),
            path: left.path,
            reason: left.reason.word(),
            message: left.reason.to_string(),
        });
        self.left_out.extend(left_out);
        let faults = faults.into_iter().map(|left| {
            let (path, reason) = (clean(&left.path, 200), left.reason.to_string());
            let failure = fail!(SourceMalformed, "{path}: {}", clean(&reason, 300));
            let part = SourcePart {
                path: left.path,
                reason: Some(left.reason.word()),
            };
            let place = SourcePlace {
                label: format!("{source} ({path})"),
                part: Some(Box::new(part)),
            };
            Err((place, failure))
        });
        faults.collect()
    }

    /// Lists the skills in a local folder, and returns the chosen ones.
    fn items_in_folder(
        &mut self,
        path: &Path,
        source: &ParsedSource,
    ) -> Result<Vec<GatherResult<SkillToAdd>>, Failure> {
        let shown = path.display().to_string();
        let listing = vault_sources::list_folder(path);
        let listing = listing.map_err(|error| fetch::fetch_failure(&error))?;
        let selection = self.skill_selection(source);
        let is_unnamed = selection.names.is_empty();
        let is_all = self.arguments.all;
        let is_listed = |found: &Listing| {
            let is_empty = found.skills.is_empty() && found.left_out.is_empty();
            !is_empty || !is_unnamed || is_all
        };
        let Some(listing) = listing.filter(is_listed) else {
            // Pass on a folder without skills unchanged: the library reports what it lacks.
            let source = admit::Source::Folder(shown.clone());
            return Ok(vec![Ok(self.folder_item(shown.into(), source))]);
        };
        if listing.skills.is_empty() && is_unnamed {
            return self.report_no_skills(&shown, listing.left_out);
        }
        let choice = fetch::choose_skills(self.context, &shown, &listing, selection)?;
        let top = source.top.as_deref();
        let items = choice.chosen.iter().map(|found| {
            let label = folder_below(&shown, &found.folder);
            let place = SourcePlace::of_skill(label, &found.folder);
            Ok(self.folder_item(place, folder_source(path, top, found)))
        });
        let mut items: Vec<_> = items.collect();
        let left_out = choice.left_out;
        items.extend(self.leave_out(&shown, left_out));
        Ok(items)
    }

    /// Handles a source without skills that can be added: returns the faulty ones as failures, or
    /// else fails.
    fn report_no_skills(
        &mut self,
        shown: &str,
        left_out: Vec<LeftOut>,
    ) -> Result<Vec<GatherResult<SkillToAdd>>, Failure> {
        let faults = self.leave_out(shown, left_out);
        if !faults.is_empty() {
            return Ok(faults);
        }
        Err(fetch::no_skills(shown))
    }

    fn folder_item(&self, place: SourcePlace, source: admit::Source) -> SkillToAdd {
        SkillToAdd {
            place,
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
            end_exceptions: self.arguments.end_exceptions.clone(),
            include: self.arguments.include.clone(),
            copy_links: self.arguments.copy_links,
            ..Options::default()
        }
    }

    fn fetch_items(
        &mut self,
        parsed: &ParsedSource,
    ) -> Result<Vec<GatherResult<SkillToAdd>>, Failure> {
        let (context, arguments) = (self.context, self.arguments);
        let is_local = matches!(parsed.source, Source::Local(_));
        // A local archive passes through the fetcher too, and must work with `--offline`.
        if !is_local {
            context.require_network()?;
        }
        // Create the fetcher only now, because most commands add local folders and need no HTTP
        // client.
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
        let skills = context.block_on(self.download_skills(fetching, parsed, &bar));
        drop(bar);
        let (skills, left_out) = skills?;
        if skills.is_empty() {
            return self.report_no_skills(&shown, left_out);
        }
        if arguments.name.is_some() && skills.len() > 1 {
            return Err(super::name_needs_one());
        }
        let faults = self.leave_out(&shown, left_out);
        let items = skills.into_iter().map(|skill| {
            let Downloaded {
                name,
                folder,
                is_told,
                content,
            } = skill;
            let mut place = SourcePlace::of_skill(shown.clone(), &folder);
            // Skills of one source need labels that differ.
            if let Some(part) = place.part.as_ref().filter(|_| !is_told) {
                place.label = format!("{shown} ({})", clean(&part.path, 200));
            }
            let skill = match content {
                Ok(Content::Folder(label, source)) => {
                    return Ok(self.folder_item(SourcePlace { label, ..place }, source));
                }
                Ok(Content::Fetched(skill)) => skill,
                Err(failure) => return Err((place, failure)),
            };
            // Only warn if the tree differs from the other tool's lock: for vault, the gate decides
            // about what was fetched.
            if let (Some(noted), Some(tree)) = (&parsed.tree, &skill.upstream.tree)
                && noted != tree
            {
                let name = clean(&name, 64);
                let text = format!("{name} changed after the lock file was written");
                context.ui.warn(Warning::new("source_moved", text));
            }
            let source = admit::Source::Fetched(skill);
            // Record an absolute path, so that later commands find the archive from any folder.
            let archive = match &parsed.source {
                Source::Local(path) => path.canonicalize().ok(),
                _ => None,
            };
            Ok(SkillToAdd {
                place,
                source,
                options: Options {
                    archive,
                    ..self.admit_options()
                },
            })
        });
        Ok(items.chain(faults).collect())
    }

    /// Opens a source, selects among its skills, and downloads the chosen ones. Also returns the
    /// skills that were left out. A skill that cannot be downloaded does not stop the others.
    async fn download_skills(
        &self,
        fetching: &Fetching,
        parsed: &ParsedSource,
        bar: &Bar,
    ) -> Result<(Vec<Downloaded>, Vec<LeftOut>), Failure> {
        let source = &parsed.source;
        // `owner/repository@name` selects a skill like a flag.
        let in_source = match source {
            Source::Git(git) => git.skill.clone().map(|skill| (git, [skill])),
            _ => None,
        };
        let mut selection = self.skill_selection(parsed);
        if let Some((_, names)) = &in_source {
            selection.names = names;
        }
        let shown = source.display_name();
        let opened = match self.open_source(fetching, parsed).await {
            Ok(opened) => opened,
            Err(FetchError::NoneOffered { left_out, .. }) if selection.names.is_empty() => {
                return Ok((Vec::new(), left_out));
            }
            // The user named a skill, so report why that one cannot be added.
            Err(FetchError::NoneOffered { left_out, .. }) => {
                let listing = Listing::of_left_out(left_out);
                let choice = fetch::choose_skills(self.context, &shown, &listing, selection);
                return Err(choice.map_or_else(|failure| failure, |_| fetch::no_skills(&shown)));
            }
            Err(error) => return Err(fetch::fetch_failure(&error)),
        };
        let choice = fetch::choose_skills(self.context, &shown, &opened.listing, selection);
        let choice = match (choice, &in_source) {
            // `@` selects a skill, but many people expect a branch or tag. Ask the repository for
            // one only after the failure, because this takes a request.
            (Err(failure), Some((git, [name])))
                if failure.code == ErrorCode::SkillNotInSource
                    && fetching.fetcher.has_reference(git, name).await =>
            {
                return Err(failure.hint(format!(
                    "{name} is a branch, tag or commit there: write #{name} in place of @{name}"
                )));
            }
            (choice, _) => choice?,
        };
        let mut skills = Vec::new();
        for found in choice.chosen {
            let content = self
                .take_found(fetching, (parsed, &opened), found, bar)
                .await;
            let is_told = found.folder.is_empty() || shown.ends_with(&format!("/{}", found.name));
            skills.push(Downloaded {
                name: found.name.clone(),
                folder: found.folder.clone(),
                is_told: opened.listing.skills.len() == 1 && is_told,
                content,
            });
        }
        Ok((skills, choice.left_out))
    }
}

impl Gatherer<'_> {
    /// Opens a source, and prints the notes and warnings that came with it, such as that of an
    /// index without digests.
    async fn open_source(
        &self,
        fetching: &Fetching,
        parsed: &ParsedSource,
    ) -> Result<Opened, FetchError> {
        let part = Part {
            path: parsed.inside.as_deref(),
            plugin: self.arguments.plugin.as_deref(),
        };
        let (fetcher, policy) = (&fetching.fetcher, &fetching.policy);
        let mut opened = fetcher.open_part(&parsed.source, part, policy).await?;
        opened.copy_links = self.arguments.copy_links;
        let shown = clean(&parsed.source.display_name(), 200);
        for note in &opened.notes {
            let note = clean(note, 400);
            self.context.ui.note(format!("{shown}: {note}"));
        }
        for notice in &opened.notices {
            let mut warning = Warning::new("source_notice", clean(notice, 400));
            warning.path = Some(shown.clone());
            self.context.ui.warn(warning);
        }
        Ok(opened)
    }

    /// Returns the content of a chosen skill: its folder on this machine, or its downloaded files.
    async fn take_found(
        &self,
        fetching: &Fetching,
        (parsed, opened): (&ParsedSource, &Opened),
        found: &OfferedSkill,
        bar: &Bar,
    ) -> Result<Content, Failure> {
        if let Some(root) = opened.local_root() {
            let label = folder_below(&root.display().to_string(), &found.folder);
            let source = folder_source(root, parsed.top.as_deref(), found);
            return Ok(Content::Folder(label, source));
        }
        bar.set_message(&format!("Fetching {}", clean(&found.name, 100)));
        let (fetcher, policy) = (&fetching.fetcher, &fetching.policy);
        let taken = fetcher.take_skill(opened, found, policy).await;
        taken
            .map(|skill| Content::Fetched(Box::new(skill)))
            .map_err(|error| fetch::fetch_failure(&error))
    }
}

/// Returns the source of a skill that was found in a folder of this machine. `top` is the folder
/// that the user named, if `root` is another one below it.
fn folder_source(root: &Path, top: Option<&Path>, found: &OfferedSkill) -> admit::Source {
    let folder = root.join(&found.folder);
    let (top, below) = match top.map(|top| (top, folder.strip_prefix(top))) {
        Some((top, Ok(below))) => (top, below.to_string_lossy().into_owned()),
        _ => (root, found.folder.clone()),
    };
    admit::Source::FolderBelow {
        top: top.to_owned(),
        below,
        document: found.document,
    }
}

/// Joins the path of a source, as the user typed it, and a folder in it; an empty `folder` is the
/// source itself.
fn folder_below(root: &str, folder: &str) -> String {
    if folder.is_empty() {
        return root.to_owned();
    }
    let root = Path::new(root.trim_end_matches('/'));
    root.join(folder).display().to_string()
}
