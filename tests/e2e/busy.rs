//! A service that has too much to do at the moment, for commands that can wait.

use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER};
use vault_tests::place;
use vault_tests::relay::Relay;
use vault_tests::server::{Database, OWNER_EMAIL, Server, free_port};

use crate::support::text;

/// Each question and each upload of a release, and each bundle of a pull, is refused once.
#[test]
fn a_release_and_a_pull_end_well_while_the_service_refuses_each_request_once() {
    if place::leaves_out(
        "",
        "the relay stands in front of a server of the test's own",
    ) {
        return;
    }
    let port = free_port();
    let public = format!("http://127.0.0.1:{port}");
    let server = Server::start_with(&Database::Sqlite, &[("VAULT_PUBLIC_URL", &public)]);
    let relay = Relay::start(port, server.listens_at());
    let (owner, laptop) = (Home::new(), Home::new());
    owner.add("tool", "One.").ok();
    owner.add("other", "Two.").ok();
    let create = format!("operator --url {public} namespace create team --owner {OWNER_EMAIL}");
    owner.sign_in(&create, OWNER, Answer::Pasted).ok();
    let connect = format!("cloud connect {public}/v/team");
    owner.sign_in(&connect, OWNER, Answer::Pasted).ok();

    relay.be_busy("/objects/");
    owner.run("sync --cloud --json").ok();
    let refused = relay.be_busy("");
    assert!(refused >= 2, "a question and an upload, not {refused}");

    let fingerprint = text(&owner.json("key show")["fingerprint"]);
    let link = format!("link {public}/v/team --expect-key {fingerprint}");
    let device = text(&laptop.json(&link)["device_id"]);
    owner.json(&format!("devices admit {device}"));
    relay.be_busy("/bundles/");
    laptop.run("cloud pull --json").ok();
    assert_eq!(relay.be_busy(""), 2, "each bundle once");
}
