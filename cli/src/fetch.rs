//! Fetching for commands: the settings of a fetcher, the owner's source policy, and what becomes of failures.

use std::path::Path;
use std::sync::Arc;

use url::Url;
use vault_library::read_policy_at;
use vault_sources::{
    BadSource, DEFAULT_CLAWHUB, DEFAULT_NPM, FetchError, Fetcher, Found, GitSettings, Limits,
    ParseOptions, Settings, Source, SourcePolicy, Tokens, by_name,
};
use vault_store::clock::SystemClock;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, Place, chain},
    output::clean,
};

/// What a command fetches with.
pub struct Fetching {
    /// Who fetches.
    pub fetcher: Arc<Fetcher>,
    /// What the owner allows.
    pub policy: SourcePolicy,
    /// How sources are read.
    pub options: ParseOptions,
}

impl Fetching {
    /// Reads settings and policy; opens no connection. Fails where the policy cannot be read: then nothing is fetched.
    pub fn new(context: &Context) -> Result<Self, Failure> {
        let settings = settings(context, false)?;
        let root = context.paths()?.root;
        let policy = read_policy_at(&root).map_err(|error| {
            let path = root.join(vault_library::POLICY_FILE);
            Failure::new(
                ErrorCode::PolicyInvalid,
                format!(
                    "nothing is fetched under a policy that cannot be read: {}",
                    chain(&error)
                ),
            )
            .at(Place {
                path: path.display().to_string(),
                ..Place::default()
            })
            .hint("vault policy check shows the place")
        })?;
        let options = settings.parse.clone();
        Ok(Self {
            fetcher: Arc::new(Fetcher::new(settings, Arc::new(SystemClock))),
            policy: SourcePolicy::new(policy.as_ref()),
            options,
        })
    }
}

/// How sources are read in this process.
pub fn parse_options(context: &Context) -> Result<ParseOptions, Failure> {
    let mut options = ParseOptions {
        loopback: context
            .settings()?
            .boolean("VAULT_SOURCES_ALLOW_LOOPBACK")
            .unwrap_or(false),
        ..ParseOptions::default()
    };
    if let Some(host) = context.process.variable("GH_HOST") {
        let fine = host.len() <= 253
            && !host.starts_with(['-', '.'])
            && host
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
        if !fine {
            return Err(
                Failure::new(ErrorCode::SettingInvalid, "GH_HOST is no host name")
                    .hint("it is the host of owner/repository: git.example.com"),
            );
        }
        host.clone_into(&mut options.default_host);
    }
    Ok(options)
}

/// Reads what a user typed as a source. `owner/repository` without a prefix needs the user's word that no path is meant.
pub fn parse(context: &Context, text: &str, options: &ParseOptions) -> Result<Source, Failure> {
    let exists = |path: &str| Path::new(path).symlink_metadata().is_ok();
    let bad = match Source::parse(text, options, &exists) {
        Ok(source) => return Ok(source),
        Err(bad) => bad,
    };
    if let BadSource::Shorthand { written, .. } = &bad {
        let written = clean(written, 400);
        let question = format!("{}. Fetch {written}?", clean(&bad.to_string(), 600));
        let confirmed = context.ui.confirm(&question).map_err(|failure| {
            failure.hint(format!(
                "for the repository write {written}, or answer with `--yes`"
            ))
        })?;
        if confirmed {
            return bad.accept_shorthand().map_err(|bad| bad_source(&bad));
        }
    }
    Err(bad_source(&bad))
}

/// The failure for a text that is not read as a source.
pub fn bad_source(bad: &BadSource) -> Failure {
    let failure = match bad {
        BadSource::Invalid { .. } => {
            Failure::new(ErrorCode::SourceInvalid, clean(&bad.to_string(), 600))
        }
        BadSource::Missing { text, .. } | BadSource::Shorthand { text, .. } => {
            Failure::no_such_path(text)
        }
    };
    failure.hint_if(bad.hint())
}

/// The settings of a fetcher; `guarded` for callers who are not at the command line.
pub fn settings(context: &Context, guarded: bool) -> Result<Settings, Failure> {
    let settings = context.settings()?;
    let parse = parse_options(context)?;
    let mut git = GitSettings::new(
        context
            .process
            .program("git")
            .unwrap_or_else(|| "git".into()),
    );
    git.ssh_command = context
        .process
        .variable("GIT_SSH_COMMAND")
        .map(str::to_owned);
    git.loopback = parse.loopback;
    let address = |name: &'static str| {
        settings
            .text(name)
            .map(|text| {
                let url: Option<Url> = text.parse().ok();
                url.filter(|url| url.scheme() == "https" || parse.loopback)
                    .ok_or_else(|| {
                        Failure::new(
                            ErrorCode::SettingInvalid,
                            format!("{name} is no https address"),
                        )
                    })
            })
            .transpose()
    };
    let address_or = |name: &'static str, default: &str| match address(name)? {
        Some(url) => Ok(url),
        None => default
            .parse()
            .map_err(|error| Failure::new(ErrorCode::Io, format!("a default is wrong: {error}"))),
    };
    // The user's own tokens are for the user's own commands.
    let tokens = match settings.text("VAULT_SOURCE_TOKENS") {
        Some(text) if !guarded => Tokens::parse(text).map_err(|bad| {
            Failure::new(
                ErrorCode::SettingInvalid,
                format!("VAULT_SOURCE_TOKENS: {bad}"),
            )
            .hint("docs.example=TOKEN,other.example:8443=TOKEN")
        })?,
        _ => Tokens::default(),
    };
    Ok(Settings {
        git,
        tokens,
        limits: Limits::default(),
        clawhub: address_or("VAULT_CLAWHUB_URL", DEFAULT_CLAWHUB)?,
        npm: address_or("VAULT_NPM_REGISTRY_URL", DEFAULT_NPM)?,
        registry: address("VAULT_REGISTRY_URL")?,
        parse,
        guarded,
    })
}

