//! Fetching of skills from sources (code hosts, archives, registries, folders): the fetcher's
//! settings, the owner's policy on sources, the choice among the skills of a source, and the
//! conversion of fetch errors.
//!
//! A *guarded* fetcher serves a caller who is not the user at the command line: an agent's tool or
//! a remote caller. It reaches only public hosts, and has neither a proxy nor the user's source
//! tokens.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use url::Url;
use vault_format::{draft, name::SkillName};
use vault_gate::is_document_name;
use vault_library::{read_policy_at, read_source_policy};
use vault_policy::Policy;
use vault_shelf::fetch::{Fetch as _, FetchFault, FetchedSkill, Upstream};
use vault_sources::source::check_path;
use vault_sources::{
    BadSource, Choice, ChoiceError, DEFAULT_CLAWHUB, DEFAULT_NPM, FetchError, Fetcher, GitFault,
    GitSettings, HiddenTexts, Limits, Listing, OfferedSkill, ParseOptions, Proxy, Selection,
    Settings, Source, SourcePolicy, Tokens, is_loopback,
};
use vault_store::clock::SystemClock;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, Place, message_chain},
    output::{clean, count, nearest_name},
};

/// A fetcher for sources that the user named, with the policy and the parse options to use with it.
pub struct Fetching {
    /// The client that downloads from repositories, registries and web addresses.
    pub fetcher: Arc<Fetcher>,
    /// Decides which sources the owner's policy allows.
    pub policy: SourcePolicy,
    /// The options for parsing source arguments.
    pub options: ParseOptions,
}

impl Fetching {
    /// Reads the settings and the policy; opens no connection. Fails if the policy cannot be read,
    /// so that nothing is fetched without checking it.
    pub fn new(context: &Context) -> Result<Self, Failure> {
        let mut settings = fetch_settings(context, false)?;
        // The user typed the sources, so a site on this machine may be one of them.
        settings.local_sites = true;
        Self::with_settings(context, settings)
    }

    /// Like [`Fetching::new`], for a search of several places: no request takes longer than 20 seconds,
    /// so that a slow place does not hold up the others.
    pub fn for_search(context: &Context) -> Result<Self, Failure> {
        let mut settings = fetch_settings(context, false)?;
        settings.local_sites = true;
        settings.limits.whole = Duration::from_secs(20);
        Self::with_settings(context, settings)
    }

    /// Like [`Fetching::new`], for the sources of a project's lock. A lock comes with a repository,
    /// whose author must not make this machine contact services on loopback.
    pub fn for_project(context: &Context) -> Result<Self, Failure> {
        Self::with_settings(context, fetch_settings(context, false)?)
    }

    /// Like [`Fetching::for_project`], for what the author of a skill requires, before the user has
    /// seen it. Such a repository must be on a public host, unless it is on the host of the skill
    /// itself, which the user named.
    pub fn for_requirement(context: &Context, is_own_host: bool) -> Result<Self, Failure> {
        let mut settings = fetch_settings(context, false)?;
        // Behind a proxy, git cannot be pinned to the addresses that were checked.
        settings.guarded = !is_own_host && settings.proxy.is_none();
        Self::with_settings(context, settings)
    }

    fn with_settings(context: &Context, settings: Settings) -> Result<Self, Failure> {
        let policy = load_policy(context)?;
        let options = ParseOptions {
            local_sites: settings.local_sites,
            ..settings.parse.clone()
        };
        Ok(Self {
            fetcher: new_fetcher(settings),
            policy: SourcePolicy::new(policy.as_ref()),
            options,
        })
    }
}

