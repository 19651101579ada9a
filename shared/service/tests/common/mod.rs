//! People and apps for route tests: a browser without scripts, and the whole walk from registration
//! to an access token, in process.

pub mod exchange;
pub mod samples;
pub mod world;

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vault_format::name::NamespaceId;
use vault_service::App;
use vault_service::bearer::{Bearer, Caller, identify};
use vault_service::error::Refusal;
use vault_service::http::Peer;
use vault_service::model::account::{self, Account, AccountId, Email};
use vault_service::model::audit::{self, Entry};
use vault_service::model::namespace::{self, Kind, Namespace};
use vault_service::model::pkce::Challenge;
use vault_service::model::subject;
use vault_service::model::user::{NamespaceRef, Role, Scopes, User};
use vault_service::oauth::bootstrap::first_owner;
use vault_service::oauth::form::with_query;
use vault_service::route::Audience;
use vault_store::records::{Document, RecordKey, When, Write};

/// The first owner of the tests.
pub const OWNER: &str = "owner@example.org";
/// Its password.
pub const OWNER_PASSWORD: &str = "a password of the first owner";
/// The password of everybody else.
pub const PASSWORD: &str = "a password of a member";
/// Their hashes, made with the least work that argon2id allows, since tests sign in by the hundred.
/// That the service hashes with all the work it should is tested beside `oauth::password` and in
/// `equal_work`.
const OWNER_HASH: &str =
    "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$/6mp99TgTSW6UyCMuoDtxUlUdZ+Ltvmtw+vw9raLrfs";
const HASH: &str =
    "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$hCilzMIm9qll9aqmkDLGsOhG/sU8jyexyjD+OMQl9FM";
/// Where the tests' client wants its answers.
pub const CALLBACK: &str = "https://app.example/cb";
/// The verifier of the tests' client.
pub const VERIFIER: &str = "a-verifier-that-is-long-enough-for-the-rule-of-43";

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// Status and error code of an endpoint for programs.
    pub fn short(&self) -> String {
        format!(
            "{} {}",
            self.status,
            self.json()["error"].as_str().unwrap_or("-")
        )
    }

    /// A member of a JSON answer, as text.
    pub fn text(&self, name: &str) -> String {
        self.json()[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name} in {}", self.body))
            .to_owned()
    }

    /// A parameter of the query in `Location`.
    pub fn returned(&self, name: &str) -> Option<String> {
        let query = self
            .header("location")
            .split_once('?')
            .map_or("", |(_, query)| query);
        let found = url::form_urlencoded::parse(query.as_bytes()).find(|(found, _)| found == name);
        found.map(|(_, value)| value.into_owned())
    }

    /// The heading of a page.
    pub fn heading(&self) -> &str {
        self.body
            .split("<h1>")
            .nth(1)
            .and_then(|rest| rest.split("</h1>").next())
            .unwrap_or_default()
    }

    /// Status and heading of a page.
    pub fn page(&self) -> String {
        format!("{} {}", self.status, self.heading())
    }

    /// A hidden field of the form that goes to `action`.
    pub fn hidden(&self, action: &str, name: &str) -> String {
        let form = self.body.split("<form ").find(|form| {
            form.split('>')
                .next()
                .unwrap()
                .contains(&format!("{action}\""))
        });
        let form = form.unwrap_or_else(|| panic!("no form for {action} in {}", self.body));
        let field = form.split(&format!("name=\"{name}\" value=\"")).nth(1);
        let value = field
            .unwrap_or_else(|| panic!("no {name} in {form}"))
            .split('"')
            .next()
            .unwrap();
        value
            .replace("&#38;", "&")
            .replace("&#34;", "\"")
            .replace("&#39;", "'")
    }
}

/// Sends one request through all layers.
pub async fn send(app: &App, request: Request<Body>) -> Reply {
    let router: Router = vault_service::router(app.clone());
    let answer = exchange::send(router, request).await;
    Reply {
        status: answer.status.as_u16(),
        headers: answer.headers,
        body: String::from_utf8(answer.body.to_vec()).unwrap(),
    }
}

/// `GET` without anything.
pub async fn get(app: &App, path: &str) -> Reply {
    send(app, Request::get(path).body(Body::empty()).unwrap()).await
}

