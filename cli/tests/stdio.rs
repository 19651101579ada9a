//! Runs `vault mcp` as an agent does: it reads and writes only frames, and ends with its input.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _home: TempDir,
}

fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Agent {
    let home = TempDir::new().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_vault"))
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let input = child.stdin.take();
    let output = BufReader::new(child.stdout.take().unwrap());
    Agent {
        child,
        input,
        output,
        _home: home,
    }
}

impl Agent {
    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
    }

    /// Reads the next line, which must be a frame.
    fn frame(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let frame: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no frame: {line:?}"));
        assert_eq!(frame["jsonrpc"], "2.0");
        frame
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        self.frame()["result"].clone()
    }

    fn greet(&mut self) {
        let client = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        let result = self.ask("initialize", &params);
        assert_eq!(result["protocolVersion"], "2025-06-18");
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Closes the input. Returns the remaining output lines and the exit code.
    fn end(mut self) -> (Vec<String>, Option<i32>) {
        drop(self.input.take());
        let rest = self.output.lines().map(Result::unwrap).collect();
        (rest, self.child.wait().unwrap().code())
    }
}

const DOCUMENT: &str =
    "---\nname: greeting\ndescription: Greets whoever asks in a friendly way\n---\n\nSay hello.\n";

#[test]
fn an_owner_at_the_machine_reads_and_changes_the_library() {
    for (arguments, variables) in [(&["mcp"][..], &[][..]), (&[], &[("VAULT_MODE", "local")])] {
        let mut agent = start(arguments, variables);
        agent.greet();
        let tools = agent.ask("tools/list", &json!({}));
        assert_eq!(tools["tools"].as_array().unwrap().len(), 10);
        let arguments = json!({ "skill_md": DOCUMENT });
        let added = agent.ask(
            "tools/call",
            &json!({ "name": "propose_skill", "arguments": arguments }),
        );
        assert_eq!(added["structuredContent"]["status"], "accepted", "{added}");
        assert_eq!(added["structuredContent"]["id"], "local/greeting");
        let got = agent.ask(
            "tools/call",
            &json!({ "name": "get_skill", "arguments": { "name": "greeting" } }),
        );
        assert_eq!(got["content"][0]["text"], DOCUMENT);
        let read = agent.ask(
            "resources/read",
            &json!({ "uri": "skill://local/greeting/SKILL.md" }),
        );
        assert_eq!(read["contents"][0]["text"], DOCUMENT);
        assert_eq!(agent.end(), (Vec::new(), Some(0)));
    }
}

#[test]
fn the_revision_without_a_greeting_is_spoken() {
    let mut agent = start(&["mcp"], &[("VAULT_TOOL_NAMES", "dotted")]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = agent.ask("server/discover", &json!({ "_meta": meta }));
    assert_eq!(found["resultType"], "complete", "{found}");
    let tools = agent.ask("tools/list", &json!({ "_meta": meta }));
    assert!(tools.to_string().contains("\"skill.fetch\""));
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn an_input_that_ends_at_once_is_no_failure() {
    assert_eq!(start(&["mcp"], &[]).end(), (Vec::new(), Some(0)));
}

#[test]
fn bare_vault_in_no_mode_shows_its_help_and_speaks_nothing() {
    let (lines, code) = start(&[], &[]).end();
    assert_eq!((lines, code), (Vec::new(), Some(2)));
}

#[test]
fn the_server_ends_when_who_started_it_is_gone() {
    let home = TempDir::new().unwrap();
    let pipe = home.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // Open the pipe for reading and writing. Opening then does not block, and the server's input
    // never ends.
    let mut input = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    // The shell starts the server and exits after reading a line.
    let mut shell = Command::new("/bin/sh")
        .args(["-c", "\"$VAULT\" mcp <\"$HOME/pipe\" & read -r told"])
        .env_clear()
        .env("VAULT", env!("CARGO_BIN_EXE_vault"))
        .env("HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let client = json!({ "name": "test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let greeting = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    writeln!(input, "{greeting}").unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("2025-06-18"), "it runs: {line}");
    writeln!(shell.stdin.take().unwrap(), "end").unwrap();
    assert!(shell.wait().unwrap().success());
    // Only the server still holds the output open, so the output ends when the server exits.
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    assert_eq!(rest, "");
}