/// Reads the options for parsing source arguments: whether loopback addresses are allowed, and the
/// host of `owner/repository` (`GH_HOST`).
pub fn parse_options(context: &Context) -> Result<ParseOptions, Failure> {
    let loopback = context.settings()?.boolean("VAULT_SOURCES_ALLOW_LOOPBACK");
    let mut options = ParseOptions {
        loopback: loopback.unwrap_or(false),
        ..ParseOptions::default()
    };
    if let Some(host) = context.process.variable("GH_HOST") {
        // The host becomes part of an address, so accept only characters of a host name.
        let is_allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
        if host.len() > 253 || host.starts_with(['-', '.']) || !host.bytes().all(is_allowed) {
            return Err(fail!(SettingInvalid, "GH_HOST is not a host name")
                .hint("set it to the host of owner/repository, such as git.example.com"));
        }
        host.clone_into(&mut options.default_host);
    }
    Ok(options)
}

/// Parses a source argument. `owner/repository` without a prefix could also be a path, so it
/// requires a confirmation. `--yes` confirms only known code hosts.
pub fn parse_source(
    context: &Context,
    text: &str,
    options: &ParseOptions,
) -> Result<Source, Failure> {
    let exists = |path: &str| Path::new(path).symlink_metadata().is_ok();
    let bad = match Source::parse(text, options, &exists) {
        Ok(source) => return Ok(source),
        Err(bad) => bad,
    };
    if let BadSource::Shorthand {
        written,
        repository,
        ..
    } = &bad
    {
        // `--yes` must not turn a mistyped path such as `notes.txt/a/b` into a request to the host
        // `notes.txt`.
        let is_known_host = ["github:", "gitlab:"]
            .iter()
            .any(|prefix| repository.identifier.starts_with(prefix))
            || repository.place.split('/').next() == Some(options.default_host.as_str());
        if context.ui.is_yes() && !is_known_host {
            return Err(bad_source(&bad));
        }
        let written = clean(written, 400);
        let question = format!("{}. Fetch {written}?", clean(&bad.to_string(), 600));
        let hint = || format!("for the repository write {written}, or answer with `--yes`");
        let confirmed = context
            .ui
            .confirm(&question)
            // Without a terminal, the hint must name both ways to answer.
            .map_err(|failure| failure.hint(hint()))?;
        if confirmed {
            return bad.accept_shorthand().map_err(|bad| bad_source(&bad));
        }
    }
    Err(bad_source(&bad))
}

/// The failure for an argument that cannot be parsed as a source.
pub fn bad_source(bad: &BadSource) -> Failure {
    let failure = match bad {
        BadSource::Invalid { .. } | BadSource::NoPart { .. } => {
            fail!(SourceInvalid, "{}", clean(&bad.to_string(), 600))
        }
        BadSource::Missing { text, .. } | BadSource::Shorthand { text, .. } => {
            Failure::no_such_path(text)
        }
    };
    failure.hint_if(bad.hint())
}

/// Applies the values of `--path` (a folder inside the source) and `--ref` (a branch, tag, commit
/// or version) to a source. An archive cannot carry the folder itself, so the folder is then
/// returned too.
pub fn refine_source<'a>(
    mut source: Source,
    path: Option<&'a str>,
    reference: Option<&str>,
) -> Result<(Source, Option<&'a str>), Failure> {
    let mut inside = None;
    let path = path.map(folder_in_source).transpose()?.flatten();
    if let Some(path) = path
        && source.is_archive()
    {
        inside = Some(check_path(path).map_err(|bad| bad_source(&bad))?);
    } else if let Some(path) = path {
        // The folder may be a clone, and a link in it must not make vault read other files.
        if let Source::Local(folder) = &source
            && let Some(link) = vault_sources::find_link(folder, path)
        {
            let link = clean(&link.display().to_string(), 400);
            return Err(fail!(SourceInvalid, "{link} is a symbolic link")
                .hint("name the folder that it leads to"));
        }
        source = source.with_path(path).map_err(|bad| bad_source(&bad))?;
    }
    if let Some(reference) = reference {
        source = source
            .with_reference(reference)
            .map_err(|bad| bad_source(&bad))?;
    }
    Ok((source, inside))
}

