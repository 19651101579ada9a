//! A small Runtime API on loopback, and a function that runs under it.

pub mod stores;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Time limit for a wait. It is longer than any step takes, and only ends a test that hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// Event of an HTTP request, as the gateway sends it.
pub const EVENT: &str = include_str!("../events/http.json");

/// Returns the time for a measurement.
#[expect(clippy::disallowed_methods, reason = "it measures a process")]
pub fn now() -> Instant {
    Instant::now()
}

/// A request to the Runtime API that was received and not yet answered.
pub struct Asked {
    /// Request line without the HTTP version: method and target.
    pub line: String,
    /// Header lines; names are in lower case.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
    answer: TcpStream,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.iter().filter_map(|line| line.split_once(':'));
        lines
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.trim())
    }

    /// Sends the answer: status, header lines and body.
    pub fn answer(mut self, status: &str, headers: &str, body: &[u8]) {
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        // The function may have closed the connection already.
        let _ = self.answer.write_all(&[head.as_bytes(), body].concat());
    }
}

/// Starts a server on a free port of loopback. Each request arrives at the returned channel.
pub fn serve() -> (String, Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || while read(&stream, &sender).is_some() {});
        }
    });
    (address, asked)
}

/// Reads a request and sends it to the channel; `None` at the end of the connection.
fn read(stream: &TcpStream, sender: &Sender<Asked>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    // A client sends its next request only after the answer, so dropping this buffer loses nothing.
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let (mut headers, mut length) = (Vec::new(), 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else {
            break;
        };
        let name = name.to_ascii_lowercase();
        if name == "content-length" {
            length = value.trim().parse().ok()?;
        }
        headers.push(format!("{name}:{value}"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let answer = stream.try_clone().ok()?;
    let line = line.trim_end().to_owned();
    sender
        .send(Asked {
            line,
            headers,
            body,
            answer,
        })
        .ok()
}

/// The process of a function, with the Runtime API that it talks to. Dropping this value ends the
/// process.
pub struct Running {
    child: Child,
    began: Instant,
    asked: Receiver<Asked>,
    waiting: Option<Asked>,
    events: usize,
}

/// Starts a program with only these environment variables. `log` receives its standard error.
pub fn start(path: &Path, runtime: &str, variables: &[(&str, &str)], log: Stdio) -> Child {
    Command::new(path)
        .env_clear()
        .env("AWS_LAMBDA_RUNTIME_API", runtime)
        .env("AWS_LAMBDA_FUNCTION_NAME", "x")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
        .env("AWS_LAMBDA_LOG_GROUP_NAME", "x")
        .env("AWS_LAMBDA_LOG_STREAM_NAME", "x")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Running {
    /// Starts a function under a Runtime API of its own.
    pub fn start(path: &Path, variables: &[(&str, &str)]) -> Self {
        let (address, asked) = serve();
        let began = now();
        Self {
            child: start(path, &address, variables, Stdio::inherit()),
            began,
            asked,
            waiting: None,
            events: 0,
        }
    }

    /// Waits until the function asks for its first event. Returns the time since its start.
    pub fn ready(&mut self) -> Duration {
        let asked = self.next();
        assert!(asked.line.starts_with("GET"), "{}", asked.line);
        let took = self.began.elapsed();
        self.waiting = Some(asked);
        took
    }

    /// Sends an event. Returns the answer, and the time until it arrived.
    pub fn call(&mut self, event: &Value) -> (Value, Duration) {
        let event = event.to_string();
        let asked = self.waiting.take();
        let asked = asked.unwrap_or_else(|| self.next());
        assert!(asked.line.starts_with("GET"), "{}", asked.line);
        self.events += 1;
        let headers = format!(
            "Lambda-Runtime-Aws-Request-Id: {}\r\nLambda-Runtime-Deadline-Ms: 4000000000000\r\n\
             Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:eu-central-1:000000000000:function:x\r\n\
             Content-Type: application/json\r\n",
            self.events
        );
        let given = now();
        asked.answer("200 OK", &headers, event.as_bytes());
        let answer = self.next();
        let took = given.elapsed();
        assert!(answer.line.contains("/response "), "{}", answer.line);
        let value = serde_json::from_slice(&answer.body).unwrap();
        answer.answer("202 Accepted", "", b"");
        (value, took)
    }

    /// Returns a figure of `/proc/<pid>/status` in KiB, such as `VmRSS` or `VmHWM`; `None` on
    /// systems without that file.
    pub fn memory(&self, name: &str) -> Option<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).ok()?;
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    fn next(&mut self) -> Asked {
        let start = now();
        loop {
            match self.asked.recv_timeout(Duration::from_millis(50)) {
                Ok(asked) => return asked,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("nobody listens"),
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the function ended: {ended:?}");
            assert!(start.elapsed() < PATIENCE, "the function does not answer");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
