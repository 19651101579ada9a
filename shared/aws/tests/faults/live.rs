//! What needs a store that keeps what it is told: faults between it and us, other clocks, bytes
//! from elsewhere.

use std::sync::Arc;
use vault_testing::assert_matches;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use vault_aws::{Aws, PARTITION_KEY, RetryLimits, SORT_KEY, TTL_ATTRIBUTE};
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::objects::{Class, ObjectKey, Stored};
use vault_store::random::SystemRandom;
use vault_store::records::{Commit, Document, RecordKey, Records, When, Write};
use vault_testing::TestClock;
use vault_testing::aws;
use vault_testing::aws::Place;
use vault_testing::servers::or_say_why;

use crate::stub::{Reply, Stub};

fn key(name: &str) -> RecordKey {
    RecordKey::new("p", name)
}

fn number(n: u64) -> Document {
    Document::from_value(&json!({ "n": n })).expect("a small object")
}

async fn place() -> Option<Place> {
    or_say_why(aws::place().await)
}

fn open(place: &Place, clock: &Arc<TestClock>) -> Aws {
    let random = Arc::new(SystemRandom);
    Aws::new(&place.config, &place.settings, clock.clone(), random)
}

/// The innermost reasons of a failure, as a log shows them.
fn reasons(error: &StoreError) -> String {
    let mut told = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(next) = source {
        told.push_str(": ");
        told.push_str(&next.to_string());
        source = next.source();
    }
    told
}

#[tokio::test]
async fn a_missing_table_or_bucket_is_named_and_unavailable() {
    let Some(mut place) = place().await else {
        return;
    };
    place.settings.table = "no-such-table".to_owned();
    place.settings.bucket = "no-such-bucket".to_owned();
    let aws = open(&place, &Arc::default());
    let (records, objects) = (aws.records(), aws.objects());
    let bytes = Bytes::from("an object");
    let object = ObjectKey::for_bytes(NamespaceId::from_parts(1, 1), Class::Bundles, &bytes);
    let write = Write::put(key("k"), number(1), When::Any);
    let answers = [
        ("no-such-table", aws.check_table().await),
        ("no-such-table", records.get_one(&key("k")).await.map(drop)),
        (
            "no-such-table",
            records.list_page("p", "", None, 1).await.map(drop),
        ),
        (
            "no-such-table",
            records.commit_writes(vec![write]).await.map(drop),
        ),
        ("no-such-bucket", aws.ping_bucket().await),
        (
            "no-such-bucket",
            objects.read_object(&object).await.map(drop),
        ),
        (
            "no-such-bucket",
            objects.find_missing(&[(object, 9)]).await.map(drop),
        ),
        (
            "no-such-bucket",
            objects.put_object(&object, bytes).await.map(drop),
        ),
    ];
    for (name, answer) in answers {
        let Err(error @ StoreError::Unavailable(_)) = answer else {
            panic!("{name}: {answer:?}")
        };
        let told = reasons(&error);
        assert!(told.contains(name), "{told}");
    }
}

