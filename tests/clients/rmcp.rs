//! The client of rmcp: the whole walk from the address alone, in both eras. Told by variables as
//! the other clients beside it; see `tests/clients/run`.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rmcp::model::{CallToolRequestParams, ProtocolVersion, ReadResourceRequestParams};
use rmcp::service::{ClientLifecycleMode, RunningService, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{
    AuthClient, AuthorizationManager, AuthorizationRequest, CredentialStore as _,
    InMemoryCredentialStore, OAuthState,
};
use rmcp::transport::streamable_http_client::{
    InsufficientScopeError, StreamableHttpClientTransportConfig,
};
use rmcp::{RoleClient, ServiceError};
use serde_json::{Value, json};
use url::Url;
use vault_tests::browser::{Browser, End};
use vault_tests::fetched::verify;

/// Nothing listens there: the walk reads the address.
const CALLBACK: &str = "http://127.0.0.1:33420/callback";
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_mins(5);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Client = RunningService<RoleClient, ()>;

/// One walk, in one era.
struct Walk {
    title: &'static str,
    name: &'static str,
    mode: ClientLifecycleMode,
    url: String,
    email: String,
    password: String,
    publish: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let both = Box::pin(async {
        Box::pin(walk(
            "rmcp 3.9.0 old",
            "rmcp-old",
            ClientLifecycleMode::Initialize,
        ))
        .await?;
        let modern = ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        };
        Box::pin(walk("rmcp 3.9.0 new", "rmcp-new", modern)).await
    });
    match tokio::time::timeout(PATIENCE, both).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            say(&format!("        {error}"));
            ExitCode::FAILURE
        }
        Err(_) => {
            say("failed  not done in time");
            ExitCode::FAILURE
        }
    }
}

async fn walk(title: &'static str, name: &'static str, mode: ClientLifecycleMode) -> Result<()> {
    let base = variable("VAULT_REMOTE_URL")?;
    let walk = Walk {
        title,
        name,
        mode,
        url: format!("{}/mcp", base.trim_end_matches('/')),
        email: variable("VAULT_ADMIN_EMAIL")?,
        password: variable("VAULT_ADMIN_PASSWORD")?,
        publish: variable("CLIENTS_PUBLISH").is_ok_and(|value| value == "yes"),
    };
    let challenge = walk.step("challenge", walk.challenge()).await?;
    let store = InMemoryCredentialStore::new();
    let reads = walk.sign_in(&challenge, &["read"], store.clone());
    let manager = walk.step("sign-in", Box::pin(reads)).await?;
    let client = walk.step("connect", walk.connect(manager)).await?;
    let first = walk.step("skill.list", walk.list(&client)).await?;
    if let Some(first) = first {
        walk.step("get_skill", walk.get(&client, &first)).await?;
        walk.step("skill_fetch", walk.fetch(&client, &first))
            .await?;
        walk.step("resources", walk.read(&client, &first)).await?;
    }
    walk.step("refresh", walk.refresh(&client, &store)).await?;
    // This client leaves the step-up to the program that uses it.
    let challenge = walk
        .step("write without scope", walk.refused(&client))
        .await?;
    let both = walk.sign_in(
        &challenge,
        &["read", "write"],
        InMemoryCredentialStore::new(),
    );
    let manager = walk.step("step-up", Box::pin(both)).await?;
    let writer = walk.connect(manager).await?.0;
    walk.step("write", walk.write(&writer)).await?;
    writer.cancel().await?;
    client.cancel().await?;
    Ok(())
}

impl Walk {
    /// Runs a step and prints its line.
    async fn step<T>(
        &self,
        name: &str,
        work: impl Future<Output = Result<(T, String)>>,
    ) -> Result<T> {
        let begun = now();
        let done = work.await;
        let passed = begun.elapsed().as_millis();
        let line = |state: &str, note: &str| {
            let line = format!(
                "{state:<7} {:<18} {name:<22} {passed:>6} ms  {note}",
                self.title
            );
            say(line.trim_end());
        };
        match done {
            Ok((value, note)) => {
                line("ok", &note);
                Ok(value)
            }
            Err(error) => {
                line("failed", "");
                Err(error)
            }
        }
    }

