//! `Objects` on an S3 that answers by script.

use std::sync::Arc;
use std::time::Duration;
use vault_testing::assert_matches;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use vault_aws::{Aws, RetryLimits, Settings};
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_OBJECT_BYTES, ObjectKey, Stored};
use vault_testing::SeededRandom;

use crate::stub::{Reply, Stub};

const TEXT: &[u8] = b"an object";

fn namespace() -> NamespaceId {
    NamespaceId::from_parts(1_795_219_200_000, 1)
}

fn key() -> ObjectKey {
    ObjectKey::for_bytes(namespace(), Class::Bundles, TEXT)
}

fn checksum() -> String {
    STANDARD.encode(key().digest.as_bytes())
}

fn is_unavailable<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

/// Answers that may pass, to any request.
fn passing() -> Vec<(&'static str, Reply)> {
    vec![
        ("slow down", Reply::s3(503, "SlowDown")),
        ("broken", Reply::s3(500, "InternalError")),
        ("a page of a proxy", Reply::bytes(502, "<html>gone</html>")),
        ("too many", Reply::bytes(429, "")),
        ("a closed connection", Reply::Closed),
    ]
}

/// Answers that stay, to any request; none says that a key is not there.
fn lasting() -> Vec<(&'static str, Reply)> {
    vec![
        ("no such bucket", Reply::s3(404, "NoSuchBucket")),
        ("no right", Reply::s3(403, "AccessDenied")),
        ("a wrong signature", Reply::s3(403, "SignatureDoesNotMatch")),
        ("404 without a code", Reply::bytes(404, "")),
        ("a page", Reply::bytes(404, "<html>nothing here</html>")),
        ("another region", Reply::s3(301, "PermanentRedirect")),
        ("something new", Reply::s3(400, "NeverHeardOf")),
    ]
}