/// Returns the folder that the value of `--path` names. People also name the SKILL.md in it, so
/// that is cut off. `None` is the source itself.
fn folder_in_source(path: &str) -> Result<Option<&str>, Failure> {
    if path.starts_with('/') {
        let path = clean(path, 200);
        return Err(fail!(SourceInvalid, "{path} is not a path in the source")
            .hint("--path names a folder below the source, such as skills/pdf"));
    }
    let path = path.trim_start_matches("./").trim_end_matches('/');
    let folder = match path.rsplit_once('/') {
        Some((folder, name)) if is_document_name(name) => folder,
        None if matches!(path, "" | ".") || is_document_name(path) => return Ok(None),
        _ => path,
    };
    Ok(Some(folder))
}

/// Reads the settings of a fetcher. `guarded` is explained in the module's documentation.
pub fn fetch_settings(context: &Context, guarded: bool) -> Result<Settings, Failure> {
    let settings = context.settings()?;
    let parse = parse_options(context)?;
    let process = &context.process;
    // If git is not in PATH, starting it fails later, with a message that names git.
    let mut git = GitSettings::new(process.find_program("git").unwrap_or_else(|| "git".into()));
    git.ssh_command = process.variable("GIT_SSH_COMMAND").map(str::to_owned);
    git.loopback = parse.loopback;
    let proxies = PROXY_VARIABLES.iter();
    let proxies = proxies.filter_map(|name| process.variable(name));
    git.hidden = HiddenTexts::of_proxies(proxies);
    let address = |name: &str, text: &str| {
        let url: Option<Url> = text.parse().ok();
        // Over plain HTTP, anyone on the network could replace the answers.
        let is_plain = |url: &Url| url.scheme() == "http" && (parse.loopback || is_loopback(url));
        url.filter(|url| url.scheme() == "https" || is_plain(url))
            .ok_or_else(|| {
                fail!(
                    SettingInvalid,
                    "{name} must be an https address, or http on this machine"
                )
            })
    };
    let address_or = |name, default| address(name, settings.text(name).unwrap_or(default));
    let registry = "VAULT_REGISTRY_URL";
    let registry = settings
        .text(registry)
        .map(|text| address(registry, text))
        .transpose()?;
    // Tools must not use the user's source tokens; only commands that the user runs may.
    let tokens = match settings.text("VAULT_SOURCE_TOKENS") {
        Some(text) if !guarded => Tokens::parse(text).map_err(|bad| {
            fail!(SettingInvalid, "VAULT_SOURCE_TOKENS: {bad}")
                .hint("docs.example=TOKEN,other.example:8443=TOKEN")
        })?,
        _ => Tokens::default(),
    };
    Ok(Settings {
        git,
        tokens,
        limits: Limits::default(),
        // A proxy resolves names, so the guard could not check which addresses a tool of an agent or
        // a remote caller reaches.
        proxy: (!guarded).then(|| read_proxy(context)).flatten(),
        clawhub: address_or("VAULT_CLAWHUB_URL", DEFAULT_CLAWHUB)?,
        npm: address_or("VAULT_NPM_REGISTRY_URL", DEFAULT_NPM)?,
        registry,
        parse,
        guarded,
        // Only a caller whose sources come from the user turns this on.
        local_sites: false,
    })
}

/// The variables that git and curl read for the address of a proxy.
const PROXY_VARIABLES: [&str; 6] = [
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "http_proxy",
    "HTTP_PROXY",
];

/// Reads the proxy from the environment, in the order in which git and curl read the variables.
/// Returns `None` if none of them names one, or if the first that is set is an empty one for https:
/// git then connects directly too.
fn read_proxy(context: &Context) -> Option<Proxy> {
    let process = &context.process;
    let is_direct = process.is_empty("https_proxy")
        || process.variable("https_proxy").is_none() && process.is_empty("HTTPS_PROXY");
    if is_direct {
        return None;
    }
    let find = |names: [&'static str; 2]| {
        let mut names = names.into_iter();
        names.find_map(|name| Some((name, context.process.variable(name)?)))
    };
    let (name, address) =
        find(["https_proxy", "HTTPS_PROXY"]).or_else(|| find(["all_proxy", "ALL_PROXY"]))?;
    let direct = find(["no_proxy", "NO_PROXY"]).map_or("", |(_, list)| list);
    Some(Proxy::new(name, address, direct))
}

