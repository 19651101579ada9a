//! `vault mcp`: an MCP server for this vault, which a coding agent starts and talks to over
//! standard input and output.
//!
//! The skills are read when the first message needs them, so the time until the first answer does
//! not depend on the size of the vault. Nothing but protocol messages goes to standard output; the
//! log goes to standard error. The process ends when its input ends or the process that started it
//! exits.

pub mod install;
mod places;
mod shelf;

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::{Args, Subcommand};
use rmcp::ServiceExt as _;
use serde::de::IgnoredAny;
use tokio::net::UnixStream;
use vault_library::shelf::LibraryShelf;
use vault_mcp::{Person, Server, Session};

use shelf::LocalShelf;

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::Report,
    server::{log_to_stderr, tool_names},
    tasks::{approval, fetch},
};

/// The owner part of the ids (`<owner>/<skill>`) that the tools show for skills of this machine's
/// vault.
const OWNER: &str = "local";
/// The interval at which the server checks that its parent process is alive.
const PARENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The size of the buffer through which answers pass to standard output, in bytes.
const MAX_CHUNK_BYTES: usize = 64 * 1024;
/// The answer to a line that is not JSON (JSON-RPC 2.0, section 5.1).
const NOT_JSON: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"the line is not JSON\"}}\n";

/// The arguments of `vault mcp`.
#[derive(Args, Debug)]
#[command(after_help = "\
Agents on this machine start this server and speak MCP with it over standard input and output. It \
reads and changes the whole vault, as its owner. With VAULT_MCP_WRITES=draft, the changes of \
agents wait until you accept them with `vault drafts`. The log goes to standard error. The server \
ends when its input closes or its parent process ends.

Examples:
  vault mcp
  vault mcp install --agent claude-code --agent cursor
  vault mcp uninstall --agent cursor")]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add the server to an agent's settings
    #[command(after_help = "\
Adds one entry to the agent's settings file and keeps every other byte. A copy of the original \
file is kept beside it until you uninstall. Supported agents: claude-code, claude-desktop, codex, \
cursor, gemini-cli, github-copilot, opencode, qwen-code, vscode, windsurf, zed. The agent must be \
installed on this machine.

Examples:
  vault mcp install --agent claude-code
  vault mcp install --agent cursor --agent codex --dry-run
  vault mcp install --agent vscode --project
  vault mcp install --agent claude-code --writes draft")]
    Install(install::InstallArguments),
    /// Remove the server from an agent's settings
    #[command(after_help = "\
Removes the entry. If the file did not change since it was added, the original is restored byte \
for byte.

Examples:
  vault mcp uninstall --agent claude-code")]
    Uninstall(install::Arguments),
}

/// Without a subcommand, serves until the input ends. `install` and `uninstall` change the settings
/// of agents.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    match &arguments.action {
        None => serve_stdio(context),
        Some(Action::Install(arguments)) => install::install_server(context, arguments),
        Some(Action::Uninstall(arguments)) => install::uninstall_server(context, arguments),
    }
}

