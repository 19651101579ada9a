//! One file for each command: its arguments with their help, and what it does.

pub mod action;
pub mod add;
pub mod agents;
pub mod audit;
pub mod audit_log;
pub mod audit_repo;
pub mod clients;
pub mod cloud;
pub mod completions;
pub mod config;
pub mod connection;
pub mod demo;
pub mod devices;
pub mod doctor;
pub mod enable;
pub mod export;
pub mod fmt;
pub mod history;
pub mod install;
pub mod key;
pub mod link;
pub mod lint;
pub mod man;
pub mod mcp;
pub mod new;
pub mod operator;
pub mod policy;
pub mod remove;
pub mod resolve;
pub mod serve;
pub mod setup;
pub mod show;
pub mod skill;
pub mod status;
pub mod sync;
pub mod sync_profiles;
pub mod transform;
pub mod update;
pub mod users;
pub mod verify;
pub mod version;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use vault_library::{Vault, VaultError, run::is_installed};
use vault_skill::name::SkillName;
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::{
    Context,
    args::Command,
    error::Failure,
    settings::nearest,
    ui::{Report, clean},
};

/// The folder of a skill that is given by its folder or by its SKILL.md.
fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|_| path.is_file());
    parent.unwrap_or(path).to_owned()
}

/// Opens the vault of this run, or makes it with its keys.
pub fn open_vault(context: &Context) -> Result<Vault, Failure> {
    let paths = context.paths(&context.settings()?)?;
    Ok(Vault::open_or_create(
        paths,
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    )?)
}

/// Opens the vault of this run, when there is one: reading makes nothing.
pub fn existing_vault(context: &Context) -> Result<Option<Vault>, Failure> {
    let paths = context.paths(&context.settings()?)?;
    match Vault::open(paths, Arc::new(SystemClock), Arc::new(SystemRandom)) {
        Ok(vault) => Ok(Some(vault)),
        Err(VaultError::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether security flags of the gate block.
pub fn strict(context: &Context) -> Result<bool, Failure> {
    let settings = context.settings()?;
    Ok(settings.boolean("VAULT_SECURITY_STRICT").unwrap_or(true))
}

/// The failure of a command that needs a vault where there is none.
fn no_vault(context: &Context) -> Failure {
    let place = context
        .settings()
        .and_then(|settings| context.paths(&settings))
        .map_or_else(
            |_| String::new(),
            |paths| format!(" at {}", paths.root.display()),
        );
    Failure::failed("no_vault", format!("there is no vault{place} yet"))
        .hint("vault add <folder> makes one with its first skill")
}

/// What a word that may be a name or a path stands for.
#[derive(Debug)]
pub enum Target {
    /// A skill that is installed.
    Installed(SkillName),
    /// Something on disk.
    Path(PathBuf),
}

/// The skill that is installed under this name, else the path; fails with a suggestion where it is neither.
pub fn target(vault: Option<&Vault>, word: &str) -> Result<Target, Failure> {
    if let (Some(vault), Ok(name)) = (vault, word.parse::<SkillName>())
        && is_installed(vault, &name)?
    {
        return Ok(Target::Installed(name));
    }
    let path = PathBuf::from(word);
    if path.symlink_metadata().is_ok() {
        return Ok(Target::Path(path));
    }
    if word.contains(['/', '.']) {
        return Err(Failure::failed(
            "source_unreadable",
            format!("{} does not exist", clean(word, 400)),
        ));
    }
    Err(skill::not_installed(vault, word))
}

/// Runs a command to its end.
pub fn run(context: &Context, command: Command) -> Result<Report, Failure> {
    match command {
        Command::Add(arguments) => add::run(context, &arguments),
        Command::Remove(arguments) => remove::run(context, &arguments),
        Command::Install(arguments) => install::run(context, &arguments),
        Command::Outdated(arguments) => update::outdated(context, &arguments),
        Command::Update(arguments) => update::run(context, &arguments),
        Command::History(arguments) => history::run(context, &arguments),
        Command::Rollback(arguments) => history::roll_back(context, &arguments),
        Command::Agents(arguments) => agents::run(context, &arguments),
        Command::SyncProfiles(arguments) => sync_profiles::run(context, &arguments),
        Command::Doctor(arguments) => doctor::run(context, &arguments),
        Command::Setup(arguments) => setup::run(context, &arguments),
        Command::Transform(arguments) => transform::run(context, &arguments),
        Command::Enable(arguments) => enable::enable(context, &arguments),
        Command::Disable(arguments) => enable::disable(context, &arguments),
        Command::Skill(arguments) => skill::run(context, arguments.into_inner()),
        Command::Cloud(arguments) => cloud::run(context, &arguments),
        Command::Sync(arguments) => sync::run(context, &arguments),
        Command::Status(arguments) => status::run(context, &arguments),
        Command::Link(arguments) => link::run(context, &arguments),
        Command::Devices(arguments) => devices::run(context, &arguments),
        Command::Users(arguments) => users::run(context, &arguments),
        Command::Audit(arguments) => audit::run(context, &arguments),
        Command::AuditRepo(arguments) => audit_repo::run(context, &arguments),
        Command::Clients(arguments) => clients::run(context, &arguments),
        Command::AuditLog(arguments) => audit_log::run(context, &arguments),
        Command::Mcp(arguments) => mcp::run(context, &arguments),
        Command::Serve(arguments) => serve::run(context, &arguments),
        Command::Operator(arguments) => operator::run(context, &arguments),
        Command::Policy(arguments) => policy::run(context, &arguments),
        Command::Resolve(arguments) => resolve::run(context, &arguments),
        Command::Key(arguments) => key::run(context, &arguments),
        Command::Demo(arguments) => demo::run(context, &arguments),
        Command::Completions(arguments) => completions::run(context, &arguments),
        Command::Man(arguments) => man::run(context, &arguments),
        Command::Show(arguments) => show::run(context, &arguments),
        Command::Verify(arguments) => verify::run(context, &arguments),
        Command::New(arguments) => new::run(context, &arguments),
        Command::Lint(arguments) => lint::run(context, &arguments),
        Command::Fmt(arguments) => fmt::run(context, &arguments),
        Command::Export(arguments) => export::run(context, &arguments),
        Command::Config(arguments) => config::run(context, &arguments),
        Command::Version(arguments) => version::run(context, &arguments),
    }
}

/// The failure for a name that is not among `names`: with the nearest one as a hint, or with the command that lists them.
fn not_listed<'n>(
    failure: Failure,
    asked: &str,
    names: impl Iterator<Item = &'n str>,
    list: &str,
) -> Failure {
    match nearest(asked, names) {
        Some(near) => failure.hint(format!("did you mean `{}`?", clean(near, 64))),
        None => failure.hint(format!("{list} shows them all")),
    }
}
