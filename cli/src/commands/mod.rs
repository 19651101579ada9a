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
    pub mod link;
    pub mod status;
    pub mod sync;
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
        Setup(start::setup) "Find the agents and skills of this machine and take them in, step by step",
        Demo(start::demo) "See the whole of it work in a temporary folder",
        Add(start::add) "Admit a skill: check it, sign it, keep it",
        Remove(start::remove) "Take skills out of the vault",
        Install(start::install) "Install the skills of this project's vault.lock",
    }
    "Keep current" {
        Outdated(keep_current::outdated) "Say which skills have changed at their sources",
        Update(keep_current::update) "Take in what has changed at the sources",
        History(keep_current::history) "Show the stored versions of a skill",
        Rollback(keep_current::rollback) "Go back to an earlier version of a skill",
    }
    "Find and run" {
        List(find::list) "List the installed skills, or those of a project",
        Skill(find::skill) "List, search, inspect and run skills",
        Show(find::show) "Show everything that is known of a skill, installed or not",
        Resolve(find::resolve) "Print what a caller may use, as JSON",
    }
    "Agents" {
        Agents(agent::agents) "Show the coding agents of this machine and where they read skills",
        SyncProfiles(agent::sync_profiles) "Link the vault's skills into the agents' folders",
        Enable(agent::enable) "Show a skill to agents again",
        Disable(agent::disable) "Hide a skill from agents and keep it in the vault",
        Transform(agent::transform) "Change a skill for one agent, on top of what was signed",
    }
    "Write" {
        New(write::new) "Make a folder that is a skill",
        Lint(write::lint) "Look at skills that are being written",
        Fmt(write::fmt) "Mend the commonest slips of a SKILL.md",
        Export(write::export) "Write skills as archives, or as a site for other tools",
    }
    "Share" {
        Cloud(share::cloud) "Connect to a service, install from it, roll back",
        Sync(share::sync) "Publish this vault's skills to the connected service",
        Status(share::status) "Show the connected service, counts and the last push",
        Link(share::link) "Enrol this machine in a vault and pin its keys",
        Devices(share::devices) "Admit, deny and revoke machines",
    }
    "Administer" {
        Users(administer::users) "Show, invite, change and remove the people of a vault",
        Clients(administer::clients) "Show and end the apps that people connected",
        AuditLog(administer::audit_log) "Show what was done and refused on a vault",
    }
    "Trust" {
        Audit(trust::audit) "Judge one skill: what the gate finds, where, and what mends it",
        AuditRepo(trust::audit_repo) "Judge every skill of a repository, for CI",
        Verify(trust::verify) "Tell whether skills, archives and sites are exactly what was signed",
        Key(trust::key) "Show, rotate and recover this vault's keys",
        Publishers(trust::publishers) "Show who may publish this vault",
        Backup(trust::backup) "Write the vault and its keys into one encrypted file",
        Restore(trust::restore) "Bring back a vault and its keys from a backup",
        Import(trust::import) "Take the skills of an earlier vault into this one",
        Approve(trust::approve) "Put changed policy, profile and transform files into force",
        Policy(trust::policy) "Check the policy, and see what it grants to whom",
    }
    "Server" {
        Serve(server::serve) "Run the service",
        Mcp(server::mcp) "Serve this vault's tools to an agent on standard input and output",
        Operator(server::operator) "Make and look at namespaces of a service",
    }
    "Maintenance" {
        Doctor(maintenance::doctor) "Look for everything that can be wrong here, and say what mends it",
        Config(maintenance::config) "Show the settings and who set them",
        Help(maintenance::help) "Show how a command is used, or every error code",
        Version(maintenance::version) "Print the version",
        Completions(maintenance::completions) "Print a completion script for a shell",
        Man(maintenance::man) "Print the manual page, or write all pages to a folder",
    }
}

impl Command {
    /// Whether an option of the command itself (`--format json`) requests the JSON envelope.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Audit(arguments) => arguments.wants_json(),
            Self::AuditRepo(arguments) => arguments.wants_json(),
            _ => false,
        }
    }
}
