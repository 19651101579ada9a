//! A day of three publishers and a member in one vault. Every command is killed twice on its way
//! and given again, and between the commands the host lies: no machine goes back, nothing is lost,
//! and in the end nobody is left with a draft that cannot be ended.

use std::collections::BTreeMap;
use std::iter::Cycle;
use std::thread;
use std::vec::IntoIter;

use serde_json::{Value, json};
use vault_tests::app::App;
use vault_tests::browser::Browser;
use vault_tests::home::{Home, Ran};
use vault_tests::person::{Answer, OWNER, Person};
use vault_tests::relay::{Lie, Relay};
use vault_tests::server::{Database, OWNER_EMAIL, Server, free_port};
use vault_tests::sweep::{self, Fault, Point};

use crate::remote::NO_LIMITS;
use crate::state;

const PASSWORD: &str = "a password for the day";
/// How often a command is killed before it may end.
const KILLS: usize = 2;
/// Points at which commands are killed, one after the other.
const POINTS: usize = 30;
const PUBLISHERS: [&str; 3] = ["anna", "bob", "carol"];

struct Day {
    server: Server,
    relay: Relay,
    runtime: tokio::runtime::Runtime,
    homes: BTreeMap<&'static str, Home>,
    recovery: String,
    points: Cycle<IntoIter<Point>>,
    lies: Cycle<IntoIter<Lie>>,
    /// What the laptop took, by number.
    taken: BTreeMap<u64, Value>,
    /// How many commands were killed, and how many answers were lies.
    killed: usize,
    lied: usize,
}

fn email(name: &str) -> String {
    if name == "anna" {
        OWNER_EMAIL.to_owned()
    } else {
        format!("{name}@example.com")
    }
}