    fn transport<C>(&self, client: C) -> StreamableHttpClientTransport<C>
    where
        C: rmcp::transport::streamable_http_client::StreamableHttpClient + Send + Sync + 'static,
    {
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str());
        StreamableHttpClientTransport::with_client(client, config)
    }

    /// Without a token: what the server says about how to get one.
    async fn challenge(&self) -> Result<(String, String)> {
        let transport = self.transport(http(&self.url)?);
        let Err(refused) = serve_client_with_lifecycle((), transport, self.mode.clone()).await
        else {
            return Err("a connection without a token".into());
        };
        let challenge = refused.auth_challenge().ok_or("no challenge")?.to_owned();
        Ok((challenge.clone(), challenge))
    }

    /// Discovery, registration, PKCE, and a person who ticks these scopes.
    async fn sign_in(
        &self,
        challenge: &str,
        scopes: &[&str],
        store: InMemoryCredentialStore,
    ) -> Result<(AuthorizationManager, String)> {
        let mut state = OAuthState::new(&self.url, Some(http(&self.url)?)).await?;
        if let OAuthState::Unauthorized(manager) = &mut state {
            manager.set_credential_store(store.clone());
        }
        let request = AuthorizationRequest::new(CALLBACK)
            .with_client_name(self.title)
            .with_challenge(challenge);
        state.start_authorization(request).await?;
        let asked = state.get_authorization_url().await?;
        let query = |name: &str| {
            let asked = Url::parse(&asked).ok()?;
            let mut pairs = asked.query_pairs();
            pairs
                .find(|(found, _)| found == name)
                .map(|(_, value)| value.into_owned())
        };
        check(
            query("code_challenge_method").as_deref() == Some("S256"),
            || "no S256".to_owned(),
        )?;
        check(query("resource").as_deref() == Some(&self.url), || {
            "another resource".to_owned()
        })?;
        let mut browser = Browser::with(http(&self.url)?);
        let walked = browser
            .walk(&asked, Some((&self.email, &self.password)), scopes)
            .await?;
        let End::Back(back) = walked.end else {
            return Err(format!("the pages end at {:?}", walked.end).into());
        };
        state.handle_callback_url(&back).await?;
        let kept = store.load().await?.ok_or("no credentials")?;
        let mut granted = kept.granted_scopes;
        granted.sort_unstable();
        check(granted == scopes, || {
            format!("the scopes {granted:?}, not {scopes:?}")
        })?;
        let manager = state.into_authorization_manager().ok_or("not signed in")?;
        let note = format!(
            "PKCE S256, scope {}; {:?}; granted {granted:?}",
            query("scope").unwrap_or_default(),
            walked.statuses
        );
        Ok((manager, note))
    }

    async fn connect(&self, manager: AuthorizationManager) -> Result<(Client, String)> {
        let transport = self.transport(AuthClient::new(http(&self.url)?, manager));
        let client = serve_client_with_lifecycle((), transport, self.mode.clone()).await?;
        let version = client
            .peer_info()
            .map(|info| info.protocol_version.to_string());
        let tools = client.list_all_tools().await?;
        for name in ["get_skill", "skill_list", "skill_fetch", "skill_publish"] {
            check(tools.iter().any(|tool| tool.name == name), || {
                format!("no tool {name}")
            })?;
        }
        let note = format!(
            "revision {}, {} tools",
            version.unwrap_or_default(),
            tools.len()
        );
        Ok((client, note))
    }

    async fn list(&self, client: &Client) -> Result<(Option<Value>, String)> {
        let answer = call(client, "skill.list", json!({})).await?;
        let skills = answer["skills"].as_array().ok_or("no list")?;
        Ok((skills.first().cloned(), format!("{} skills", skills.len())))
    }

    async fn get(&self, client: &Client, skill: &Value) -> Result<((), String)> {
        call(
            client,
            "get_skill",
            json!({ "query": skill["description"] }),
        )
        .await?;
        call(client, "get_skill", json!({ "name": skill["name"] })).await?;
        Ok(((), "by query, then by name".to_owned()))
    }

    async fn fetch(&self, client: &Client, skill: &Value) -> Result<((), String)> {
        let answer = call(client, "skill_fetch", json!({ "id": skill["id"] })).await?;
        let id = skill["id"].as_str().unwrap_or_default();
        let good = verify(&answer, id)?;
        let note = format!(
            "{id} version {}, {} files, signature good",
            good.version, good.files
        );
        Ok(((), note))
    }

    async fn read(&self, client: &Client, skill: &Value) -> Result<((), String)> {
        let uri = skill["uri"].as_str().unwrap_or_default();
        let read = client
            .read_resource(ReadResourceRequestParams::new(uri))
            .await?;
        check(read.contents.len() == 1, || "one file".to_owned())?;
        Ok(((), uri.to_owned()))
    }

    /// A junk access token in place of the good one: the client refreshes by itself.
    async fn refresh(
        &self,
        client: &Client,
        store: &InMemoryCredentialStore,
    ) -> Result<((), String)> {
        let kept = store.load().await?.ok_or("no credentials")?;
        let mut value = serde_json::to_value(&kept)?;
        let before = value["token_response"]["refresh_token"].clone();
        value["token_response"]["access_token"] = json!("vat_junk");
        store.save(serde_json::from_value(value)?).await?;
        call(client, "skill_list", json!({})).await?;
        let kept = serde_json::to_value(store.load().await?)?;
        check(kept["token_response"]["refresh_token"] != before, || {
            "the same refresh token".to_owned()
        })?;
        Ok(((), "a junk access token: refreshed".to_owned()))
    }

    async fn refused(&self, client: &Client) -> Result<(String, String)> {
        let Err(error) = self.write(client).await else {
            return Err("a write with a token for reading".into());
        };
        let text = error.to_string();
        let challenge = text.strip_prefix("insufficient scope: ").ok_or(error)?;
        Ok((challenge.to_owned(), text.clone()))
    }

    async fn write(&self, client: &Client) -> Result<((), String)> {
        let name = format!("from-{}", self.name);
        let skill_md = format!(
            "---\nname: {name}\ndescription: Written by a client in a test, to see a write through.\n---\nNothing to do.\n"
        );
        let (tool, arguments) = if self.publish {
            ("skill_publish", json!({ "skill_md": skill_md }))
        } else {
            (
                "propose_skill",
                json!({ "skill_md": skill_md, "check": true }),
            )
        };
        let answer = call(client, tool, arguments).await?;
        Ok((
            (),
            format!("{tool}: {}", answer["status"].as_str().unwrap_or_default()),
        ))
    }
}

