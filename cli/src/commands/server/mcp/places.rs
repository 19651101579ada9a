//! Where each agent keeps its MCP servers, and in which words.
//!
//! Facts of the agents' own documentation; an agent whose place is not known is not guessed at.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use vault_library::agents::{self, Machine};

use crate::mcp_config::Format;

/// How an agent writes a server that it starts itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    /// `command`, `args`, `env`.
    Plain,
    /// The same with `type: stdio`.
    Stdio,
    /// The same with `type: local` and the tools that are allowed.
    Copilot,
    /// `type: local`, one list of words, `environment`.
    OpenCode,
    /// `source: custom`, `command`, `args`, `env`.
    Zed,
}

/// An agent whose place is known.
#[derive(Debug)]
pub struct Known {
    /// Its id; that of `vault agents` where it stands there.
    pub id: &'static str,
    /// Its name for people.
    pub label: &'static str,
    format: Format,
    /// The table of servers.
    pub path: &'static [&'static str],
    shape: Shape,
    /// The file in a project, where it reads one.
    project: Option<&'static str>,
}

const fn known(
    id: &'static str,
    label: &'static str,
    shape: Shape,
    path: &'static [&'static str],
    project: Option<&'static str>,
) -> Known {
    Known {
        id,
        label,
        format: Format::Json,
        path,
        shape,
        project,
    }
}

const SERVERS: &[&str] = &["mcpServers"];

/// Every agent whose place is known, by id.
pub const KNOWN: [Known; 11] = [
    known(
        "claude-code",
        "Claude Code",
        Shape::Stdio,
        SERVERS,
        Some(".mcp.json"),
    ),
    known(
        "claude-desktop",
        "Claude Desktop",
        Shape::Plain,
        SERVERS,
        None,
    ),
    Known {
        format: Format::Toml,
        ..known(
            "codex",
            "Codex",
            Shape::Plain,
            &["mcp_servers"],
            Some(".codex/config.toml"),
        )
    },
    known(
        "cursor",
        "Cursor",
        Shape::Plain,
        SERVERS,
        Some(".cursor/mcp.json"),
    ),
    known(
        "gemini-cli",
        "Gemini CLI",
        Shape::Plain,
        SERVERS,
        Some(".gemini/settings.json"),
    ),
    known(
        "github-copilot",
        "GitHub Copilot CLI",
        Shape::Copilot,
        SERVERS,
        None,
    ),
    known(
        "opencode",
        "OpenCode",
        Shape::OpenCode,
        &["mcp"],
        Some("opencode.json"),
    ),
    known(
        "qwen-code",
        "Qwen Code",
        Shape::Plain,
        SERVERS,
        Some(".qwen/settings.json"),
    ),
    known(
        "vscode",
        "VS Code",
        Shape::Stdio,
        &["servers"],
        Some(".vscode/mcp.json"),
    ),
    known("windsurf", "Windsurf", Shape::Plain, SERVERS, None),
    known(
        "zed",
        "Zed",
        Shape::Zed,
        &["context_servers"],
        Some(".zed/settings.json"),
    ),
];

/// What is to be started.
#[derive(Clone, Debug)]
pub struct Server {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that it needs.
    pub env: Vec<(String, String)>,
}

/// The folders of a machine that are not an agent's own.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Home, variables.
    pub machine: Machine,
    /// Where programs keep their settings.
    pub config: PathBuf,
}

impl Folders {
    /// Of this machine: `~/Library/Application Support` on macOS, `$XDG_CONFIG_HOME` or `~/.config` elsewhere.
    pub fn of(machine: Machine) -> Self {
        let config = if cfg!(target_os = "macos") {
            machine.home.join("Library/Application Support")
        } else {
            variable(&machine, "XDG_CONFIG_HOME").unwrap_or_else(|| machine.home.join(".config"))
        };
        Self { machine, config }
    }
}