/// Somebody who fetches for tools: hosts must be public, and SSH is not used.
pub fn for_tools(context: &Context) -> Result<Arc<Fetcher>, Failure> {
    Ok(Arc::new(Fetcher::new(
        settings(context, true)?,
        Arc::new(SystemClock),
    )))
}

/// Somebody who fetches for callers over the network: the same, and without this user's credentials and configuration.
pub fn for_strangers(context: &Context) -> Result<Arc<Fetcher>, Failure> {
    let mut settings = settings(context, true)?;
    settings.git.own_credentials = false;
    Ok(Arc::new(Fetcher::new(settings, Arc::new(SystemClock))))
}

/// The failure of a fetch, with its exit code and what mends it.
pub fn failure(error: &FetchError) -> Failure {
    let code = match error {
        FetchError::Policy { .. } => ErrorCode::SourceRefused,
        FetchError::NotPublic(_) => ErrorCode::SourceNotPublic,
        FetchError::NotAllowed { .. } => ErrorCode::SourceNotAllowed,
        FetchError::Unreachable { .. } => ErrorCode::SourceUnreachable,
        FetchError::Digest { .. } => ErrorCode::SourceDigest,
        FetchError::Signer { .. } => ErrorCode::SourceSigner,
        FetchError::Unsupported { .. } => ErrorCode::SourceUnsupported,
        FetchError::NotFound(_) => ErrorCode::SourceNotFound,
        FetchError::TooLarge { .. } => ErrorCode::SourceTooLarge,
        FetchError::Content { .. } => ErrorCode::SourceMalformed,
        FetchError::Local { .. } => ErrorCode::Io,
    };
    Failure::new(code, chain(error)).hint_if(error.hint())
}

/// Which of the skills of a source are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// By name.
    pub names: &'a [String],
    /// All of them.
    pub all: bool,
}

/// Settles which skills of a source are meant: by flags, by there being only one, or by asking. Without a terminal it fails and says which
/// there are and which flags choose.
pub fn choose<'f>(
    context: &Context,
    place: &str,
    found: &'f [Found],
    only: Option<&'f Found>,
    wanted: Wanted<'_>,
) -> Result<Vec<&'f Found>, Failure> {
    if wanted.all {
        return Ok(found.iter().collect());
    }
    if !wanted.names.is_empty() {
        return wanted
            .names
            .iter()
            .map(|name| by_name(found, name).ok_or_else(|| no_such_skill(place, found, name)))
            .collect();
    }
    if let Some(only) = only {
        return Ok(vec![only]);
    }
    let question = format!("Which skills of {}?", clean(place, 200));
    let options: Vec<String> = found.iter().map(line).collect();
    let chosen = context
        .ui
        .choose_many(&question, "--skill <name>` or `--all", options)
        .map_err(|failure| {
            failure.data(serde_json::json!({
                "skills": found.iter().map(|found| &found.name).collect::<Vec<_>>(),
            }))
        })?;
    let chosen: Vec<&Found> = chosen.into_iter().filter_map(|at| found.get(at)).collect();
    if chosen.is_empty() {
        return Err(Failure::new(
            ErrorCode::NothingChosen,
            "no skill was chosen",
        ));
    }
    Ok(chosen)
}

fn line(found: &Found) -> String {
    let name = clean(&found.name, 64);
    match &found.description {
        Some(description) => {
            let first = description.lines().next().unwrap_or_default();
            format!("{name}  {}", clean(first, 80))
        }
        None => name,
    }
}

/// The failure for a skill that a source has not.
pub fn no_such_skill(place: &str, found: &[Found], name: &str) -> Failure {
    let names = found.iter().map(|found| found.name.as_str());
    let hint = match crate::output::text::nearest(name, names.clone()) {
        Some(near) => format!("did you mean `{}`?", clean(near, 64)),
        None => {
            let list: Vec<String> = names.take(20).map(|name| clean(name, 64)).collect();
            format!("it has: {}", list.join(", "))
        }
    };
    Failure::new(
        ErrorCode::SkillNotInSource,
        format!("{} has no skill {}", clean(place, 200), clean(name, 64)),
    )
    .hint(hint)
}
