//! What a person does at a terminal: reads results and errors, signs in on the pages of a service.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use serde_json::Value;

use crate::browser::{Browser, client};
use crate::home::{Arguments, Home, Ran};
use crate::server::{OWNER_EMAIL, OWNER_PASSWORD};

/// Maximum time for any step that a test waits for.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The way in which the OAuth authorization code gets from the browser to the command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// `--no-browser`, with the browser on another machine: the redirect address is pasted on
    /// standard input.
    Pasted,
    /// `--no-browser`, with the browser on the same machine: it requests the loopback address of
    /// the command.
    Loopback,
}

/// An account that signs in, and the scopes to which it consents.
#[derive(Clone, Copy, Debug)]
pub struct Person<'a> {
    /// E-mail address of the account.
    pub email: &'a str,
    /// Password of the account.
    pub password: &'a str,
    /// OAuth scopes that are ticked on the consent page.
    pub scopes: &'a [&'a str],
}

/// The first account of a test server, which consents to reading and writing.
pub const OWNER: Person<'static> = Person {
    email: OWNER_EMAIL,
    password: OWNER_PASSWORD,
    scopes: &["read", "write"],
};

/// The error that a command printed with `--json`.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Machine-readable error code, which never changes.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// Advice for the user; `None` if the command gave none.
    pub hint: Option<String>,
    /// Details of the error, from the member `data`.
    pub data: Value,
}

impl Refused {
    /// Returns the flag and the hash that accept the shown review when the command runs again.
    #[track_caller]
    pub fn answer(&self) -> [String; 2] {
        ["flag", "sha256"].map(|member| self.data[member].as_str().expect("a text").to_owned())
    }
}

/// Checks the envelope that `--json` prints, which has the same members on success and on failure.
/// Returns its members `ok`, `data` and `error`.
#[track_caller]
fn envelope(ran: &Ran) -> (bool, Value, Value) {
    assert_eq!(
        ran.stdout.lines().count(),
        1,
        "one line on standard output\n{}",
        ran.stdout
    );
    let value = ran.json();
    let mut names: Vec<&str> = value
        .as_object()
        .expect("an envelope")
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["data", "error", "ok", "schema", "warnings"]);
    assert_eq!(value["schema"], 1);
    assert!(value["warnings"].is_array());
    let ok = value["ok"].as_bool().expect("ok is a boolean");
    (ok, value["data"].clone(), value["error"].clone())
}

impl Ran {
    /// Returns the member `data` that a command with `--json` printed. Panics unless the command
    /// succeeded.
    #[track_caller]
    pub fn data(self) -> Value {
        let ran = self.ok();
        let (ok, data, error) = envelope(&ran);
        assert!(ok && error.is_null(), "{}", ran.stdout);
        data
    }

    /// Returns the error that a command with `--json` printed. Panics unless the command ended with
    /// the exit code `code`.
    #[track_caller]
    pub fn refused(&self, code: i32) -> Refused {
        self.ended_with(code);
        let (ok, data, error) = envelope(self);
        assert!(!ok, "{}", self.stdout);
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        let refused = Refused {
            code: text("code").expect("a word"),
            message: text("message").expect("a sentence"),
            hint: text("hint"),
            data,
        };
        assert!(
            refused
                .code
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
            "{refused:?}"
        );
        refused
    }

    /// Like [`Self::refused`], but also panics unless the error has the code `code`.
    #[track_caller]
    pub fn fails(&self, exit: i32, code: &str) -> Refused {
        let refused = self.refused(exit);
        assert_eq!(refused.code, code, "{refused:?}");
        refused
    }
}

/// The e-mail address and password that signed in last, by the home folder. This person confirms
/// what commands in that home ask for.
static PEOPLE: Mutex<BTreeMap<PathBuf, (String, String)>> = Mutex::new(BTreeMap::new());

impl Home {
    /// Opens the confirmation page that a failed command has printed, and confirms. Returns false
    /// if the command asked for no confirmation.
    pub fn confirm_wanted(&self, ran: &Ran) -> bool {
        let told = format!("{} {}", ran.stdout, ran.stderr);
        if ran.code != 4 || !told.contains("this needs your confirmation at ") {
            return false;
        }
        let address = told
            .split("this needs your confirmation at ")
            .nth(1)
            .and_then(|rest| {
                rest.split(|letter: char| letter.is_whitespace() || letter == '"')
                    .next()
            });
        let address = address.expect("an address").to_owned();
        let people = PEOPLE.lock().unwrap_or_else(PoisonError::into_inner);
        let person = people.get(self.path()).cloned();
        drop(people);
        let (email, password) =
            person.unwrap_or_else(|| (OWNER.email.to_owned(), OWNER.password.to_owned()));
        // Use a thread of its own, because the test may run in an event loop, where another one
        // cannot start.
        let confirmed = std::thread::spawn(move || {
            event_loop().block_on(Browser::new().confirm(&address, &email, &password))
        });
        let page = confirmed.join().expect("a page");
        assert!(page.contains("Confirmed"), "{page}");
        true
    }

