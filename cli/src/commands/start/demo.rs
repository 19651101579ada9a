//! `vault demo`: a self-contained tour of vault in a temporary folder.
//!
//! The service runs in this process. Every step runs this binary as its own process in one of two
//! homes, so the commands shown are the commands that ran. Where a step waits for a sign-in, the
//! demo issues the authorization code itself, as the service does after sign-in and consent.

use std::{
    io::{BufRead, BufReader, Read, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use clap::Args;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use url::Url;
use vault_library::VaultPaths;
use vault_service::{
    App,
    config::Config,
    model::{
        account::{Account, account_key},
        client::{Client, client_key},
        session::Session,
        user::Scopes,
    },
    oauth::{
        authorize::{AuthorizeRequest, client_name},
        form::Form,
        users_of_account,
    },
};
use vault_store::{
    clock::{Clock, SystemClock},
    random::{Random, SystemRandom},
};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{BOLD, DIM, GOOD, HINT, Report, count, paint, size},
    server::{self, Options, Server},
    starter,
};

const OWNER: &str = "owner@demo.example";
const SLUG: &str = "team";

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Starts the service on SQLite in a temporary folder, adds five starter skills, publishes them, links a second machine,
admits it, pulls and verifies. It stays up until Ctrl-C, so that you can try the address; the folder goes with it.

Examples:
  vault demo
  vault demo --exit

Since 0.5.0 (beta).")]
pub struct Arguments {
    /// End when everything was shown
    #[arg(long)]
    exit: bool,
    /// The port of the service [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
}

/// Runs every step and, without `--exit`, keeps the service running until Ctrl-C.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("vault-demo-")
        .tempdir()
        .map_err(|error| Failure::io("making a folder below", std::env::temp_dir(), &error))?;
    let demo = Demo::new(context, &folder, arguments.port)?;
    let steps = demo.walk()?;
    if arguments.exit {
        demo.stop();
        context.ui.line(format!(
            "\n{} everything worked; nothing is left behind",
            paint(GOOD, "✓")
        ));
        return Ok(Report::new(steps, ""));
    }
    demo.invite();
    demo.wait();
    Ok(Report::new(steps, ""))
}

/// The running service, and where the output goes.
struct Demo<'c> {
    context: &'c Context,
    folder: PathBuf,
    url: String,
    password: String,
    app: App,
    runtime: tokio::runtime::Runtime,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

/// One of the two simulated machines: a home folder in which commands run.
struct Home<'d> {
    demo: &'d Demo<'d>,
    folder: PathBuf,
    host_name: &'static str,
}

/// The data that steps share, and the results that later steps need.
struct Tour<'d> {
    owner: Home<'d>,
    laptop: Home<'d>,
    /// The folder with the unpacked starter skills.
    skills: PathBuf,
    /// The published address of the vault.
    address: String,
    /// The fingerprint of the vault's key.
    fingerprint: String,
    /// The id and the fingerprint of the laptop's device request.
    device: String,
    device_fingerprint: String,
    /// The `data` of every command, for `--json`.
    results: Vec<Value>,
}

