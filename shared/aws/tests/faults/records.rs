//! `Records` on a DynamoDB that answers by script.

use std::time::Duration;

use serde_json::{Value, json};
use vault_aws::RetryLimits;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::records::{Commit, Document, RecordKey, When, Write};

use crate::stub::{Reply, Stub};

fn key(name: &str) -> RecordKey {
    RecordKey::new("p", name)
}

fn put(name: &str, when: When) -> Write {
    let document = Document::from_value(&json!({"n": 1})).expect("a small object");
    Write::put(key(name), document, when)
}

/// An item as DynamoDB shows it.
fn item(name: &str, revision: u64) -> Value {
    json!({
        "pk": {"S": "p"}, "sk": {"S": name}, "r": {"N": revision.to_string()},
        "d": {"S": "{}"}, "x": {"S": " "}, "n_n": {"N": "1"},
    })
}

/// A cancelled transaction with a reason for each action, and the item found there.
fn cancelled(reasons: &[(&str, Option<Value>)]) -> Reply {
    let reasons: Vec<Value> = reasons
        .iter()
        .map(|(code, item)| match item {
            Some(item) => json!({"Code": code, "Message": "told", "Item": item}),
            None => json!({"Code": code, "Message": "told"}),
        })
        .collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "cancelled", "CancellationReasons": reasons,
    });
    Reply::bytes(400, body.to_string())
}

fn is_unavailable<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

/// Answers that may pass: each is worth another try.
fn passing() -> Vec<(&'static str, Reply)> {
    vec![
        ("throttled", Reply::dynamodb(400, "ThrottlingException")),
        (
            "over its capacity",
            Reply::dynamodb(400, "ProvisionedThroughputExceededException"),
        ),
        (
            "over the account's limit",
            Reply::dynamodb(400, "RequestLimitExceeded"),
        ),
        ("broken", Reply::dynamodb(500, "InternalServerError")),
        ("a page of a proxy", Reply::bytes(503, "<html>busy</html>")),
        ("too many", Reply::bytes(429, "{}")),
        ("an empty body", Reply::bytes(200, "")),
        ("no JSON", Reply::bytes(200, "<html>hello</html>")),
        ("half of the JSON", Reply::bytes(200, "{\"Item\": {\"pk\"")),
        ("a cut body", Reply::Cut(10, b"{}".to_vec())),
        ("a closed connection", Reply::Closed),
    ]
}

/// Answers that stay: repeating does not help.
fn lasting() -> Vec<(&'static str, Reply)> {
    vec![
        (
            "no such table",
            Reply::dynamodb(400, "ResourceNotFoundException"),
        ),
        ("no right", Reply::dynamodb(400, "AccessDeniedException")),
        (
            "a wrong key",
            Reply::dynamodb(400, "UnrecognizedClientException"),
        ),
        ("other keys", Reply::dynamodb(400, "ValidationException")),
        ("something new", Reply::dynamodb(400, "NeverHeardOf")),
        ("a page", Reply::bytes(404, "<html>nothing here</html>")),
        ("elsewhere", Reply::bytes(301, "")),
        ("forbidden", Reply::bytes(403, "{}")),
    ]
}