    /// Runs `vault … --json`, which must succeed, and returns the member `data`.
    #[track_caller]
    pub fn json(&self, arguments: &(impl Arguments + ?Sized)) -> Value {
        self.run(&with_json(arguments)).data()
    }

    /// Runs a command that shows another person's change and asks for its hash, and runs it again
    /// with that hash. Returns the member `data` of the second run.
    #[track_caller]
    pub fn reviewed(&self, arguments: &(impl Arguments + ?Sized)) -> Value {
        let answer = self.fails(arguments, 3, "review_needed").answer();
        let mut arguments = with_json(arguments);
        arguments.extend(answer.iter().map(String::as_str));
        self.run(&arguments).data()
    }

    /// Runs `vault … --json`, which must end with the exit code `code`, and returns the error.
    #[track_caller]
    pub fn refused(&self, arguments: &(impl Arguments + ?Sized), code: i32) -> Refused {
        self.run(&with_json(arguments)).refused(code)
    }

    /// Like [`Self::refused`], but the error must also have the code `code`.
    #[track_caller]
    pub fn fails(&self, arguments: &(impl Arguments + ?Sized), exit: i32, code: &str) -> Refused {
        self.run(&with_json(arguments)).fails(exit, code)
    }

    /// Runs a command that signs in, and follows the pages of the sign-in for it. Returns the
    /// result of the command, which may end before it prints the address of the pages.
    #[track_caller]
    pub fn sign_in(
        &self,
        arguments: &(impl Arguments + ?Sized),
        person: Person<'_>,
        answer: Answer,
    ) -> Ran {
        let mut command = self.command(arguments);
        let mut child = command
            .arg("--no-browser")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the built binary");
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut stdout = child.stdout.take().expect("a pipe");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let (found, address) = mpsc::channel();
        let reading = std::thread::spawn(move || {
            let mut said = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                if line.contains("/oauth/authorize?") {
                    let _ = found.send(line.trim().to_owned());
                }
                said.push_str(&line);
                said.push('\n');
            }
            said
        });
        let written = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        let page = match address.recv_timeout(PATIENCE) {
            Ok(page) => Some(page),
            // The command ended before it printed the address of a sign-in page.
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                panic!("no address to sign in at was printed");
            }
        };
        if let Some(page) = page {
            event_loop().block_on(async {
                let back = Browser::new()
                    .approve_scopes(&page, person.email, person.password, person.scopes)
                    .await;
                if answer == Answer::Pasted {
                    writeln!(stdin, "{back}").expect("a command that reads its input");
                } else {
                    let page = client().get(&back).send().await.expect("a loopback answer");
                    assert!(page.status().is_success());
                }
            });
        }
        let status = wait_for(|| child.try_wait().expect("a child"));
        // Standard input stays open until here, because the command must end without the end of its
        // input.
        drop(stdin);
        let who = (person.email.to_owned(), person.password.to_owned());
        let mut people = PEOPLE.lock().unwrap_or_else(PoisonError::into_inner);
        people.insert(self.path().to_owned(), who);
        drop(people);
        let ran = Ran {
            code: status.code().unwrap_or(-1),
            stdout: written.join().expect("standard output"),
            stderr: reading.join().expect("standard error"),
        };
        // The command is signed in now, so only the confirmation is missing.
        if self.confirm_wanted(&ran) {
            return self.run_once(arguments);
        }
        ran
    }

    /// Returns the path of the token file for the owner of the vault `slug` at the service `base`.
    pub fn token_file(&self, base: &str, slug: &str) -> PathBuf {
        let service = base.replace("://", "_").replace([':', '/'], "_");
        self.config()
            .join("services")
            .join(service)
            .join(format!("{slug}.json"))
    }

    /// Reads the owner's access token from that file, for requests that a test sends itself.
    pub fn access_token(&self, base: &str, slug: &str) -> String {
        let bytes = std::fs::read(self.token_file(base, slug)).expect("somebody signed in here");
        let tokens: Value = serde_json::from_slice(&bytes).expect("a file of tokens");
        tokens["access_token"].as_str().expect("a token").to_owned()
    }
}

fn event_loop() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("an event loop")
}

fn with_json(arguments: &(impl Arguments + ?Sized)) -> Vec<&str> {
    let mut all = arguments.list();
    all.push("--json");
    all
}

/// Calls `ask` every 50 ms until it returns a value. Panics after [`PATIENCE`].
#[track_caller]
pub fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    const PAUSE: Duration = Duration::from_millis(50);
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("it never came");
}
