//! Signs in with OAuth 2.1 and PKCE (S256). Each sign-in registers a new client and receives the
//! authorization code on a loopback address or by pasting.
//!
//! The service's metadata must name the given address as its issuer, and every endpoint must have
//! the same origin, so that no other site receives the code. `state` and `iss` of the callback are
//! checked before the code is used.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use url::Url;
use vault_api::{OAuthError, Registered};
use vault_service::web::PAGE_STYLE;
use vault_store::random::{Random, SystemRandom};

use super::{
    Answer, Base, Http, OwnerClient,
    browser::{self, Page},
    ceiling,
    connection::Connection,
    tokens::{TokenFile, Tokens},
};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{BOLD, Ui, clean, either, paint},
};

/// Time limit for the user to sign in.
const PATIENCE: Duration = Duration::from_mins(10);

/// The OAuth scopes that an operator's sign-in asks for.
const OPERATOR_SCOPE: &str = "read write operator";

/// Options of a sign-in.
#[derive(Clone, Copy, Debug)]
pub struct SignIn<'a> {
    /// The service at which the user signs in.
    pub base: &'a Base,
    /// The vault that the token is for. With `None` the user chooses on the sign-in pages.
    pub namespace: Option<&'a str>,
    /// The purpose of the sign-in, such as a vault's slug. The list of connected apps shows it
    /// beside the machine's name.
    pub purpose: Option<&'a str>,
    /// Whether to ask for the rights of an operator of the service. They last for minutes and
    /// cannot be refreshed.
    pub operator: bool,
    /// Set to ask for more scopes for a client that is already signed in; `None` for a new sign-in.
    pub wider: Option<Wider<'a>>,
    /// Whether to print the address instead of opening a browser, and to accept the callback
    /// address pasted on standard input.
    pub no_browser: bool,
}

/// A request for more scopes for a client that is signed in.
#[derive(Clone, Copy, Debug)]
pub struct Wider<'a> {
    /// The id under which the client is registered.
    pub client_id: &'a str,
    /// The scopes to ask for, separated by blanks.
    pub scopes: &'a str,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    registration_endpoint: String,
    revocation_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
}

/// The query parameters with which the service redirects the browser back to this program.
#[derive(Debug, Default, Eq, PartialEq)]
struct CallbackParams {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    description: Option<String>,
}

/// Runs the complete sign-in: metadata, registration, authorization and token. Fails with exit 4 if
/// access was denied or no user can answer, and with exit 7 if the service misbehaves.
pub async fn sign_in(context: &Context, wanted: SignIn<'_>) -> Result<Tokens, Failure> {
    // Without a terminal, nobody can sign in, unless a program passes on the address and the answer
    // (`--no-browser`).
    let somebody = if wanted.no_browser {
        !context.global.no_input
    } else {
        context.ui.may_ask()
    };
    if !somebody {
        return Err(no_terminal_to_sign_in(wanted.base));
    }
    let http = Http::new(context, wanted.base)?;
    let metadata = fetch_metadata(&http, wanted.base).await?;
    let failed = |error: std::io::Error| fail!(Io, "cannot open a loopback port: {error}");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let redirect = format!("http://127.0.0.1:{port}/callback");
    let client_id = match wanted.wider {
        // The registered redirect address may have another port, because the port of a loopback
        // address does not count (RFC 8252).
        Some(wider) => wider.client_id.to_owned(),
        None => register_client(context, &http, &metadata, &redirect, wanted.purpose).await?,
    };
    // The verifier binds the code to this process (PKCE), and the state binds the callback to this
    // sign-in.
    let verifier = random_text();
    let state = random_text();
    let request = AuthorizationRequest {
        client_id: &client_id,
        redirect: &redirect,
        verifier: &verifier,
        state: &state,
    };
    let address = authorize_address(&metadata, wanted, request)?;
    let callback = await_callback(context, &listener, &address, wanted).await?;
    let code = check_callback(callback, &state, &metadata.issuer)?;
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &redirect),
        ("client_id", &client_id),
        ("code_verifier", &verifier),
    ];
    let answer = http.post_form(&metadata.token_endpoint, &fields).await?;
    let grant: vault_api::Tokens = oauth_answer(answer)?;
    Ok(Tokens::from_grant(
        grant,
        client_id,
        metadata.token_endpoint,
        metadata.revocation_endpoint,
    ))
}

