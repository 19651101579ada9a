//! The emulator's own interfaces, as an operator of AWS has them: functions, bucket, table. It
//! takes any signature.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use vault_format::keys::SecretKey;
use vault_format::request::sign_request;
use vault_store::clock::{Clock as _, SystemClock};
use vault_tests::browser;
use vault_tests::place::{self, Place};

/// What every resource's name begins with: the deployment of `localstack/up`.
const DEPLOYMENT: &str = "vault-local";

/// One deployment on the emulator.
pub struct Emulator {
    place: &'static Place,
    bucket: String,
    table: String,
}

/// What came back from an invocation.
#[derive(Debug)]
pub struct Invoked {
    /// Whether the function failed instead of answering.
    pub failed: bool,
    /// The answer, or what is told about the failure.
    pub payload: Value,
}

impl Invoked {
    /// The answer's status, and its code where it has one.
    #[track_caller]
    pub fn short(&self) -> String {
        assert!(!self.failed, "{self:?}");
        let status = &self.payload["statusCode"];
        match self.body()["code"].as_str() {
            Some(code) => format!("{status} {code}"),
            None => status.to_string(),
        }
    }

    /// The answer's body as JSON; null when it is none.
    pub fn body(&self) -> Value {
        let text = self.payload["body"].as_str().unwrap_or_default();
        let bytes = if self.payload["isBase64Encoded"] == true {
            STANDARD.decode(text).unwrap()
        } else {
            text.as_bytes().to_vec()
        };
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl Emulator {
    /// The deployment that these tests are for.
    pub async fn new() -> Self {
        let place = place::deployed().expect("run these by ./tests/run --aws");
        let emulator = Self {
            place,
            bucket: String::new(),
            table: String::new(),
        };
        let settings = emulator.settings("admin").await;
        let name = |variable: &str| settings[variable].as_str().unwrap().to_owned();
        Self {
            bucket: name("VAULT_BUCKET"),
            table: name("VAULT_TABLE"),
            ..emulator
        }
    }

    async fn send(
        &self,
        service: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Response {
        let scope = format!(
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=0"
        );
        let url = format!("{}{path}", self.place.endpoint);
        // A connection must not outlive the event loop that it began in: each step of a test has
        // its own.
        let mut request = browser::client().request(method, url).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.header("authorization", scope).send().await.unwrap()
    }

    // --- functions ------------------------------------------------------------------------------

    /// The variables of a function of the deployment.
    pub async fn settings(&self, group: &str) -> Value {
        let path = format!("/2015-03-31/functions/{DEPLOYMENT}-{group}/configuration");
        let answer = self.send("lambda", Method::GET, &path, &[], "").await;
        let answer: Value = answer.json().await.unwrap();
        answer["Environment"]["Variables"].clone()
    }

    /// Makes a function of the same code with other variables; null takes one away. Returns its
    /// name.
    pub async fn twin(&self, group: &str, name: &str, change: &Value) -> String {
        let mut settings = self.settings(group).await;
        for (name, value) in change.as_object().unwrap() {
            if value.is_null() {
                settings.as_object_mut().unwrap().remove(name);
            } else {
                settings[name] = value.clone();
            }
        }
        let zip = format!("vault/infra/{DEPLOYMENT}/zips/{group}/bootstrap.zip");
        let zip = std::fs::read(self.place.folder.join(zip)).unwrap();
        let function = format!("{DEPLOYMENT}-{name}");
        let body = json!({
            "FunctionName": function,
            "Runtime": "provided.al2023",
            "Handler": "bootstrap",
            "Role": format!("arn:aws:iam::000000000000:role/{DEPLOYMENT}-{group}"),
            "Code": {"ZipFile": STANDARD.encode(zip)},
            "Timeout": 10,
            "Environment": {"Variables": settings},
        });
        let path = "/2015-03-31/functions";
        let answer = self
            .send("lambda", Method::POST, path, &[], body.to_string())
            .await;
        let status = answer.status();
        assert!(status.is_success(), "{status}: {:?}", answer.text().await);
        function
    }

    /// Invokes a function of the deployment.
    pub async fn invoke(&self, group: &str, event: &Value) -> Invoked {
        self.call(&format!("{DEPLOYMENT}-{group}"), event).await
    }

    /// Invokes a function by its name.
    pub async fn call(&self, function: &str, event: &Value) -> Invoked {
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let answer = self
            .send("lambda", Method::POST, &path, &[], event.to_string())
            .await;
        assert_eq!(answer.status(), StatusCode::OK);
        Invoked {
            failed: answer.headers().contains_key("x-amz-function-error"),
            payload: answer.json().await.unwrap(),
        }
    }

    /// The event of a request to the deployment's address.
    pub fn event(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Value {
        let mut all: BTreeMap<&str, &str> = headers.iter().copied().collect();
        let host = self.place.host();
        all.insert("host", &host);
        json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": all,
            "requestContext": {
                "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.7"},
                "stage": "$default",
            },
            "body": body.map(|bytes| STANDARD.encode(bytes)),
            "isBase64Encoded": body.is_some(),
        })
    }

    /// The event of a request that a device signs by the machine's clock.
    pub fn signed(&self, device: &SecretKey, method: &str, path: &str, body: &str) -> Value {
        let by = sign_request(device, method, path, SystemClock.now());
        let headers = [
            ("x-vault-device", by.device.as_str()),
            ("x-vault-timestamp", &by.timestamp),
            ("x-vault-signature", &by.signature),
            ("content-type", "application/json"),
        ];
        let body = (!body.is_empty()).then_some(body.as_bytes());
        self.event(method, path, &headers, body)
    }

    /// Everything that the functions and the emulator logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.folder.join("emulator.log")).unwrap()
    }

