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
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use vault_policy::Policy;
use vault_shelf::DriftState;
use vault_shelf::fetch::{FetchedSkill, Upstream};
use vault_sources::{
    FetchError, Fetcher, GitSettings, Limits, Opened, ParseOptions, Settings, Source, SourcePolicy,
    Tokens,
};
use vault_testing::TestClock;

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
    /// This response, once nobody holds the lock.
    Held(Arc<Mutex<()>>, Box<Answer>),
    /// A body that never ends.
    Endless,
    /// A body that stops after its first bytes while the connection stays open.
    Stalls,
    /// Raw bytes of a whole response, including the status line and headers. Closes the connection.
    Raw(Vec<u8>),
}

/// Where a site lists its skills.
pub const INDEX: &str = "/.well-known/agent-skills/index.json";

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

    /// Holds the response for a path back while the lock is held.
    pub fn hold(&self, path: &str, gate: &Arc<Mutex<()>>) -> &Self {
        let mut answers = self.answers.lock().unwrap();
        let answer = answers.remove(path).expect("a response to hold back");
        let held = Answer::Held(Arc::clone(gate), Box::new(answer));
        answers.insert(path.to_owned(), held);
        drop(answers);
        self
    }

    pub fn text(&self, path: &str, text: impl Into<String>) -> &Self {
        self.body(path, "text/plain", text.into())
    }

    pub fn json(&self, path: &str, text: impl Into<String>) -> &Self {
        self.body(path, "application/json", text.into())
    }

    pub fn body(&self, path: &str, kind: &'static str, body: impl Into<Vec<u8>>) -> &Self {
        self.put(path, Answer::Body(kind, body.into()))
    }

    pub fn redirect(&self, path: &str, to: impl Into<String>) -> &Self {
        self.put(path, Answer::To(to.into()))
    }

    pub fn raw(&self, path: &str, response: &[u8]) -> &Self {
        self.put(path, Answer::Raw(response.to_vec()))
    }

    /// Serves an index of skills with these entries.
    pub fn index(&self, entries: &str) -> &Self {
        let schema = vault_sources::site::SCHEMA;
        let index = format!(r#"{{"$schema":"{schema}","skills":[{entries}]}}"#);
        self.json(INDEX, index)
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
        let mut answer = answer.unwrap_or(Answer::Status(404));
        while let Answer::Held(gate, held) = answer {
            drop(gate.lock());
            answer = *held;
        }
        let (status, headers, body) = match answer {
            Answer::Held(..) => unreachable!("opened above"),
            Answer::Body(kind, body) => (200, format!("Content-Type: {kind}\r\n"), body),
            Answer::Guarded(token, text) => {
                let wanted = format!("authorization: bearer {token}\r\n").to_lowercase();
                if head.to_lowercase().contains(&wanted) {
                    (200, String::new(), text.into_bytes())
                } else {
                    (401, String::new(), Vec::new())
                }
            }
            Answer::To(to) => (302, format!("Location: {to}\r\n"), Vec::new()),
            Answer::Status(status) => (status, String::new(), Vec::new()),
            Answer::Raw(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
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
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n");
        if stream
            .write_all(&[head.as_bytes(), &body].concat())
            .is_err()
        {
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
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com"])
            .args(["-c", "commit.gpgsign=false"])
            .args(arguments)
            .current_dir(self.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_DATE", "2026-11-01T00:00:00Z")
            .env("GIT_COMMITTER_DATE", "2026-11-01T00:00:00Z")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{arguments:?}: {errors}");
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
        self.git(&["commit", "--quiet", "--allow-empty", "--message=A change."]);
        self.git(&["rev-parse", "HEAD"])
    }
}

pub fn write_executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
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
            // No test waits for these, so they are long enough for a busy machine.
            connect: Duration::from_mins(1),
            whole: Duration::from_mins(2),
            window: Duration::from_mins(1),
            least: 1024,
        },
        parse: options(),
        tokens: Tokens::default(),
        proxy: None,
        clawhub: base.parse().unwrap(),
        npm: format!("{base}/npm").parse().unwrap(),
        registry: Some(format!("{base}/older").parse().unwrap()),
        guarded: false,
        local_sites: false,
    }
}

pub fn fetcher(base: &str) -> Arc<Fetcher> {
    fetcher_with(settings(base))
}

pub fn fetcher_with(settings: Settings) -> Arc<Fetcher> {
    Arc::new(Fetcher::new(settings, Arc::new(TestClock::default())))
}

/// Settings for tests that need no site.
pub fn plain_settings() -> Settings {
    settings("http://127.0.0.1:9")
}

pub fn plain_fetcher() -> Arc<Fetcher> {
    fetcher_with(plain_settings())
}

pub async fn open(fetcher: &Fetcher, source: &Source) -> Result<Opened, FetchError> {
    fetcher
        .open_source(source, None, &SourcePolicy::default())
        .await
}

/// The error that opening a source, or fetching its only skill, fails with.
pub async fn refusal(fetcher: &Fetcher, source: &Source) -> FetchError {
    fetch(fetcher, source, None).await.unwrap_err()
}

/// Opens a source and fetches the skill of this name, or the only one.
pub async fn fetch(
    fetcher: &Fetcher,
    source: &Source,
    name: Option<&str>,
) -> Result<FetchedSkill, FetchError> {
    let policy = SourcePolicy::default();
    let opened = fetcher.open_source(source, None, &policy).await?;
    let found = match name {
        Some(name) => opened.listing.find_skill(name).unwrap(),
        None => opened.listing.default_skill().expect("one skill"),
    };
    fetcher.take_skill(&opened, found, &policy).await
}

/// Returns the code of the error that a fetch failed with.
pub fn code<T>(result: Result<T, FetchError>) -> &'static str {
    result.err().map_or("no error", |error| error.word())
}

pub async fn drift(fetcher: &Arc<Fetcher>, skill: &FetchedSkill) -> DriftState {
    compare(fetcher, [skill]).await.pop().unwrap()
}

/// Whether a comparison says that the source still has this version.
pub async fn is_up_to_date(fetcher: &Arc<Fetcher>, skill: &FetchedSkill) -> bool {
    drift(fetcher, skill).await == DriftState::UpToDate
}

pub async fn compare(
    fetcher: &Arc<Fetcher>,
    skills: impl IntoIterator<Item = &FetchedSkill>,
) -> Vec<DriftState> {
    let skills = skills.into_iter();
    let upstreams: Vec<Upstream> = skills.map(|skill| skill.upstream.clone()).collect();
    let mut states = vec![DriftState::Unchecked("no answer".to_owned()); upstreams.len()];
    let policy = SourcePolicy::default();
    let asked = Arc::clone(fetcher).compare_all(upstreams, &policy, |at, state| states[at] = state);
    asked.await;
    states
}

pub fn policy(toml: &str) -> SourcePolicy {
    SourcePolicy::new(Some(&Policy::from_toml(toml).unwrap()))
}

pub fn names(opened: &Opened) -> Vec<&str> {
    let names = opened
        .listing
        .skills
        .iter()
        .map(|found| found.name.as_str());
    names.collect()
}

pub fn paths(skill: &FetchedSkill) -> Vec<&str> {
    let mut paths: Vec<&str> = skill.files.iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    paths
}