/// Returns a client for one vault, and whether the user signed in for it just now. Uses stored
/// tokens without checking them at the service.
pub async fn sign_in_if_needed(
    context: &Context,
    connection: &Connection,
    no_browser: bool,
) -> Result<(OwnerClient, bool), Failure> {
    let (base, slug) = (&connection.base, connection.slug.as_str());
    let file = TokenFile::for_service(context, base, slug)?;
    if let Some(tokens) = file.read()? {
        let client = OwnerClient::with_tokens(context, base, file, tokens)?;
        return Ok((client, false));
    }
    let client = sign_in_anew(context, connection, no_browser).await?;
    Ok((client, true))
}

async fn sign_in_anew(
    context: &Context,
    connection: &Connection,
    no_browser: bool,
) -> Result<OwnerClient, Failure> {
    let (base, slug) = (&connection.base, connection.slug.as_str());
    let file = TokenFile::for_service(context, base, slug)?;
    let wanted = SignIn {
        base,
        namespace: Some(slug),
        purpose: Some(slug),
        operator: false,
        wider: None,
        no_browser,
    };
    let tokens = sign_in(context, wanted).await?;
    file.write(&tokens, &file.lock()?)?;
    OwnerClient::with_tokens(context, base, file, tokens)
}

/// Returns the client of a vault's owner or publisher, after the service has accepted its sign-in.
/// On a terminal, it opens the sign-in page if no sign-in is stored, or if the service rejects the
/// stored one.
pub async fn ready_client(
    context: &Context,
    connection: &Connection,
) -> Result<OwnerClient, Failure> {
    let slug = &connection.slug;
    let tokens = TokenFile::for_service(context, &connection.base, slug.as_str())?.read()?;
    let (client, is_new) = match tokens {
        Some(_) => (connection.owner_client(context)?, false),
        None => (sign_in_anew(context, connection, false).await?, true),
    };
    // Try the sign-in now, so that a command does not ask its question and fail afterwards.
    let path = format!("/admin/vaults/{slug}");
    match client.get::<Value>(&path).await {
        Ok(_) => Ok(client),
        Err(failure) if failure.code == ErrorCode::SignedOut && !is_new && context.ui.may_ask() => {
            sign_in_anew(context, connection, false).await
        }
        Err(failure) => Err(failure),
    }
}

/// Creates the failure of a sign-in that no user can answer.
fn no_terminal_to_sign_in(base: &Base) -> Failure {
    fail!(SignedOut, "you are not signed in at {base}, and there is no terminal to sign in on").hint(
        "run the command on a terminal; or give --no-browser, open the address that it prints in any browser, \
         and write the address that the browser ends on to its standard input",
    )
}