fn text(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

impl Day {
    /// The vault of one owner, with its first release and a machine that has it.
    fn begin() -> Self {
        let port = free_port();
        let public = format!("http://127.0.0.1:{port}");
        let settings = [&[("VAULT_PUBLIC_URL", &*public)][..], &NO_LIMITS].concat();
        let server = Server::start_with(&Database::Sqlite, &settings);
        let relay = Relay::start(port, server.listens_at());
        let names = ["anna", "bob", "carol", "laptop"];
        let homes = BTreeMap::from(names.map(|name| (name, Home::new())));
        let anna = &homes["anna"];
        let recovery = anna.path().join("recovery").display().to_string();
        anna.add("tool", "One.").ok();
        anna.run(&["key", "recovery", "create", &recovery, "--yes"])
            .ok();
        let url = &*server.url;
        let create = format!("operator --url {url} namespace create team --owner {OWNER_EMAIL}");
        anna.sign_in(&create, OWNER, Answer::Pasted).ok();
        let connect = format!("cloud connect {url}/v/team");
        anna.sign_in(&connect, OWNER, Answer::Pasted).ok();
        // Commands of one program come to much the same points on their way; short ones only to the
        // first of them.
        let mut points = sweep::points(anna, &["sync", "--json"]);
        points.retain(|point| point.when <= 12);
        let points = sweep::sample(points, POINTS).into_iter().cycle();
        let mut day = Self {
            server,
            relay,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            homes,
            recovery,
            points,
            lies: vec![Lie::Old, Lie::Changed, Lie::Hidden]
                .into_iter()
                .cycle(),
            taken: BTreeMap::new(),
            killed: 0,
            lied: 0,
        };
        let fingerprint = text(&day.homes["anna"].json("key show")["fingerprint"]);
        for name in ["laptop", "bob", "carol"] {
            let home = &day.homes[name];
            let link = format!("link {}/v/team --expect-key {fingerprint}", day.server.url);
            let device = text(&home.json(&link)["device_id"]);
            day.homes["anna"].json(&format!("devices admit {device}"));
        }
        day.pull(0);
        day
    }

    /// Invites somebody as a member who may write and sets the password of their account.
    fn invite(&self, name: &str) {
        let (anna, email) = (&self.homes["anna"], email(name));
        anna.json(&format!("users invite {email} --scopes read,write"));
        let invite = format!(
            "operator --url {} account invite {email} --json",
            self.server.url
        );
        let link = text(&anna.sign_in(&invite, OWNER, Answer::Pasted).json()["data"]["invite_url"]);
        let accepted = self
            .runtime
            .block_on(Browser::new().accept_invitation(&link, PASSWORD));
        assert!(accepted.is_success(), "{accepted}");
    }

    /// Runs a command that has its person sign in.
    fn sign_in(&self, name: &str, command: &str) -> Value {
        let email = email(name);
        let person = Person {
            email: &email,
            password: PASSWORD,
            scopes: &["read", "write"],
        };
        let ran = self.homes[name].sign_in(command, person, Answer::Pasted);
        ran.ok().json()["data"].clone()
    }

    /// What an agent of this person hands in; the draft's id.
    fn draft(&self, name: &str, skill: &str, body: &str) -> String {
        let document =
            format!("---\nname: {skill}\ndescription: A skill of {name}.\n---\n\n{body}\n");
        let email = email(name);
        let person = Person {
            email: &email,
            password: PASSWORD,
            scopes: &["read", "write"],
        };
        let answer = self.runtime.block_on(async {
            let app = App::sign_in(&self.server.url, person).await;
            app.call("skill_publish", &json!({ "skill_md": document }))
                .await
        });
        assert_eq!(answer["status"], "drafted", "{answer}");
        text(&answer["draft_id"])
    }

    /// Kills a command at two points, lets it end, and lets the host lie afterwards. What it says
    /// at its end; `done` are the codes by which it may say that a killed run had come to the end.
    #[track_caller]
    fn step(&mut self, name: &'static str, command: &str, done: &[&str]) -> Value {
        let words = command.split_whitespace().chain(["--json", "--yes"]);
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        let (mut ran, mut killed) = self.strike(name, &words);
        let mut said = ran.json();
        if said["error"]["code"] == "review_needed" {
            // The person reads it and names what they have read.
            words.extend(ran.refused(3).answer());
            let (again, more) = self.strike(name, &words);
            (ran, killed) = (again, killed + more);
            said = ran.json();
        }
        if self.homes[name].confirm_wanted(&ran) {
            let (again, more) = self.strike(name, &words);
            (ran, killed) = (again, killed + more);
            said = ran.json();
        }
        let was_killed = killed > 0;
        let code = said["error"]["code"].as_str();
        let is_done = ran.code == 0 || was_killed && code.is_some_and(|code| done.contains(&code));
        assert!(
            is_done,
            "{name}: vault {command}: {}\n{}\n{}",
            ran.code, ran.stdout, ran.stderr
        );
        self.killed += killed;
        self.lie();
        said["data"].clone()
    }

    /// Kills a command at two points and lets it end. How it ended, and how often it was killed.
    fn strike(&mut self, name: &'static str, words: &[String]) -> (Ran, usize) {
        let home = &self.homes[name];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut killed = 0;
        let ended = (0..KILLS).find_map(|_| {
            let point = self.points.next().unwrap();
            let ended = sweep::strike(home, &words, &point, Fault::Kill);
            killed += usize::from(ended.is_none());
            state::whole(home);
            ended
        });
        (ended.unwrap_or_else(|| home.run(&words)), killed)
    }

    /// Lets the host lie to everybody once. Whatever they answer, they keep what they have.
    #[track_caller]
    fn lie(&mut self) {
        let lie = self.lies.next().unwrap();
        self.relay.lie(lie);
        for (name, command) in [
            ("laptop", "cloud pull"),
            ("anna", "status"),
            ("bob", "release list"),
            ("carol", "cloud pull"),
        ] {
            let ran = self.homes[name].run(&format!("{command} --json --yes"));
            let is_told = ran.json()["ok"].is_boolean();
            assert!(is_told && ran.code < 100, "{name}: {lie:?}: {ran:?}");
        }
        self.lied += self.relay.lie(Lie::None);
        self.relay.keep();
        for name in self.homes.keys() {
            state::whole(&self.homes[name]);
        }
        let newest = self.taken.keys().next_back().copied();
        let pinned = state::pinned(&self.homes["laptop"]);
        assert!(newest <= Some(pinned), "{newest:?} → {pinned}");
    }

    /// The laptop pulls, which ends with this code; its release never falls, and has one content
    /// for ever.
    #[track_caller]
    fn pull(&mut self, code: i32) -> u64 {
        let laptop = &self.homes["laptop"];
        laptop.run("cloud pull --json --yes").ended_with(code);
        let shown = laptop.run("status --json").json();
        let link = &shown["data"]["links"][0];
        let release = link["release"].as_u64().unwrap();
        let payload = link["payload_sha256"].clone();
        let newest = self.taken.keys().next_back().copied();
        assert!(newest <= Some(release), "{newest:?} → {release}");
        let before = self.taken.insert(release, payload.clone());
        assert!(before.is_none_or(|before| before == payload), "{release}");
        release
    }

    /// Hands a key in and has the owner add it, which makes its holder a publisher.
    fn publisher(&mut self, name: &'static str) {
        let request = format!(
            "publishers request {}/v/team --name {name} --json",
            self.server.url
        );
        let fingerprint = text(&self.sign_in(name, &request)["fingerprint"]);
        let add = format!("publishers add {fingerprint} --root-key {}", self.recovery);
        self.step("anna", &add, &[]);
        self.step(name, "sync", &[]);
    }

    /// Changes the keys with the recovery key.
    #[track_caller]
    fn keys(&mut self, change: &str) {
        let command = format!("publishers {change} --root-key {}", self.recovery);
        self.step("anna", &command, &[]);
    }

    /// Publishes with one signature of this publisher and a second one of the other.
    #[track_caller]
    fn both_sign(&mut self, author: &'static str, other: &'static str) {
        let proposed = self.step(author, "sync", &[]);
        let id = text(&proposed["proposed"]);
        // By the keys of the proposal, of which this machine may not have heard.
        let listed = self.homes[other].run("release list").ok().stdout;
        assert!(listed.contains("1 of 2"), "{listed}");
        let sign = format!("release sign {id}");
        self.step(other, &sign, &["draft_not_found"]);
    }

    /// The drafts that wait.
    fn waiting(&self) -> Vec<Value> {
        let listed = self.homes["anna"].json("drafts list");
        listed.as_array().unwrap().clone()
    }
}

/// Both publish at once: as long as somebody was second, that one syncs again.
fn race(day: &Day, names: [&str; 2]) {
    let sync = |name: &str| day.homes[name].run("sync --json --yes");
    let ran: Vec<Ran> = thread::scope(|scope| {
        let tasks = names.map(|name| scope.spawn(move || sync(name)));
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    assert!(ran.iter().any(|ran| ran.code == 0), "{ran:?}");
    for name in names.iter().chain(&names) {
        let ran = sync(name);
        if ran.code == 0 {
            continue;
        }
        // They read what the other has published.
        let [flag, hash] = ran.fails(3, "review_needed").answer();
        let reviewed = format!("sync --json --yes {flag} {hash}");
        day.homes[name].run(&reviewed).ok();
    }
}

#[test]
fn a_day_of_three_publishers_and_a_member() {
    if !sweep::is_ready() {
        return;
    }
    let mut day = Day::begin();

    // Bob becomes a publisher, takes over what Anna signed, and both publish.
    day.invite("bob");
    day.publisher("bob");
    day.homes["bob"].add("report", "One.").ok();
    day.step("bob", "sync", &[]);
    day.step("anna", "sync", &[]);
    day.homes["anna"].add("first", "One.").ok();
    day.homes["bob"].add("second", "One.").ok();
    race(&day, ["anna", "bob"]);
    day.pull(0);

    // Carol is a member. One of her drafts is accepted, one declined, one withdrawn.
    day.invite("carol");
    let connect = format!("cloud connect {}/v/team --json", day.server.url);
    day.sign_in("carol", &connect);
    let wanted = day.draft("carol", "carols", "Read it.");
    let unwanted = day.draft("carol", "unwanted", "Read it.");
    let changed = day.draft("carol", "carols-too", "Read it.");
    day.step(
        "anna",
        &format!("drafts accept {wanted}"),
        &["draft_not_found"],
    );
    day.step(
        "bob",
        &format!("drafts decline {unwanted} --reason No."),
        &["draft_not_found"],
    );
    day.step(
        "carol",
        &format!("drafts withdraw {changed}"),
        &["draft_not_found"],
    );
    assert_eq!(day.waiting(), [json!(null); 0]);
    day.step("bob", "sync", &[]);
    let before = day.pull(0);

    // She becomes a publisher, and two signatures are needed from then on.
    day.publisher("carol");
    day.keys("threshold 2");
    day.pull(3);
    day.homes["anna"].add("review", "One.").ok();
    day.both_sign("anna", "bob");
    assert!(day.pull(0) > before);

    // The threshold is raised while a proposal waits: it is over, and its author proposes again.
    day.homes["carol"].add("plan", "One.").ok();
    let waits = text(&day.step("carol", "sync", &[])["proposed"]);
    day.keys("threshold 3");
    let sign = format!("release sign {waits} --json --yes");
    let refused = day.homes["bob"].run(&sign);
    assert_ne!(refused.code, 0, "{refused:?}");
    day.keys("threshold 2");
    day.both_sign("carol", "bob");
    let before = day.pull(0);

    // She leaves while a proposal of hers waits: nobody can complete it, and the others go on.
    day.homes["carol"].add("late", "One.").ok();
    let waits = text(&day.step("carol", "sync", &[])["proposed"]);
    // Anna takes over what Carol has signed while that counts.
    day.step("anna", "sync", &[]);
    day.keys("remove carol");
    let sign = format!("release sign {waits} --json --yes");
    let refused = day.homes["bob"].run(&sign);
    assert_ne!(refused.code, 0, "{refused:?}");
    day.both_sign("anna", "bob");
    assert!(day.pull(0) > before);
    day.step(
        "anna",
        "users remove carol@example.com",
        &["user_not_found"],
    );

    // Both of the two who are left must sign, so neither can be removed.
    let remove = format!("publishers remove bob --root-key {} --yes", day.recovery);
    let refused = day.homes["anna"].run(&remove).expect_code(1);
    assert!(refused.stderr.contains("1 would be left"), "{refused:?}");

    // Whatever waits can be taken away.
    for draft in day.waiting() {
        let withdraw = format!("drafts withdraw {}", text(&draft["id"]));
        day.step("anna", &withdraw, &["draft_not_found"]);
    }
    assert_eq!(day.waiting(), [json!(null); 0]);
    let names: Vec<_> = state::seen(&day.homes["laptop"]).into_keys().collect();
    let wanted = [
        "carols", "first", "plan", "report", "review", "second", "tool",
    ];
    assert_eq!(names, wanted);
    for name in PUBLISHERS {
        state::whole(&day.homes[name]);
    }
    eprintln!("{} commands killed, {} lies", day.killed, day.lied);
    assert!(day.killed > 20 && day.lied > 50, "too little went wrong");
}

/// A vault that its server signs: wherever the owner's command is killed, the draft is accepted once.
#[test]
fn a_server_signs_an_accepted_draft_once() {
    if !sweep::is_ready() {
        return;
    }
    let server = Server::start_with(&Database::Sqlite, &NO_LIMITS);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let (owner, carol) = (Home::new(), Home::new());
    let connect = format!("cloud connect {}/v/default --json", server.url);
    owner.sign_in(&connect, OWNER, Answer::Pasted).ok();
    let address = email("carol");
    owner.json(&format!("users invite {address} --scopes read,write"));
    let invite = format!(
        "operator --url {} account invite {address} --json",
        server.url
    );
    let invited = owner.sign_in(&invite, OWNER, Answer::Pasted).json();
    let link = text(&invited["data"]["invite_url"]);
    let accepted = runtime.block_on(Browser::new().accept_invitation(&link, PASSWORD));
    assert!(accepted.is_success(), "{accepted}");
    let person = Person {
        email: &address,
        password: PASSWORD,
        scopes: &["read", "write"],
    };
    carol.sign_in(&connect, person, Answer::Pasted).ok();
    let accept = |name: &str| {
        let document =
            format!("---\nname: {name}\ndescription: A skill of Carol.\n---\n\nRead it.\n");
        let drafted = runtime.block_on(async {
            let app = App::sign_in(&server.url, person).await;
            app.call("skill_publish", &json!({ "skill_md": document }))
                .await
        });
        let id = text(&drafted["draft_id"]);
        let command = format!("drafts accept {id} --json");
        let [flag, hash] = owner.run(&command).fails(3, "review_needed").answer();
        (id, format!("{command} {flag} {hash}"))
    };
    let state_of = |id: &str| {
        let drafts = owner.json("drafts list --all");
        let mut drafts = drafts.as_array().unwrap().iter();
        drafts
            .find(|draft| draft["id"] == json!(id))
            .unwrap()
            .clone()
    };
    let (_, first) = accept("traced");
    let points = sweep::points(&owner, &first.split_whitespace().collect::<Vec<_>>());
    let mut releases = Vec::new();
    let mut killed = 0;
    for (number, point) in sweep::sample(points, 6).iter().enumerate() {
        let (id, command) = accept(&format!("skill-{number}"));
        let words: Vec<_> = command.split_whitespace().collect();
        killed += usize::from(sweep::strike(&owner, &words, point, Fault::Kill).is_none());
        let again = owner.run(&command);
        let draft = state_of(&id);
        assert_eq!(draft["state"], "accepted", "{point:?}: {again:?}");
        releases.push(draft["release"].as_u64().unwrap());
    }
    eprintln!("{killed} commands killed");
    assert!(killed > 3, "too little went wrong");
    assert!(
        releases.is_sorted_by(|before, after| before < after),
        "{releases:?}"
    );
}