#[tokio::test]
async fn a_table_with_other_keys_is_unavailable() {
    let Some(mut place) = place().await else {
        return;
    };
    let client = aws_sdk_dynamodb::Client::new(&place.config);
    place.settings.table = format!("{}-other", place.settings.table);
    client
        .create_table()
        .table_name(&place.settings.table)
        .attribute_definitions(
            aws_sdk_dynamodb::types::AttributeDefinition::builder()
                .attribute_name("id")
                .attribute_type("S".into())
                .build()
                .expect("complete"),
        )
        .key_schema(
            aws_sdk_dynamodb::types::KeySchemaElement::builder()
                .attribute_name("id")
                .key_type("HASH".into())
                .build()
                .expect("complete"),
        )
        .billing_mode("PAY_PER_REQUEST".into())
        .send()
        .await
        .expect("made");
    let aws = open(&place, &Arc::default());
    let answer = aws.check_table().await;
    assert_matches!(answer, Err(StoreError::Unavailable(_)));
    let records = aws.records();
    // The emulator lets a put into such a table; DynamoDB does not.
    let both = records.get_many(&[key("k"), key("l")]).await;
    assert!(matches!(both, Err(StoreError::Unavailable(_))), "{both:?}");
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_happens_once() {
    let Some(place) = place().await else {
        return;
    };
    let endpoint = place.settings.endpoint.clone().expect("an emulator");
    let server = endpoint.replace("http://", "");
    let script = [
        Reply::LostBy(server.clone()),
        Reply::LostBy(server.clone()),
        Reply::Of(server),
    ];
    let stub = Stub::start_for(&place.settings.table, script, RetryLimits::default()).await;
    let records = stub.aws.records();
    for round in 1..=3_u64 {
        // Neither could be repeated by itself: the key would be taken, the counter would count
        // again.
        let ended = records
            .commit_writes(vec![
                Write::put(key(&round.to_string()), number(1), When::Absent),
                Write::put(key(&format!("{round} too")), number(1), When::Absent),
            ])
            .await
            .expect("it was repeated");
        assert!(ended.is_done(), "{ended:?}");
        let count = Write::count(key("counter"), "n", 1, 9);
        assert!(
            records
                .commit_writes(vec![count])
                .await
                .expect("counted")
                .is_done()
        );
        let read = records.get_one(&key("counter")).await.expect("read");
        let value: Value = read.expect("counted").read().expect("reads");
        assert_eq!(value, json!({ "n": round }));
    }
    assert_eq!(stub.heard()[0].json(), stub.heard()[2].json());
}

#[tokio::test]
async fn clocks_that_differ_give_rising_revisions() {
    let Some(place) = place().await else {
        return;
    };
    let clocks: [Arc<TestClock>; 3] = Default::default();
    clocks[1].advance(3600);
    clocks[2].advance(-3600);
    let stores = clocks.each_ref().map(|clock| open(&place, clock).records());
    let mut last = 0;
    for round in 0..12 {
        let store = &stores[round % 3];
        let write = match round % 4 {
            0 => Write::put(key("k"), number(1), When::Absent),
            _ => Write::put(key("k"), number(1), When::Any),
        };
        let Commit::Done(revisions) = store.commit_writes(vec![write]).await.expect("written")
        else {
            panic!("round {round}")
        };
        let revision = revisions[0].expect("a put");
        assert!(revision > last, "round {round}: {revision} after {last}");
        last = revision;
        if round % 4 == 3 {
            let gone = Write::delete(key("k"), When::At(last));
            assert!(
                store
                    .commit_writes(vec![gone])
                    .await
                    .expect("deleted")
                    .is_done()
            );
        }
    }
}

/// Two clients that share nothing, as two functions do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_enrolments_from_two_clients_leave_twenty() {
    let Some(place) = place().await else {
        return;
    };
    let clock = Arc::new(TestClock::default());
    let stores = [open(&place, &clock), open(&place, &clock)];
    let mut enrolments = JoinSet::new();
    for n in 0..60_usize {
        let records = stores[n % 2].records();
        enrolments.spawn(async move { enrol(&*records, n).await });
    }
    let admitted = enrolments.join_all().await;
    assert_eq!(admitted.iter().filter(|done| **done).count(), 20);
    let records = stores[0].records();
    let devices = records
        .list_page("devices", "", None, 100)
        .await
        .expect("read");
    assert_eq!(devices.len(), 20);
    let queue = records.get_one(&key("queue")).await.expect("read");
    let queue: Value = queue.expect("counted").read().expect("reads");
    assert_eq!(queue, json!({"pending": 20}));
}

async fn enrol(records: &dyn Records, n: usize) -> bool {
    let device = RecordKey::new("devices", format!("{n:02}"));
    let writes = vec![
        Write::put(device, number(1), When::Absent),
        Write::count(key("queue"), "pending", 1, 20),
    ];
    for _ in 0..20 {
        match records.commit_writes(writes.clone()).await {
            Err(StoreError::Conflict) => {}
            ended => return ended.expect("the store answers").is_done(),
        }
    }
    panic!("twenty conflicts in a row")
}