/// A form, as a program sends it.
pub async fn post_form(app: &App, path: &str, fields: &[(&str, &str)]) -> Reply {
    send(app, form_request(path, fields)).await
}

/// The request of a form.
pub fn form_request(path: &str, fields: &[(&str, &str)]) -> Request<Body> {
    Request::post(path)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(encoded(fields)))
        .unwrap()
}

/// Fields as a query or form body.
pub fn encoded(fields: &[(&str, &str)]) -> String {
    with_query("", fields)[1..].to_owned()
}

/// A browser: one cookie, no scripts.
pub struct Visitor<'a> {
    pub app: &'a App,
    /// The cookie of the session.
    pub cookie: Option<String>,
    /// The cookie by which a browser is known that signed in before.
    pub returning: Option<String>,
    /// Where its requests come from.
    pub source: Option<IpAddr>,
}

impl<'a> Visitor<'a> {
    pub fn new(app: &'a App) -> Self {
        Self {
            app,
            cookie: None,
            returning: None,
            source: None,
        }
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    /// A form as a browser sends it from a page of ours that sends no referrer.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let mut request = form_request(path, fields);
        request
            .headers_mut()
            .insert("sec-fetch-site", "same-origin".parse().unwrap());
        request
            .headers_mut()
            .insert(header::ORIGIN, "null".parse().unwrap());
        self.send(request).await
    }

    pub async fn send(&mut self, mut request: Request<Body>) -> Reply {
        for cookie in [&self.cookie, &self.returning].into_iter().flatten() {
            let headers = request.headers_mut();
            headers.append(header::COOKIE, cookie.parse().unwrap());
        }
        if let Some(source) = self.source {
            request
                .extensions_mut()
                .insert(Peer(SocketAddr::new(source, 1)));
        }
        let reply = send(self.app, request).await;
        for set in reply.headers.get_all(header::SET_COOKIE) {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let kept = (!pair.ends_with('=')).then(|| pair.to_owned());
            if pair.contains("vault_browser=") {
                self.returning = kept;
            } else {
                self.cookie = kept;
            }
        }
        reply
    }

    /// Fills in the form of a page that goes to `action` and leads back to where the person was.
    pub async fn fill(&mut self, page: &Reply, action: &str, more: &[(&str, &str)]) -> Reply {
        let hidden = ["csrf", "return_to"].map(|name| (name, page.hidden(action, name)));
        let hidden = hidden
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        self.post(action, &[&hidden, more].concat()).await
    }

    /// Types address and password into a sign-in page.
    pub async fn log_in(&mut self, page: &Reply, email: &str, password: &str) -> Reply {
        let fields = [("email", email), ("password", password)];
        self.fill(page, "/oauth/login", &fields).await
    }

    /// Signs out on any page that says who is signed in.
    pub async fn log_out(&mut self, page: &Reply) -> Reply {
        self.fill(page, "/oauth/logout", &[]).await
    }

    /// Opens an invitation and chooses a password. Returns the invitation's page if it is no longer
    /// valid.
    pub async fn accept(&mut self, path: &str, password: &str) -> Reply {
        let page = self.get(path).await;
        if page.status != 200 {
            return page;
        }
        let csrf = page.hidden(path, "csrf");
        self.post(path, &[("csrf", &csrf), ("password", password)])
            .await
    }

    /// Accepts or declines an invitation on a page that shows it.
    pub async fn answer(&mut self, page: &Reply, slug: &str, decision: &str) -> Reply {
        let action = "/account/invitations";
        let csrf = page.hidden(action, "csrf");
        let return_to = page.hidden(action, "return_to");
        let fields = [
            ("csrf", csrf.as_str()),
            ("return_to", &return_to),
            ("namespace", slug),
            ("decision", decision),
        ];
        self.post(action, &fields).await
    }

    /// Answers a consent page with these boxes.
    pub async fn decide(
        &mut self,
        page: &Reply,
        decision: &str,
        namespace: &str,
        scopes: Scopes,
    ) -> Reply {
        let mut fields = vec![("namespace", namespace), ("decision", decision)];
        fields.extend(scopes.iter().map(|scope| ("scope", scope.as_str())));
        self.fill(page, "/oauth/consent", &fields).await
    }

