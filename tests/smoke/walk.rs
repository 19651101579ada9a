//! The walk itself, in the interface's order.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use url::Url;
use vault_format::hash::Digest;
use vault_store::random::{Random as _, SystemRandom};
use vault_tests::browser::{Browser, End, Walk};
use vault_tests::fetched::verify;

use crate::report::{Report, left_out};
use crate::web::{self, Answer, Failure, members, send, text};

/// Where the client asks to be sent back to. Nothing listens there: the walk reads the address.
const CALLBACK: &str = "http://127.0.0.1/callback";
/// The revision that the walk speaks.
const REVISION: &str = "2025-11-25";
const BOTH: &[&str] = &["read", "write"];

/// What the walk is given.
pub struct Settings {
    /// The public URL, without a slash at its end.
    pub base: String,
    /// The owner's account.
    pub account: Option<(String, String)>,
}

/// How far the walk came, and what it leaves behind.
pub struct Service {
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    /// What has to be undone: the owner's token, the client's id, the member's id, the account.
    owner: Option<String>,
    registered: Option<String>,
    pub(crate) member: Option<String>,
    pub(crate) account: Option<MadeAccount>,
}

/// An account that the walk made, with the token of the operator who may delete it.
pub(crate) struct MadeAccount {
    pub(crate) operator: String,
    pub(crate) email: String,
}

/// Tokens of one person.
pub(crate) struct Tokens {
    pub(crate) access: String,
    refresh: String,
    pub(crate) scope: String,
}

pub(crate) type Step<T> = Result<(T, String), Failure>;

impl Service {
    /// A service that nothing is known of yet.
    pub fn new(settings: Settings) -> Result<Self, Failure> {
        let base = Url::parse(&settings.base)
            .map_err(|_| Failure::new("VAULT_REMOTE_URL, an address", "something else"))?;
        Ok(Self {
            client: web::client(&base)?,
            settings,
            owner: None,
            registered: None,
            member: None,
            account: None,
        })
    }

    /// Walks until a step fails.
    pub async fn walk(&mut self, report: &mut Report) -> Option<()> {
        let step = "discovery";
        report.step(step, self.discovery()).await?;
        report.step("resource metadata", self.resource()).await?;
        let client_id = report.step("registration", self.registration()).await?;
        self.registered = Some(client_id.clone());
        report
            .step("authorize, no challenge", self.no_challenge(&client_id))
            .await?;
        let account = self.settings.account.clone();
        let asked = self.asked(&client_id, "read write");
        let mut browser = Browser::with(self.client.clone());
        let walked = async {
            let account = account.as_ref().map(|(email, word)| (&**email, &**word));
            authorize(&mut browser, &asked, account).await
        };
        let code = match report.step("authorize", walked).await? {
            Consent::Code(code) => code,
            Consent::External(origin) => {
                let why = format!("sign-in is at {origin}: a person has to consent there");
                left_out("everything after consent", &why);
                return Some(());
            }
        };
        let tokens = report
            .step("token", self.token(&client_id, &asked, &code))
            .await?;
        self.owner = Some(tokens.access.clone());
        let tokens = report
            .step("refresh", self.refresh(&client_id, &tokens))
            .await?;
        self.owner = Some(tokens.access.clone());
        self.mcp(report, &tokens).await?;
        self.policy(report, &client_id, &tokens).await
    }

    async fn mcp(&self, report: &mut Report, tokens: &Tokens) -> Option<()> {
        report
            .step("mcp, initialize", self.initialize(&tokens.access))
            .await?;
        let first = report
            .step("mcp, skill.list", self.list(&tokens.access))
            .await?;
        match first {
            Some(id) => {
                report
                    .step("mcp, skill.fetch", self.fetch(&tokens.access, &id))
                    .await
            }
            None => {
                left_out("mcp, skill.fetch", "the vault is empty");
                Some(())
            }
        }
    }

    /// Takes back what the walk made: the member, the account, then the client with its tokens. Runs
    /// after a failure too.
    pub async fn undo(&mut self, report: &mut Report) {
        let Some(token) = self.owner.take() else {
            return;
        };
        if let Some(id) = self.member.take() {
            let path = format!("/admin/users/{id}");
            report
                .step("member removed", self.remove(&token, &path))
                .await;
        }
        if let Some(made) = self.account.take() {
            let path = format!("/admin/operator/accounts/{}", made.email);
            report
                .step("account removed", self.remove(&made.operator, &path))
                .await;
        }
        if let Some(id) = self.registered.take() {
            let path = format!("/admin/clients/{id}");
            let removed = report
                .step("client removed", self.remove(&token, &path))
                .await;
            if removed.is_some() {
                report.step("token is dead", self.is_dead(&token)).await;
            }
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.settings.base)
    }

