//! The settings files in which coding agents keep their MCP servers, and the form of an *entry*,
//! which tells the agent how to start one server.
//!
//! [`AGENTS`] follows the agents' documentation. An agent whose settings file is not documented is
//! left out.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use vault_library::agents::{self, Machine};

use crate::{mcp_config::Format, text::either};

/// The JSON or TOML members that an agent expects in the entry of a server that it starts itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum EntryForm {
    /// `command`, `args`, `env`.
    Plain,
    /// `command`, `args`, `env`, and `type: stdio`.
    Stdio,
    /// `command`, `args`, `env`, `type: local`, and the list of allowed tools.
    Copilot,
    /// `type: local`, the command and its arguments in one list, and `environment`.
    OpenCode,
    /// `command`, `args`, `env`, and `source: custom`.
    Zed,
}

/// An agent, and where and in which form its settings file lists MCP servers.
#[derive(Debug)]
pub struct AgentSettings {
    /// The agent's id, as in `--agent`. It equals the id in `vault agents`, which does not list
    /// every agent of this table.
    pub id: &'static str,
    /// The agent's name for people, such as "VS Code".
    pub label: &'static str,
    /// The syntax of the settings file.
    pub format: Format,
    /// The keys that lead from the root of the file to the table of servers, outermost first.
    pub path: &'static [&'static str],
    form: EntryForm,
    /// The path of the agent's settings file inside a project's folder; `None` if the agent reads
    /// no such file.
    project: Option<&'static str>,
}

const fn json_settings(
    [id, label]: [&'static str; 2],
    form: EntryForm,
    path: &'static [&'static str],
    project: Option<&'static str>,
) -> AgentSettings {
    AgentSettings {
        id,
        label,
        format: Format::Json,
        path,
        form,
        project,
    }
}

use self::EntryForm::{Copilot, OpenCode, Plain, Stdio, Zed};

/// The key of the table of servers in most agents' files.
const SERVERS: &[&str] = &["mcpServers"];

/// Every agent whose settings `vault mcp install` can change, sorted by id.
pub const AGENTS: [AgentSettings; 11] = [
    json_settings(
        ["claude-code", "Claude Code"],
        Stdio,
        SERVERS,
        Some(".mcp.json"),
    ),
    json_settings(["claude-desktop", "Claude Desktop"], Plain, SERVERS, None),
    AgentSettings {
        format: Format::Toml,
        ..json_settings(
            ["codex", "Codex"],
            Plain,
            &["mcp_servers"],
            Some(".codex/config.toml"),
        )
    },
    json_settings(
        ["cursor", "Cursor"],
        Plain,
        SERVERS,
        Some(".cursor/mcp.json"),
    ),
    json_settings(
        ["gemini-cli", "Gemini CLI"],
        Plain,
        SERVERS,
        Some(".gemini/settings.json"),
    ),
    json_settings(
        ["github-copilot", "GitHub Copilot CLI"],
        Copilot,
        SERVERS,
        None,
    ),
    json_settings(
        ["opencode", "OpenCode"],
        OpenCode,
        &["mcp"],
        Some("opencode.json"),
    ),
    json_settings(
        ["qwen-code", "Qwen Code"],
        Plain,
        SERVERS,
        Some(".qwen/settings.json"),
    ),
    json_settings(
        ["vscode", "VS Code"],
        Stdio,
        &["servers"],
        Some(".vscode/mcp.json"),
    ),
    json_settings(["windsurf", "Windsurf"], Plain, SERVERS, None),
    json_settings(
        ["zed", "Zed"],
        Zed,
        &["context_servers"],
        Some(".zed/settings.json"),
    ),
];

/// The command with which an agent starts the MCP server.
#[derive(Clone, Debug)]
pub struct ServerCommand {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub command: String,
    pub args: Vec<String>,
    /// Names and values of the environment variables that the agent sets for the program.
    pub env: Vec<(String, String)>,
}