async fn fetch_metadata(http: &Http, base: &Base) -> Result<Metadata, Failure> {
    // RFC 8414 places the well-known path between the host and the prefix.
    let address = format!(
        "{}/.well-known/oauth-authorization-server{}",
        base.origin(),
        base.prefix()
    );
    let request = http.request(Method::GET, &address);
    let answer = http.send(request, ceiling::SMALL).await?;
    let is_json = serde_json::from_slice::<Value>(&answer.body).is_ok();
    // Another kind of server answers like this, so say that instead of "not found" or "not JSON".
    if answer.status == 404 || (answer.is_success() && !is_json) {
        return Err(fail!(NotAService, "{base} is not a vault service")
            .hint("give the service's public address"));
    }
    let metadata: Metadata = answer.json()?;
    let issuer = &metadata.issuer;
    // The operator's issuer may end with a slash; our base address never does.
    if issuer.strip_suffix('/').unwrap_or(issuer) != base.as_str() {
        let issuer = clean(issuer, 120);
        return Err(
            fail!(IssuerMismatch, "{base} names {issuer} as its own address")
                .hint("if you trust that address, connect to it instead"),
        );
    }
    // An endpoint on another origin could receive the code together with its verifier.
    let elsewhere = [
        &metadata.authorization_endpoint,
        &metadata.token_endpoint,
        &metadata.registration_endpoint,
    ]
    .into_iter()
    .chain(&metadata.revocation_endpoint)
    .find(|endpoint| !base.is_origin_of(endpoint));
    if let Some(other) = elsewhere {
        let other = clean(other, 120);
        return Err(fail!(
            IssuerMismatch,
            "{base} sends sign-in to another host: {other}"
        ));
    }
    // Without S256, a stolen code would suffice to get the tokens.
    if !metadata
        .code_challenge_methods_supported
        .iter()
        .any(|method| method == "S256")
    {
        return Err(fail!(
            IssuerMismatch,
            "{base} does not support PKCE with S256"
        ));
    }
    Ok(metadata)
}

async fn register_client(
    context: &Context,
    http: &Http,
    metadata: &Metadata,
    redirect: &str,
    purpose: Option<&str>,
) -> Result<String, Failure> {
    let machine = context.process.host_name();
    let machine = machine.map_or_else(String::new, |name| format!(" on {}", clean(&name, 48)));
    let purpose = purpose.map_or_else(String::new, |purpose| format!(" ({purpose})"));
    let request = http
        .request(Method::POST, &metadata.registration_endpoint)
        .json(&json!({
            "client_name": format!("vault{machine}{purpose}"),
            "redirect_uris": [redirect],
            // A program on a user's machine cannot keep a client secret.
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "software_id": "vault",
            "software_version": env!("CARGO_PKG_VERSION"),
        }));
    let answer = http.send(request, ceiling::SMALL).await?;
    Ok(oauth_answer::<Registered>(answer)?.client_id)
}

/// The parameters that are new for each authorization request (RFC 6749, RFC 7636).
#[derive(Clone, Copy)]
struct AuthorizationRequest<'a> {
    client_id: &'a str,
    redirect: &'a str,
    /// The PKCE verifier; the address carries only its hash.
    verifier: &'a str,
    state: &'a str,
}

fn authorize_address(
    metadata: &Metadata,
    wanted: SignIn<'_>,
    request: AuthorizationRequest<'_>,
) -> Result<Url, Failure> {
    let mut address = Url::parse(&metadata.authorization_endpoint)
        .map_err(|error| fail!(IssuerMismatch, "{error}"))?;
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(request.verifier.as_bytes()));
    let mut query = address.query_pairs_mut();
    query.extend_pairs([
        ("response_type", "code"),
        ("client_id", request.client_id),
        ("redirect_uri", request.redirect),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
        (
            "scope",
            match wanted.wider {
                Some(wider) => wider.scopes,
                None if wanted.operator => OPERATOR_SCOPE,
                None => "read write",
            },
        ),
        // `login`, because the browser may still be signed in to another account. For more scopes,
        // the user has signed in before and only decides on the consent page.
        ("prompt", either(wanted.wider.is_some(), "consent", "login")),
        ("state", request.state),
    ]);
    if let Some(namespace) = wanted.namespace {
        query.append_pair("vault_namespace", namespace);
    }
    drop(query);
    Ok(address)
}

