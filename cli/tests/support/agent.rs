//! An agent that speaks MCP with a running command.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

pub struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Agent {
    pub fn start(command: Command) -> Self {
        Self::start_with_log(command, Stdio::null())
    }

    /// Starts the command with this standard error.
    pub fn start_with_log(mut command: Command, log: Stdio) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(log).spawn().unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

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

    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        self.frame()["result"].clone()
    }

    /// Sends a line as it is. Returns the frame that answers it.
    pub fn write_line(&mut self, line: &str) -> Value {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
        self.frame()
    }

    /// Calls a tool.
    pub fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.ask(
            "tools/call",
            &json!({ "name": name, "arguments": arguments }),
        )
    }

    pub fn greet(&mut self) {
        let result = self.ask("initialize", &greeting());
        assert_eq!(result["protocolVersion"], "2025-06-18");
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Closes the input. Returns the remaining output lines and the exit code.
    pub fn end(mut self) -> (Vec<String>, Option<i32>) {
        drop(self.input.take());
        let rest = self.output.lines().map(Result::unwrap).collect();
        (rest, self.child.wait().unwrap().code())
    }
}

/// The parameters with which an agent opens a session.
pub fn greeting() -> Value {
    let client = json!({ "name": "test", "version": "1" });
    json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client })
}
