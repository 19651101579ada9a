//! A server that answers by script: what a store may do to us, request by request.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use vault_aws::{Aws, RetryLimits, SdkConfig, Settings, fixed_credentials, sdk_config_with};
use vault_testing::SeededRandom;
use vault_testing::TestClock;

/// One answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Status, extra header lines, body.
    Answer(u16, &'static str, Vec<u8>),
    /// A head that promises this many bytes more than come before the connection is closed.
    Cut(usize, Vec<u8>),
    /// A head that promises the body, and then nothing for as long as the reader waits.
    Stalled(usize),
    /// Nothing at all, for as long as the caller waits.
    Silent,
    /// The connection is closed without an answer.
    Closed,
    /// The answer of the server at this address.
    Of(String),
    /// The request reaches the server at this address, and its answer is lost.
    LostBy(String),
}

impl Reply {
    /// 200 with a JSON body.
    pub fn json(value: &serde_json::Value) -> Self {
        Self::Answer(200, "", value.to_string().into_bytes())
    }

    /// An error as DynamoDB tells it.
    pub fn dynamodb(status: u16, code: &str) -> Self {
        let code = format!("com.amazonaws.dynamodb.v20120810#{code}");
        let body = serde_json::json!({"__type": code, "message": "told by the stub"});
        Self::Answer(status, "", body.to_string().into_bytes())
    }

    /// An error as S3 tells it.
    pub fn s3(status: u16, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>told</Message></Error>"
        );
        Self::Answer(status, "", body.into_bytes())
    }

    /// A body with this status.
    pub fn bytes(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Answer(status, "", body.into())
    }
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method and target.
    pub line: String,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// The head as it came.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the request is JSON")
    }
}

/// The running server and what it heard.
pub struct Stub {
    /// The stores that ask it.
    pub aws: Aws,
    /// Where they ask.
    pub settings: Settings,
    /// With what configuration.
    pub config: SdkConfig,
    /// Their clock.
    pub clock: Arc<TestClock>,
    heard: Arc<Mutex<Vec<Request>>>,
    server: JoinHandle<()>,
}

impl Stub {
    /// Answers by the script; its last line again and again.
    pub async fn start(script: impl Into<Vec<Reply>>) -> Self {
        let limits = RetryLimits {
            initial_backoff: Duration::from_millis(1),
            max_backoff: Duration::from_millis(2),
            attempt_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(30),
            ..RetryLimits::default()
        };
        Self::start_with(script, limits).await
    }

    /// Does what [`Stub::start`] does, with other retry limits.
    pub async fn start_with(script: impl Into<Vec<Reply>>, limits: RetryLimits) -> Self {
        Self::start_for("t", script, limits).await
    }

    /// Does what [`Stub::start_with`] does, for a table and bucket of this name.
    pub async fn start_for(name: &str, script: impl Into<Vec<Reply>>, limits: RetryLimits) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let settings = Settings {
            table: name.to_owned(),
            bucket: name.to_owned(),
            endpoint: Some(format!("http://{address}")),
            region: "eu-central-1".to_owned(),
        };
        let config = sdk_config_with(&settings, fixed_credentials("key", "secret")).await;
        let clock = Arc::new(TestClock::default());
        let random = Arc::new(SeededRandom::new(1));
        let aws = Aws::with_limits(&config, &settings, clock.clone(), random, limits);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(VecDeque::from(script.into())));
        let server = tokio::spawn(serve(listener, script, heard.clone()));
        Self {
            aws,
            settings,
            config,
            clock,
            heard,
            server,
        }
    }

    /// The requests so far.
    pub fn heard(&self) -> Vec<Request> {
        self.heard.lock().expect("no panic").clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Script = Arc<Mutex<VecDeque<Reply>>>;

async fn serve(listener: TcpListener, script: Script, heard: Arc<Mutex<Vec<Request>>>) {
    loop {
        let (stream, _) = listener.accept().await.expect("it listens");
        let (script, heard) = (script.clone(), heard.clone());
        tokio::spawn(async move { converse(stream, &script, &heard).await });
    }
}

/// Answers the requests of one connection until it is closed.
async fn converse(mut stream: TcpStream, script: &Script, heard: &Mutex<Vec<Request>>) {
    while let Some(request) = read(&mut stream).await {
        let is_head = request.line.starts_with("HEAD ");
        heard.lock().expect("no panic").push(request.clone());
        let reply = {
            let mut script = script.lock().expect("no panic");
            match script.len() {
                1 => script.front().cloned(),
                _ => script.pop_front(),
            }
        };
        let (head, body, then) = match reply.expect("the script has a line") {
            Reply::Answer(status, extra, body) => {
                // An answer to HEAD tells a length in its extra lines, where it has one.
                let length = if is_head || status == 204 {
                    String::new()
                } else {
                    format!("content-length: {}\r\n", body.len())
                };
                let head = format!("HTTP/1.1 {status} Stub\r\n{extra}{length}\r\n");
                let body = if is_head { Vec::new() } else { body };
                (head, body, Reply::Answer(0, "", Vec::new()))
            }
            Reply::Cut(more, body) => {
                let length = body.len() + more;
                let head = format!("HTTP/1.1 200 Stub\r\ncontent-length: {length}\r\n\r\n");
                (head, body, Reply::Closed)
            }
            Reply::Stalled(length) => {
                let head = format!("HTTP/1.1 200 Stub\r\ncontent-length: {length}\r\n\r\n");
                (head, b"{".to_vec(), Reply::Silent)
            }
            Reply::Of(server) => {
                let (head, body) = ask(&server, &request).await;
                (head, body, Reply::Closed)
            }
            Reply::LostBy(server) => {
                ask(&server, &request).await;
                (String::new(), Vec::new(), Reply::Closed)
            }
            Reply::Silent => (String::new(), Vec::new(), Reply::Silent),
            Reply::Closed => (String::new(), Vec::new(), Reply::Closed),
        };
        let whole = [head.into_bytes(), body].concat();
        if stream.write_all(&whole).await.is_err() {
            return;
        }
        match then {
            Reply::Closed => return,
            // Until the caller gives up.
            Reply::Silent => {
                let _ = stream.read(&mut [0]).await;
                return;
            }
            _ => {}
        }
    }
}

/// What the server at this address answers: head and body.
async fn ask(server: &str, request: &Request) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    let whole = [request.head.as_bytes(), &request.body].concat();
    stream.write_all(&whole).await.expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    let head = String::from_utf8(head).expect("heads are text");
    let lower = head.to_ascii_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).await.expect("a body");
    (head, body)
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("heads are text");
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut request = Request {
        line,
        headers,
        head: head.clone(),
        body: Vec::new(),
    };
    if request.header("expect").is_some() {
        let go_on = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        go_on.ok()?;
    }
    let length = request.header("content-length").unwrap_or("0");
    request.body = vec![0; length.parse().expect("a length")];
    stream.read_exact(&mut request.body).await.ok()?;
    Some(request)
}