/// Shows the address and waits for the first callback: from the browser at the loopback address, or
/// pasted on standard input.
async fn await_callback(
    context: &Context,
    listener: &TcpListener,
    address: &Url,
    wanted: SignIn<'_>,
) -> Result<CallbackParams, Failure> {
    let ui = &context.ui;
    let no_browser = wanted.no_browser;
    let page = Page {
        address: address.as_str(),
        opened: "Sign in with",
        verb: "sign in",
    };
    let opened = browser::show_page(context, &page, no_browser);
    // Without a browser on this machine the user has to paste the callback.
    let paste = no_browser || (!opened && context.process.stdin_is_terminal);
    let pasted = async {
        if !paste {
            std::future::pending::<()>().await;
        }
        ui.must_see(
            "Waiting for the browser. If it is on another machine, paste the address that it ends at (or \
             the code in it) and press Enter:",
        );
        loop {
            match tokio::task::spawn_blocking(Ui::read_line).await {
                Ok(Some(line)) if line.is_empty() => {}
                Ok(Some(line)) => return Some(parse_pasted(&line)),
                _ => return None,
            }
        }
    };
    // Whichever callback arrives first wins; the other one is dropped.
    tokio::select! {
        biased;
        callback = callback_from_browser(listener) => Ok(callback),
        // Standard input has ended, so no callback can be pasted any more.
        callback = pasted => callback.ok_or_else(|| no_terminal_to_sign_in(wanted.base)),
        () = tokio::time::sleep(PATIENCE) => Err(
            fail!(SignInTimeout, "no sign-in within ten minutes").hint("run the command again")
        ),
    }
}

/// Returns the HTML page that the browser shows at the end of a sign-in, in the style of the
/// service's pages.
fn final_page(signed_in: bool) -> String {
    let (title, text) = if signed_in {
        ("Signed in", "Close this page and return to the terminal.")
    } else {
        ("Not signed in", "The terminal shows the reason.")
    };
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>{title} · vault</title><style>{PAGE_STYLE}</style>\
         <body><header><div>vault <span>on this computer</span></div></header>\
         <main><h1>{title}</h1><p>{text}</p></main>"
    )
}

/// Serves browser requests until one reaches `/callback` with a query.
async fn callback_from_browser(listener: &TcpListener) -> CallbackParams {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        // Browsers may open connections that they never use. The timeout keeps such a connection
        // from blocking the next one.
        let answered = tokio::time::timeout(Duration::from_secs(5), answer_browser(stream));
        if let Ok(Some(callback)) = answered.await {
            return callback;
        }
    }
}

async fn answer_browser(mut stream: TcpStream) -> Option<CallbackParams> {
    let mut head = Vec::new();
    let mut buffer = [0_u8; 2048];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read(&mut buffer).await.ok()?;
        // Every program on this machine can connect, so limit what it can send.
        if read == 0 || head.len() > 16 * 1024 {
            return None;
        }
        head.extend_from_slice(&buffer[..read]);
    }
    let head = String::from_utf8_lossy(&head);
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    // Browsers also request an icon. Only the callback ends the wait.
    let Some(query) = target.strip_prefix("/callback?") else {
        let _ = stream
            .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await;
        return None;
    };
    let callback = parse_query(query);
    let page = final_page(callback.code.is_some());
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    Some(callback)
}

fn parse_query(query: &str) -> CallbackParams {
    let mut callback = CallbackParams::default();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let slot = match &*name {
            "code" => &mut callback.code,
            "state" => &mut callback.state,
            "iss" => &mut callback.iss,
            "error" => &mut callback.error,
            "error_description" => &mut callback.description,
            _ => continue,
        };
        *slot = Some(value.into_owned());
    }
    callback
}

/// Parses what the user pasted: the complete callback address, its query, or only the code.
fn parse_pasted(line: &str) -> CallbackParams {
    match line.split_once('?') {
        Some((_, query)) => parse_query(query.split('#').next().unwrap_or(query)),
        None if line.contains("code=") || line.contains("error=") => parse_query(line),
        None => CallbackParams {
            code: Some(line.to_owned()),
            ..CallbackParams::default()
        },
    }
}