async fn all_unavailable(name: &str, reply: &Reply, tries: u64) {
    for operation in [
        "get",
        "put",
        "missing",
        "many missing",
        "list",
        "delete",
        "ping",
    ] {
        let stub = Stub::start([reply.clone()]).await;
        let objects = stub.aws.objects();
        let answer = match operation {
            "get" => objects.read_object(&key()).await.map(drop),
            "put" => objects
                .put_object(&key(), Bytes::from(TEXT))
                .await
                .map(drop),
            "missing" => objects.find_missing(&[(key(), 9)]).await.map(drop),
            "many missing" => objects.find_missing(&vec![(key(), 9); 501]).await.map(drop),
            "list" => {
                let listed = objects
                    .list_objects(&namespace(), Class::Bundles, None, 9)
                    .await;
                listed.map(drop)
            }
            "delete" => objects.delete_object(&key()).await,
            _ => stub.aws.ping_bucket().await,
        };
        assert!(is_unavailable(&answer), "{operation}, {name}: {answer:?}");
        // A list has to confirm what a HEAD with 404, or anything with 403, says about a key.
        let asks_for_a_list = match reply {
            Reply::Answer(404, ..) => operation == "missing",
            Reply::Answer(403, ..) => ["get", "missing"].contains(&operation),
            _ => false,
        };
        let more = u64::from(asks_for_a_list);
        assert_eq!(
            stub.aws.calls().total_requests(),
            tries + more,
            "{operation}, {name}"
        );
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
async fn only_no_such_key_means_absent() {
    let stub = Stub::start([Reply::s3(404, "NoSuchKey")]).await;
    assert_eq!(
        stub.aws
            .objects()
            .read_object(&key())
            .await
            .expect("an answer"),
        None
    );
    let calls = stub.aws.calls();
    assert_eq!((calls.object_reads, calls.total_requests()), (1, 1));
}

#[tokio::test]
async fn a_fault_that_passes_is_not_seen() {
    let mut faults = passing();
    faults.push(("a cut body", Reply::Cut(3, TEXT[..6].to_vec())));
    faults.push(("an endless body", Reply::Cut(3, TEXT.to_vec())));
    for (name, fault) in faults {
        let stub = Stub::start([fault.clone(), fault, Reply::bytes(200, TEXT)]).await;
        let read = stub.aws.objects().read_object(&key()).await.expect(name);
        assert_eq!(read.as_deref(), Some(TEXT), "{name}");
        assert_eq!(stub.aws.calls().object_reads, 3, "{name}");
    }
}

#[tokio::test]
async fn a_body_that_never_comes_whole_is_unavailable() {
    let stub = Stub::start([Reply::Cut(3, TEXT[..6].to_vec())]).await;
    let read = stub.aws.objects().read_object(&key()).await;
    assert!(is_unavailable(&read), "{read:?}");
    assert_eq!(stub.aws.calls().object_reads, 8);

    let limits = RetryLimits {
        attempts: 2,
        // Long enough for the head of an answer on a busy machine, which would count as an attempt.
        attempt_timeout: Duration::from_millis(500),
        operation_timeout: Duration::from_secs(30),
        ..RetryLimits::default()
    };
    for reply in [Reply::Stalled(9), Reply::Silent] {
        let stub = Stub::start_with([reply], limits).await;
        let read = stub.aws.objects().read_object(&key()).await;
        assert!(is_unavailable(&read), "{read:?}");
        assert_eq!(stub.aws.calls().object_reads, 2);
    }
}

#[tokio::test]
async fn wrong_bytes_are_damage_and_never_handed_out() {
    let too_large = Reply::Cut(MAX_OBJECT_BYTES, TEXT.to_vec());
    for (name, reply) in [
        ("other bytes", Reply::bytes(200, "an 0bject")),
        ("fewer", Reply::bytes(200, "an objec")),
        ("more", Reply::bytes(200, "an objects")),
        ("none", Reply::bytes(200, "")),
        ("too many", too_large),
    ] {
        let stub = Stub::start([reply]).await;
        let read = stub.aws.objects().read_object(&key()).await;
        assert_matches!(read, Err(StoreError::Corrupt(_)), "{name}");
        assert_eq!(stub.aws.calls().object_reads, 1, "{name}");
    }
}

#[tokio::test]
async fn a_put_tells_the_hash_and_demands_that_the_key_is_free() {
    let stub = Stub::start([Reply::bytes(200, "")]).await;
    let objects = stub.aws.objects();
    let stored = objects.put_object(&key(), Bytes::from(TEXT)).await;
    assert_eq!(stored.expect("stored"), Stored::New);
    let heard = stub.heard();
    let target = format!("PUT /t/{}", key());
    assert!(heard[0].line.starts_with(&target), "{}", heard[0].line);
    assert_eq!(heard[0].header("if-none-match"), Some("*"));
    assert_eq!(heard[0].header("content-length"), Some("9"));
    assert_eq!(
        heard[0].header("x-amz-checksum-sha256"),
        Some(checksum().as_str())
    );
    assert_eq!(heard[0].body, TEXT);
    // What is not its hash is refused before anything is sent.
    let wrong = objects.put_object(&key(), Bytes::from("an 0bject")).await;
    assert!(matches!(wrong, Err(StoreError::Invalid(_))), "{wrong:?}");
    assert_eq!(stub.heard().len(), 1);
}

#[tokio::test]
async fn a_key_that_is_taken_is_present_when_it_holds_these_bytes() {
    let taken = Reply::s3(412, "PreconditionFailed");
    let same: &'static str = format!(
        "content-length: 9\r\nx-amz-checksum-sha256: {}\r\n",
        checksum()
    )
    .leak();
    let script = [taken.clone(), Reply::Answer(200, same, Vec::new())];
    let stub = Stub::start(script).await;
    let stored = stub
        .aws
        .objects()
        .put_object(&key(), Bytes::from(TEXT))
        .await;
    assert_eq!(stored.expect("present"), Stored::Present);
    assert_eq!(stub.heard().len(), 2);

    // Without a checksum the bytes are read; a lost answer before changes nothing.
    let plain = Reply::Answer(200, "content-length: 9\r\n", Vec::new());
    let script = [Reply::Closed, taken.clone(), plain, Reply::bytes(200, TEXT)];
    let stub = Stub::start(script).await;
    let stored = stub
        .aws
        .objects()
        .put_object(&key(), Bytes::from(TEXT))
        .await;
    assert_eq!(stored.expect("present"), Stored::Present);
    assert_eq!(stub.heard().len(), 4);

    // What is there is damaged: the right bytes go over it.
    for head in [
        "content-length: 8\r\n",
        "content-length: 9\r\nx-amz-checksum-sha256: AAAA\r\n",
    ] {
        let head = Reply::Answer(200, head, Vec::new());
        let stub = Stub::start([taken.clone(), head, Reply::bytes(200, "")]).await;
        let stored = stub
            .aws
            .objects()
            .put_object(&key(), Bytes::from(TEXT))
            .await;
        assert_eq!(stored.expect("mended"), Stored::Present);
        let heard = stub.heard();
        assert_eq!(heard.len(), 3);
        assert_eq!(heard[2].header("if-none-match"), None);
        assert_eq!(heard[2].body, TEXT);
    }
    // Nobody can say what is there: no success.
    let stub = Stub::start([taken, Reply::bytes(403, "")]).await;
    let stored = stub
        .aws
        .objects()
        .put_object(&key(), Bytes::from(TEXT))
        .await;
    assert!(is_unavailable(&stored), "{stored:?}");
}

#[tokio::test]
async fn writers_at_the_same_moment_try_again() {
    let busy = Reply::s3(409, "ConditionalRequestConflict");
    let stub = Stub::start([busy.clone(), busy.clone(), Reply::bytes(200, "")]).await;
    let stored = stub
        .aws
        .objects()
        .put_object(&key(), Bytes::from(TEXT))
        .await;
    assert_eq!(stored.expect("stored"), Stored::New);
    assert_eq!(stub.aws.calls().object_writes, 3);

    let stub = Stub::start([busy]).await;
    let stored = stub
        .aws
        .objects()
        .put_object(&key(), Bytes::from(TEXT))
        .await;
    assert!(is_unavailable(&stored), "{stored:?}");
    assert_eq!(stub.aws.calls().object_writes, 8);
}

/// A page of a list with these keys, the last one.
fn list_of(keys: &[ObjectKey]) -> Reply {
    let row = |key: &ObjectKey| format!("<Contents><Key>{key}</Key><Size>9</Size></Contents>");
    let (count, rows) = (keys.len(), keys.iter().map(row).collect::<String>());
    let body = format!(
        "<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>{count}</KeyCount>{rows}</ListBucketResult>"
    );
    Reply::bytes(200, body)
}

/// A role that may list only some classes gets 403 for an absent object too.
#[tokio::test]
async fn what_is_refused_is_absent_only_if_the_list_of_its_class_lacks_it() {
    let denied = || Reply::s3(403, "AccessDenied");
    for (listed, is_absent) in [
        (list_of(&[]), true),
        (list_of(&[key()]), false),
        (denied(), false),
        (Reply::bytes(200, "<ListBucketResult>"), false),
    ] {
        let stub = Stub::start([denied(), listed.clone()]).await;
        let read = stub.aws.objects().read_object(&key()).await;
        assert_eq!(matches!(read, Ok(None)), is_absent, "{read:?}");
        assert_eq!(is_unavailable(&read), !is_absent, "{read:?}");
        let heard = stub.heard();
        let prefix = key().to_string().replace('/', "%2F");
        let asked = &heard[1].line;
        assert!(asked.contains(&format!("prefix={prefix}")), "{asked}");

        let stub = Stub::start([denied(), listed.clone(), listed]).await;
        let missing = stub.aws.objects().find_missing(&[(key(), 9)]).await;
        assert_eq!(matches!(&missing, Ok(keys) if *keys == [key()]), is_absent);
        assert_eq!(is_unavailable(&missing), !is_absent, "{missing:?}");
    }
}

#[tokio::test]
async fn a_missing_key_is_believed_when_the_bucket_is_there() {
    let script = [Reply::bytes(404, ""), list_of(&[])];
    let stub = Stub::start(script).await;
    let missing = stub.aws.objects().find_missing(&[(key(), 9)]).await;
    assert_eq!(missing.expect("an answer"), [key()]);
    let calls = stub.aws.calls();
    assert_eq!((calls.object_heads, calls.object_lists), (1, 1));

    let there = Reply::Answer(200, "content-length: 9\r\n", Vec::new());
    let stub = Stub::start([there]).await;
    let missing = stub.aws.objects().find_missing(&[(key(), 9)]).await;
    assert_eq!(missing.expect("an answer"), []);
    assert_eq!(stub.aws.calls().object_heads, 1);

    // An answer without a length tells nothing.
    let stub = Stub::start([Reply::bytes(200, "")]).await;
    let missing = stub.aws.objects().find_missing(&[(key(), 9)]).await;
    assert!(is_unavailable(&missing), "{missing:?}");
}

#[tokio::test]
async fn a_list_joins_pages_and_an_answer_without_one_is_none() {
    let page = |names: &[&str], more: bool| {
        let mut rows = String::new();
        for name in names {
            let place = format!("ns/{}/bundles/{name}", namespace());
            rows.push_str("<Contents><Key>");
            rows.push_str(&place);
            rows.push_str("</Key><Size>9</Size></Contents>");
        }
        let body = format!(
            "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>{more}</IsTruncated><KeyCount>{}</KeyCount>{rows}</ListBucketResult>",
            names.len()
        );
        Reply::bytes(200, body)
    };
    let (one, two) = ("1".repeat(64), "2".repeat(64));
    let script = [page(&[&one, "1x"], true), page(&["1y", &two], false)];
    let stub = Stub::start(script).await;
    let listed = stub
        .aws
        .objects()
        .list_objects(&namespace(), Class::Bundles, None, 9)
        .await
        .expect("two pages");
    let names: Vec<String> = listed
        .iter()
        .map(|(digest, _)| digest.to_string())
        .collect();
    assert_eq!(names, [one, two]);
    let heard = stub.heard();
    assert_eq!(heard.len(), 2);
    assert!(
        heard[1].line.contains("start-after=ns%2F"),
        "{}",
        heard[1].line
    );
    assert!(heard[1].line.contains("1x"), "{}", heard[1].line);

    let half = "<ListBucketResult><KeyCount>2</KeyCount><IsTruncated>false</IsTruncated>";
    for odd in [
        "",
        "<html>hello</html>",
        "<ListBucketResult><Contents>",
        half,
    ] {
        let stub = Stub::start([Reply::bytes(200, odd)]).await;
        let objects = stub.aws.objects();
        let listed = objects
            .list_objects(&namespace(), Class::Bundles, None, 9)
            .await;
        assert!(is_unavailable(&listed), "{odd:?}: {listed:?}");
    }
}

#[tokio::test]
async fn an_address_that_the_sdk_found_by_itself_has_the_bucket_in_the_path() {
    let stub = Stub::start([Reply::bytes(200, "")]).await;
    let bare = Settings {
        endpoint: None,
        ..stub.settings.clone()
    };
    let random = Arc::new(SeededRandom::new(1));
    let aws = Aws::new(&stub.config, &bare, stub.clock.clone(), random);
    let stored = aws.objects().put_object(&key(), Bytes::from(TEXT)).await;
    assert_eq!(stored.expect("stored"), Stored::New);
    let line = &stub.heard()[0].line;
    assert!(line.starts_with("PUT /t/ns/"), "{line}");
}
