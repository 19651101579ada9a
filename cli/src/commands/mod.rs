//! The commands of `vault`, one module for each: with its `Arguments`, their help, and `run`. To
//! add a command, add a module and a line in the list of [`Command`] below. The list does not
//! declare the modules itself, because rustfmt does not find files that only a macro names.

pub mod start {
    pub mod add;
    pub mod demo;
    pub mod install;
    pub mod remove;
    pub mod setup;
    pub mod trial;
}
pub mod keep_current {
    pub mod history;
    pub mod outdated;
    pub mod rollback;
    pub mod update;
}
pub mod find {
    pub mod discover;
    pub mod list;
    pub mod resolve;
    pub mod search;
    pub mod show;
    pub mod skill;
}
pub mod agent {
    pub mod agents;
    pub mod disable;
    pub mod enable;
    pub mod profiles;
    pub mod switch;
    pub mod sync_profiles;
    pub mod transform;
}
pub mod write {
    pub mod export;
    pub mod fmt;
    pub mod lint;
    pub mod new;
}
pub mod share {
    pub mod cloud;
    pub mod devices;
    pub mod drafts;
    mod enrolment;
    pub mod link;
    pub mod notices;
    pub mod release;
    pub mod status;
    pub mod sync;
    pub mod unlink;
}
pub mod administer {
    pub mod audit_log;
    pub mod clients;
    pub mod users;
}
pub mod trust {
    pub mod approve;
    pub mod audit;
    pub mod audit_repo;
    pub mod backup;
    pub mod import;
    pub mod key;
    mod new_key;
    pub mod policy;
    pub mod publishers;
    pub mod restore;
    pub mod verify;
}
pub mod server {
    pub mod mcp;
    pub mod operator;
    pub mod serve;
}
pub mod maintenance {
    pub mod completions;
    pub mod config;
    pub mod doctor;
    pub mod help;
    pub mod man;
    pub mod version;
}

use clap::Subcommand;
use vault_format::since::Since;

use crate::{context::Context, errors::Failure, output::Report};

/// The properties of a command that do not depend on clap.
struct Operation<A> {
    /// The version of vault that introduced the command.
    since: Since,
    /// Returns whether the folder that `--vault` names may be missing, because the command creates
    /// a vault there or needs none.
    may_lack_vault: fn(&A) -> bool,
    /// Returns whether an option of the command, such as `--format json`, requests the same output
    /// as `--json`.
    wants_json: fn(&A) -> bool,
}

impl<A> Operation<A> {
    // By default, a command fails on a mistyped `--vault` instead of creating a vault there.
    const NEW: Self = Self {
        since: Since::NEW,
        may_lack_vault: |_| false,
        wants_json: |_| false,
    };

    const fn since(mut self, version: &'static str) -> Self {
        self.since = Since::version(version);
        self
    }

    const fn without_vault(mut self) -> Self {
        self.may_lack_vault = |_| true;
        self
    }

    const fn without_vault_if(mut self, may_lack_vault: fn(&A) -> bool) -> Self {
        self.may_lack_vault = may_lack_vault;
        self
    }

    const fn json_if(mut self, wants_json: fn(&A) -> bool) -> Self {
        self.wants_json = wants_json;
        self
    }
}

/// The arguments of a command, with its [`Operation`].
trait CommandInfo: Sized {
    /// The properties from the command's line in the list below.
    const OPERATION: Operation<Self>;

    fn may_lack_vault(&self) -> bool {
        (Self::OPERATION.may_lack_vault)(self)
    }

    fn wants_json(&self) -> bool {
        (Self::OPERATION.wants_json)(self)
    }
}

/// Subcommands whose version differs from that of their command, each as `<command> <subcommand>`.
pub const SUBCOMMANDS: [(&str, Since); 2] = [
    ("skill list", Since::NEW),
    ("skill search", Since::version("0.2.1")),
];

/// Generates the enum [`Command`] from a list. The list has the headings of the help and below each
/// its commands. The line of a command gives the variant, the module that holds its `Arguments` and
/// `run`, the text for the list of commands, and what differs from [`Operation::NEW`].
macro_rules! commands {
    ($($heading:literal { $(
        $variant:ident($group:ident::$module:ident) $about:literal
        $(.$special:ident($($value:expr)?))*,
    )* })*) => {
        /// The commands, in the order of the help.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(
                #[doc = $about]
                // `arg_required_else_help = false` makes a missing subcommand a usage error that
                // lists the subcommands. `long_about = None` keeps the documentation of the struct,
                // which is for developers, out of the help.
                #[command(about = $about, long_about = None, arg_required_else_help = false)]
                // Boxed, because otherwise the largest arguments would determine the size of every
                // variant.
                $variant(Box<$group::$module::Arguments>),
            )*)*
        }

        $($(impl CommandInfo for $group::$module::Arguments {
            const OPERATION: Operation<Self> = Operation::NEW$(.$special($($value)?))*;
        })*)*

        impl Command {
            /// The heading of each command in the help, in the order of the variants.
            // `stringify!($variant)` is here only so that the heading is repeated for each command:
            // an inner repetition needs a variable with one value for each command, and `$heading`
            // has only one for each group.
            pub const HEADINGS: &[&str] = &[$($({ let _ = stringify!($variant); $heading },)*)*];
            /// The version that introduced each command, in the order of the variants.
            pub const SINCE: &[Since] =
                &[$($(<$group::$module::Arguments as CommandInfo>::OPERATION.since,)*)*];

            /// Runs the command that the user typed, and returns what it has to print.
            pub fn run(&self, context: &Context) -> Result<Report, Failure> {
                match self {
                    $($(Self::$variant(arguments) => $group::$module::run(context, arguments),)*)*
                }
            }

            /// Returns whether the folder that `--vault` names must exist.
            pub fn needs_vault_folder(&self) -> bool {
                match self {
                    $($(Self::$variant(arguments) => !arguments.may_lack_vault(),)*)*
                }
            }

            /// Returns whether an option of the command requests the same output as `--json`.
            pub fn wants_json(&self) -> bool {
                match self {
                    $($(Self::$variant(arguments) => CommandInfo::wants_json(&**arguments),)*)*
                }
            }
        }
    };
}

