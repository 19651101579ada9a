//! A browser reduced to what sign-in needs: it follows forms and redirects, keeps cookies, runs no
//! script.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, StatusCode, redirect};

use crate::place;

/// An HTTP client that keeps the cookies of one person.
pub struct Browser {
    client: Client,
    cookies: BTreeMap<String, String>,
}

/// A form that a page contains, ready to be filled in and submitted.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// The form's `action`: the URL that it is submitted to.
    pub action: String,
    /// Names and values of its hidden fields.
    pub hidden: Vec<(String, String)>,
}

/// A visit of the OAuth authorization pages, from the first request to its end.
#[derive(Clone, Debug)]
pub struct Walk {
    /// HTTP status of each response, in the order of the requests.
    pub statuses: Vec<u16>,
    /// The page or address at which no redirect or form was left to follow.
    pub end: End,
}

/// The place at which a [`Walk`] stops.
#[derive(Clone, Debug)]
pub enum End {
    /// The redirect address of the app, with the query in which the service put the code or the
    /// error.
    Back(String),
    /// The service's own sign-in page, when the test gave no e-mail address and password.
    SignIn,
    /// The sign-in page of another identity provider; holds its origin.
    Elsewhere(String),
}

/// Creates an HTTP client that follows no redirects and uses no proxy.
pub fn client() -> Client {
    // Installing fails only if an earlier test of this process has installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy();
    if let Some(place) = place::deployed() {
        client = client.resolve(&place.name(), place.listens_at());
    }
    client.build().expect("a client without settings")
}

impl Default for Browser {
    fn default() -> Self {
        Self::new()
    }
}

impl Browser {
    /// Creates a browser without cookies.
    pub fn new() -> Self {
        Self::with(client())
    }

    /// Creates a browser without cookies that sends its requests through `client`, which must not
    /// follow redirects.
    pub fn with(client: Client) -> Self {
        Self {
            client,
            cookies: BTreeMap::new(),
        }
    }

    /// Sends `GET` and returns the answer without following a redirect. Panics if there is no
    /// answer.
    pub async fn get(&mut self, url: &str) -> Response {
        self.try_get(url).await.expect("an answer")
    }

    /// Sends a form by `POST` and returns the answer without following a redirect. Panics if there
    /// is no answer.
    pub async fn post(&mut self, url: &str, fields: &[(String, String)]) -> Response {
        self.try_post(url, fields).await.expect("an answer")
    }

    /// Like [`Browser::get`], but returns an error instead of panicking if there is no response.
    pub async fn try_get(&mut self, url: &str) -> Result<Response, reqwest::Error> {
        let asked = self.client.get(url).header(COOKIE, self.cookie_line());
        let response = asked.send().await?;
        self.keep_cookies(&response);
        Ok(response)
    }

    /// Like [`Browser::post`], but returns an error instead of panicking if there is no response.
    pub async fn try_post(
        &mut self,
        url: &str,
        fields: &[(String, String)],
    ) -> Result<Response, reqwest::Error> {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let origin = url::Url::parse(url).map(|url| url.origin().ascii_serialization());
        let response = self
            .client
            .post(url)
            .header(COOKIE, self.cookie_line())
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", origin.unwrap_or_default())
            .body(body)
            .send()
            .await?;
        self.keep_cookies(&response);
        Ok(response)
    }

    /// Follows the pages of an authorization address as a person would: signs in, ticks every
    /// scope, approves. Returns the redirect address with the code.
    pub async fn approve(&mut self, authorize: &str, email: &str, password: &str) -> String {
        self.approve_scopes(authorize, email, password, &["read", "write"])
            .await
    }

    /// Like [`Browser::approve`], but ticks only these scopes.
    pub async fn approve_scopes(
        &mut self,
        authorize: &str,
        email: &str,
        password: &str,
        scopes: &[&str],
    ) -> String {
        let walk = self
            .walk(authorize, Some((email, password)), scopes)
            .await
            .unwrap_or_else(|stopped| panic!("{stopped}"));
        match walk.end {
            End::Back(address) => address,
            other => panic!("sign-in ended elsewhere: {other:?}"),
        }
    }