struct Step {
    title: &'static str,
    /// The command as a user would type it. Empty if the demo itself does the work.
    command: fn(&Tour<'_>) -> String,
    /// Runs the step and returns what to print about its outcome.
    run: fn(&mut Tour<'_>) -> Result<String, Failure>,
}

const QUESTION: &str = "a test that fails sometimes";

const STEPS: [Step; 10] = [
    Step {
        title: "Check and sign five starter skills",
        command: |_| "vault add starter/*".to_owned(),
        run: |tour| tour.add(),
    },
    Step {
        title: "Make a namespace on the service",
        command: |_| format!("vault operator namespace create {SLUG} --owner {OWNER}"),
        run: |tour| tour.create_namespace(),
    },
    Step {
        title: "Connect to it",
        command: |tour| format!("vault cloud connect {}", tour.address),
        run: |tour| tour.connect(),
    },
    Step {
        title: "Publish",
        command: |_| "vault sync --cloud".to_owned(),
        run: |tour| tour.publish(),
    },
    Step {
        title: "Link a second machine",
        command: |tour| {
            let (address, fingerprint) = (&tour.address, &tour.fingerprint);
            format!("vault link {address} --expect-key {fingerprint}")
        },
        run: |tour| tour.link(),
    },
    Step {
        title: "Admit it",
        command: |tour| format!("vault devices admit {}", tour.device),
        run: |tour| tour.admit(),
    },
    Step {
        title: "Pull",
        command: |_| "vault cloud pull".to_owned(),
        run: |tour| tour.pull(),
    },
    Step {
        title: "Compare both machines",
        command: |_| String::new(),
        run: |tour| tour.compare(),
    },
    Step {
        title: "Find a skill there",
        command: |_| format!("vault skill search \"{QUESTION}\""),
        run: |tour| tour.search(),
    },
    Step {
        title: "Change nothing and publish again",
        command: |_| "vault sync --cloud".to_owned(),
        run: |tour| tour.publish_again(),
    },
];

impl<'d> Tour<'d> {
    fn new(demo: &'d Demo<'_>) -> Result<Self, Failure> {
        let skills = demo.folder.join("starter");
        starter::unpack(&skills).map_err(|error| Failure::io("writing", &skills, &error))?;
        Ok(Self {
            owner: demo.home("owner", "your machine")?,
            laptop: demo.home("laptop", "the other machine")?,
            skills,
            address: format!("{}/v/{SLUG}", demo.url),
            fingerprint: String::new(),
            device: String::new(),
            device_fingerprint: String::new(),
            results: Vec::new(),
        })
    }

    fn add(&mut self) -> Result<String, Failure> {
        let mut arguments = vec!["add".to_owned()];
        let folders = starter::names().into_iter();
        arguments.extend(folders.map(|name| self.skills.join(name).display().to_string()));
        let data = self.owner.json(&arguments)?;
        let added = members(&data["added"]);
        let total = |what: &str| added.iter().map(|skill| number(&skill[what])).sum::<u64>();
        let outcome = format!(
            "{} admitted by the gate: {}, {}",
            count(added.len() as u64, "skill"),
            count(total("files"), "file"),
            size(total("bytes"))
        );
        self.results.push(data);
        Ok(outcome)
    }

    fn create_namespace(&mut self) -> Result<String, Failure> {
        let url = self.owner.demo.url.clone();
        let operator = ["operator", "--url", &url, "--no-browser"];
        let create = ["namespace", "create", SLUG, "--owner", OWNER];
        let data = self.owner.signing_in(&[&operator[..], &create].concat())?;
        self.results.push(data);
        Ok("signed in: OAuth 2.1 with PKCE".to_owned())
    }

    fn connect(&mut self) -> Result<String, Failure> {
        let arguments = ["cloud", "connect", &self.address, "--no-browser"];
        let data = self.owner.signing_in(&arguments)?;
        self.results.push(data);
        Ok("a token for this one vault, kept with mode 0600".to_owned())
    }

    fn publish(&mut self) -> Result<String, Failure> {
        let data = self.owner.json(&["sync", "--cloud"])?;
        text(&self.owner.json(&["key", "show"])?["fingerprint"]).clone_into(&mut self.fingerprint);
        let outcome = format!(
            "release {} with {}, signed here; {} uploaded, {}",
            data["release"],
            count(number(&data["skills"]), "skill"),
            count(number(&data["uploaded"]), "object"),
            size(number(&data["bytes"]))
        );
        self.results.push(data);
        Ok(outcome)
    }

    fn link(&mut self) -> Result<String, Failure> {
        let pinned = ["link", &self.address, "--expect-key", &self.fingerprint];
        let named = ["--hostname", "demo laptop"];
        let data = self.laptop.json(&[&pinned[..], &named].concat())?;
        text(&data["device_id"]).clone_into(&mut self.device);
        text(&data["device_fingerprint"]).clone_into(&mut self.device_fingerprint);
        self.results.push(data);
        Ok(format!(
            "pinned the vault's key; this machine's own is {}",
            paint(HINT, &self.device_fingerprint)
        ))
    }

    fn admit(&mut self) -> Result<String, Failure> {
        let data = self.owner.json(&["devices", "admit", &self.device])?;
        if data["fingerprint"] != *self.device_fingerprint {
            return Err(Failure::new(
                ErrorCode::FingerprintMismatch,
                "the service shows another fingerprint than the machine",
            ));
        }
        self.results.push(data);
        Ok("the owner saw the same fingerprint as the machine".to_owned())
    }

    fn pull(&mut self) -> Result<String, Failure> {
        let data = self.laptop.json(&["cloud", "pull"])?;
        let outcome = format!(
            "{} installed: {} fetched, {}, every hash and signature checked",
            count(members(&data["installed"]).len() as u64, "skill"),
            count(number(&data["fetched"]), "bundle"),
            size(number(&data["bytes"]))
        );
        self.results.push(data);
        Ok(outcome)
    }

    /// Compares every file of the starter skills with what the laptop installed.
    fn compare(&mut self) -> Result<String, Failure> {
        let mut total = 0;
        for file in starter::FILES {
            let (name, inner) = file.path.split_once('/').unwrap_or_default();
            let found = self.laptop.json(&["skill", "which", name])?;
            let path = Path::new(text(&found["files"])).join(inner);
            let bytes =
                std::fs::read(&path).map_err(|error| Failure::io("reading", &path, &error))?;
            let original = self.skills.join(file.path);
            if bytes != file.bytes || is_executable(&path)? != is_executable(&original)? {
                return Err(Failure::new(
                    ErrorCode::SkillDamaged,
                    format!("{} differs on the other machine", file.path),
                ));
            }
            total += bytes.len() as u64;
        }
        Ok(format!(
            "{} equal, byte for byte and mode for mode, {}",
            count(starter::FILES.len() as u64, "file"),
            size(total)
        ))
    }

    fn search(&mut self) -> Result<String, Failure> {
        let arguments = ["skill", "search", QUESTION, "--top-k", "1"];
        let data = self.laptop.json(&arguments)?;
        let outcome = format!("best match: {}", paint(BOLD, text(&data[0]["name"])));
        self.results.push(data);
        Ok(outcome)
    }

    fn publish_again(&mut self) -> Result<String, Failure> {
        let data = self.owner.json(&["sync", "--cloud"])?;
        let outcome = format!("still release {}, nothing uploaded", data["release"]);
        self.results.push(data);
        Ok(outcome)
    }
}

fn is_executable(path: &Path) -> Result<bool, Failure> {
    path.metadata()
        .map(|metadata| metadata.permissions().mode() & 0o111 != 0)
        .map_err(|error| Failure::io("reading", path, &error))
}

impl<'c> Demo<'c> {
    fn new(context: &'c Context, folder: &TempDir, port: u16) -> Result<Self, Failure> {
        let folder = folder.path().to_owned();
        let ui = &context.ui;
        ui.line(format!(
            "{}\n{}",
            paint(
                BOLD,
                "vault: skills that were checked and signed, from one machine to another"
            ),
            paint(
                DIM,
                format_args!("everything happens in {}", folder.display())
            )
        ));
        let log = std::fs::File::create(folder.join("serve.log"))
            .map_err(|error| Failure::io("writing", folder.join("serve.log"), &error))?;
        server::log_to(std::sync::Mutex::new(log), "info");
        let began = SystemClock.now_millis();
        let port = if port == 0 { free_port()? } else { port };
        let url = format!("http://127.0.0.1:{port}");
        let password = fresh_password();
        let options = Options {
            config: Config::new(url.parse().map_err(
                |error: vault_service::config::BadPublicUrl| {
                    Failure::new(ErrorCode::Internal, error.to_string())
                },
            )?),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            port_origin: "demo".to_owned(),
            database: folder.join("service.db").display().to_string(),
            paths: VaultPaths::new(folder.join("service"), folder.join("service-config")),
            admin_email: Some(OWNER.to_owned()),
            admin_password: Some(password.clone().into()),
            fetch: None,
        };
        let runtime = server::runtime()?;
        let (stop, stopping) = watch::channel(false);
        let server = runtime.block_on(Server::start(options))?;
        let app = server.app();
        let serving = runtime.spawn(server.serve(stopping));
        let demo = Self {
            context,
            folder,
            url,
            password,
            app,
            runtime,
            stop,
            serving,
        };
        demo.step("Start the service on SQLite", "vault serve");
        demo.outcome(began, &format!("listens at {}", paint(HINT, &demo.url)));
        Ok(demo)
    }

    /// Runs every step and returns what its command reported.
    fn walk(&self) -> Result<Vec<Value>, Failure> {
        let mut tour = Tour::new(self)?;
        for step in &STEPS {
            self.step(step.title, &(step.command)(&tour));
            let began = SystemClock.now_millis();
            let outcome = (step.run)(&mut tour)?;
            self.outcome(began, &outcome);
        }
        Ok(tour.results)
    }

    fn home(&self, folder: &str, host_name: &'static str) -> Result<Home<'_>, Failure> {
        let folder = self.folder.join(folder);
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io("making", &folder, &error))?;
        Ok(Home {
            demo: self,
            folder,
            host_name,
        })
    }

    fn step(&self, what: &str, command: &str) {
        let shown = if command.is_empty() {
            String::new()
        } else {
            format!("\n  {}", paint(DIM, format_args!("$ {command}")))
        };
        self.context
            .ui
            .line(format!("\n{}{shown}", paint(BOLD, what)));
    }

    fn outcome(&self, began: u64, what: &str) {
        let took = SystemClock.now_millis().saturating_sub(began);
        self.context.ui.line(format!(
            "  {} {what}  {}",
            paint(GOOD, "✓"),
            paint(DIM, format_args!("{took} ms"))
        ));
    }

    /// Prints the address, the sign-in and the commands that the user can try now.
    fn invite(&self) {
        let ui = &self.context.ui;
        let owner = self.folder.join("owner");
        ui.line(format!(
            "\n{}\n  address   {}\n  sign-in   {}\n  password  {}\n",
            paint(BOLD, "The service stays up until Ctrl-C"),
            paint(HINT, &self.url),
            paint(HINT, OWNER),
            paint(HINT, &self.password),
        ));
        ui.line(format!(
            "Try it in another terminal, as the owner:\n  {}\n  {}\nor link this machine's own vault:\n  {}\nThe service's log: {}",
            paint(DIM, format_args!("$ export HOME={} XDG_CONFIG_HOME=", owner.display())),
            paint(DIM, "$ vault devices list"),
            paint(DIM, format_args!("$ vault link {}/v/{SLUG}", self.url)),
            paint(DIM, self.folder.join("serve.log").display()),
        ));
    }

    /// Waits for Ctrl-C or SIGTERM, then stops the service.
    fn wait(self) {
        self.runtime.block_on(async {
            let terminated = async {
                match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
                    Ok(mut signal) => {
                        signal.recv().await;
                    }
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                () = terminated => {}
            }
        });
        self.context.ui.line("\nStopped; the folder is gone.");
        self.stop();
    }

    fn stop(self) {
        self.stop.send_replace(true);
        // The service stops within ten seconds. An aborted request does no harm here, so ignore the
        // result.
        let _ = self.runtime.block_on(self.serving);
    }
}

impl Home<'_> {
    fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Command, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::new(
                ErrorCode::Io,
                format!("this binary cannot be found: {error}"),
            )
        })?;
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", &self.folder)
            .env(
                "PATH",
                self.demo
                    .context
                    .process
                    .variable("PATH")
                    .unwrap_or("/usr/bin:/bin"),
            )
            .env("HOSTNAME", self.host_name)
            .arg("--json")
            .arg("--yes")
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs a command to its end and returns its `data`, or its error.
    fn json<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Value, Failure> {
        let output = self.command(arguments)?.output().map_err(|error| {
            Failure::new(ErrorCode::Io, format!("a step cannot be started: {error}"))
        })?;
        data(&output.stdout, output.status.code())
    }

    /// Runs a command that prints a sign-in address, and gives it an authorization code as the
    /// browser would.
    fn signing_in(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let mut child: Child = self.command(arguments)?.spawn().map_err(|error| {
            Failure::new(ErrorCode::Io, format!("a step cannot be started: {error}"))
        })?;
        let stderr = child.stderr.take();
        let (found, address) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = stderr
                .into_iter()
                .flat_map(|stderr| BufReader::new(stderr).lines());
            for line in lines.map_while(Result::ok) {
                if line.contains("/oauth/authorize?") {
                    let _ = found.send(line.trim().to_owned());
                }
            }
        });
        // The thread drops the sender when the child closes its standard error. Without an address,
        // the child failed; its output reports why.
        if let Ok(address) = address.recv() {
            let demo = self.demo;
            let signed_in = demo
                .runtime
                .block_on(issue_code(&demo.app, &address))
                .and_then(|callback| call_back(&callback));
            if let Err(failure) = signed_in {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failure);
            }
        }
        let mut stdout = Vec::new();
        if let Some(mut pipe) = child.stdout.take() {
            let _ = pipe.read_to_end(&mut stdout);
        }
        let status = child
            .wait()
            .map_err(|error| Failure::new(ErrorCode::Io, format!("a step got lost: {error}")))?;
        data(&stdout, status.code())
    }
}