/// Returns whether the owner has limited the sources that may be fetched. Fails if the policy cannot
/// be read.
pub fn has_source_policy(context: &Context) -> Result<bool, Failure> {
    let policy = load_policy(context)?;
    Ok(policy.is_some_and(|policy| policy.sources.is_some()))
}

/// Reads the policy that decides which sources may be fetched; `None` if the owner has written
/// none.
fn load_policy(context: &Context) -> Result<Option<Policy>, Failure> {
    let root = context.vault_paths()?.root;
    let policy = match context.existing_vault()? {
        Some(vault) => read_source_policy(&vault),
        // The policy file may be written before the vault exists, and counts from then on.
        None => read_policy_at(&root),
    };
    policy.map_err(|error| {
        let path = root.join(vault_library::POLICY_FILE);
        let error = message_chain(&error);
        fail!(
            PolicyInvalid,
            "the policy cannot be read, so nothing was fetched: {error}"
        )
        .at(Place::new(&path, None))
        .hint("vault policy check shows where")
    })
}

/// Fetches a skill from a source that another person chose, such as the author of a draft. Reaches
/// only public hosts.
pub fn fetch_named(
    context: &Context,
    source: &draft::Source,
    skill: &SkillName,
) -> Result<FetchedSkill, Failure> {
    let (fetcher, policy) = (for_tools(context)?, load_policy(context)?);
    let bar = context.ui.start_spinner(format!("Fetching {skill}"));
    let fetched = context.block_on(async {
        let fetched = fetcher.fetch(source, Some(skill), policy.as_ref()).await;
        fetched.map_err(|fault| tool_failure(&fault))
    });
    drop(bar);
    fetched
}

/// Fetches a skill again from its recorded source, with the limits of an agent's tool: reaches only
/// public hosts.
pub fn fetch_upstream(
    context: &Context,
    upstream: &Upstream,
    skill: &SkillName,
) -> Result<FetchedSkill, Failure> {
    let (fetcher, policy) = (for_tools(context)?, load_policy(context)?);
    let bar = context.ui.start_spinner(format!("Fetching {skill}"));
    let fetched = context.block_on(async {
        let fetched = fetcher.fetch_again(upstream, policy.as_ref()).await;
        fetched.map_err(|fault| tool_failure(&fault))
    });
    drop(bar);
    fetched
}

fn tool_failure(fault: &FetchFault) -> Failure {
    // The message may quote text of an untrusted host.
    let message = clean(&fault.to_string(), 400);
    match fault {
        FetchFault::Refused(_) => fail!(SourceRefused, "{message}"),
        FetchFault::NotFound(_) => fail!(SourceNotFound, "{message}"),
        FetchFault::Unreachable(_) => fail!(SourceUnreachable, "{message}"),
    }
}

/// Creates the guarded fetcher for agents' tools. It reaches only public hosts and does not use
/// SSH.
pub fn for_tools(context: &Context) -> Result<Arc<Fetcher>, Failure> {
    Ok(new_fetcher(fetch_settings(context, true)?))
}

/// Creates the guarded fetcher for remote callers. Unlike that of [`for_tools`], it runs git
/// without this user's credentials and configuration.
pub fn for_remote_callers(context: &Context) -> Result<Arc<Fetcher>, Failure> {
    let mut settings = fetch_settings(context, true)?;
    // A remote caller must not fetch with this user's access.
    settings.git.own_credentials = false;
    Ok(new_fetcher(settings))
}

fn new_fetcher(settings: Settings) -> Arc<Fetcher> {
    Arc::new(Fetcher::new(settings, Arc::new(SystemClock)))
}