    /// Approves on a consent page.
    pub async fn allow(&mut self, page: &Reply, namespace: &str, scopes: Scopes) -> Reply {
        self.decide(page, "approve", namespace, scopes).await
    }

    /// Opens an authorize address and signs in; the consent page, or whatever comes instead.
    pub async fn arrive(&mut self, authorize: &str, email: &str, password: &str) -> Reply {
        let page = self.get(authorize).await;
        assert_eq!(page.page(), "200 Sign in", "{}", page.body);
        let back = self.log_in(&page, email, password).await;
        assert_eq!(
            (back.status, back.header("location")),
            (303, authorize),
            "{}",
            back.body
        );
        self.get(authorize).await
    }

    /// The whole walk to the redirect with the code.
    pub async fn approve(
        &mut self,
        authorize: &str,
        who: (&str, &str),
        namespace: &str,
        scopes: Scopes,
    ) -> Reply {
        let page = self.arrive(authorize, who.0, who.1).await;
        let back = self.allow(&page, namespace, scopes).await;
        assert_eq!(
            (back.status, back.header("location")),
            (303, authorize),
            "{}",
            back.body
        );
        let answer = self.get(authorize).await;
        assert_eq!(answer.status, 302, "{}", answer.body);
        answer
    }
}

/// Makes the first owner with the namespace `default`.
pub async fn bootstrap(app: &App) {
    let password = SecretString::from(OWNER_PASSWORD);
    first_owner(app, Kind::Hosted, Some(OWNER), Some(&password))
        .await
        .unwrap();
    set_hash(app, OWNER, OWNER_HASH).await;
}

/// Sets the password of an account by its hash.
async fn set_hash(app: &App, email: &str, hash: &str) -> Account {
    let (mut account, revision) = found(app, email).await.unwrap();
    account.set_password(hash.to_owned(), app.clock.now());
    commit(app, vec![account.update(revision).unwrap()]).await;
    account
}

/// An account with the revision of its record.
async fn found(app: &App, email: &str) -> Option<(Account, u64)> {
    let found = account::find(&*app.records, &email.parse().unwrap()).await;
    found.unwrap().map(|found| (found.value, found.revision))
}

/// Makes a namespace that nobody has a part in.
pub async fn namespace(app: &App, slug: &str) -> NamespaceRef {
    let made = Namespace::new(
        slug.parse().unwrap(),
        Kind::Hosted,
        OWNER.into(),
        &*app.clock,
        &*app.random,
    );
    commit(app, made.allocation().unwrap()).await;
    NamespaceRef {
        slug: made.slug,
        id: made.id,
    }
}

/// Gives an account a part in a namespace, and the account the members' password when it has none.
pub async fn member(
    app: &App,
    email: &str,
    namespace: &NamespaceRef,
    role: Role,
    scopes: Scopes,
) -> User {
    let (account, now) = (proven(app, email).await, app.clock.now());
    let user = User::active(&account, namespace.clone(), role, scopes, now, &*app.random);
    commit(app, user.creation().unwrap()).await;
    user
}

/// Invites an account past all rules; the path of the invitation, when it needs one.
pub async fn invite(app: &App, email: &str) -> Option<String> {
    let (email, issuer) = (email.parse().unwrap(), app.config.public_url.base());
    let now = app.clock.now();
    let invited = account::invite(&*app.records, &email, issuer, now, &*app.random).await;
    let invited = invited.unwrap();
    commit(app, invited.writes).await;
    let url = invited.url?;
    Some(url.strip_prefix(issuer).unwrap().to_owned())
}

/// Writes records; panics if a condition of a write does not hold.
pub async fn commit(app: &App, writes: Vec<Write>) {
    assert!(app.records.commit(writes).await.unwrap().is_done());
}

/// Reads a record that is there.
pub async fn read<T: DeserializeOwned>(app: &App, key: &RecordKey) -> T {
    let record = app.records.get(key).await.unwrap();
    record.unwrap().read().unwrap()
}