/// Returns the `data` of a JSON envelope, or the error in it.
fn data(stdout: &[u8], code: Option<i32>) -> Result<Value, Failure> {
    let unreadable = || {
        Failure::new(
            ErrorCode::StepFailed,
            format!("a step ended with {} and said nothing", code.unwrap_or(-1)),
        )
    };
    let envelope: Value = serde_json::from_slice(stdout).map_err(|_| unreadable())?;
    if envelope["ok"] == true {
        return Ok(envelope["data"].clone());
    }
    let word = text(&envelope["error"]["code"]);
    let code = ErrorCode::parse(word).unwrap_or(ErrorCode::StepFailed);
    let mut failure = Failure::new(code, text(&envelope["error"]["message"]));
    failure.hint = envelope["error"]["hint"].as_str().map(str::to_owned);
    Err(failure)
}

/// Issues the authorization code as if the owner had consented on the page at this sign-in address.
/// Returns the URL to which the service would redirect the browser.
async fn issue_code(app: &App, address: &str) -> Result<Url, Failure> {
    let url = Url::parse(address).map_err(not_signed_in)?;
    let form = Form::parse(url.query().unwrap_or_default());
    let client_id = client_name(&form).map_err(not_signed_in)?.id();
    let email = OWNER.parse().map_err(not_signed_in)?;
    let keys = [client_key(&client_id), account_key(&email)];
    let found = app.records.get_many(&keys).await.map_err(not_signed_in)?;
    let [Some(client), Some(account)] = found.as_slice() else {
        return Err(not_signed_in("the client or the owner is not registered"));
    };
    let client: Client = client.read().map_err(not_signed_in)?;
    let account: Account = account.read().map_err(not_signed_in)?;
    let public = &app.config.public_url;
    let request = AuthorizeRequest::read(&form, client, public.base(), public.as_str())
        .map_err(|refused| not_signed_in(format!("{refused:?}")))?;
    let users = users_of_account(app, &account, request.namespace.as_deref()).await;
    let users = request.fitting(users.map_err(not_signed_in)?);
    let now = app.clock.now();
    let session = Session::begun(&account, now);
    let slug = users.first().map(|user| &user.namespace.slug);
    let slug = slug.ok_or_else(|| not_signed_in("the owner has no namespace"))?;
    let issued = request.code(&session, &users, slug, Scopes::ALL, now, &*app.random);
    let (location, write) = issued
        .map_err(not_signed_in)?
        .ok_or_else(|| not_signed_in("the owner may grant nothing"))?;
    let commit = app.records.commit(vec![write]).await;
    if !commit.map_err(not_signed_in)?.is_done() {
        return Err(not_signed_in("the code was not kept"));
    }
    Url::parse(&location).map_err(not_signed_in)
}

/// Requests the loopback URL on which the command listens, as the browser would.
fn call_back(address: &Url) -> Result<(), Failure> {
    let port = address.port_or_known_default().unwrap_or_default();
    let target = &address[url::Position::BeforePath..];
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(not_signed_in)?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").map_err(not_signed_in)?;
    stream.read_to_end(&mut Vec::new()).map_err(not_signed_in)?;
    Ok(())
}

fn not_signed_in(reason: impl std::fmt::Display) -> Failure {
    Failure::new(
        ErrorCode::SignInFailed,
        format!("the demo could not sign in: {reason}"),
    )
}

fn members(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn free_port() -> Result<u16, Failure> {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::new(ErrorCode::Io, format!("no port is free: {error}")))
}

/// Generates a password of 24 characters in groups of six. The alphabet of 32 letters and digits
/// leaves out `l`, `o`, `0` and `1`, which are easy to confuse.
fn fresh_password() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0_u8; 24];
    SystemRandom.fill(&mut bytes);
    let letters: Vec<String> = bytes
        .chunks(6)
        .map(|six| {
            six.iter()
                .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
                .collect()
        })
        .collect();
    letters.join("-")
}