/// Does each of the port's operations against the reply; each must be `Unavailable` after this many
/// requests.
async fn all_unavailable(name: &str, reply: &Reply, tries: usize) {
    for operation in ["get", "get two", "list", "put", "delete", "count", "ping"] {
        let stub = Stub::start([reply.clone()]).await;
        let records = stub.aws.records();
        let answer = match operation {
            "get" => records.get_one(&key("k")).await.map(drop),
            "get two" => records.get_many(&[key("k"), key("l")]).await.map(drop),
            "list" => records.list_page("p", "", None, 10).await.map(drop),
            "put" => records
                .commit_writes(vec![put("k", When::Absent)])
                .await
                .map(drop),
            "delete" => {
                let write = Write::delete(key("k"), When::At(1));
                records.commit_writes(vec![write]).await.map(drop)
            }
            "count" => {
                let write = Write::count(key("k"), "n", 1, 9);
                records.commit_writes(vec![write]).await.map(drop)
            }
            _ => records.check_health().await,
        };
        assert!(is_unavailable(&answer), "{operation}, {name}: {answer:?}");
        assert_eq!(stub.heard().len(), tries, "{operation}, {name}");
        let calls = stub.aws.calls();
        assert_eq!(calls.total_requests(), tries as u64, "{operation}, {name}");
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_eight_times_and_then_unavailable() {
    for (name, reply) in passing() {
        all_unavailable(name, &reply, 8).await;
    }
}

#[tokio::test]
async fn what_stays_is_unavailable_at_once() {
    for (name, reply) in lasting() {
        all_unavailable(name, &reply, 1).await;
    }
}

#[tokio::test]
async fn a_fault_that_passes_is_not_seen() {
    for (name, fault) in passing() {
        let good = Reply::json(&json!({"Item": item("k", 7)}));
        let stub = Stub::start([fault.clone(), fault.clone(), good]).await;
        let read = stub.aws.records().get_one(&key("k")).await.expect(name);
        assert_eq!(read.expect("it is there").revision, 7, "{name}");
        assert_eq!(stub.aws.calls().record_reads, 3, "{name}");

        let good = Reply::json(&json!({"Items": [item("k", 7)], "Count": 1}));
        let stub = Stub::start([fault, good]).await;
        let listed = stub.aws.records().list_page("p", "", None, 9).await;
        assert_eq!(listed.expect(name).len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_repeated_under_its_token() {
    let mut faults = passing();
    faults.push((
        "in progress",
        Reply::dynamodb(400, "TransactionInProgressException"),
    ));
    for (name, fault) in faults {
        let stub = Stub::start([fault, Reply::json(&json!({}))]).await;
        let writes = vec![put("k", When::Absent), Write::count(key("c"), "n", 1, 9)];
        let ended = stub.aws.records().commit_writes(writes).await.expect(name);
        assert!(ended.is_done(), "{name}: {ended:?}");
        let heard = stub.heard();
        assert_eq!(heard.len(), 2, "{name}");
        assert_eq!(heard[0].json(), heard[1].json(), "{name}");
        let token = heard[0].json()["ClientRequestToken"].clone();
        assert!(token.as_str().is_some_and(|t| t.len() == 26), "{token}");
    }
}

#[tokio::test]
async fn a_store_that_never_answers_is_unavailable() {
    let limits = RetryLimits {
        attempts: 2,
        attempt_timeout: Duration::from_millis(50),
        operation_timeout: Duration::from_secs(30),
        ..RetryLimits::default()
    };
    for reply in [Reply::Silent, Reply::Stalled(100)] {
        let stub = Stub::start_with([reply.clone()], limits).await;
        let records = stub.aws.records();
        assert!(
            is_unavailable(&records.get_one(&key("k")).await),
            "{reply:?}"
        );
        let commit = records.commit_writes(vec![put("k", When::Any)]).await;
        assert!(is_unavailable(&commit), "{reply:?}");
        assert_eq!(stub.aws.calls().total_requests(), 4, "{reply:?}");
    }
    // The limit of all tries together holds where each has time.
    let limits = RetryLimits {
        attempt_timeout: Duration::from_mins(10),
        operation_timeout: Duration::from_millis(50),
        ..limits
    };
    let stub = Stub::start_with([Reply::Silent], limits).await;
    assert!(is_unavailable(&stub.aws.records().get_one(&key("k")).await));
    let commit = stub
        .aws
        .records()
        .commit_writes(vec![put("k", When::Any)])
        .await;
    assert!(is_unavailable(&commit));
}

#[tokio::test]
async fn a_conflict_is_tried_again_under_its_token() {
    let conflict = cancelled(&[("TransactionConflict", None), ("None", None)]);
    let writes = vec![put("k", When::Absent), put("l", When::Any)];
    let stub = Stub::start([conflict.clone(), conflict.clone(), Reply::json(&json!({}))]).await;
    let ended = stub.aws.records().commit_writes(writes.clone()).await;
    assert!(ended.expect("it passes").is_done());
    let tokens = stub.heard();
    let tokens: Vec<Value> = tokens
        .iter()
        .map(|request| request.json()["ClientRequestToken"].clone())
        .collect();
    assert_eq!(tokens.len(), 3);
    assert!(tokens[0] == tokens[1] && tokens[1] == tokens[2]);

    let stub = Stub::start([conflict]).await;
    let ended = stub.aws.records().commit_writes(writes).await;
    assert!(matches!(ended, Err(StoreError::Conflict)), "{ended:?}");
    assert_eq!(stub.heard().len(), 8);
}

#[tokio::test]
async fn a_failed_condition_is_an_outcome_and_never_tried_again() {
    let conflict = ("TransactionConflict", None);
    let failed = |item| ("ConditionalCheckFailed", item);
    for (reasons, index, there) in [
        (vec![failed(Some(item("k", 7))), ("None", None)], 0, true),
        (vec![("None", None), failed(None)], 1, false),
        (vec![failed(Some(item("k", 7))), failed(None)], 0, true),
        // Whatever else hindered it: the condition did not hold.
        (vec![conflict.clone(), failed(None)], 1, false),
        (vec![failed(Some(item("k", 7))), conflict], 0, true),
        (vec![("ThrottlingError", None), failed(None)], 1, false),
    ] {
        let stub = Stub::start([cancelled(&reasons)]).await;
        let writes = vec![put("k", When::Absent), Write::delete(key("l"), When::At(3))];
        let ended = stub
            .aws
            .records()
            .commit_writes(writes)
            .await
            .expect("an outcome");
        let Commit::Failed { index: at, found } = ended else {
            panic!("{reasons:?}: {ended:?}")
        };
        assert_eq!((at, found.is_some()), (index, there), "{reasons:?}");
        assert_eq!(stub.heard().len(), 1, "{reasons:?}");
    }
}

#[tokio::test]
async fn a_transaction_cancelled_for_other_reasons_is_unavailable() {
    for (reasons, tries) in [
        (vec![("ThrottlingError", None)], 8),
        (vec![("ProvisionedThroughputExceeded", None)], 8),
        (vec![("ValidationError", None)], 1),
        (vec![("ItemCollectionSizeLimitExceeded", None)], 1),
        (vec![("None", None)], 1),
        (vec![("NeverHeardOf", None)], 1),
        (vec![], 1),
        (vec![("ConditionalCheckFailed", None); 2], 1),
    ] {
        let stub = Stub::start([cancelled(&reasons)]).await;
        let ended = stub
            .aws
            .records()
            .commit_writes(vec![put("k", When::At(3))])
            .await;
        assert!(is_unavailable(&ended), "{reasons:?}: {ended:?}");
        assert_eq!(stub.heard().len(), tries, "{reasons:?}");
    }
}

#[tokio::test]
async fn a_clock_that_is_behind_gives_no_lower_revision() {
    let stub = Stub::start([]).await;
    let ahead = stub.clock.now_millis() * 4096 + 1_000_000;
    drop(stub);
    for when in [When::Any, When::Absent] {
        let found = match when {
            // A tombstone.
            When::Absent => {
                json!({"pk": {"S": "p"}, "sk": {"S": "k"}, "r": {"N": ahead.to_string()}})
            }
            _ => item("k", ahead),
        };
        let higher = cancelled(&[("ConditionalCheckFailed", Some(found))]);
        let stub = Stub::start([higher, Reply::json(&json!({}))]).await;
        let ended = stub.aws.records().commit_writes(vec![put("k", when)]).await;
        let revision = Some(ahead + 1);
        assert_eq!(
            ended.expect("done"),
            Commit::Done(vec![revision]),
            "{when:?}"
        );
        let sent = stub.heard()[1].json();
        let sent = sent["TransactItems"][0]["Put"]["Item"]["r"]["N"].clone();
        assert_eq!(sent, json!((ahead + 1).to_string()), "{when:?}");
    }
}

#[tokio::test]
async fn a_condition_that_never_settles_ends() {
    // Each time our own condition alone failed: the store shows an older revision than the one it
    // refuses.
    let odd = cancelled(&[("ConditionalCheckFailed", Some(item("k", 1)))]);
    let stub = Stub::start([odd]).await;
    let ended = stub
        .aws
        .records()
        .commit_writes(vec![put("k", When::Any)])
        .await;
    assert!(matches!(ended, Err(StoreError::Conflict)), "{ended:?}");
    assert!(stub.heard().len() <= 40);
}

#[tokio::test]
async fn what_the_port_refuses_is_never_sent() {
    let stub = Stub::start([Reply::json(&json!({}))]).await;
    let records = stub.aws.records();
    let many: Vec<Write> = (0..101).map(|n| put(&n.to_string(), When::Any)).collect();
    let twice = vec![put("k", When::Any), Write::check(key("k"), When::Absent)];
    for writes in [many, twice] {
        let ended = records.commit_writes(writes).await;
        assert!(matches!(ended, Err(StoreError::Invalid(_))), "{ended:?}");
    }
    let nothing = vec![Write::check(key("k"), When::Any)];
    assert!(
        records
            .commit_writes(nothing)
            .await
            .expect("it holds")
            .is_done()
    );
    assert_eq!(stub.heard().len(), 0);
    assert_eq!(records.get_many(&[]).await.expect("nothing"), []);
    assert_eq!(stub.heard().len(), 0);
}

#[tokio::test]
async fn reading_many_is_one_request_and_a_conflict_there_is_tried_again() {
    let conflict = cancelled(&[("TransactionConflict", None), ("None", None)]);
    let good = Reply::json(&json!({"Responses": [{"Item": item("a", 7)}, {}]}));
    let stub = Stub::start([conflict.clone(), good]).await;
    let keys = ["b", "a", "b"].map(key);
    let read = stub.aws.records().get_many(&keys).await.expect("it passes");
    let revisions: Vec<_> = read.into_iter().map(|r| r.map(|r| r.revision)).collect();
    assert_eq!(revisions, [None, Some(7), None]);
    assert_eq!(stub.aws.calls().record_reads, 2);
    let sent = stub.heard()[1].json();
    let sent = sent["TransactItems"].as_array().map(Vec::len);
    assert_eq!(sent, Some(2), "a key asked twice is read once");

    let stub = Stub::start([conflict]).await;
    let read = stub.aws.records().get_many(&keys).await;
    assert!(matches!(read, Err(StoreError::Conflict)), "{read:?}");
    // Fewer answers than questions never mean "absent".
    for odd in [json!({}), json!({"Responses": [{}]})] {
        let stub = Stub::start([Reply::json(&odd)]).await;
        assert!(is_unavailable(&stub.aws.records().get_many(&keys).await));
    }
}

#[tokio::test]
async fn what_is_too_large_for_one_transaction_is_read_in_parts_twice() {
    let keys: Vec<RecordKey> = (10..22).map(|n| key(&n.to_string())).collect();
    let part = |range: std::ops::Range<u64>, more: u64| {
        let items: Vec<Value> = range
            .map(|n| json!({"Item": item(&n.to_string(), n + more)}))
            .collect();
        Reply::json(&json!({"Responses": items}))
    };
    let too_large = Reply::dynamodb(400, "ValidationException");
    // Something moved between the first two readings; the third agrees with the second.
    let script = [
        too_large,
        part(10..20, 0),
        part(20..22, 0),
        part(10..20, 1),
        part(20..22, 0),
        part(10..20, 1),
        part(20..22, 0),
    ];
    let stub = Stub::start(script).await;
    let read = stub
        .aws
        .records()
        .get_many(&keys)
        .await
        .expect("it settles");
    let read: Vec<u64> = read.into_iter().flatten().map(|r| r.revision).collect();
    let expected: Vec<u64> = (11..21).chain(20..22).collect();
    assert_eq!(read, expected);
    assert_eq!(stub.heard().len(), 7);
}

#[tokio::test]
async fn a_list_joins_pages_and_passes_over_what_is_dead() {
    let stub = Stub::start([]).await;
    let now = stub.clock.now().unix();
    drop(stub);
    let mut expired = item("b", 7);
    expired["e"] = json!({"N": now.to_string()});
    let mut alive = item("c", 7);
    alive["e"] = json!({"N": (now + 1).to_string()});
    let tombstone = json!({"pk": {"S": "p"}, "sk": {"S": "d"}, "r": {"N": "9"}});
    let next = |name: &str| json!({"pk": {"S": "p"}, "sk": {"S": name}});
    let script = [
        Reply::json(&json!({"Items": [item("a", 7), expired], "LastEvaluatedKey": next("b")})),
        Reply::json(&json!({"Items": [], "LastEvaluatedKey": next("bb")})),
        Reply::json(&json!({"Items": [alive, tombstone]})),
    ];
    let stub = Stub::start(script).await;
    let listed = stub.aws.records().list_page("p", "", None, 9).await;
    let names: Vec<String> = listed
        .expect("pages")
        .into_iter()
        .map(|r| r.key.key)
        .collect();
    assert_eq!(names, ["a", "c"]);
    let heard = stub.heard();
    assert_eq!(heard.len(), 3);
    assert_eq!(heard[1].json()["ExclusiveStartKey"], next("b"));
    assert!(
        heard
            .iter()
            .all(|r| r.json()["ConsistentRead"] == json!(true))
    );

    // An answer without the list is no empty partition.
    let stub = Stub::start([Reply::json(&json!({}))]).await;
    assert!(is_unavailable(
        &stub.aws.records().list_page("p", "", None, 9).await
    ));
}

#[tokio::test]
async fn an_item_that_was_not_written_here_is_damage() {
    for (name, value) in [("r", json!({"S": "7"})), ("d", json!({"S": "["}))] {
        let mut odd = item("k", 7);
        odd[name] = value;
        let stub = Stub::start([Reply::json(&json!({"Item": odd}))]).await;
        let read = stub.aws.records().get_one(&key("k")).await;
        assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
    }
}

#[tokio::test]
async fn many_dead_items_do_not_cost_a_request_each() {
    let dead = |n: u64| json!({"pk": {"S": "p"}, "sk": {"S": n.to_string()}, "r": {"N": "9"}});
    let next = json!({"pk": {"S": "p"}, "sk": {"S": "b"}});
    let script = [
        Reply::json(&json!({"Items": [dead(1)], "LastEvaluatedKey": next})),
        Reply::json(&json!({"Items": [item("b", 1), item("c", 1)], "LastEvaluatedKey": next})),
    ];
    let stub = Stub::start(script).await;
    let listed = stub.aws.records().list_page("p", "", None, 1).await;
    let names: Vec<String> = listed
        .expect("pages")
        .into_iter()
        .map(|r| r.key.key)
        .collect();
    assert_eq!(names, ["b"], "not more than was asked for");
    let asked: Vec<Value> = stub
        .heard()
        .iter()
        .map(|r| r.json()["Limit"].clone())
        .collect();
    assert_eq!(asked, [json!(1), json!(200)]);
}