/// Writes a record past all rules.
pub async fn put(app: &App, key: RecordKey, value: &impl Serialize) {
    let write = Write::put(key, Document::of(value).unwrap(), When::Any);
    commit(app, vec![write]).await;
}

/// A namespace that is there.
pub async fn home(app: &App, slug: &str) -> Namespace {
    let found = namespace::find(&*app.records, &slug.parse().unwrap()).await;
    found.unwrap().unwrap().0
}

/// A user whose account nobody made: for lists that only count or search.
pub fn listed_user(app: &App, email: &str, namespace: &NamespaceRef, scopes: Scopes) -> User {
    let (email, now): (Email, _) = (email.parse().unwrap(), app.clock.now());
    let account = Account::new(AccountId::earlier(&email), email, now);
    let namespace = namespace.clone();
    User::active(&account, namespace, Role::Member, scopes, now, &*app.random)
}

/// Sets the members' password by a link.
pub async fn set_password(app: &App, url: &str) {
    let path = url.strip_prefix(app.config.public_url.origin()).unwrap();
    let done = Visitor::new(app).accept(path, PASSWORD).await;
    assert_eq!(done.status, 200, "{}", done.body);
}

/// Gives an address an account with the members' password, and no part in any namespace.
pub async fn proven(app: &App, email: &str) -> Account {
    match invite(app, email).await {
        Some(_) => set_hash(app, email, HASH).await,
        None => account(app, email).await,
    }
}

/// Connects a person of an identity provider to an account past all rules; the name by which the
/// account page knows the connection.
pub async fn connected(app: &App, email: &str, subject: &str) -> String {
    let (mut account, revision) = found(app, email).await.unwrap();
    let name = subject::name("https://id.example", subject);
    let mut writes = account.connect("https://id.example", name, app.clock.now());
    writes.push(subject::connection(&name, &account.id, When::Absent).unwrap());
    writes.push(account.update(revision).unwrap());
    commit(app, writes).await;
    name.to_string()
}

/// The account of an address.
pub async fn account(app: &App, email: &str) -> Account {
    found(app, email).await.unwrap().0
}

/// Signs in and answers the invitation into a namespace on the account page.
pub async fn answer_invitation(app: &App, email: &str, slug: &str, decision: &str) {
    let mut visitor = Visitor::new(app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, email, PASSWORD).await;
    let page = visitor.get("/account").await;
    assert_eq!(page.heading(), "Your account", "{}", page.body);
    let back = visitor.answer(&page, slug, decision).await;
    assert_eq!((back.status, back.header("location")), (303, "/account"));
}

/// What the audit log of a namespace holds, oldest first.
pub async fn audited(app: &App, slug: &str) -> Vec<Entry> {
    entries_of(app, Some(&home(app, slug).await.id)).await
}

/// What the audit log of a namespace, or of the service, holds, oldest first.
pub async fn entries_of(app: &App, namespace: Option<&NamespaceId>) -> Vec<Entry> {
    let partition = audit::partition(namespace);
    let listed = app.records.list(&partition, "", None, 1000).await.unwrap();
    let mut entries: Vec<Entry> = listed.iter().map(|record| record.read().unwrap()).collect();
    // Within one moment the ids of the seeded source are in no order.
    entries.sort_by_key(|entry| entry.at);
    entries
}

/// Sends metadata to the registration endpoint.
pub async fn post_client(app: &App, metadata: &Value) -> Reply {
    let path = format!("{}/oauth/register", app.config.public_url.prefix());
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(metadata.to_string()))
        .unwrap();
    send(app, request).await
}

/// Registers a client; its id.
pub async fn register(app: &App, redirect: &str) -> String {
    let metadata = json!({ "client_name": "An app", "redirect_uris": [redirect] });
    let reply = post_client(app, &metadata).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply.text("client_id")
}

/// The authorize address of a client, with more parameters behind.
pub fn authorize(client: &str, redirect: &str, more: &[(&str, &str)]) -> String {
    let challenge = serde_json::to_value(Challenge::of(VERIFIER)).unwrap();
    let mut fields = vec![
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", redirect),
        ("state", "a state"),
        ("code_challenge", challenge.as_str().unwrap()),
        ("code_challenge_method", "S256"),
    ];
    fields.extend(more);
    with_query("/oauth/authorize", &fields)
}

