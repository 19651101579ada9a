//! `vault demo`: a self-contained tour of vault in a temporary folder.
//!
//! The service runs in this process. Every step runs this program as a process of its own with one
//! of two home folders, which stand for two machines. The commands shown are the ones that run. If
//! a step waits for a sign-in, the demo issues the authorization code itself, as the service does
//! after sign-in and consent.

mod tour;

use std::{
    io::{BufRead, BufReader, Read, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use url::Url;
use vault_format::hash::Digest;
use vault_library::{VaultPaths, keys::NoPassphrases};
use vault_service::{
    App,
    accounts::memberships_of,
    config::Config,
    model::{
        account,
        client::{Client, client_key},
        session::Session,
        user::Scopes,
    },
    oauth::authorize::{AuthorizeRequest, Consent, client_name},
    web::form::Form,
};
use vault_store::{
    clock::{Clock, SystemClock},
    random::{Random, SystemRandom},
};

use self::tour::{STEPS, Tour};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{BOLD, DIM, HINT, Report, TICK, paint},
    server::{self, Options, Server},
};

const OWNER: &str = "owner@demo.example";
const SLUG: &str = "team";

/// The arguments of `vault demo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Starts the service with SQLite in a temporary folder, adds and publishes five starter skills, \
links and admits a second machine, then pulls and verifies. The service runs until you press \
Ctrl-C, so you can try its address. The folder is then removed.

Examples:
  vault demo
  vault demo --exit")]
pub struct Arguments {
    /// Exit at the end of the tour
    #[arg(long)]
    exit: bool,
    /// The port of the service [default: any free port]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
}

/// The data of each command of the tour, in order.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Demonstration(Vec<Value>);

/// Starts the service and runs every step. Without `--exit`, keeps the service running until
/// Ctrl-C.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("vault-demo-")
        .tempdir()
        .map_err(|error| Failure::io("making a folder below", std::env::temp_dir(), &error))?;
    // `folder` is removed when this function returns. By then, the service has stopped and closed
    // its database.
    let demo = Demo::new(context, &folder, arguments.port)?;
    let steps = demo.run_steps()?;
    if arguments.exit {
        demo.stop_service();
        let line = format!("\n{TICK} everything worked; the temporary folder is removed");
        context.ui.print_line(line);
    } else {
        demo.print_invitation();
        demo.wait_for_stop();
    }
    Ok(Report::view(steps, ""))
}

/// The running demo: its service, its temporary folder, and the output.
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
struct DemoHome<'d> {
    demo: &'d Demo<'d>,
    folder: PathBuf,
    host_name: &'static str,
}

impl<'c> Demo<'c> {
    fn new(context: &'c Context, folder: &TempDir, port: u16) -> Result<Self, Failure> {
        let folder = folder.path().to_owned();
        let ui = &context.ui;
        let title = "vault: scanned and signed skills, from one machine to another";
        ui.print_line(paint(BOLD, title));
        ui.print_line(paint(
            DIM,
            format_args!("everything happens in {}", folder.display()),
        ));
        // Write the log to a file, because on standard error it would mix with the steps.
        let log = folder.join("serve.log");
        let log =
            std::fs::File::create(&log).map_err(|error| Failure::io("writing", log, &error))?;
        server::log_to(std::sync::Mutex::new(log), "info");
        let began = SystemClock.now_millis();
        // The public address contains the port, so it must be known before the service binds it. If
        // another process takes it first, the start fails.
        let port = if port == 0 { free_port()? } else { port };
        let url = format!("http://127.0.0.1:{port}");
        let password = fresh_password();
        let options = Options {
            config: Config::new(url.parse().map_err(|error| fail!(Internal, "{error}"))?),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            port_origin: "demo".to_owned(),
            database: folder.join("service.db").display().to_string(),
            paths: VaultPaths::new(folder.join("service"), folder.join("service-config")),
            library_from: "demo",
            unusable_index: None,
            // These keys exist only during the demo, so they need no passphrase.
            passphrases: Arc::new(NoPassphrases),
            admin_email: Some(OWNER.to_owned()),
            admin_password: Some(password.clone().into()),
            provider_secret: None,
            recovery: None,
            mail: None,
            fetch: None,
        };
        let runtime = server::new_runtime()?;
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
        demo.print_step("Start the service on SQLite", "vault serve");
        demo.print_outcome(began, &format!("listens at {HINT}{}{HINT:#}", demo.url));
        Ok(demo)
    }

    /// Runs every step, and returns the data that each command printed.
    fn run_steps(&self) -> Result<Demonstration, Failure> {
        let mut tour = Tour::new(self)?;
        for step in &STEPS {
            self.print_step(step.title, &(step.command)(&tour));
            let began = SystemClock.now_millis();
            let outcome = (step.run)(&mut tour)?;
            self.print_outcome(began, &outcome);
        }
        Ok(Demonstration(tour.results))
    }