/// Converts a fetch error, with its exit code and hint.
pub fn fetch_failure(error: &FetchError) -> Failure {
    let code = match error {
        FetchError::Policy { .. } => ErrorCode::SourceRefused,
        FetchError::NotPublic(_) => ErrorCode::SourceNotPublic,
        FetchError::NotAllowed { .. } => ErrorCode::SourceNotAllowed,
        FetchError::Unreachable { .. } | FetchError::Certificate { .. } => {
            ErrorCode::SourceUnreachable
        }
        FetchError::Setting { .. } => ErrorCode::SettingInvalid,
        FetchError::AmbiguousReference { .. } => ErrorCode::SourceInvalid,
        FetchError::Digest { .. } => ErrorCode::SourceDigest,
        FetchError::Signer { .. } => ErrorCode::SourceSigner,
        FetchError::ReleaseAwaited { .. } => ErrorCode::ReleaseAwaited,
        FetchError::Unsupported { .. } => ErrorCode::SourceUnsupported,
        FetchError::NotFound(_) | FetchError::NoSkill(_) | FetchError::NoneOffered { .. } => {
            ErrorCode::SourceNotFound
        }
        FetchError::Git { fault, .. } => match fault {
            GitFault::NoRepository | GitFault::NoReference => ErrorCode::SourceNotFound,
            GitFault::NotAllowed | GitFault::HostKey => ErrorCode::SourceNotAllowed,
            GitFault::Certificate
            | GitFault::UnknownHost
            | GitFault::NoAnswer
            | GitFault::Other => ErrorCode::SourceUnreachable,
        },
        FetchError::TooLarge { .. } => ErrorCode::SourceTooLarge,
        FetchError::Content { .. } => ErrorCode::SourceMalformed,
        FetchError::Link { .. } => ErrorCode::Symlink,
        FetchError::Local { .. } => ErrorCode::Io,
    };
    Failure::new(code, message_chain(error))
        .hint_if(error.hint())
        .details(error.git_messages().map(str::to_owned))
}

/// Selects skills of a source: those that the flags name, else the only one, else those that the
/// user chooses. Without a terminal, fails with a list of the skills and the flags that select
/// them. `place` names the source in messages.
pub fn choose_skills<'l>(
    context: &Context,
    place: &str,
    listing: &'l Listing,
    selection: Selection<'_>,
) -> Result<Choice<'l>, Failure> {
    let (name, candidates) = match listing.choose(selection) {
        Ok(choice) => return Ok(choice),
        Err(ChoiceError::Unclear) => (None, listing.skills.iter().collect()),
        // If the user gave several names, a question about one of them would lose the others. The
        // failure below asks for a corrected command instead.
        Err(ChoiceError::Ambiguous { name, .. })
            if selection.names.len() == 1 && context.ui.may_ask() =>
        {
            let fitting = listing.skills_possibly_named(&name);
            (Some(name), fitting)
        }
        Err(error) => return Err(choice_failure(place, listing, &error)),
    };
    let place = clean(place, 200);
    let question = match name {
        Some(name) => format!("Which {} of {place}?", clean(&name, 64)),
        None => format!("Which skills of {place}?"),
    };
    let lines: Vec<String> = candidates.iter().map(|found| skill_line(found)).collect();
    let chosen = context
        .ui
        .choose_many(&question, "--skill <name>` or `--all", &lines)
        .map_err(|failure| {
            let names: Vec<_> = candidates.iter().map(|found| &found.name).collect();
            failure.data(serde_json::json!({ "skills": names }))
        })?;
    let chosen: Vec<&OfferedSkill> = chosen
        .into_iter()
        .filter_map(|at| candidates.get(at).copied())
        .collect();
    if chosen.is_empty() {
        return Err(fail!(NothingChosen, "no skill was chosen"));
    }
    Ok(listing.with_chosen(chosen))
}

fn skill_line(found: &OfferedSkill) -> String {
    let mut name = clean(&found.name, 64);
    if !found.folder.ends_with(&found.name) {
        // Skills in different folders may have the same name, so the folder tells them apart.
        name = format!("{name} ({})", clean(&found.as_path(), 100));
    }
    let Some(description) = &found.description else {
        return name;
    };
    let first = description.lines().next().unwrap_or_default();
    format!("{name}  {}", clean(first, 80))
}

