//! An app that speaks MCP over HTTP: registers, has a person sign in and consent, and calls tools.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Client;
use serde_json::{Value, json};
use url::Url;
use vault_format::hash::Digest;

use crate::browser::{Browser, client};
use crate::person::Person;

/// Redirect address of the app. Nothing listens there: tests read the code from the redirect.
const CALLBACK: &str = "http://127.0.0.1/callback";
/// The PKCE verifier of every sign-in. It is fixed, because these tests have no attacker who could
/// steal a code.
const VERIFIER: &str = "a-verifier-of-at-least-forty-three-characters";

/// An OAuth client with the access token of a person who signed in.
pub struct App {
    client: Client,
    base: String,
    token: String,
}

impl App {
    /// Registers at a service and has this person allow the app to use `/mcp` of their vault.
    pub async fn sign_in(base: &str, person: Person<'_>) -> Self {
        Self::sign_in_through(client(), base, person).await
    }

    /// Like [`Self::sign_in`], with all requests sent by `client`, which must not follow redirects.
    pub async fn sign_in_through(client: Client, base: &str, person: Person<'_>) -> Self {
        let resource = format!("{base}/mcp");
        let registration = json!({
            "client_name": "agent", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none",
        });
        let registered = client
            .post(format!("{base}/oauth/register"))
            .json(&registration);
        let registered: Value = read(registered).await;
        let id = registered["client_id"].as_str().expect("a client id");
        let challenge = URL_SAFE_NO_PAD.encode(Digest::of(VERIFIER.as_bytes()).as_bytes());
        let page = Url::parse_with_params(
            &format!("{base}/oauth/authorize"),
            [
                ("response_type", "code"),
                ("client_id", id),
                ("redirect_uri", CALLBACK),
                ("scope", &person.scopes.join(" ")),
                ("state", "state"),
                ("resource", &resource),
                ("code_challenge", &challenge),
                ("code_challenge_method", "S256"),
            ],
        )
        .expect("an address");
        let mut browser = Browser::with(client.clone());
        let back = browser
            .approve_scopes(page.as_str(), person.email, person.password, person.scopes)
            .await;
        let back = Url::parse(&back).expect("the address of the app");
        let code = back.query_pairs().find(|(name, _)| name == "code");
        let (_, code) = code.expect("a code");
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("client_id", id)
            .append_pair("code", &code)
            .append_pair("redirect_uri", CALLBACK)
            .append_pair("code_verifier", VERIFIER)
            .append_pair("resource", &resource)
            .finish();
        let exchange = client
            .post(format!("{base}/oauth/token"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        let tokens = read(exchange).await;
        let token = tokens["access_token"].as_str().expect("a token").to_owned();
        Self {
            client,
            base: base.to_owned(),
            token,
        }
    }

    /// Calls a tool, which must end without an error. Returns its structured result.
    pub async fn call(&self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask(tool, arguments).await;
        let result = &answer["result"];
        assert!(result["isError"] != true, "{tool}: {answer}");
        result["structuredContent"].clone()
    }

    /// Calls a tool. Returns the whole answer, which may be an error of the tool.
    pub async fn ask(&self, tool: &str, arguments: &Value) -> Value {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments },
        });
        let request = self
            .client
            .post(format!("{}/mcp", self.base))
            .bearer_auth(&self.token)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .json(&message);
        read(request).await
    }
}

/// Sends a request and parses the JSON of its answer. Panics unless the status is 2xx.
async fn read(request: reqwest::RequestBuilder) -> Value {
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    let text = answer.text().await.expect("a text");
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).expect("JSON")
}