    async fn discovery(&self) -> Step<()> {
        for name in ["oauth-authorization-server", "openid-configuration"] {
            let expected = format!("/.well-known/{name} whose issuer is {}", self.settings.base);
            let url = self.url(&format!("/.well-known/{name}"));
            let answer = send(self.client.get(url), &expected).await?;
            let document = answer.with_status(200, &expected)?.json(&expected)?;
            let issuer = text(&document, "issuer")?;
            if issuer != self.settings.base {
                return Err(Failure::new(expected, format!("the issuer {issuer}")));
            }
            let methods = &document["code_challenge_methods_supported"];
            if *methods != json!(["S256"]) {
                let came = format!("code_challenge_methods_supported {methods}");
                return Err(Failure::new("S256 alone", came));
            }
        }
        Ok(((), format!("issuer {}", self.settings.base)))
    }

    /// As clients find it: by the challenge of a request without a token.
    async fn resource(&self) -> Step<()> {
        let expected = "a challenge with resource_metadata";
        let asked = self.client.post(self.url("/mcp")).json(&json!({}));
        let answer = send(asked, expected).await?.with_status(401, expected)?;
        let challenge = answer.headers.get(WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|value| value.to_str().ok());
        let found = challenge
            .and_then(|text| text.split_once("resource_metadata=\""))
            .and_then(|(_, rest)| rest.split('"').next());
        let url =
            found.ok_or_else(|| Failure::new(expected, format!("the challenge {challenge:?}")))?;
        let resource = self.url("/mcp");
        let expected = format!("the metadata of {resource} at {url}");
        let answer = send(self.client.get(url), &expected).await?;
        let document = answer.with_status(200, &expected)?.json(&expected)?;
        let servers = &document["authorization_servers"];
        if document["resource"] != *resource || *servers != json!([self.settings.base]) {
            let came = format!("resource {}, servers {servers}", document["resource"]);
            return Err(Failure::new(expected, came));
        }
        Ok(((), resource))
    }

