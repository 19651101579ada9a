//! Shared support for the tests of sources: a site on loopback, repositories made with the system's
//! git, and a fetcher that may reach both.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses its own part"
)]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use vault_sources::{
    FetchError, Fetcher, GitSettings, Limits, Opened, ParseOptions, Settings, Source, SourcePolicy,
    Tokens,
};
use vault_store::clock::TestClock;
use vault_store::fetch::{FetchedSkill, Upstream};
use vault_store::shelf::DriftState;

/// The response for a path of the site.
#[derive(Clone)]
pub enum Answer {
    /// 200 with a content type and a body.
    Body(&'static str, Vec<u8>),
    /// 200 with this text if the request carries the bearer token, otherwise 401.
    Guarded(&'static str, String),
    /// A redirect to this address.
    To(String),
    /// An empty response with this status.
    Status(u16),
    /// A body that never ends.
    Endless,
    /// A body that stops after its first bytes while the connection stays open.
    Stalls,
    /// Raw bytes of a whole response, including the status line and headers.
    Raw(Vec<u8>),
}

/// A site on loopback that records its requests.
pub struct SiteServer {
    pub base: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl SiteServer {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let site = Self {
            base,
            answers: Arc::default(),
            asked: Arc::default(),
        };
        let (answers, asked) = (Arc::clone(&site.answers), Arc::clone(&site.asked));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (answers, asked) = (Arc::clone(&answers), Arc::clone(&asked));
                std::thread::spawn(move || serve(stream, &answers, &asked));
            }
        });
        site
    }

    pub fn put(&self, path: &str, answer: Answer) -> &Self {
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
        self
    }

    pub fn text(&self, path: &str, text: impl Into<String>) -> &Self {
        self.put(path, Answer::Body("text/plain", text.into().into_bytes()))
    }

    pub fn json(&self, path: &str, text: impl Into<String>) -> &Self {
        self.put(
            path,
            Answer::Body("application/json", text.into().into_bytes()),
        )
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    answers: &Mutex<HashMap<String, Answer>>,
    asked: &Mutex<Vec<String>>,
) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        asked.lock().unwrap().push(path.clone());
        let bare = path.split('?').next().unwrap_or_default();
        let answer = {
            let answers = answers.lock().unwrap();
            answers.get(&path).or_else(|| answers.get(bare)).cloned()
        };
        let written = match answer.unwrap_or(Answer::Status(404)) {
            Answer::Body(kind, body) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                stream
                    .write_all(head.as_bytes())
                    .and_then(|()| stream.write_all(&body))
            }
            Answer::Guarded(token, text) => {
                let wanted = format!("authorization: bearer {token}\r\n").to_lowercase();
                let status = if head.to_lowercase().contains(&wanted) {
                    format!("200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
                } else {
                    "401 No\r\nContent-Length: 0\r\n\r\n".to_owned()
                };
                stream.write_all(format!("HTTP/1.1 {status}").as_bytes())
            }
            Answer::To(to) => stream.write_all(
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
                    .as_bytes(),
            ),
            Answer::Status(status) => stream
                .write_all(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").as_bytes()),
            Answer::Raw(bytes) => stream.write_all(&bytes),
            Answer::Endless => {
                let mut done = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                while done.is_ok() {
                    done = stream.write_all(&[b'x'; 8 * 1024]);
                }
                return;
            }
            Answer::Stalls => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nslow");
                // Wait until the client closes the connection.
                let _ = stream.read(&mut [0]);
                return;
            }
        };
        if written.is_err() {
            return;
        }
    }
}

/// A repository made with the system's git.
pub struct Repository {
    pub folder: TempDir,
}