    /// Follows the pages of an authorization address to their end: signs in where a page asks for
    /// e-mail and password, ticks these scopes, approves. Fails at an unexpected page, or if the
    /// service does not answer; the message has no secrets.
    pub async fn walk(
        &mut self,
        authorize: &str,
        account: Option<(&str, &str)>,
        scopes: &[&str],
    ) -> Result<Walk, String> {
        let base = url::Url::parse(authorize).map_err(|_| "no absolute address".to_owned())?;
        let mut statuses = Vec::new();
        let mut signed_in = false;
        let mut next = Next::Get(authorize.to_owned());
        for _ in 0..8 {
            let response = match &next {
                Next::Get(url) => self.try_get(url).await,
                Next::Post(url, fields) => self.try_post(url, fields).await,
            };
            let response = response.map_err(|error| no_answer(&error))?;
            let status = response.status();
            statuses.push(status.as_u16());
            let ended = |end| {
                Ok(Walk {
                    statuses: statuses.clone(),
                    end,
                })
            };
            if status.is_redirection() {
                let target = response.headers().get(LOCATION);
                let target = target.and_then(|target| target.to_str().ok());
                let target = target.ok_or("a redirect without an address in ASCII")?;
                let there = base.join(target).map_err(|_| "a redirect to no address")?;
                if there.origin() == base.origin() && there.path().contains("/oauth/") {
                    next = Next::Get(there.into());
                } else if there.query_pairs().any(|(name, _)| name == "client_id") {
                    return ended(End::Elsewhere(there.origin().ascii_serialization()));
                } else {
                    return ended(End::Back(target.to_owned()));
                }
                continue;
            }
            let page = response.text().await.map_err(|error| no_answer(&error))?;
            let forms = forms(&page);
            let form = |path: &str| forms.iter().find(|form| form.action.ends_with(path));
            next = if let Some(form) = form("/oauth/consent") {
                consented(&base, form, &page, scopes)
            } else if let Some(form) = form("/account/invitations") {
                // A person without a vault who was invited to one is asked here, and accepts.
                let mut fields = form.hidden.clone();
                fields.push(("decision".into(), "accept".into()));
                Next::Post(target_of(&base, form), fields)
            } else if let Some(form) = form("/oauth/login") {
                let Some((email, password)) = account else {
                    return ended(End::SignIn);
                };
                if signed_in {
                    return Err(format!("{status} after signing in: {}", words(&page)));
                }
                signed_in = true;
                let mut fields = form.hidden.clone();
                fields.push(("email".into(), email.into()));
                fields.push(("password".into(), password.into()));
                Next::Post(target_of(&base, form), fields)
            } else if status == StatusCode::OK && elsewhere(&base, &forms).is_some() {
                return ended(End::Elsewhere(elsewhere(&base, &forms).unwrap_or_default()));
            } else {
                return Err(format!("{status} while signing in: {}", words(&page)));
            };
        }
        Err(format!("sign-in never came to an end: {statuses:?}"))
    }

    /// Opens the page on which a person confirms what an app asked for, signs in there and
    /// confirms. Returns the visible text of the last page.
    pub async fn confirm(&mut self, address: &str, email: &str, password: &str) -> String {
        self.decide(address, (email, password), "confirm").await
    }

    /// Like [`Browser::confirm`], but presses the button `decision`, `confirm` or `decline`.
    pub async fn decide(
        &mut self,
        address: &str,
        (email, password): (&str, &str),
        decision: &str,
    ) -> String {
        let base = url::Url::parse(address).expect("an address");
        let page = self.get(address).await.text().await.expect("a page");
        let forms_here = forms(&page);
        let mut page = page;
        if let Some(form) = forms_here
            .iter()
            .find(|form| form.action.ends_with("/oauth/login"))
        {
            let mut fields = form.hidden.clone();
            fields.push(("email".into(), email.into()));
            fields.push(("password".into(), password.into()));
            self.post(&target_of(&base, form), &fields).await;
            page = self.get(address).await.text().await.expect("a page");
        }
        let forms_here = forms(&page);
        let Some(form) = forms_here
            .iter()
            .find(|form| form.action.ends_with("/account/confirm"))
        else {
            return words(&page);
        };
        let mut fields = form.hidden.clone();
        fields.push(("decision".into(), decision.into()));
        if decision == "confirm" {
            fields.push(("sure".into(), "yes".into()));
        }
        let done = self.post(&target_of(&base, form), &fields).await;
        words(&done.text().await.expect("a page"))
    }