#[tokio::test]
async fn what_expires_is_collected_a_day_later() {
    let Some(place) = place().await else {
        return;
    };
    let clock = Arc::new(TestClock::default());
    let records = open(&place, &clock).records();
    let end = clock.now().plus_seconds(60);
    let count = Write::Count {
        key: key("window"),
        field: "hits".to_owned(),
        by: 1,
        min: 0,
        max: 9,
        expires_at: Some(end),
    };
    let writes = vec![
        Write::put(key("kept"), number(1), When::Any),
        Write::put_until(key("short"), number(1), When::Any, end),
        Write::put(key("gone"), number(1), When::Any),
        count.clone(),
    ];
    assert!(
        records
            .commit_writes(writes)
            .await
            .expect("written")
            .is_done()
    );
    let later = vec![
        Write::delete(key("gone"), When::Any),
        count,
        Write::count(key("kept"), "n", 1, 9),
    ];
    assert!(
        records
            .commit_writes(later)
            .await
            .expect("written")
            .is_done()
    );
    let client = aws_sdk_dynamodb::Client::new(&place.config);
    let day = 86_400;
    for (name, collected) in [
        ("kept", None),
        ("short", Some(end.unix() + day)),
        ("window", Some(end.unix() + day)),
        ("gone", Some(clock.now().unix() + day)),
    ] {
        let answer = client
            .get_item()
            .table_name(&place.settings.table)
            .key(PARTITION_KEY, AttributeValue::S("p".to_owned()))
            .key(SORT_KEY, AttributeValue::S(name.to_owned()))
            .send()
            .await;
        let item = answer.expect("read").item.expect("it is there");
        let ttl = item.get(TTL_ATTRIBUTE).map(|n| n.as_n().expect("a number"));
        assert_eq!(
            ttl,
            collected.map(|c: i64| c.to_string()).as_ref(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn bytes_from_elsewhere_are_refused_and_mended() {
    let Some(place) = place().await else {
        return;
    };
    let aws = open(&place, &Arc::default());
    let objects = aws.objects();
    let good = Bytes::from("an object");
    let object = ObjectKey::for_bytes(NamespaceId::from_parts(1, 1), Class::Bundles, &good);
    let config = aws_sdk_s3::config::Builder::from(&place.config).force_path_style(true);
    let client = aws_sdk_s3::Client::from_conf(config.build());
    for wrong in ["an 0bject", "an objec", ""] {
        let planted = client
            .put_object()
            .bucket(&place.settings.bucket)
            .key(object.to_string())
            .body(Bytes::from(wrong).into())
            .send()
            .await;
        planted.expect("planted");
        let read = objects.read_object(&object).await;
        assert_matches!(read, Err(StoreError::Corrupt(_)), "{wrong:?}");
        let stored = objects.put_object(&object, good.clone()).await;
        assert_eq!(stored.expect("mended"), Stored::Present, "{wrong:?}");
        let read = objects.read_object(&object).await.expect("read");
        assert_eq!(read, Some(good.clone()), "{wrong:?}");
    }
}

#[tokio::test]
async fn each_question_costs_one_request() {
    let Some(place) = place().await else {
        return;
    };
    let aws = open(&place, &Arc::default());
    let (records, objects) = (aws.records(), aws.objects());
    let cost = || aws.calls().total_requests();
    let writes = vec![
        Write::put(key("a"), number(1), When::Absent),
        Write::put(key("b"), number(1), When::Absent),
    ];
    assert!(
        records
            .commit_writes(writes)
            .await
            .expect("written")
            .is_done()
    );
    assert_eq!(cost(), 1, "a commit");
    records.get_many(&[key("a"), key("b")]).await.expect("read");
    assert_eq!(cost(), 2, "a reading of two");
    records.get_one(&key("a")).await.expect("read");
    assert_eq!(cost(), 3, "a reading of one");
    records.list_page("p", "", None, 100).await.expect("read");
    assert_eq!(cost(), 4, "a list");
    let many: Vec<(ObjectKey, Bytes)> = (0..20)
        .map(|n| {
            let bytes = Bytes::from(format!("object {n}"));
            let space = NamespaceId::from_parts(1, 1);
            (ObjectKey::for_bytes(space, Class::Bundles, &bytes), bytes)
        })
        .collect();
    objects.put_many(many.clone()).await.expect("written");
    assert_eq!(cost(), 24, "twenty new objects");
    objects.read_object(&many[0].0).await.expect("read");
    assert_eq!(cost(), 25, "an object");
    let asked: Vec<(ObjectKey, u64)> = many.iter().map(|(key, b)| (*key, b.len() as u64)).collect();
    let missing = objects.find_missing(&asked).await.expect("asked");
    assert_eq!((missing.len(), cost()), (0, 45), "sizes of twenty");
    let asked: Vec<(ObjectKey, u64)> = asked.into_iter().cycle().take(501).collect();
    let missing = objects.find_missing(&asked).await.expect("asked");
    assert_eq!((missing.len(), cost()), (0, 46), "sizes of many");
}