/// The folders of this machine from which the path of an agent's settings file is computed.
#[derive(Clone, Debug)]
pub struct SettingsFolders {
    /// The user's home folder and environment variables.
    pub machine: Machine,
    /// The folder in which desktop applications keep their settings; see [`Self::new`].
    pub config: PathBuf,
}

impl SettingsFolders {
    /// Finds the folders of a machine. The settings folder is `~/Library/Application Support` on
    /// macOS, and `$XDG_CONFIG_HOME` or `~/.config` elsewhere.
    pub fn new(machine: Machine) -> Self {
        let config = if cfg!(target_os = "macos") {
            machine.home.join("Library/Application Support")
        } else {
            folder_variable(&machine, "XDG_CONFIG_HOME")
                .unwrap_or_else(|| machine.home.join(".config"))
        };
        Self { machine, config }
    }
}

/// Returns the absolute path that an environment variable holds; `None` if it is not set or
/// relative.
fn folder_variable(machine: &Machine, name: &str) -> Option<PathBuf> {
    machine
        .variables
        .get(name)
        .map(PathBuf::from)
        // A relative path would depend on the folder in which the agent starts.
        .filter(|path| path.is_absolute())
}

impl AgentSettings {
    /// Returns the folder whose presence shows that the agent is installed; `None` if it does not
    /// exist.
    pub fn installed_mark(&self, folders: &SettingsFolders) -> Option<PathBuf> {
        match self.id {
            "claude-desktop" => Some(folders.config.join("Claude")).filter(|path| path.is_dir()),
            "vscode" => Some(folders.config.join("Code/User")).filter(|path| path.is_dir()),
            id => agents::by_name(id)?.mark_found(&folders.machine),
        }
    }

    /// Returns the words that messages use for the folder that [`Self::installed_mark`] looks for.
    pub fn mark_name(&self) -> &'static str {
        match self.id {
            "claude-code" => "~/.claude",
            "claude-desktop" => "its settings folder `Claude`",
            "codex" => "~/.codex",
            "cursor" => "~/.cursor",
            "gemini-cli" => "~/.gemini",
            "github-copilot" => "~/.copilot",
            "opencode" => "~/.config/opencode",
            "qwen-code" => "~/.qwen",
            "vscode" => "its settings folder `Code/User`",
            "windsurf" => "~/.codeium/windsurf",
            _ => "~/.config/zed",
        }
    }

    /// Returns the path of the user's own settings file of this agent. The file need not exist.
    pub fn user_file(&self, folders: &SettingsFolders) -> PathBuf {
        let home = &folders.machine.home;
        let folder = |name, default: &str| {
            folder_variable(&folders.machine, name).unwrap_or_else(|| home.join(default))
        };
        let xdg = || folder("XDG_CONFIG_HOME", ".config");
        match self.id {
            // By default the file lies beside the folder `~/.claude`. With `CLAUDE_CONFIG_DIR` it
            // lies inside the folder that the variable names.
            "claude-code" => folder_variable(&folders.machine, "CLAUDE_CONFIG_DIR")
                .unwrap_or_else(|| home.clone())
                .join(".claude.json"),
            "claude-desktop" => folders.config.join("Claude/claude_desktop_config.json"),
            "codex" => folder("CODEX_HOME", ".codex").join("config.toml"),
            "cursor" => home.join(".cursor/mcp.json"),
            "gemini-cli" => home.join(".gemini/settings.json"),
            "github-copilot" => home.join(".copilot/mcp-config.json"),
            // OpenCode reads both names. Use the file that exists, because the user might not
            // notice a second one beside it.
            "opencode" => first_existing(
                &xdg().join("opencode"),
                &["opencode.jsonc", "opencode.json"],
            ),
            "qwen-code" => home.join(".qwen/settings.json"),
            "vscode" => folders.config.join("Code/User/mcp.json"),
            "windsurf" => home.join(".codeium/windsurf/mcp_config.json"),
            _ => xdg().join("zed/settings.json"),
        }
    }

    /// Returns the path of the agent's settings file in a project; `None` if the agent reads none
    /// there.
    pub fn project_file(&self, project: &Path) -> Option<PathBuf> {
        let file = self.project?;
        if self.id == "opencode" {
            return Some(first_existing(
                project,
                &["opencode.jsonc", "opencode.json"],
            ));
        }
        Some(project.join(file))
    }

    /// Returns the entry that starts `server`, in the form that this agent expects.
    pub fn server_entry(&self, server: &ServerCommand) -> Value {
        let env: Map<String, Value> = server
            .env
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        let mut entry = match self.form {
            EntryForm::Plain => json!({ "command": server.command, "args": server.args }),
            EntryForm::Stdio => {
                json!({ "type": "stdio", "command": server.command, "args": server.args })
            }
            EntryForm::Copilot => {
                json!({ "type": "local", "command": server.command, "args": server.args, "tools": ["*"] })
            }
            EntryForm::Zed => {
                json!({ "source": "custom", "command": server.command, "args": server.args })
            }
            EntryForm::OpenCode => {
                let words: Vec<&String> = std::iter::once(&server.command)
                    .chain(&server.args)
                    .collect();
                json!({ "type": "local", "command": words, "enabled": true })
            }
        };
        if !env.is_empty() {
            let name = either(self.form == EntryForm::OpenCode, "environment", "env");
            entry[name] = Value::Object(env);
        }
        entry
    }
}