/// Answers MCP messages from standard input on standard output until the input ends or the parent
/// process exits.
fn serve_stdio(context: &Context) -> Result<Report, Failure> {
    let settings = context.settings()?;
    let _flush_log = log_to_stderr(settings.text("VAULT_LOG_LEVEL").unwrap_or("warn"));
    let names = tool_names(settings);
    if let Some(fault) = settings.project_fault() {
        tracing::warn!(%fault, "the project's settings are left out");
    }
    // The vault is opened now, so that a vault that cannot be read is reported before the first
    // message. It is not created here: `LocalShelf` creates it with the first change.
    if let Some(vault) = context.existing_vault()? {
        approval::log_pending(&vault);
    }
    let is_remote = settings.text("VAULT_MODE") == Some("remote");
    let machine = context
        .process
        .describe_machine(None)
        .filter(|_| !is_remote);
    let fetcher = fetch::for_tools(context)?;
    let keeps_drafts = settings.text("VAULT_MCP_WRITES") == Some("draft");
    let shelf = std::sync::Arc::new(LocalShelf {
        owner: OWNER,
        paths: context.vault_paths()?,
        passphrases: context.key_passphrases()?,
        build: Box::new(move |vault| {
            LibraryShelf::new(vault, OWNER)
                .with_fetch(fetcher.clone())
                .with_folders()
                .with_agents(machine.clone())
                .with_drafts(keeps_drafts)
        }),
        keeps_drafts,
        opened: std::sync::OnceLock::new(),
    });
    context.block_on(async {
        let server = Server::with_session(Session::new(shelf, Person::local_owner(), names));
        let failed = |error: &dyn std::fmt::Display| fail!(Mcp, "the conversation ended: {error}");
        let parent = rustix::process::getppid();
        let io = |error: std::io::Error| failed(&error);
        let input = standard_input().map_err(io)?;
        let (output, written) = standard_output().map_err(io)?;
        let serving = async {
            let running = match server.serve((input, output)).await {
                Ok(running) => running,
                // Some clients start the program only to test that it starts. So input that ends
                // before the first message is not an error.
                Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
                Err(error) => return Err(failed(&error)),
            };
            running
                .waiting()
                .await
                .map(|_| ())
                .map_err(|error| failed(&error))
        };
        // The system gives an orphaned process another parent, so a changed id means that the agent
        // that started this server is gone.
        let orphaned = async {
            while rustix::process::getppid() == parent {
                tokio::time::sleep(PARENT_CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            served = serving => {
                // Wait until the last answer is written, because the process ends after this.
                let _ = tokio::task::spawn_blocking(move || written.join()).await;
                served
            }
            () = orphaned => Ok(()),
        }
    })?;
    Ok(Report::silent(Exit::Done))
}

/// Returns a socket from which the event loop reads standard input. A thread copies standard input
/// into the socket line by line, because reading a pipe or a file may block. The thread itself
/// answers two kinds of lines that the MCP library would drop silently: a line that is not JSON
/// gets JSON-RPC's parse error (-32700), and a request for a list whose parameters cannot be read
/// gets the error -32602.
fn standard_input() -> io::Result<UnixStream> {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || -> io::Result<()> {
            let mut line = Vec::new();
            let mut input = io::stdin().lock();
            while input.read_until(b'\n', &mut line)? > 0 {
                let is_blank = line.iter().all(u8::is_ascii_whitespace);
                if !is_blank && serde_json::from_slice::<IgnoredAny>(&line).is_err() {
                    write_frame(NOT_JSON)?;
                } else if let Some(mut refusal) = vault_mcp::refuse_dropped_params(&line) {
                    refusal.push(b'\n');
                    write_frame(&refusal)?;
                } else {
                    ours.write_all(&line)?;
                }
                line.clear();
            }
            Ok(())
        })?;
    theirs.set_nonblocking(true)?;
    UnixStream::from_std(theirs)
}

/// Writes one whole message to standard output. The lock keeps messages of two threads apart.
fn write_frame(message: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(message)?;
    stdout.flush()
}

/// Returns a socket to which the event loop writes its answers, and the thread that copies them to
/// standard output. The thread ends when the event loop drops its end of the socket; join it to be
/// sure that the last answer is written.
fn standard_output() -> io::Result<(UnixStream, JoinHandle<io::Result<()>>)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let written = thread::Builder::new()
        .name("output".to_owned())
        .spawn(move || {
            let mut messages = BufReader::with_capacity(MAX_CHUNK_BYTES, ours);
            let mut message = Vec::new();
            // Only whole messages are written, so that an error that the input thread writes cannot
            // land inside one.
            while messages.read_until(b'\n', &mut message)? > 0 {
                write_frame(&message)?;
                message.clear();
            }
            Ok(())
        })?;
    theirs.set_nonblocking(true)?;
    Ok((UnixStream::from_std(theirs)?, written))
}