/// Returns the code of the callback. Fails unless the callback belongs to this sign-in.
fn check_callback(callback: CallbackParams, state: &str, issuer: &str) -> Result<String, Failure> {
    // A pasted code has neither `state` nor `iss`. PKCE still binds it to this process.
    let bare = callback.state.is_none() && callback.iss.is_none() && callback.error.is_none();
    if !bare && callback.state.as_deref() != Some(state) {
        return Err(
            fail!(StateMismatch, "this answer belongs to another sign-in")
                .hint("run the command again and use the address that it prints"),
        );
    }
    if !bare && callback.iss.as_deref() != Some(issuer) {
        return Err(fail!(
            IssuerMismatch,
            "the answer comes from another service"
        ));
    }
    match (callback.code, callback.error) {
        (Some(code), None) => Ok(code),
        (_, Some(error)) if error == "access_denied" => {
            Err(fail!(AccessDenied, "access was denied on the sign-in page"))
        }
        (_, error) => {
            let reason = callback.description.or(error);
            let reason = clean(reason.as_deref().unwrap_or("no reason given"), 200);
            Err(fail!(
                SignInFailed,
                "the service refused the sign-in: {reason}"
            ))
        }
    }
}

/// Parses the response of an OAuth endpoint. An error keeps the reason that the service gives.
fn oauth_answer<T: DeserializeOwned>(answer: Answer) -> Result<T, Failure> {
    if answer.is_success() {
        return answer.json();
    }
    let refusal: OAuthError = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = match answer.status {
        429 | 500.. => ErrorCode::SignInUnavailable,
        _ => ErrorCode::SignInFailed,
    };
    let mut reasons = [refusal.error_description, refusal.error].into_iter();
    let reason = reasons.find(|text| !text.is_empty());
    let reason = reason.unwrap_or_else(|| format!("status {}", answer.status));
    let message = format!("the service refused the sign-in: {}", clean(&reason, 200));
    Err(Failure::new(code, message)
        .hint(format!("run {} again", paint(BOLD, "vault cloud connect"))))
}

fn random_text() -> String {
    let mut bytes = [0_u8; 32];
    SystemRandom.fill_random(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_pasting_gives_the_code() {
        let whole =
            parse_pasted("http://127.0.0.1:4000/callback?code=vac_1&state=s&iss=https%3A%2F%2Fv");
        assert_eq!(whole.code.as_deref(), Some("vac_1"));
        assert_eq!(whole.iss.as_deref(), Some("https://v"));
        let query = parse_pasted("code=vac_1&state=s");
        assert_eq!(query.state.as_deref(), Some("s"));
        assert_eq!(parse_pasted("vac_1").code.as_deref(), Some("vac_1"));
    }

    #[test]
    fn the_final_page_says_how_it_ended_in_the_style_of_the_service() {
        for (signed_in, heading) in [(true, "Signed in"), (false, "Not signed in")] {
            let page = final_page(signed_in);
            assert!(
                page.contains(&format!("<main><h1>{heading}</h1>")),
                "{page}"
            );
            assert!(
                page.contains(PAGE_STYLE) && !page.contains("<script"),
                "{page}"
            );
        }
    }

    #[test]
    fn an_answer_of_another_sign_in_is_refused() {
        let check = |query: &str| check_callback(parse_pasted(query), "s", "https://v");
        for (query, code) in [
            ("code=c&state=other&iss=https://v", "state_mismatch"),
            ("code=c&iss=https://v", "state_mismatch"),
            ("code=c&state=s&iss=https://evil", "issuer_mismatch"),
            ("code=c&state=s", "issuer_mismatch"),
            ("error=access_denied&state=s&iss=https://v", "access_denied"),
            ("error=invalid&state=s&iss=https://v", "sign_in_failed"),
            (
                "error=access_denied&state=x&iss=https://v",
                "state_mismatch",
            ),
            ("code=c&error=e&state=s&iss=https://v", "sign_in_failed"),
        ] {
            let refused = check(&format!("x?{query}")).unwrap_err();
            assert_eq!(refused.code.word(), code, "{query}");
        }
        assert_eq!(check("x?code=c&state=s&iss=https://v").unwrap(), "c");
        assert_eq!(check("c").unwrap(), "c");
    }
}