fn check(good: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if good {
        Ok(())
    } else {
        Err(otherwise().into())
    }
}

/// The structured result of a tool.
async fn call(client: &Client, name: &'static str, arguments: Value) -> Result<Value> {
    let Value::Object(arguments) = arguments else {
        return Err("arguments are an object".into());
    };
    let params = CallToolRequestParams::new(name).with_arguments(arguments);
    let result = client.call_tool(params).await.map_err(told)?;
    check(result.is_error != Some(true), || {
        format!("{name}: {:?}", result.content)
    })?;
    result
        .structured_content
        .ok_or_else(|| format!("{name}: no structured result").into())
}

/// An error of the transport, with the challenge where it is one: the client's own text leaves it
/// out.
fn told(error: ServiceError) -> Box<dyn std::error::Error + Send + Sync> {
    let ServiceError::TransportSend(inner) = error else {
        return error.into();
    };
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*inner.error);
    while let Some(error) = cause {
        if let Some(scope) = error.downcast_ref::<InsufficientScopeError>() {
            return scope.to_string().into();
        }
        cause = error.source();
    }
    format!("{:?}", inner.error).into()
}

/// Names below `localhost` are this machine (RFC 6761), whatever its resolver says.
fn http(url: &str) -> Result<reqwest::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = Url::parse(url)?;
    let mut client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(30));
    if let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default())
        && host.ends_with(".localhost")
    {
        client = client
            .no_proxy()
            .resolve(host, ([127, 0, 0, 1], port).into());
    }
    Ok(client.build()?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "told by variables, as the clients in other languages beside it"
)]
fn variable(name: &str) -> Result<String> {
    std::env::var(name).map_err(|_| format!("{name} is not set").into())
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a step is told with the time that really passed"
)]
fn now() -> Instant {
    Instant::now()
}