    // --- bucket ---------------------------------------------------------------------------------

    /// An object's bytes; `None` when it is not there.
    pub async fn object(&self, key: &str) -> Option<Bytes> {
        let path = format!("/{}/{key}", self.bucket);
        let answer = self.send("s3", Method::GET, &path, &[], "").await;
        match answer.status() {
            StatusCode::NOT_FOUND => None,
            status => {
                assert_eq!(status, StatusCode::OK);
                Some(answer.bytes().await.unwrap())
            }
        }
    }

    /// Puts bytes into the bucket behind the service's back.
    pub async fn put_object(&self, key: &str, bytes: Bytes) {
        let path = format!("/{}/{key}", self.bucket);
        let answer = self.send("s3", Method::PUT, &path, &[], bytes).await;
        assert!(answer.status().is_success());
    }

    /// Takes an object away and returns what it held.
    pub async fn take_object(&self, key: &str) -> Bytes {
        let bytes = self.object(key).await.unwrap_or_else(|| panic!("no {key}"));
        let path = format!("/{}/{key}", self.bucket);
        let answer = self.send("s3", Method::DELETE, &path, &[], "").await;
        assert!(answer.status().is_success());
        assert_eq!(self.object(key).await, None);
        bytes
    }

    // --- table ----------------------------------------------------------------------------------

    async fn dynamodb(&self, operation: &str, mut ask: Value) -> Value {
        ask["TableName"] = self.table.as_str().into();
        let target = format!("DynamoDB_20120810.{operation}");
        let headers = [
            ("x-amz-target", target.as_str()),
            ("content-type", "application/x-amz-json-1.0"),
        ];
        let answer = self
            .send("dynamodb", Method::POST, "/", &headers, ask.to_string())
            .await;
        assert_eq!(answer.status(), StatusCode::OK, "{operation}");
        answer.json().await.unwrap()
    }

    /// Every item whose partition holds this text, by partition and key.
    pub async fn items(&self, part: &str) -> BTreeMap<(String, String), Value> {
        let mut items = BTreeMap::new();
        let mut ask = json!({"ConsistentRead": true});
        loop {
            let answer = self.dynamodb("Scan", ask.clone()).await;
            for item in answer["Items"].as_array().unwrap() {
                let text = |name: &str| item[name]["S"].as_str().unwrap().to_owned();
                if text("pk").contains(part) {
                    items.insert((text("pk"), text("sk")), item.clone());
                }
            }
            match answer.get("LastEvaluatedKey") {
                Some(last) if !last.is_null() => ask["ExclusiveStartKey"] = last.clone(),
                _ => return items,
            }
        }
    }

    /// Removes an item behind the service's back.
    pub async fn delete_item(&self, partition: &str, key: &str) {
        let ask = json!({"Key": {"pk": {"S": partition}, "sk": {"S": key}}});
        self.dynamodb("DeleteItem", ask).await;
    }

    /// Puts an item behind the service's back.
    pub async fn put_item(&self, item: Value) {
        self.dynamodb("PutItem", json!({"Item": item})).await;
    }

    /// What the mail server of `localstack/up --full` was handed, the envelope in front.
    pub fn mails(&self) -> Vec<String> {
        let folder = std::fs::read_dir(self.place.folder.join("mails")).unwrap();
        folder
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "eml"))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect()
    }

    /// The id of a namespace.
    pub async fn namespace_id(&self, slug: &str) -> String {
        let items = self.items(&format!("ns/{slug}")).await;
        let item = &items[&(format!("ns/{slug}"), "ns".to_owned())];
        let document: Value = serde_json::from_str(item["d"]["S"].as_str().unwrap()).unwrap();
        document["id"].as_str().unwrap().to_owned()
    }
}