/// The failure for a selection that does not fit the skills of a source.
pub fn choice_failure(place: &str, listing: &Listing, error: &ChoiceError) -> Failure {
    let place = clean(place, 200);
    match error {
        ChoiceError::Unknown(name) => no_such_skill(&place, listing, name),
        ChoiceError::LeftOut(left) => {
            let (path, reason) = (clean(&left.path, 200), left.reason.to_string());
            fail!(
                SkillNotInSource,
                "{path} of {place} cannot be added: {}",
                clean(&reason, 300)
            )
        }
        ChoiceError::Ambiguous { name, folders } => {
            let paths: Vec<String> = folders.iter().map(|path| clean(path, 200)).collect();
            let (name, list) = (clean(name, 64), paths.join(", "));
            let is_unread = |found: &&OfferedSkill| found.is_too_large;
            let unread = listing
                .skills_possibly_named(&name)
                .into_iter()
                .find(is_unread);
            let text = match unread {
                Some(unread) => format!(
                    "{place} has more than one skill that may be {name}: {list}; the SKILL.md of {} is too large to be read",
                    clean(&unread.as_path(), 200)
                ),
                None => format!(
                    "{place} has {} named {name}: {list}",
                    count(folders.len(), "skill")
                ),
            };
            fail!(SkillAmbiguous, "{text}")
                .hint(format!("name one by its folder: --skill {}", paths[0]))
                .data(serde_json::json!({ "skills": folders }))
        }
        ChoiceError::TooMany { found, limit } => {
            too_many_skills(&format!("{place} has"), *found, *limit)
        }
        ChoiceError::Incomplete { skill, fault } => {
            let (path, reason) = (clean(&fault.path, 200), fault.reason.to_string());
            fail!(
                SkillNotInSource,
                "{place} cannot be read whole, so {} may not be its only skill: {path}: {}",
                clean(skill, 64),
                clean(&reason, 300)
            )
            .hint(format!("--skill {} takes it", clean(skill, 64)))
        }
        ChoiceError::Unclear => {
            let names: Vec<&str> = listing
                .skills
                .iter()
                .map(|found| found.name.as_str())
                .collect();
            fail!(SkillNotInSource, "{place} has several skills")
                .hint(format!("it has: {}", list_names(&names)))
        }
    }
}

/// Creates the failure of a selection that covers more skills than one command takes. `subject` says
/// what has them.
pub fn too_many_skills(subject: &str, found: usize, limit: usize) -> Failure {
    fail!(
        TooManySkills,
        "{subject} {}, and one command takes at most {limit}",
        count(found, "skill")
    )
    .hint(format!("--max-skills {found} takes all of them"))
}

/// The failure of a source in which nothing can be added.
pub fn no_skills(place: &str) -> Failure {
    let place = clean(place, 200);
    fail!(
        SourceNotFound,
        "{place} holds no SKILL.md that can be added"
    )
}

/// The failure for a skill that the source does not contain.
fn no_such_skill(place: &str, listing: &Listing, name: &str) -> Failure {
    let skills = listing.skills.iter();
    let names: Vec<&str> = skills.map(|found| found.name.as_str()).collect();
    let paths: Vec<&str> = listing
        .left_out
        .iter()
        .map(|left| left.path.as_str())
        .collect();
    let hint = match nearest_name(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{}`?", clean(near, 64)),
        None if names.is_empty() => {
            format!(
                "it has none that can be added; left out: {}",
                list_names(&paths)
            )
        }
        None => format!("it has: {}", list_names(&names)),
    };
    let name = clean(name, 64);
    fail!(SkillNotInSource, "{place} has no skill {name}").hint(hint)
}

fn list_names(names: &[&str]) -> String {
    let shown = names.iter().take(20).map(|name| clean(name, 64));
    let mut list = shown.collect::<Vec<_>>().join(", ");
    if names.len() > 20 {
        list.push_str(&format!(" and {} more", names.len() - 20));
    }
    list
}
