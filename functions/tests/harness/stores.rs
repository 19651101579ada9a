//! A stand-in for DynamoDB and S3 on loopback, in memory: it returns what was put, and records
//! every read.
//!
//! It ignores conditions, credentials and time. Tests against an emulator check the adapters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use vault_aws::{Aws, fixed_credentials, sdk_config_with};
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::request::sign_request;
use vault_format::root::VaultFingerprint;
use vault_service::Ports;
use vault_service::model::device::{Device, DeviceStatus};
use vault_service::model::namespace::{Current, Kind, Namespace};
use vault_store::clock::{Clock as _, SystemClock};
use vault_store::objects::{Class, ObjectKey};
use vault_store::random::SystemRandom;
use vault_store::records::When;

use super::{Asked, EVENT};

/// Name of the table and of the bucket.
pub const NAME: &str = "vault";
const SLUG: &str = "acme";
const REGION: &str = "eu-central-1";

/// A read that the stores have answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Heard {
    /// Number of records that were asked for in one call.
    Records(usize),
    /// The bytes of one object.
    Object,
}

#[derive(Default)]
struct Held {
    items: HashMap<(String, String), Value>,
    objects: HashMap<String, Vec<u8>>,
    heard: Vec<Heard>,
}

pub struct Stores {
    /// Address on loopback, such as `http://127.0.0.1:40123`.
    pub endpoint: String,
    held: Arc<Mutex<Held>>,
}

impl Stores {
    /// Starts empty stores on a free port.
    pub fn start() -> Self {
        let (address, asked) = super::serve();
        let held = Arc::new(Mutex::new(Held::default()));
        let shared = Arc::clone(&held);
        std::thread::spawn(move || {
            for request in asked {
                reply(request, &mut shared.lock().unwrap());
            }
        });
        Self {
            endpoint: format!("http://{address}"),
            held,
        }
    }

    /// Returns the reads that the stores have answered since the last call of this function.
    pub fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.held.lock().unwrap().heard)
    }

    /// Stores the namespace `acme`, whose current catalog is `bytes` (nothing parses them here),
    /// and an admitted device. The adapters write the records themselves.
    pub async fn publish(&self, bytes: Vec<u8>, device: &SecretKey) {
        let settings = vault_aws::Settings {
            table: NAME.to_owned(),
            bucket: NAME.to_owned(),
            region: REGION.to_owned(),
            endpoint: Some(self.endpoint.clone()),
        };
        let sdk = sdk_config_with(&settings, fixed_credentials("test", "test")).await;
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let aws = Aws::new(&sdk, &settings, clock.clone(), random.clone());
        let ports = Ports {
            records: aws.records(),
            objects: aws.objects(),
            clock: clock.clone(),
            random,
        };
        let slug = SLUG.parse().unwrap();
        let owner = "owner@example.org".to_owned();
        let mut namespace = Namespace::new(slug, Kind::Hosted, owner, &ports);
        let key = ObjectKey::for_bytes(namespace.id, Class::Catalogs, &bytes);
        namespace.current = Some(Current {
            release: 1,
            sha256: key.digest,
            size: bytes.len() as u64,
            payload_sha256: key.digest,
            fingerprint: Some(VaultFingerprint::new(1, &key.digest)),
            closure: Digest::of(b""),
            skills: 0,
            published_at: clock.now(),
        });
        let now = clock.now();
        let key_of = device.public();
        let mut device = Device::new(
            &namespace.slug,
            namespace.id,
            key_of,
            "machine".to_owned(),
            now,
        );
        device.status = DeviceStatus::Active;
        aws.objects().put_object(&key, bytes.into()).await.unwrap();
        let writes = vec![
            namespace.update_write(0).unwrap(),
            device.to_write(&namespace.slug, When::Any).unwrap(),
        ];
        assert!(aws.records().commit_writes(writes).await.unwrap().is_done());
        self.heard();
    }
}

/// Returns the variables of a function that uses these stores.
pub fn variables(endpoint: &str) -> [(&str, &str); 6] {
    [
        ("VAULT_TABLE", NAME),
        ("VAULT_BUCKET", NAME),
        ("VAULT_PUBLIC_URL", "https://vault.example"),
        ("AWS_REGION", REGION),
        ("VAULT_AWS_ENDPOINT", endpoint),
        ("VAULT_LOG_LEVEL", "error"),
    ]
}

/// Returns the event of a request for the catalog of `acme`, which this device signs now.
pub fn catalog_request(device: &SecretKey) -> Value {
    let path = format!("/v/{SLUG}/catalog.json");
    let signed = sign_request(device, "GET", &path, SystemClock.now());
    let mut event: Value = serde_json::from_str(EVENT).unwrap();
    event["rawPath"] = path.into();
    event["headers"]["x-vault-device"] = signed.device.into();
    event["headers"]["x-vault-timestamp"] = signed.timestamp.into();
    event["headers"]["x-vault-signature"] = signed.signature.into();
    event
}

fn reply(request: Asked, held: &mut Held) {
    const JSON: &str = "Content-Type: application/x-amz-json-1.0\r\n";
    let operation = request
        .header("x-amz-target")
        .and_then(|target| target.split_once('.'));
    if let Some((_, operation)) = operation {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let answer = match operation {
            "GetItem" => {
                held.heard.push(Heard::Records(1));
                item(held, &body["Key"])
            }
            "TransactGetItems" => {
                let keys = body["TransactItems"].as_array().unwrap();
                held.heard.push(Heard::Records(keys.len()));
                let items: Vec<_> = keys
                    .iter()
                    .map(|get| item(held, &get["Get"]["Key"]))
                    .collect();
                json!({ "Responses": items })
            }
            "TransactWriteItems" => {
                for write in body["TransactItems"].as_array().unwrap() {
                    let item = write["Put"]["Item"].clone();
                    held.items.insert(place(&item), item);
                }
                json!({})
            }
            other => panic!("nobody needed {other} so far"),
        };
        return request.answer("200 OK", JSON, answer.to_string().as_bytes());
    }
    let mut words = request.line.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    // The SDK appends the name of the operation as a query, which is not part of the key.
    let path = target.split('?').next().unwrap().to_owned();
    if method == "PUT" {
        held.objects.insert(path, request.body.clone());
        return request.answer("200 OK", "ETag: \"x\"\r\n", b"");
    }
    held.heard.push(Heard::Object);
    match held.objects.get(&path) {
        Some(bytes) => request.answer("200 OK", "", bytes),
        None => request.answer(
            "404 Not Found",
            "",
            b"<Error><Code>NoSuchKey</Code></Error>",
        ),
    }
}

fn place(attributes: &Value) -> (String, String) {
    let text = |name: &str| attributes[name]["S"].as_str().unwrap().to_owned();
    (text("pk"), text("sk"))
}

fn item(held: &Held, key: &Value) -> Value {
    match held.items.get(&place(key)) {
        Some(item) => json!({ "Item": item }),
        None => json!({}),
    }
}