    fn create_home(&self, folder: &str, host_name: &'static str) -> Result<DemoHome<'_>, Failure> {
        let folder = self.folder.join(folder);
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io("making", &folder, &error))?;
        Ok(DemoHome {
            demo: self,
            folder,
            host_name,
        })
    }

    fn print_step(&self, what: &str, command: &str) {
        let ui = &self.context.ui;
        ui.print_line(format!("\n{BOLD}{what}{BOLD:#}"));
        if !command.is_empty() {
            ui.print_line(format!("  {DIM}$ {command}{DIM:#}"));
        }
    }

    fn print_outcome(&self, began: u64, what: &str) {
        let took = SystemClock.now_millis().saturating_sub(began);
        let line = format!("  {TICK} {what}  {DIM}{took} ms{DIM:#}");
        self.context.ui.print_line(line);
    }

    /// Prints the address, the sign-in and the commands that the user can try now.
    fn print_invitation(&self) {
        let Self {
            folder,
            url,
            password,
            ..
        } = self;
        let (owner, log) = (folder.join("owner"), folder.join("serve.log"));
        let (owner, log) = (owner.display(), log.display());
        // Do not shorten the path with `~`: the user sets another home folder first.
        let command = |arguments: String| self.context.own_command(false, arguments);
        let devices = command("devices list".to_owned());
        let link = command(format!("link {url}/v/{SLUG}"));
        self.context.ui.print_line(format!(
            "\n{BOLD}The service runs until you press Ctrl-C{BOLD:#}\n\
             \x20 address   {HINT}{url}{HINT:#}\n\
             \x20 sign-in   {HINT}{OWNER}{HINT:#}\n\
             \x20 password  {HINT}{password}{HINT:#}\n\n\
             Try it in another terminal, as the owner:\n\
             \x20 {DIM}$ export HOME={owner} XDG_CONFIG_HOME={DIM:#}\n\
             \x20 {DIM}$ {devices}{DIM:#}\n\
             or link this machine:\n\
             \x20 {DIM}$ {link}{DIM:#}\n\
             The service's log: {DIM}{log}{DIM:#}"
        ));
    }

    /// Waits for Ctrl-C or SIGTERM, then stops the service.
    fn wait_for_stop(self) {
        self.runtime.block_on(async {
            let Ok(mut terminated) = signal(SignalKind::terminate()) else {
                // Without a handler, SIGTERM ends the process at once.
                return tokio::signal::ctrl_c().await.unwrap_or_default();
            };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminated.recv() => {}
            }
        });
        self.context
            .ui
            .print_line("\nStopped; the temporary folder is removed.");
        self.stop_service();
    }

    fn stop_service(self) {
        self.stop.send_replace(true);
        // The service stops within ten seconds. An aborted request does no harm here, so ignore the
        // result.
        let _ = self.runtime.block_on(self.serving);
    }
}

impl DemoHome<'_> {
    fn build_command<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: &[S],
    ) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| fail!(Io, "cannot find the vault program: {error}"))?;
        let path = self.demo.context.process.variable("PATH");
        let mut command = Command::new(program);
        command
            // The settings, keys and agents of the user's own vault must not reach the simulated
            // machines.
            .env_clear()
            .env("HOME", &self.folder)
            .env("PATH", path.unwrap_or("/usr/bin:/bin"))
            .env("HOSTNAME", self.host_name)
            .args(["--json", "--yes"])
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs a command to its end and returns its `data`, or its error.
    fn run_for_json<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Value, Failure> {
        let output = self
            .build_command(arguments)?
            .output()
            .map_err(|error| fail!(Io, "cannot start a step: {error}"))?;
        read_envelope(&output.stdout, output.status.code())
    }

    /// Runs a command that must fail with this code, and returns its envelope.
    fn run_to_failure<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: &[S],
        code: ErrorCode,
    ) -> Result<Value, Failure> {
        let output = self
            .build_command(arguments)?
            .output()
            .map_err(|error| fail!(Io, "cannot start a step: {error}"))?;
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if envelope["error"]["code"] == code.row().word {
            return Ok(envelope);
        }
        // The step went otherwise: report its own error, or that there was none.
        read_envelope(&output.stdout, output.status.code())?;
        Err(fail!(StepFailed, "a step passed that vault must refuse"))
    }

    /// Runs a command that needs a sign-in: reads the sign-in address that it prints, and sends it
    /// an authorization code as the browser would. Returns its `data`.
    fn run_with_sign_in(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let mut child: Child = self
            .build_command(arguments)?
            // Keep standard input open, because its end would abort the sign-in.
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| fail!(Io, "cannot start a step: {error}"))?;
        let stderr = child.stderr.take();
        // The thread goes on reading after the address, because the child would block once the pipe
        // is full.
        let (address_sender, address) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = stderr.map(|stderr| BufReader::new(stderr).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                if line.contains("/oauth/authorize?") {
                    let _ = address_sender.send(line.trim().to_owned());
                }
            }
        });
        // `recv` fails if the child closes its standard error without an address. The child has
        // then failed, and its output says why.
        if let Ok(address) = address.recv() {
            let demo = self.demo;
            let signed_in = demo
                .runtime
                .block_on(issue_code(&demo.app, &address))
                .and_then(|callback| call_back(&callback));
            if let Err(failure) = signed_in {
                // Stop the child, which would wait for the code.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failure);
            }
        }
        let mut stdout = Vec::new();
        // Read before `wait`, because a child whose output does not fit into the pipe does not end.
        if let Some(mut pipe) = child.stdout.take() {
            let _ = pipe.read_to_end(&mut stdout);
        }
        let status = child
            .wait()
            .map_err(|error| fail!(Io, "a step failed: {error}"))?;
        read_envelope(&stdout, status.code())
    }
}

