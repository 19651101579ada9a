//! `vault demo`: the whole way in a temporary folder, with the commands that anybody would type.
//!
//! The service runs in this process; every other step is this very binary in a home of its own, so that what is shown is what
//! happens. Sign-in walks the same pages as a person, with a browser reduced to forms and cookies.

mod browser;

use std::{
    io::{BufRead, BufReader, Read},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use clap::Args;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use vault_library::VaultPaths;
use vault_service::config::Config;
use vault_store::{
    clock::{Clock, SystemClock},
    random::{Random, SystemRandom},
};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{
        report::Report,
        style::{BOLD, DIM, GOOD, HINT, paint},
        text::{count, size},
    },
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

/// Shows the whole way and, without `--exit`, stays until Ctrl-C.
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

/// The service, the two homes, and how to show what they do.
struct Demo<'c> {
    context: &'c Context,
    folder: PathBuf,
    url: String,
    password: String,
    runtime: tokio::runtime::Runtime,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

/// One of the two machines of the story.
struct Home<'d> {
    demo: &'d Demo<'d>,
    folder: PathBuf,
    name: &'static str,
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
                    Failure::failed("internal", error.to_string())
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
        let serving = runtime.spawn(server.serve(stopping));
        let demo = Self {
            context,
            folder,
            url,
            password,
            runtime,
            stop,
            serving,
        };
        demo.step("Start the service on SQLite", "vault serve");
        demo.outcome(began, &format!("listens at {}", paint(HINT, &demo.url)));
        Ok(demo)
    }

    fn walk(&self) -> Result<Vec<Value>, Failure> {
        let mut steps = Vec::new();
        let owner = self.home("owner", "your machine")?;
        let other = self.home("laptop", "the other machine")?;
        let skills = self.folder.join("starter");
        starter::unpack(&skills).map_err(|error| Failure::io("writing", &skills, &error))?;

        self.step("Check and sign five starter skills", "vault add starter/*");
        let began = SystemClock.now_millis();
        let mut arguments = vec!["add".to_owned()];
        arguments.extend(
            starter::names()
                .iter()
                .map(|name| skills.join(name).display().to_string()),
        );
        let added = owner.json(&arguments)?;
        let list = members(&added["added"]);
        let files: u64 = list
            .iter()
            .map(|one| one["files"].as_u64().unwrap_or(0))
            .sum();
        let bytes: u64 = list
            .iter()
            .map(|one| one["bytes"].as_u64().unwrap_or(0))
            .sum();
        self.outcome(
            began,
            &format!(
                "{} admitted by the gate: {}, {}",
                count(list.len() as u64, "skill"),
                count(files, "file"),
                size(bytes)
            ),
        );
        steps.push(added);

        self.step(
            "Make a namespace on the service",
            &format!("vault operator namespace create {SLUG} --owner {OWNER}"),
        );
        let began = SystemClock.now_millis();
        let created = owner.signing_in(&[
            "operator",
            "--url",
            &self.url,
            "--no-browser",
            "namespace",
            "create",
            SLUG,
            "--owner",
            OWNER,
        ])?;
        self.outcome(
            began,
            "signed in through the pages: OAuth 2.1, PKCE, consent",
        );
        steps.push(created);

        let address = format!("{}/v/{SLUG}", self.url);
        self.step("Connect to it", &format!("vault cloud connect {address}"));
        let began = SystemClock.now_millis();
        let connected = owner.signing_in(&["cloud", "connect", &address, "--no-browser"])?;
        self.outcome(began, "a token for this one vault, kept with mode 0600");
        steps.push(connected);

        self.step("Publish", "vault sync --cloud");
        let began = SystemClock.now_millis();
        let synced = owner.json(&["sync", "--cloud"])?;
        self.outcome(
            began,
            &format!(
                "release {} with {}, signed here; {} uploaded, {}",
                synced["release"],
                count(synced["skills"].as_u64().unwrap_or(0), "skill"),
                count(synced["uploaded"].as_u64().unwrap_or(0), "object"),
                size(synced["bytes"].as_u64().unwrap_or(0))
            ),
        );
        steps.push(synced);

        let key = owner.json(&["key", "show"])?;
        let expected = text(&key["fingerprint"]).to_owned();
        self.step(
            "Link a second machine",
            &format!("vault link {address} --expect-key {expected}"),
        );
        let began = SystemClock.now_millis();
        let linked = other.json(&[
            "link",
            &address,
            "--expect-key",
            &expected,
            "--hostname",
            "demo laptop",
        ])?;
        self.outcome(
            began,
            &format!(
                "pinned the vault's key; this machine's own is {}",
                paint(HINT, text(&linked["device_fingerprint"]))
            ),
        );

        let device = text(&linked["device_id"]).to_owned();
        self.step("Admit it", &format!("vault devices admit {device}"));
        let began = SystemClock.now_millis();
        let admitted = owner.json(&["devices", "admit", &device])?;
        if admitted["fingerprint"] != linked["device_fingerprint"] {
            return Err(Failure::new(
                Exit::Integrity,
                "fingerprint_mismatch",
                "the service shows another fingerprint than the machine",
            ));
        }
        self.outcome(began, "the owner saw the same fingerprint as the machine");
        steps.push(linked);
        steps.push(admitted);

        self.step("Pull", "vault cloud pull");
        let began = SystemClock.now_millis();
        let pulled = other.json(&["cloud", "pull"])?;
        self.outcome(
            began,
            &format!(
                "{} installed: {} fetched, {}, every hash and signature checked",
                count(members(&pulled["installed"]).len() as u64, "skill"),
                count(pulled["fetched"].as_u64().unwrap_or(0), "bundle"),
                size(pulled["bytes"].as_u64().unwrap_or(0))
            ),
        );
        steps.push(pulled);

        self.step("Compare both machines", "");
        let began = SystemClock.now_millis();
        let (files, bytes) = Self::compare(&skills, &other)?;
        self.outcome(
            began,
            &format!(
                "{} equal, byte for byte and mode for mode, {}",
                count(files, "file"),
                size(bytes)
            ),
        );

        let question = "a test that fails sometimes";
        self.step(
            "Find a skill there",
            &format!("vault skill search \"{question}\""),
        );
        let began = SystemClock.now_millis();
        let found = other.json(&["skill", "search", question, "--top-k", "1"])?;
        self.outcome(
            began,
            &format!("best match: {}", paint(BOLD, text(&found[0]["name"]))),
        );
        steps.push(found);

        self.step("Change nothing and publish again", "vault sync --cloud");
        let began = SystemClock.now_millis();
        let again = owner.json(&["sync", "--cloud"])?;
        self.outcome(
            began,
            &format!("still release {}, nothing uploaded", again["release"]),
        );
        steps.push(again);
        Ok(steps)
    }

    fn home(&self, folder: &str, name: &'static str) -> Result<Home<'_>, Failure> {
        let folder = self.folder.join(folder);
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io("making", &folder, &error))?;
        Ok(Home {
            demo: self,
            folder,
            name,
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

    /// Compares every file of the starter skills with what the other machine installed.
    fn compare(skills: &Path, other: &Home<'_>) -> Result<(u64, u64), Failure> {
        use std::os::unix::fs::PermissionsExt;
        let mut compared = (0, 0);
        for file in starter::FILES {
            let name = file.path.split('/').next().unwrap_or_default();
            let found = other.json(&["skill", "which", name])?;
            let inner = file.path.split_once('/').map_or("", |(_, inner)| inner);
            let path = Path::new(text(&found["files"])).join(inner);
            let bytes =
                std::fs::read(&path).map_err(|error| Failure::io("reading", &path, &error))?;
            let executable = |path: &Path| {
                path.metadata()
                    .map(|meta| meta.permissions().mode() & 0o111 != 0)
                    .map_err(|error| Failure::io("reading", path, &error))
            };
            if bytes != file.bytes || executable(&path)? != executable(&skills.join(file.path))? {
                return Err(Failure::new(
                    Exit::Integrity,
                    "skill_damaged",
                    format!("{} differs on the other machine", file.path),
                ));
            }
            compared.0 += 1;
            compared.1 += bytes.len() as u64;
        }
        Ok(compared)
    }

    /// What a person can try now.
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
        // It ends within ten seconds; that a request broke off matters to nobody here.
        let _ = self.runtime.block_on(self.serving);
    }
}

impl Home<'_> {
    fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Command, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::failed("io", format!("this binary cannot be found: {error}"))
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
            .env("HOSTNAME", self.name)
            .arg("--json")
            .arg("--yes")
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs a command to its end and gives its `data`; its failure is ours.
    fn json<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Value, Failure> {
        let output = self
            .command(arguments)?
            .output()
            .map_err(|error| Failure::failed("io", format!("a step cannot be started: {error}")))?;
        data(&output.stdout, output.status.code())
    }

    /// Runs a command that asks for a sign-in, and signs in on the pages that it names.
    fn signing_in(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let mut child: Child = self
            .command(arguments)?
            .spawn()
            .map_err(|error| Failure::failed("io", format!("a step cannot be started: {error}")))?;
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
        // The sender goes away with the child: then it failed, and says why itself.
        if let Ok(address) = address.recv() {
            let signed_in = self.demo.runtime.block_on(browser::sign_in(
                self.demo.context,
                &self.demo.url,
                &address,
                OWNER,
                &self.demo.password,
            ));
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
            .map_err(|error| Failure::failed("io", format!("a step got lost: {error}")))?;
        data(&stdout, status.code())
    }
}

/// The `data` of an envelope, or the failure that it tells of.
fn data(stdout: &[u8], code: Option<i32>) -> Result<Value, Failure> {
    let unreadable = || {
        Failure::failed(
            "step_failed",
            format!("a step ended with {} and said nothing", code.unwrap_or(-1)),
        )
    };
    let envelope: Value = serde_json::from_slice(stdout).map_err(|_| unreadable())?;
    if envelope["ok"] == true {
        return Ok(envelope["data"].clone());
    }
    let mut failure = Failure::failed(
        text(&envelope["error"]["code"]).to_owned(),
        text(&envelope["error"]["message"]).to_owned(),
    );
    failure.hint = envelope["error"]["hint"].as_str().map(str::to_owned);
    Err(failure)
}

fn members(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn free_port() -> Result<u16, Failure> {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::failed("io", format!("no port is free: {error}")))
}

/// 24 letters and digits, easy to read aloud.
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