    async fn registration(&self) -> Step<String> {
        let expected = "a registration with client_id";
        let asked = json!({
            "client_name": "smoke:remote",
            "redirect_uris": [CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        let request = self.client.post(self.url("/oauth/register")).json(&asked);
        let answer = send(request, expected).await?.with_status(201, expected)?;
        let answer = answer.json(expected)?;
        let id = text(&answer, "client_id")?.to_owned();
        Ok((id.clone(), id))
    }

    pub(crate) fn asked(&self, client_id: &str, scope: &str) -> Asked {
        let verifier = random_text(32);
        let challenge = URL_SAFE_NO_PAD.encode(Digest::of(verifier.as_bytes()).as_bytes());
        let state = random_text(16);
        // The walk also invites and removes a member, which a token for `/mcp` alone may not.
        let resource = self.settings.base.clone();
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", CALLBACK)
            .append_pair("scope", scope)
            .append_pair("state", &state)
            .append_pair("resource", &resource)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        Asked {
            url: format!("{}?{query}", self.url("/oauth/authorize")),
            verifier,
            state,
            issuer: self.settings.base.clone(),
            resource,
        }
    }

    async fn no_challenge(&self, client_id: &str) -> Step<()> {
        let expected = "302 back with error=invalid_request, and no code";
        let url = self.asked(client_id, "read write").url;
        let url = url.split("&code_challenge=").next().unwrap_or_default();
        let answer = send(self.client.get(url), expected).await?;
        let target = answer.headers.get("location");
        let target = target.and_then(|value| value.to_str().ok());
        let target = target.and_then(|text| Url::parse(text).ok());
        let said = |name: &str| {
            let target = target.as_ref()?;
            let mut pairs = target.query_pairs();
            pairs
                .find(|(found, _)| found == name)
                .map(|(_, value)| value.into_owned())
        };
        let refused = said("error").as_deref() == Some("invalid_request") && said("code").is_none();
        if answer.status.as_u16() == 302 && refused {
            Ok(((), "refused".to_owned()))
        } else {
            Err(answer.instead_of(expected))
        }
    }

    pub(crate) async fn token(&self, client_id: &str, asked: &Asked, code: &str) -> Step<Tokens> {
        self.tokens(&exchange(client_id, asked, code)).await
    }

    async fn refresh(&self, client_id: &str, old: &Tokens) -> Step<Tokens> {
        let (new, note) = self
            .tokens(&[
                ("grant_type", "refresh_token"),
                ("client_id", client_id),
                ("refresh_token", &old.refresh),
            ])
            .await?;
        if new.refresh == old.refresh || new.access == old.access {
            return Err(Failure::new("new tokens", "the old ones"));
        }
        Ok((new, note))
    }

    async fn tokens(&self, fields: &[(&str, &str)]) -> Step<Tokens> {
        let expected = "access_token, refresh_token, scope";
        let answer = self.granted(fields, expected).await?;
        let tokens = Tokens {
            access: text(&answer, "access_token")?.to_owned(),
            refresh: text(&answer, "refresh_token")?.to_owned(),
            scope: text(&answer, "scope")?.to_owned(),
        };
        let note = format!("scope {}, {} s", tokens.scope, answer["expires_in"]);
        Ok((tokens, note))
    }

    pub(crate) async fn granted(
        &self,
        fields: &[(&str, &str)],
        expected: &str,
    ) -> Result<Value, Failure> {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let request = self
            .client
            .post(self.url("/oauth/token"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let answer = send(request, expected).await?.with_status(200, expected)?;
        answer.json(expected)
    }

    pub(crate) async fn ask(
        &self,
        token: &str,
        message: &Value,
        expected: &str,
    ) -> Result<Answer, Failure> {
        let mut request = self
            .client
            .post(self.url("/mcp"))
            .bearer_auth(token)
            .header("accept", "application/json, text/event-stream");
        if message["method"] != "initialize" {
            request = request.header("mcp-protocol-version", REVISION);
        }
        send(request.json(message), expected).await
    }

    async fn initialize(&self, token: &str) -> Step<()> {
        let expected = "the server's name and capabilities";
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": REVISION,
                "capabilities": {},
                "clientInfo": { "name": "smoke:remote", "version": env!("CARGO_PKG_VERSION") },
            },
        });
        let answer = self.ask(token, &message, expected).await?;
        let answer = answer.with_status(200, expected)?.json(expected)?;
        let result = result(&answer, expected)?;
        let (version, info) = (&result["protocolVersion"], &result["serverInfo"]);
        if *version != REVISION || !result["capabilities"]["tools"].is_object() {
            let came = format!(
                "revision {version}, capabilities {}",
                result["capabilities"]
            );
            return Err(Failure::new(
                format!("revision {REVISION} with tools"),
                came,
            ));
        }
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.ask(token, &message, "202 for the notification")
            .await?
            .with_status(202, "the notification taken")?;
        let note = format!(
            "{} {}, revision {REVISION}",
            info["name"].as_str().unwrap_or("?"),
            info["version"].as_str().unwrap_or("?")
        );
        Ok(((), note))
    }

    /// The structured result of a tool.
    async fn tool(&self, token: &str, name: &str, arguments: &Value) -> Result<Value, Failure> {
        let expected = format!("the result of {name}");
        let answer = self.ask(token, &call(name, arguments), &expected).await?;
        let answer = answer.with_status(200, &expected)?.json(&expected)?;
        let result = result(&answer, &expected)?;
        if result["isError"] == true {
            let came = result["content"][0]["text"].as_str().unwrap_or_default();
            return Err(Failure::new(expected, format!("the tool's error {came:?}")));
        }
        let structured = result.get("structuredContent").cloned();
        structured.ok_or_else(|| Failure::new(expected, format!("a result {}", members(result))))
    }

    async fn list(&self, token: &str) -> Step<Option<String>> {
        let answer = self.tool(token, "skill.list", &json!({})).await?;
        let skills = answer["skills"].as_array().ok_or_else(|| {
            Failure::new(
                "a list of skills",
                format!("an answer {}", members(&answer)),
            )
        })?;
        let Some(first) = skills.first() else {
            return Ok((None, "no skills".to_owned()));
        };
        let more = if answer["next_cursor"].is_string() {
            " and more"
        } else {
            ""
        };
        let note = format!("{} skills{more}", skills.len());
        Ok((Some(text(first, "id")?.to_owned()), note))
    }

    async fn fetch(&self, token: &str, id: &str) -> Step<()> {
        let answer = self
            .tool(token, "skill.fetch", &json!({ "id": id }))
            .await?;
        let good = verify(&answer, id)
            .map_err(|came| Failure::new("a skill whose Ed25519 signature verifies", came))?;
        let note = format!(
            "{id} version {}: signature good, {} of {} files inline and as signed, key {}",
            good.version, good.inline, good.files, good.fingerprint
        );
        Ok(((), note))
    }

    async fn remove(&self, token: &str, path: &str) -> Step<()> {
        let expected = format!("{path} removed");
        let request = || {
            let request = self.client.request(Method::DELETE, self.url(path));
            request.bearer_auth(token)
        };
        let mut answer = send(request(), &expected).await?;
        if answer.status == StatusCode::FORBIDDEN
            && let Some((email, word)) = &self.settings.account
            && let Some(page) = answer.json(&expected)?["confirmation"]["url"].as_str()
        {
            // The person of the walk confirms what its app asks for.
            let mut browser = Browser::with(self.client.clone());
            browser.confirm(page, email, word).await;
            answer = send(request(), &expected).await?;
        }
        if !answer.status.is_success() {
            return Err(answer.instead_of(&expected));
        }
        Ok(((), path.rsplit('/').next().unwrap_or_default().to_owned()))
    }

    async fn is_dead(&self, token: &str) -> Step<()> {
        let expected = "the client's access token refused";
        let message = json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" });
        self.ask(token, &message, expected)
            .await?
            .with_status(401, expected)?;
        Ok(((), "401".to_owned()))
    }
}

/// An authorize request of ours.
pub(crate) struct Asked {
    url: String,
    verifier: String,
    state: String,
    issuer: String,
    resource: String,
}

/// What came of asking a person.
pub(crate) enum Consent {
    Code(String),
    External(String),
}

/// Walks the pages of one authorize request: 200, 303, … and at last 302 with code, state and
/// issuer.
pub(crate) async fn authorize(
    browser: &mut Browser,
    asked: &Asked,
    account: Option<(&str, &str)>,
) -> Step<Consent> {
    let expected = "200 for the page, 303 after each form, 302 with code, state and iss";
    let walked = browser.walk(&asked.url, account, BOTH).await;
    let Walk { statuses, end } = walked.map_err(|came| Failure::new(expected, came))?;
    let target = match end {
        End::Back(target) => target,
        End::Elsewhere(origin) => {
            let note = format!("stopped: sign-in is external, at {origin}");
            return Ok((Consent::External(origin), note));
        }
        End::SignIn => {
            let came = "a page that asks for e-mail and password: set VAULT_ADMIN_EMAIL and VAULT_ADMIN_PASSWORD";
            return Err(Failure::new(expected, came));
        }
    };
    let all: Vec<String> = statuses.iter().map(ToString::to_string).collect();
    let all = all.join(", ");
    let target = Url::parse(&target).map_err(|_| Failure::new(expected, all.clone()))?;
    let said = |name: &str| {
        let mut pairs = target.query_pairs();
        pairs
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.into_owned())
    };
    let in_order =
        statuses.first() == Some(&200) && statuses.contains(&303) && statuses.last() == Some(&302);
    match said("code") {
        Some(code)
            if in_order
                && target.as_str().starts_with(CALLBACK)
                && said("state").as_deref() == Some(&asked.state)
                && said("iss").as_deref() == Some(&asked.issuer) =>
        {
            Ok((Consent::Code(code), all))
        }
        _ => {
            let error = said("error").map(|error| format!(", error {error}"));
            let names: Vec<String> = target.query_pairs().map(|(name, _)| name.into()).collect();
            let came = format!(
                "{all} with {}{}",
                names.join(", "),
                error.unwrap_or_default()
            );
            Err(Failure::new(expected, came))
        }
    }
}

/// The fields that exchange a code.
pub(crate) fn exchange<'a>(
    client_id: &'a str,
    asked: &'a Asked,
    code: &'a str,
) -> [(&'a str, &'a str); 6] {
    [
        ("grant_type", "authorization_code"),
        ("client_id", client_id),
        ("code", code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", &asked.verifier),
        ("resource", &asked.resource),
    ]
}

pub(crate) fn call(name: &str, arguments: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": name, "arguments": arguments },
    })
}

fn result<'v>(answer: &'v Value, expected: &str) -> Result<&'v Value, Failure> {
    answer.get("result").ok_or_else(|| {
        let error = answer
            .get("error")
            .map(|error| format!("the error {error}"));
        Failure::new(expected, error.unwrap_or_else(|| members(answer)))
    })
}

/// This many random bytes as text of letters, digits, `-` and `_`.
pub(crate) fn random_text(bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    SystemRandom.fill_random(&mut buffer);
    URL_SAFE_NO_PAD.encode(buffer)
}
