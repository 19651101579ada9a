//! One file for each command, with its `Arguments`, their help, and `run`. To add a command, add a
//! file and a line in the list of [`Command`].

pub mod start {
    pub mod add;
    pub mod demo;
    pub mod install;
    pub mod remove;
    pub mod setup;
}
pub mod keep_current {
    pub mod history;
    pub mod outdated;
    pub mod rollback;
    pub mod update;
}
pub mod find {
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

use crate::{context::Context, errors::Failure, output::Report};

/// Generates the enum [`Command`] from a list. The list has the headings of the help and below each
/// its commands. The line of a command gives the variant, the module that holds its `Arguments` and
/// `run`, and the text for the list of commands.
macro_rules! commands {
    ($($heading:literal { $($variant:ident($group:ident::$module:ident) $about:literal,)* })*) => {
        /// The commands, in the order of the help.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(
                #[doc = $about]
                // `arg_required_else_help = false` makes a missing subcommand a usage error that
                // lists the subcommands. `long_about = None` keeps the documentation of the struct,
                // which is for developers, out of the help.
                #[command(about = $about, long_about = None, arg_required_else_help = false)]
                $variant(Box<$group::$module::Arguments>),
            )*)*
        }

        impl Command {
            /// The heading of each command in the help, in the order of the variants.
            pub const HEADINGS: &[&str] = &[$($({ let _ = stringify!($variant); $heading },)*)*];

            /// Runs the command.
            pub fn run(&self, context: &Context) -> Result<Report, Failure> {
                match self {
                    $($(Self::$variant(arguments) => $group::$module::run(context, arguments),)*)*
                }
            }
        }
    };
}

commands! {
    "Start" {
        Setup(start::setup) "Set up vault on this machine, step by step",
        Demo(start::demo) "Try all of vault in a temporary folder",
        Add(start::add) "Scan, sign and install a skill",
        Remove(start::remove) "Remove skills",
        Install(start::install) "Install the skills in this project's vault.lock",
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
        Skill(find::skill) "List, search, inspect and run skills",
        Show(find::show) "Show the details of a skill, installed or not",
        Resolve(find::resolve) "Print what a caller may use, as JSON",
    }
    "Agents" {
        Agents(agent::agents) "Show the coding agents on this machine and their skill folders",
        SyncProfiles(agent::sync_profiles) "Link the vault's skills into the agents' folders",
        Enable(agent::enable) "Show a disabled skill to agents again",
        Disable(agent::disable) "Hide a skill from agents but keep it installed",
        Transform(agent::transform) "Adapt a skill for one agent; the signed original stays",
    }
    "Write" {
        New(write::new) "Create a skill folder from a template",
        Lint(write::lint) "Check skills while you write them",
        Fmt(write::fmt) "Fix common mistakes in SKILL.md",
        Export(write::export) "Export skills as archives, or as a site for other tools",
    }
    "Share" {
        Cloud(share::cloud) "Connect to a service, pull from it, roll it back",
        Sync(share::sync) "Publish this vault's skills to the connected service",
        Status(share::status) "Show the connected service, its release and linked vaults",
        Link(share::link) "Link this machine to a vault and pin its keys",
        Unlink(share::unlink) "Remove a linked vault and its skills from this machine",
        Devices(share::devices) "Admit, deny and revoke machines",
        Notices(share::notices) "Say where this vault's notices go: webhooks and mail",
        Release(share::release) "Review and sign the releases that other publishers propose",
        Drafts(share::drafts) "Show, accept and decline what members propose",
    }
    "Administer" {
        Users(administer::users) "List, invite, change and remove the people in a vault",
        Clients(administer::clients) "List and revoke the apps that people connected",
        AuditLog(administer::audit_log) "Show the audit log of a vault",
    }
    "Trust" {
        Audit(trust::audit) "Scan skills and explain each finding",
        AuditRepo(trust::audit_repo) "Scan every skill in a repository, for CI",
        Verify(trust::verify) "Check that skills, archives and sites match what was signed",
        Key(trust::key) "Show, rotate and recover this vault's keys",
        Publishers(trust::publishers) "Show and change who may publish this vault",
        Backup(trust::backup) "Back up the vault and its keys into one encrypted file",
        Restore(trust::restore) "Restore a vault and its keys from a backup",
        Import(trust::import) "Import the skills of a vault from an earlier version",
        Approve(trust::approve) "Approve changes to policy, profile and transform files",
        Policy(trust::policy) "Check the policy and explain what it grants",
    }
    "Server" {
        Serve(server::serve) "Run the service",
        Mcp(server::mcp) "Serve this vault to agents over MCP, on standard input and output",
        Operator(server::operator) "Manage the namespaces and accounts of a service",
    }
    "Maintenance" {
        Doctor(maintenance::doctor) "Check this vault for problems and suggest fixes",
        Config(maintenance::config) "Show the settings and where each value comes from",
        Help(maintenance::help) "Show the help of a command, or all error codes",
        Version(maintenance::version) "Print the version",
        Completions(maintenance::completions) "Print a completion script for a shell",
        Man(maintenance::man) "Print the manual page, or write all pages to a folder",
    }
}

impl Command {
    /// Whether the folder that `--vault` names must exist: not for commands that create a vault
    /// there or use none.
    pub fn needs_vault_folder(&self) -> bool {
        match self {
            Self::Key(arguments) => !arguments.may_create_vault(),
            Self::Publishers(arguments) => !arguments.may_create_vault(),
            _ => !matches!(
                self,
                Self::Add(_)
                    | Self::Install(_)
                    | Self::Setup(_)
                    | Self::Link(_)
                    | Self::Restore(_)
                    | Self::Import(_)
                    | Self::Config(_)
                    | Self::Help(_)
                    | Self::Version(_)
                    | Self::Completions(_)
                    | Self::Man(_)
            ),
        }
    }

    /// Whether an option of the command itself (`--format json`) requests the JSON envelope.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Audit(arguments) => arguments.wants_json(),
            Self::AuditRepo(arguments) => arguments.wants_json(),
            Self::Lint(arguments) => arguments.wants_json(),
            _ => false,
        }
    }
}