commands! {
    "Start" {
        Setup(start::setup) "Set up vault on this machine, step by step" .without_vault(),
        Demo(start::demo) "Try all of vault in a temporary folder",
        Add(start::add) "Scan, sign and install a skill" .since("0.4.0").without_vault(),
        Remove(start::remove) "Remove skills",
        Try(start::trial) "Let one agent use a skill while this command runs" .without_vault(),
        Install(start::install) "Install the skills in this project's vault.lock" .without_vault(),
    }
    "Keep current" {
        Outdated(keep_current::outdated) "List skills with upstream changes",
        Update(keep_current::update) "Update skills from their sources",
        History(keep_current::history) "Show the stored versions of a skill",
        Rollback(keep_current::rollback) "Go back to an earlier version of a skill",
    }
    "Find and run" {
        List(find::list) "List the installed skills, or those of a project",
        Search(find::search) "Search the installed skills",
        Find(find::discover) "Search registries and sites, with the gate's verdicts" .without_vault(),
        Skill(find::skill) "List, search, inspect and run skills" .since("0.2.0"),
        Show(find::show) "Show the details of a skill, installed or not",
        Resolve(find::resolve) "Print what a caller may use, as JSON",
    }
    "Agents" {
        Agents(agent::agents) "Show the coding agents on this machine and their skill folders",
        Profiles(agent::profiles) "Show which skills each agent gets, and why",
        SyncProfiles(agent::sync_profiles) "Link the vault's skills into the agents' folders",
        Enable(agent::enable) "Show a disabled skill to agents again",
        Disable(agent::disable) "Hide a skill from agents but keep it installed",
        Transform(agent::transform) "Adapt a skill for one agent; the signed original stays",
    }
    "Write" {
        New(write::new) "Create a skill folder from a template",
        Lint(write::lint) "Check skills while you write them"
            .json_if(write::lint::Arguments::wants_json),
        Fmt(write::fmt) "Fix common mistakes in SKILL.md",
        Export(write::export) "Export skills as archives, or as a site for other tools",
    }
    "Share" {
        Cloud(share::cloud) "Connect to a service, pull from it, roll it back",
        Sync(share::sync) "Publish this vault's skills to the connected service",
        Status(share::status) "Show the connected service, its release and linked vaults",
        Link(share::link) "Link this machine to a vault and pin its keys" .without_vault(),
        Unlink(share::unlink) "Remove a linked vault and its skills from this machine",
        Devices(share::devices) "Admit, deny and revoke machines",
        Notices(share::notices) "Say where this vault's notices go: webhooks and mail",
        Release(share::release) "Review and sign the releases that other publishers propose",
        Drafts(share::drafts) "Show, accept and decline what members propose",
    }
    "Administer" {
        Users(administer::users) "List, invite, change and remove the people in a vault",
        Clients(administer::clients) "List the apps that people connected, and end their access",
        AuditLog(administer::audit_log) "Show the audit log of a vault",
    }
    "Trust" {
        Audit(trust::audit) "Scan skills and explain each finding"
            .json_if(trust::audit::Arguments::wants_json),
        AuditRepo(trust::audit_repo) "Scan every skill in a repository, for CI"
            .since("0.2.0").json_if(trust::audit_repo::Arguments::wants_json),
        Verify(trust::verify) "Check that skills, archives and sites match what was signed",
        Key(trust::key) "Show, rotate and recover this vault's keys"
            .without_vault_if(trust::key::Arguments::may_create_vault),
        Publishers(trust::publishers) "Show and change who may publish this vault"
            .without_vault_if(trust::publishers::Arguments::may_create_vault),
        Backup(trust::backup) "Back up the vault and its keys into one encrypted file",
        Restore(trust::restore) "Restore a vault and its keys from a backup" .without_vault(),
        Import(trust::import) "Import the skills of a vault from an earlier version"
            .without_vault(),
        Approve(trust::approve) "Approve changes to policy, profile and transform files",
        Policy(trust::policy) "Check the policy and explain what it grants",
    }
    "Server" {
        Serve(server::serve) "Run the service" .since("0.2.1"),
        Mcp(server::mcp) "Serve this vault to agents over MCP, on standard input and output",
        Operator(server::operator) "Manage the namespaces and accounts of a service",
    }
    "Maintenance" {
        Doctor(maintenance::doctor) "Check this vault for problems and suggest fixes"
            .since("0.2.0"),
        Config(maintenance::config) "Show the settings and where each value comes from"
            .without_vault(),
        Help(maintenance::help) "Show the help of a command, or all error codes" .without_vault(),
        Version(maintenance::version) "Print the version" .without_vault(),
        Completions(maintenance::completions) "Print a completion script for a shell"
            .without_vault(),
        Man(maintenance::man) "Print the manual page, or write all pages to a folder"
            .without_vault(),
    }
}