/// Returns whether an entry starts `vault mcp`, that is, was probably written by `vault mcp
/// install`. `own` is the path of this program, whose file name may differ from `vault`.
pub fn starts_vault(entry: &Value, own: &str) -> bool {
    let mut words: Vec<&str> = Vec::new();
    // OpenCode has the program and its arguments in one list, the other agents in two members.
    match &entry["command"] {
        Value::String(command) => words.push(command),
        Value::Array(list) => words.extend(list.iter().filter_map(Value::as_str)),
        _ => {}
    }
    words.extend(
        entry["args"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str),
    );
    let program = words.first().map(Path::new);
    program.is_some_and(|path| {
        // Any program named `vault` counts: the entry in a project has no path, and an earlier
        // installation of vault may have had another path.
        path == Path::new(own) || path.file_name().is_some_and(|name| name == "vault")
    }) && words.get(1) == Some(&"mcp")
}

/// Returns the path of the first of these files that exists in the folder.
fn first_existing(folder: &Path, names: &[&str]) -> PathBuf {
    let there = names
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file());
    // If none exists, the last name is the file to create.
    there.unwrap_or_else(|| folder.join(names.last().copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_has_a_file_and_an_entry_that_is_recognised() {
        let folders = SettingsFolders::new(Machine::with_home("/home/ann"));
        let server = ServerCommand {
            command: "/opt/bin/vault".to_owned(),
            args: vec!["mcp".to_owned()],
            env: vec![("XDG_CONFIG_HOME".to_owned(), "/c".to_owned())],
        };
        for known in &AGENTS {
            assert!(
                known.user_file(&folders).starts_with("/home/ann"),
                "{}",
                known.id
            );
            let entry = known.server_entry(&server);
            assert!(starts_vault(&entry, "/opt/elsewhere"), "{entry}");
            assert!(entry.to_string().contains("/c"), "{entry}");
            let own_list = ["claude-desktop", "vscode"].contains(&known.id);
            assert!(
                own_list || agents::by_name(known.id).is_some(),
                "{}",
                known.id
            );
        }
        assert!(AGENTS.is_sorted_by_key(|known| known.id));
        for entry in [
            json!({ "command": "docker", "args": ["run", "vault"] }),
            json!({ "command": "vault-mcp" }),
            json!(3),
        ] {
            assert!(!starts_vault(&entry, "/opt/bin/vault"), "{entry}");
        }
        let renamed = json!({ "command": "/opt/bin/vault-0.5", "args": ["mcp"] });
        assert!(
            starts_vault(&renamed, "/opt/bin/vault-0.5")
                && !starts_vault(&renamed, "/opt/bin/vault")
        );
    }
}
