//! The service over each store, with a clock that shows the moment at which the state was left:
//! tokens, invitations and codes end.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use vault_aws::Aws;
use vault_format::hash::Digest;
use vault_service::App;
use vault_service::config::{Config, Limits};
use vault_sql::Sql;
use vault_store::objects::{ObjectKey, Objects};
use vault_store::random::SystemRandom;
use vault_store::records::Records;
use vault_testing::servers::or_say_why;
use vault_testing::{TestClock, aws, postgres};
use vault_tests::app;
use vault_tests::browser::client;
use vault_tests::person::OWNER;

use crate::inventory::{self, Tokens};
use crate::{State, holds, lacks};

/// A member of records of one kind, and what it is renamed to: records that do not read.
const DAMAGE: [(&str, &str); 2] = [
    ("\"hostname\":", "\"host_name\":"),
    ("\\\"hostname\\\":", "\\\"host_name\\\":"),
];

/// Both ports of a store that holds the state.
type Ports = (Arc<dyn Records>, Arc<dyn Objects>);

/// The text from which a store is filled; with another name of a member where `is_damaged`.
fn text_of(state: &State, name: &str, is_damaged: bool) -> String {
    let text = fs::read_to_string(state.path(name)).unwrap();
    if !is_damaged {
        return text;
    }
    let changed = DAMAGE
        .iter()
        .fold(text.clone(), |text, (from, to)| text.replace(from, to));
    assert_ne!(changed, text, "no such member in {name}");
    changed
}

async fn sqlite(state: &State, clock: Arc<TestClock>, is_damaged: bool) -> Ports {
    let file = state.path("vault.db");
    if is_damaged {
        let connection = rusqlite::Connection::open(&file).unwrap();
        let (from, to) = DAMAGE[0];
        let change = "update records set document = replace(document, ?1, ?2)
            where document <> replace(document, ?1, ?2)";
        assert!(connection.execute(change, [from, to]).unwrap() > 0);
    }
    let sql = Sql::open_database(file.to_str().unwrap(), clock)
        .await
        .unwrap();
    (sql.records(), sql.objects())
}

async fn from_dump(state: &State, url: &str, clock: Arc<TestClock>, is_damaged: bool) -> Ports {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let dump = text_of(state, "vault.sql", is_damaged);
    client.batch_execute(&dump).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    let sql = Sql::open_database(url, clock).await.unwrap();
    (sql.records(), sql.objects())
}

async fn from_items(
    state: &State,
    place: &aws::Place,
    clock: Arc<TestClock>,
    is_damaged: bool,
) -> Ports {
    let client = aws_sdk_dynamodb::Client::new(&place.config);
    for line in text_of(state, "items.jsonl", is_damaged).lines() {
        let item: HashMap<String, HashMap<String, String>> = serde_json::from_str(line).unwrap();
        let item = item.into_iter().map(|(name, mut value)| {
            let value = match value.remove("S") {
                Some(text) => AttributeValue::S(text),
                None => AttributeValue::N(value.remove("N").unwrap()),
            };
            (name, value)
        });
        let put = client
            .put_item()
            .table_name(&place.settings.table)
            .set_item(Some(item.collect()));
        put.send().await.unwrap();
    }
    let random = Arc::new(SystemRandom);
    let aws = Aws::new(&place.config, &place.settings, clock, random);
    for line in fs::read_to_string(state.path("objects.jsonl"))
        .unwrap()
        .lines()
    {
        let object: Value = serde_json::from_str(line).unwrap();
        let key = object["key"].as_str().unwrap();
        let bytes = STANDARD.decode(object["bytes"].as_str().unwrap()).unwrap();
        let parts: Vec<_> = key.split('/').collect();
        let (namespace, class) = (parts[1].parse().unwrap(), parts[2].parse().unwrap());
        let place = ObjectKey::new(namespace, class, Digest::of(&bytes));
        assert_eq!(place.to_string(), key);
        aws.objects()
            .put_object(&place, bytes.into())
            .await
            .unwrap();
    }
    (aws.records(), aws.objects())
}

/// A service over these ports; what the tokens of the state are answered, and what a person who
/// signs in there sees.
async fn ask(state: &State, (records, objects): Ports, clock: Arc<TestClock>) -> (Value, Value) {
    let facts = &state.inventory["facts"];
    let url = facts["url"].as_str().unwrap();
    let mut config = Config::new(url.parse().unwrap());
    config.limits = Limits::disabled();
    let ports = vault_service::Ports {
        records,
        objects,
        clock,
        random: Arc::new(SystemRandom),
    };
    let service = App::new(ports, config);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(vault_service::serve::serve(
        listener,
        service,
        std::future::pending(),
    ));
    // The state's own address, wherever the service listens today. The first client installs TLS.
    drop(client());
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .proxy(reqwest::Proxy::http(format!("http://127.0.0.1:{port}")).unwrap())
        .build()
        .unwrap();
    let text = |name: &str| facts["tokens"][name].as_str().unwrap().to_owned();
    let tokens = Tokens {
        owner: text("owner"),
        operator: text("operator"),
    };
    let found = inventory::service(&client, url, &tokens).await;
    let person = app::App::sign_in_through(client, url, OWNER).await;
    let skills = person.call("skill_list", &json!({})).await;
    serving.abort();
    (found, skills)
}

fn clock(state: &State) -> Arc<TestClock> {
    let at = state.inventory["facts"]["at"].as_str().unwrap();
    Arc::new(TestClock::new(at.parse().unwrap()))
}

/// The whole inventory is there, and it is not where a record of one kind does not read.
#[track_caller]
fn judge(state: &State, (found, skills): &(Value, Value), is_damaged: bool) {
    let mut wanted = state.inventory["service"].clone();
    // Since then hosted vaults have a quota where none was set, and a webhook for all events gets one
    // more kind.
    wanted["/admin/vaults/team"]["data"]["quota"]["bytes"] = json!(2_u64 << 30);
    let hook = &mut wanted["/admin/vaults/team/notices"]["data"]["webhooks"][0];
    let events = hook["events"].as_array_mut().unwrap();
    events.push(json!("quota_near"));
    let wanted = &wanted;
    if !is_damaged {
        holds(found, wanted);
        assert!(!skills["skills"].as_array().unwrap().is_empty(), "{skills}");
        return;
    }
    let mut lacking = Vec::new();
    lacks(found, wanted, "", &mut lacking);
    assert!(
        !lacking.is_empty(),
        "records that do not read went unnoticed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_sqlite() {
    for is_damaged in [false, true] {
        let state = State::unpack();
        let clock = clock(&state);
        let ports = sqlite(&state, clock.clone(), is_damaged).await;
        judge(&state, &ask(&state, ports, clock).await, is_damaged);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_postgresql() {
    for is_damaged in [false, true] {
        let Some(database) = or_say_why(postgres::database()) else {
            return;
        };
        let state = State::unpack();
        let clock = clock(&state);
        let ports = from_dump(&state, &database.url(), clock.clone(), is_damaged).await;
        judge(&state, &ask(&state, ports, clock).await, is_damaged);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_dynamodb_and_s3() {
    for is_damaged in [false, true] {
        let Some(place) = or_say_why(aws::place().await) else {
            return;
        };
        let state = State::unpack();
        let clock = clock(&state);
        let ports = from_items(&state, &place, clock.clone(), is_damaged).await;
        judge(&state, &ask(&state, ports, clock).await, is_damaged);
    }
}
