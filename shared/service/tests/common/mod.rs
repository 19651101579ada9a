//! People and apps for route tests, and the whole walk from registration to an access token, in
//! process.

mod browser;
pub mod exchange;
pub mod operation;
pub mod partitions;
pub mod samples;
pub mod world;

use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vault_format::name::NamespaceId;
use vault_service::App;
use vault_service::accounts::bootstrap::ensure_first_owner;
use vault_service::bearer::{Bearer, Caller, identify_bearer};
use vault_service::error::Refusal;
use vault_service::model::account::{self, Account, AccountId, Email};
use vault_service::model::audit::{self, Entry};
use vault_service::model::namespace::{self, Kind, Namespace};
use vault_service::model::permit::LoadedPermits;
use vault_service::model::pkce::Challenge;
use vault_service::model::subject;
use vault_service::model::token::{Secret, SecretKind, Token, token_key};
use vault_service::model::user::{NamespaceRef, Role, Scopes, User};
use vault_service::route::Audience;
use vault_service::web::form::with_query;
use vault_store::records::{Document, RecordKey, When, Write};

pub use browser::*;

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

/// Makes the first owner with the namespace `default`.
pub async fn bootstrap(app: &App) {
    let password = SecretString::from(OWNER_PASSWORD);
    ensure_first_owner(app, Some(Kind::Hosted), Some(OWNER), Some(&password))
        .await
        .unwrap();
    set_hash(app, OWNER, OWNER_HASH).await;
}

/// Sets the password of an account by its hash.
async fn set_hash(app: &App, email: &str, hash: &str) -> Account {
    let (mut account, revision) = found(app, email).await.unwrap();
    account.set_password(hash.to_owned(), app.clock.now());
    commit(app, vec![account.update_write(revision).unwrap()]).await;
    account
}

/// An account with the revision of its record.
async fn found(app: &App, email: &str) -> Option<(Account, u64)> {
    let found = account::find_account(app, &email.parse().unwrap()).await;
    found.unwrap().map(|found| (found.value, found.revision))
}

/// Makes a namespace that nobody has a part in.
pub async fn namespace(app: &App, slug: &str) -> NamespaceRef {
    let made = Namespace::new(slug.parse().unwrap(), Kind::Hosted, OWNER.into(), app);
    commit(app, made.allocation_writes().unwrap()).await;
    made.to_ref()
}

/// Gives an account a part in a namespace, and the account the members' password when it has none.
pub async fn member(
    app: &App,
    email: &str,
    namespace: &NamespaceRef,
    role: Role,
    scopes: Scopes,
) -> User {
    let account = proven(app, email).await;
    let user = User::new_active(&account, namespace.clone(), role, scopes, app);
    commit(app, user.creation_writes().unwrap()).await;
    user
}

/// Invites an account past all rules; the path of the invitation, when it needs one.
pub async fn invite(app: &App, email: &str) -> Option<String> {
    let (email, issuer) = (email.parse().unwrap(), app.config.public_url.base());
    let now = app.clock.now();
    let invited = account::prepare_invitation(app, &email, issuer, now).await;
    let invited = invited.unwrap();
    commit(app, invited.writes).await;
    let url = invited.url?;
    Some(url.strip_prefix(issuer).unwrap().to_owned())
}

/// Writes records; panics if a condition of a write does not hold.
pub async fn commit(app: &App, writes: Vec<Write>) {
    assert!(app.records.commit_writes(writes).await.unwrap().is_done());
}

/// Reads a record that is there.
pub async fn read<T: DeserializeOwned>(app: &App, key: &RecordKey) -> T {
    let record = app.records.get_one(key).await.unwrap();
    record.unwrap().read().unwrap()
}

/// Writes a record past all rules.
pub async fn put(app: &App, key: RecordKey, value: &impl Serialize) {
    let write = Write::put(key, Document::from_value(value).unwrap(), When::Any);
    commit(app, vec![write]).await;
}

/// A namespace that is there.
pub async fn home(app: &App, slug: &str) -> Namespace {
    let found = namespace::find_namespace(app, &slug.parse().unwrap()).await;
    found.unwrap().unwrap().0
}

/// A user whose account nobody made: for lists that only count or search.
pub fn listed_user(app: &App, email: &str, namespace: &NamespaceRef, scopes: Scopes) -> User {
    let (email, now): (Email, _) = (email.parse().unwrap(), app.clock.now());
    let account = Account::new(AccountId::of_earlier_version(&email), email, now);
    let namespace = namespace.clone();
    User::new_active(&account, namespace, Role::Member, scopes, app)
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
    let name = subject::subject_digest("https://id.example", subject);
    let mut writes = account.connect_provider("https://id.example", name, app.clock.now());
    writes.push(subject::connection_write(&name, &account.id, When::Absent).unwrap());
    writes.push(account.update_write(revision).unwrap());
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

/// What the audit log of a namespace, or of the service, holds, oldest first. An entry that stands
/// for several refusals is there so many times.
pub async fn entries_of(app: &App, namespace: Option<&NamespaceId>) -> Vec<Entry> {
    app.refusals.write_counts(app, true).await.unwrap();
    let partition = audit::audit_partition(namespace);
    let listed = app
        .records
        .list_page(&partition, "", None, 1000)
        .await
        .unwrap();
    let entries = listed.iter().map(|record| record.read::<Entry>().unwrap());
    entries
        .flat_map(|entry| {
            let count = usize::try_from(entry.count.unwrap_or(1)).unwrap();
            vec![entry; count]
        })
        .collect()
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
    let challenge = serde_json::to_value(Challenge::of_verifier(VERIFIER)).unwrap();
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
    let Bearer::Caller(caller) = identify_bearer(app, headers, Audience::Mcp).await? else {
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

/// Confirms everything that the app of this token asked its person to confirm, without the pages.
pub async fn confirm_asked(app: &App, access: &str) {
    let secret = Secret::parse(SecretKind::Access, access).unwrap();
    let token: Token = read(app, &token_key(&secret.hash())).await;
    let (account, client) = (&token.family.account, &token.family.client);
    let mut loaded = LoadedPermits::load(app, account, Some(client))
        .await
        .unwrap();
    for permit in &mut loaded.permits {
        *permit = permit.clone().decided(true, app.now());
    }
    commit(app, vec![loaded.into_write().unwrap()]).await;
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