/// Tokens and the client that has them.
#[derive(Clone, Debug)]
pub struct Tokens {
    pub client: String,
    pub access: String,
    pub refresh: String,
    pub scope: String,
}

impl Tokens {
    pub fn of(client: &str, reply: &Reply) -> Self {
        assert_eq!(reply.status, 200, "{}", reply.body);
        Self {
            client: client.to_owned(),
            access: reply.text("access_token"),
            refresh: reply.text("refresh_token"),
            scope: reply.text("scope"),
        }
    }
}

/// Exchanges a code at the token endpoint.
pub async fn exchange(app: &App, client: &str, code: &str) -> Reply {
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", client),
        ("code", code),
        ("code_verifier", VERIFIER),
        ("redirect_uri", CALLBACK),
    ];
    post_form(app, "/oauth/token", &fields).await
}

/// Refreshes at the token endpoint.
pub async fn refresh(app: &App, client: &str, token: &str) -> Reply {
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", client),
        ("refresh_token", token),
    ];
    post_form(app, "/oauth/token", &fields).await
}

/// Who sent a request with these headers to a route that any token may open.
pub async fn authenticate(app: &App, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let Bearer::Caller(caller) = identify(app, headers, Audience::Mcp).await? else {
        panic!("an operator's token is for no vault");
    };
    caller.require_in_service()?;
    Ok(*caller)
}

/// Whether an access token is good.
pub async fn is_good(app: &App, access: &str) -> bool {
    let mut headers = HeaderMap::new();
    let bearer = format!("Bearer {access}");
    headers.insert(header::AUTHORIZATION, bearer.parse().unwrap());
    authenticate(app, &headers).await.is_ok()
}

/// Registers a client and walks sign-in, consent and exchange, in a namespace of the account.
pub async fn tokens(app: &App, who: (&str, &str), namespace: &str, scopes: Scopes) -> Tokens {
    tokens_for(app, who, namespace, scopes, &[]).await
}

/// The same, with more parameters of the authorize address.
pub async fn tokens_for(
    app: &App,
    who: (&str, &str),
    namespace: &str,
    scopes: Scopes,
    more: &[(&str, &str)],
) -> Tokens {
    let client = register(app, CALLBACK).await;
    let scope = scopes.to_string();
    let fixed = [("scope", scope.as_str()), ("vault_namespace", namespace)];
    let address = authorize(&client, CALLBACK, &[&fixed[..], more].concat());
    let answer = Visitor::new(app)
        .approve(&address, who, namespace, scopes)
        .await;
    let code = answer
        .returned("code")
        .unwrap_or_else(|| panic!("{}", answer.header("location")));
    Tokens::of(&client, &exchange(app, &client, &code).await)
}

/// An access token of this account for its namespace `default`, by the whole walk.
pub async fn sign_in(app: &App, email: &str, password: &str, scopes: Scopes) -> String {
    tokens(app, (email, password), "default", scopes)
        .await
        .access
}

/// A token of the first owner with the rights of an operator, by the whole walk.
pub async fn operator_token(app: &App) -> String {
    operator_token_with(app, Scopes::ALL).await
}

/// The same, with these scopes beside it.
pub async fn operator_token_with(app: &App, scopes: Scopes) -> String {
    operator_token_of(app, (OWNER, OWNER_PASSWORD), scopes).await
}

/// A token of another operator.
pub async fn operator_token_of(app: &App, who: (&str, &str), scopes: Scopes) -> String {
    let client = register(app, CALLBACK).await;
    let scope = format!("{scopes} operator");
    let address = authorize(&client, CALLBACK, &[("scope", &scope)]);
    let mut visitor = Visitor::new(app);
    let page = visitor.arrive(&address, who.0, who.1).await;
    let mut fields = vec![("decision", "approve")];
    fields.extend(scopes.iter().map(|scope| ("scope", scope.as_str())));
    visitor.fill(&page, "/oauth/consent", &fields).await;
    let answer = visitor.get(&address).await;
    let code = answer.returned("code");
    let code = code.unwrap_or_else(|| panic!("{} {}", answer.status, answer.body));
    exchange(app, &client, &code).await.text("access_token")
}