fn variable(machine: &Machine, name: &str) -> Option<PathBuf> {
    machine
        .variables
        .get(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

impl Known {
    /// The language of its file.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// What shows that the agent is here; `None` when it is not.
    pub fn found(&self, folders: &Folders) -> Option<PathBuf> {
        match self.id {
            "claude-desktop" => Some(folders.config.join("Claude")).filter(|path| path.is_dir()),
            "vscode" => Some(folders.config.join("Code/User")).filter(|path| path.is_dir()),
            id => agents::by_name(id)?.mark_found(&folders.machine),
        }
    }

    /// Where one would look for it, in words.
    pub fn sought(&self) -> &'static str {
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

    /// The user's file.
    pub fn file(&self, folders: &Folders) -> PathBuf {
        let home = &folders.machine.home;
        let moved = |name, default: &str| {
            variable(&folders.machine, name).unwrap_or_else(|| home.join(default))
        };
        let xdg = || moved("XDG_CONFIG_HOME", ".config");
        match self.id {
            // Beside the folder, not in it, unless the folder was moved.
            "claude-code" => variable(&folders.machine, "CLAUDE_CONFIG_DIR")
                .unwrap_or_else(|| home.clone())
                .join(".claude.json"),
            "claude-desktop" => folders.config.join("Claude/claude_desktop_config.json"),
            "codex" => moved("CODEX_HOME", ".codex").join("config.toml"),
            "cursor" => home.join(".cursor/mcp.json"),
            "gemini-cli" => home.join(".gemini/settings.json"),
            "github-copilot" => home.join(".copilot/mcp-config.json"),
            "opencode" => first_of(
                &xdg().join("opencode"),
                &["opencode.jsonc", "opencode.json"],
            ),
            "qwen-code" => home.join(".qwen/settings.json"),
            "vscode" => folders.config.join("Code/User/mcp.json"),
            "windsurf" => home.join(".codeium/windsurf/mcp_config.json"),
            _ => xdg().join("zed/settings.json"),
        }
    }

    /// The file of a project, where the agent reads one.
    pub fn project_file(&self, project: &Path) -> Option<PathBuf> {
        let file = self.project?;
        if self.id == "opencode" {
            return Some(first_of(project, &["opencode.jsonc", "opencode.json"]));
        }
        Some(project.join(file))
    }

    /// The server in the agent's words.
    pub fn entry(&self, server: &Server) -> Value {
        let env: Map<String, Value> = server
            .env
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        let mut entry = match self.shape {
            Shape::Plain => json!({ "command": server.command, "args": server.args }),
            Shape::Stdio => {
                json!({ "type": "stdio", "command": server.command, "args": server.args })
            }
            Shape::Copilot => {
                json!({ "type": "local", "command": server.command, "args": server.args, "tools": ["*"] })
            }
            Shape::Zed => {
                json!({ "source": "custom", "command": server.command, "args": server.args })
            }
            Shape::OpenCode => {
                let words: Vec<&String> = std::iter::once(&server.command)
                    .chain(&server.args)
                    .collect();
                json!({ "type": "local", "command": words, "enabled": true })
            }
        };
        if !env.is_empty() {
            let name = if self.shape == Shape::OpenCode {
                "environment"
            } else {
                "env"
            };
            entry[name] = Value::Object(env);
        }
        entry
    }
}

/// Whether an entry starts `vault mcp`, in whichever words; `own` is what this very program would be started with, whatever it is called.
pub fn is_ours(entry: &Value, own: &str) -> bool {
    let mut words: Vec<&str> = Vec::new();
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
        path == Path::new(own) || path.file_name().is_some_and(|name| name == "vault")
    }) && words.get(1) == Some(&"mcp")
}

fn first_of(folder: &Path, names: &[&str]) -> PathBuf {
    let there = names
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file());
    there.unwrap_or_else(|| folder.join(names.last().copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_has_a_place_and_an_entry_that_is_known_again() {
        let folders = Folders::of(Machine::at("/home/ann"));
        let server = Server {
            command: "/opt/bin/vault".to_owned(),
            args: vec!["mcp".to_owned()],
            env: vec![("XDG_CONFIG_HOME".to_owned(), "/c".to_owned())],
        };
        for known in &KNOWN {
            assert!(
                known.file(&folders).starts_with("/home/ann"),
                "{}",
                known.id
            );
            let entry = known.entry(&server);
            assert!(is_ours(&entry, "/opt/elsewhere"), "{entry}");
            assert!(entry.to_string().contains("/c"), "{entry}");
            let own_list = ["claude-desktop", "vscode"].contains(&known.id);
            assert!(
                own_list || agents::by_name(known.id).is_some(),
                "{}",
                known.id
            );
        }
        assert!(KNOWN.is_sorted_by_key(|known| known.id));
        for entry in [
            json!({ "command": "docker", "args": ["run", "vault"] }),
            json!({ "command": "vault-mcp" }),
            json!(3),
        ] {
            assert!(!is_ours(&entry, "/opt/bin/vault"), "{entry}");
        }
        let renamed = json!({ "command": "/opt/bin/vault-0.5", "args": ["mcp"] });
        assert!(is_ours(&renamed, "/opt/bin/vault-0.5") && !is_ours(&renamed, "/opt/bin/vault"));
    }
}
