//! `docs/serve.md`: the server as its systemd unit runs it, and the chapter about backups, command
//! by command.

use std::fs;
use std::path::Path;
use std::process::Command;

use vault_tests::home::{Home, Ran};
use vault_tests::person::{Answer, Person};
use vault_tests::place;
use vault_tests::server::free_port;

use crate::page::Serving;
use crate::support::{pulled, text};

const OPERATOR: Person<'static> = Person {
    email: "you@example.com",
    password: "choose-24-characters-or-more",
    scopes: &["read", "write"],
};

/// The machines of the page: each has a folder in the place of `/var/lib`, and one process of the
/// unit.
struct Machine {
    home: Home,
    serving: Option<Serving>,
}

impl Machine {
    fn new() -> Self {
        let home = Home::new();
        fs::create_dir(home.path().join("lib")).unwrap();
        Self {
            home,
            serving: None,
        }
    }

    /// The text of the page with this machine's folders in the place of those that it names.
    fn text(&self, text: &str, backup: &Path) -> String {
        let lib = self.home.path().join("lib");
        text.replace("/var/lib", lib.to_str().unwrap())
            .replace("/backup", backup.to_str().unwrap())
    }

    /// Starts the unit of the page, with the settings of the page, at this port.
    fn start(&mut self, page: &str, backup: &Path, port: u16) {
        let unit = page
            .lines()
            .filter_map(|line| line.strip_prefix("Environment="));
        let (_, file) = page.split_once("```sh\n").unwrap();
        let file = file.split("```").next().unwrap();
        let settings = unit.chain(file.lines()).map(|line| {
            let (name, value) = line.split_once('=').unwrap();
            let value = self.text(value, backup);
            let address = format!("http://127.0.0.1:{port}");
            (
                name.to_owned(),
                value.replace("https://vault.example", &address),
            )
        });
        let settings: Vec<_> = settings.collect();
        // systemd makes the folder of the state.
        fs::create_dir_all(self.home.path().join("lib/vault")).unwrap();
        let serve = ["serve".to_owned()];
        self.serving = Some(Serving::start(&self.home, &serve, &settings, port));
    }

    /// Runs a command of the page; `systemctl` means the process of this machine.
    fn run(&mut self, command: &str, page: &str, backup: &Path, port: u16) {
        match command {
            "systemctl stop vault" => self.serving.take().unwrap().stop(),
            "systemctl start vault" => self.start(page, backup, port),
            command => {
                let command = self.text(command, backup);
                let ran = Command::new("sh").args(["-c", &command]).status();
                assert!(ran.unwrap().success(), "{command}");
            }
        }
    }
}

#[test]
fn a_service_moves_to_another_machine_as_the_page_about_serve_says() {
    if place::leaves_out("", "the page starts a server of its own") {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/serve.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, chapter) = page.split_once("## Back up and restore").unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let commands = |machine: &str| {
        let prompt = format!("{machine}$ sudo ");
        let lines = chapter.lines();
        let commands = lines.filter_map(|line| line.strip_prefix(&prompt).map(str::to_owned));
        let commands: Vec<_> = commands.collect();
        assert!(commands.len() >= 2, "{machine}: {commands:?}");
        commands
    };

    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let backup = folder.path();
    let (mut server, mut new) = (Machine::new(), Machine::new());
    server.start(&page, backup, port);
    let (owner, laptop) = (Home::new(), Home::new());
    let base = format!("http://127.0.0.1:{port}");
    let address = format!("{base}/v/acme");
    let create = ["operator", "--url", &base, "namespace", "create", "acme"];
    let create = [&create[..], &["--owner", OPERATOR.email, "--json"]].concat();
    owner.sign_in(&create, OPERATOR, Answer::Pasted).data();
    let connect = ["cloud", "connect", &address, "--json"];
    owner.sign_in(&connect, OPERATOR, Answer::Pasted).data();
    owner.add("tool", "A tool.").ok();
    owner.json("sync --cloud");
    let machine = text(&laptop.json(&format!("link {address}"))["device_id"]);
    owner.json(&format!("devices admit {machine}"));

    for command in commands("server") {
        server.run(&command, &page, backup, port);
    }
    server.serving.take().unwrap().stop();
    for command in commands("new") {
        new.run(&command, &page, backup, port);
    }

    // The people, the machines and the release are there, and so is the key of the server's own
    // vault.
    laptop.json("cloud pull");
    assert_eq!(pulled(&laptop).keys().collect::<Vec<_>>(), ["tool"]);
    owner.json("devices list");
    let library =
        |machine: &Machine| fs::read(machine.home.path().join("lib/vault/library/vault.json"));
    assert_eq!(library(&new).unwrap(), library(&server).unwrap());
    new.serving.take().unwrap().stop();
}

#[test]
fn the_settings_file_of_the_page_is_accepted() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/serve.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, file) = page.split_once("```toml\n").unwrap();
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("vault.toml");
    fs::write(&path, file.split("```").next().unwrap()).unwrap();
    let path = path.to_str().unwrap();
    let shown = home
        .command(&format!("serve --config {path} --print-config --json"))
        .env("VAULT_ADMIN_PASSWORD", OPERATOR.password)
        .output()
        .unwrap();
    let settings = Ran::from(shown).data()["settings"].clone();
    let from_file = settings.as_array().unwrap().iter().filter(|setting| {
        let source = setting["source"].as_str().unwrap();
        source.starts_with(path)
    });
    assert_eq!(from_file.count(), 7);
}