/// Returns the `data` of a JSON envelope, or the error in it.
fn read_envelope(stdout: &[u8], code: Option<i32>) -> Result<Value, Failure> {
    let code = code.unwrap_or(-1);
    let envelope: Value = serde_json::from_slice(stdout)
        .map_err(|_| fail!(StepFailed, "a step exited with {code} and no message"))?;
    if envelope["ok"] == true {
        return Ok(envelope["data"].clone());
    }
    let word = text_or_empty(&envelope["error"]["code"]);
    let code = ErrorCode::parse(word).unwrap_or(ErrorCode::StepFailed);
    let hint = envelope["error"]["hint"].as_str().map(str::to_owned);
    Err(Failure::new(code, text_or_empty(&envelope["error"]["message"])).hint_if(hint))
}

/// Issues the authorization code as if the owner had consented on the page at this sign-in address.
/// Returns the URL to which the service would redirect the browser.
async fn issue_code(app: &App, address: &str) -> Result<Url, Failure> {
    let url = Url::parse(address).map_err(not_signed_in)?;
    let query = url.query().unwrap_or_default();
    let form = Form::parse(query);
    let client_id = client_name(&form).map_err(not_signed_in)?.id();
    let email = OWNER.parse().map_err(not_signed_in)?;
    let client = app.records.get_one(&client_key(&client_id)).await;
    let account = account::find_account(app, &email).await;
    let (Some(client), Some(account)) = (
        client.map_err(not_signed_in)?,
        account.map_err(not_signed_in)?,
    ) else {
        return Err(not_signed_in("the client or the owner is not registered"));
    };
    let client: Client = client.read().map_err(not_signed_in)?;
    let account = account.value;
    let public = &app.config.public_url;
    let request = AuthorizeRequest::from_form(&form, client, public.base(), public.as_str())
        .map_err(|refused| not_signed_in(format!("{refused:?}")))?
        .for_account(&account)
        .map_err(not_signed_in)?;
    let members = memberships_of(app, &account, request.namespace.as_deref()).await;
    let members = request.filter_members(members.map_err(not_signed_in)?);
    let now = app.clock.now();
    let mut session = Session::begin_now(&account, None, now);
    // A token of an operator requires that credentials were entered for this very request. The demo
    // has chosen the password itself, so it marks them as entered.
    session.entered_for = Some(Digest::of(query.as_bytes()));
    let slug = members.first().map(|member| &member.user.namespace.slug);
    let slug = slug.ok_or_else(|| not_signed_in("the owner has no namespace"))?;
    let consent = Consent {
        session: &session,
        query,
        namespace: Some(slug),
        approved: Scopes::ALL,
    };
    let issued = request.create_authorization_code(consent, &members, now, &*app.random);
    let (location, write) = issued
        .map_err(not_signed_in)?
        .ok_or_else(|| not_signed_in("the owner may grant nothing"))?;
    let commit = app.records.commit_writes(vec![write]).await;
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
    // Read the page to its end, so that the command has the code before the connection closes.
    stream.read_to_end(&mut Vec::new()).map_err(not_signed_in)?;
    Ok(())
}

fn not_signed_in(reason: impl std::fmt::Display) -> Failure {
    fail!(SignInFailed, "the demo could not sign in: {reason}")
}

fn text_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn free_port() -> Result<u16, Failure> {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| fail!(Io, "no port is free: {error}"))
}

/// Generates a random password of 24 characters (120 bits) in groups of six. Its alphabet leaves
/// out `l`, `o`, `0` and `1`, which are easy to confuse.
fn fresh_password() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0_u8; 24];
    SystemRandom.fill_random(&mut bytes);
    // 256 is a multiple of 32, so the remainder favours no letter.
    let letters = bytes.map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    let groups: Vec<String> = letters.chunks(6).map(String::from_iter).collect();
    groups.join("-")
}