    /// Opens the link of an invitation and chooses a password there. Returns the status of the last
    /// page.
    pub async fn accept_invitation(&mut self, link: &str, password: &str) -> StatusCode {
        let page = self.get(link).await;
        if page.status() != StatusCode::OK {
            return page.status();
        }
        let page = page.text().await.expect("a page");
        let mut fields = forms(&page).remove(0).hidden;
        fields.push(("password".into(), password.into()));
        self.post(link, &fields).await.status()
    }

    fn cookie_line(&self) -> String {
        self.cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join("; ")
    }

    fn keep_cookies(&mut self, response: &Response) {
        for line in response.headers().get_all(SET_COOKIE) {
            let pair = line.to_str().unwrap_or_default().split(';').next();
            if let Some((name, value)) = pair.unwrap_or_default().split_once('=') {
                self.cookies.insert(name.trim().into(), value.trim().into());
            }
        }
    }
}

/// The next request of a [`Walk`].
enum Next {
    Get(String),
    Post(String, Vec<(String, String)>),
}

/// Fills in the consent form: ticks these scopes and presses "Allow".
fn consented(base: &url::Url, form: &Form, page: &str, scopes: &[&str]) -> Next {
    let mut fields = form.hidden.clone();
    for scope in scopes {
        if page.contains(&format!("value=\"{scope}\"")) {
            fields.push(("scope".into(), (*scope).into()));
        }
    }
    // For a person with a single vault, the page names it in a hidden field; otherwise choose the
    // first one that the page offers.
    let is_named = fields.iter().any(|(name, _)| name == "namespace");
    if !is_named && let Some(namespace) = chosen_namespace(page) {
        fields.push(("namespace".into(), namespace));
    }
    fields.push(("decision".into(), "approve".into()));
    Next::Post(target_of(base, form), fields)
}

fn target_of(base: &url::Url, form: &Form) -> String {
    base.join(&form.action)
        .map_or_else(|_| form.action.clone(), String::from)
}

/// Returns the other origin to which a form of the page leads; `None` if all lead to the page's
/// own.
fn elsewhere(base: &url::Url, forms: &[Form]) -> Option<String> {
    let mut origins = forms
        .iter()
        .filter_map(|form| base.join(&form.action).ok())
        .map(|target| target.origin());
    origins
        .find(|origin| *origin != base.origin())
        .map(|origin| origin.ascii_serialization())
}

/// Describes why a request got no answer. Leaves out the address, whose query may hold a secret.
pub fn no_answer(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "no answer in time".to_owned()
    } else {
        "no answer".to_owned()
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the visible text of a page, cut at 300 characters.
pub fn words(page: &str) -> String {
    let body = page.split("<body").last().unwrap_or_default();
    let mut text = String::new();
    for part in body.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, said)| said));
        text.push(' ');
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(300).collect()
}

/// Returns the forms of a page in their order, with their hidden fields.
pub fn forms(page: &str) -> Vec<Form> {
    page.split("<form")
        .skip(1)
        .map(|rest| {
            let inside = rest.split("</form>").next().unwrap_or_default();
            let action = attribute(inside, "action").unwrap_or_default();
            let hidden = inside
                .split("<input")
                .skip(1)
                .filter_map(|input| {
                    let tag = input.split('>').next().unwrap_or_default();
                    (attribute(tag, "type").as_deref() == Some("hidden"))
                        .then(|| {
                            Some((
                                attribute(tag, "name")?,
                                attribute(tag, "value").unwrap_or_default(),
                            ))
                        })
                        .flatten()
                })
                .collect();
            Form { action, hidden }
        })
        .collect()
}

fn chosen_namespace(page: &str) -> Option<String> {
    let field = page.split("name=\"namespace\"").nth(1)?;
    attribute(field.split("</select>").next()?, "value")
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split(&format!("{name}=\"")).nth(1)?.split('"').next()?;
    Some(
        value
            .replace("&amp;", "&")
            .replace("&#38;", "&")
            .replace("&quot;", "\"")
            .replace("&#39;", "'"),
    )
}