impl Repository {
    pub fn new() -> Self {
        let repository = Self {
            folder: TempDir::new().unwrap(),
        };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository.git(&["config", "uploadpack.allowFilter", "true"]);
        repository
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn address(&self) -> String {
        format!("file://{}", self.path().display())
    }

    pub fn git(&self, arguments: &[&str]) -> String {
        let out = Command::new("git")
            .args([
                "-c",
                "user.name=Ann",
                "-c",
                "user.email=ann@example.com",
                "-c",
                "commit.gpgsign=false",
            ])
            .args(arguments)
            .current_dir(self.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_DATE", "2026-11-01T00:00:00Z")
            .env("GIT_COMMITTER_DATE", "2026-11-01T00:00:00Z")
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    pub fn commit(&self) -> String {
        self.git(&["add", "--all", "--force"]);
        self.git(&[
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            "A change.",
        ]);
        self.git(&["rev-parse", "HEAD"])
    }
}

pub fn skill_md(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Does what {name} does, for tests.\n---\n\nDo it.\n")
}

pub fn options() -> ParseOptions {
    ParseOptions {
        loopback: true,
        ..ParseOptions::default()
    }
}

pub fn parse(text: &str) -> Source {
    Source::parse(text, &options(), &|_| false).unwrap()
}

pub fn settings(base: &str) -> Settings {
    let mut git = GitSettings::new(PathBuf::from("git"));
    git.loopback = true;
    Settings {
        git,
        limits: Limits {
            connect: Duration::from_secs(5),
            whole: Duration::from_secs(20),
            window: Duration::from_millis(300),
            least: 1024,
        },
        parse: options(),
        tokens: Tokens::default(),
        clawhub: base.parse().unwrap(),
        npm: format!("{base}/npm").parse().unwrap(),
        registry: Some(format!("{base}/older").parse().unwrap()),
        guarded: false,
    }
}

pub fn fetcher(base: &str) -> Arc<Fetcher> {
    fetcher_with(settings(base))
}

pub fn fetcher_with(settings: Settings) -> Arc<Fetcher> {
    Arc::new(Fetcher::new(settings, Arc::new(TestClock::default())))
}

/// A fetcher for tests that need no site.
pub fn plain_fetcher() -> Arc<Fetcher> {
    fetcher("http://127.0.0.1:9")
}

pub async fn open(fetcher: &Fetcher, source: &Source) -> Result<Opened, FetchError> {
    fetcher.open(source, None, &SourcePolicy::default()).await
}

/// Opens a source and fetches the skill of this name, or the only one.
pub async fn fetch(
    fetcher: &Fetcher,
    source: &Source,
    name: Option<&str>,
) -> Result<FetchedSkill, FetchError> {
    let policy = SourcePolicy::default();
    let opened = fetcher.open(source, None, &policy).await?;
    let found = match name {
        Some(name) => opened.by_name(name).unwrap(),
        None => opened.only().expect("one skill"),
    };
    fetcher.take(&opened, found, &policy).await
}

/// Returns the code of the error that a fetch failed with.
pub fn code<T>(result: Result<T, FetchError>) -> &'static str {
    result.err().map_or("no error", |error| error.word())
}

pub async fn drift(
    fetcher: &Arc<Fetcher>,
    upstream: &Upstream,
    policy: &SourcePolicy,
) -> DriftState {
    compare(fetcher, [upstream], policy).await.pop().unwrap()
}

pub async fn compare(
    fetcher: &Arc<Fetcher>,
    upstreams: impl IntoIterator<Item = &Upstream>,
    policy: &SourcePolicy,
) -> Vec<DriftState> {
    let upstreams: Vec<Upstream> = upstreams.into_iter().cloned().collect();
    let mut states = vec![DriftState::Unchecked("no answer".to_owned()); upstreams.len()];
    let asked = Arc::clone(fetcher).compare_all(upstreams, policy, |at, state| states[at] = state);
    asked.await;
    states
}

pub fn names(opened: &Opened) -> Vec<&str> {
    let names = opened.found.iter().map(|found| found.name.as_str());
    names.collect()
}

pub fn paths(skill: &FetchedSkill) -> Vec<&str> {
    let mut paths: Vec<&str> = skill.files.iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    paths
}
