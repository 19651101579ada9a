//! A browser reduced to what sign-in needs: it follows forms and redirects, keeps cookies, runs no script.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, StatusCode, redirect};

use crate::place;

/// One browser with its cookies.
pub struct Browser {
    client: Client,
    cookies: BTreeMap<String, String>,
}

/// A form as found in a page.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// Where it goes.
    pub action: String,
    /// Names and values of its hidden fields.
    pub hidden: Vec<(String, String)>,
}

/// An HTTP client that follows nothing and speaks to loopback.
pub fn client() -> Client {
    // Fails only when a provider was installed before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy();
    if let Some(place) = place::deployed() {
        client = client.resolve(&place.host(), place.listens_at());
    }
    client.build().expect("a client without settings")
}

impl Default for Browser {
    fn default() -> Self {
        Self::new()
    }
}

impl Browser {
    /// A browser without cookies.
    pub fn new() -> Self {
        Self {
            client: client(),
            cookies: BTreeMap::new(),
        }
    }

    /// `GET`, without following a redirect.
    pub async fn get(&mut self, url: &str) -> Response {
        let response = self
            .client
            .get(url)
            .header(COOKIE, self.cookie_line())
            .send()
            .await
            .expect("an answer");
        self.keep_cookies(&response);
        response
    }

    /// Sends a form, without following a redirect.
    pub async fn post(&mut self, url: &str, fields: &[(String, String)]) -> Response {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let origin = url::Url::parse(url)
            .expect("an absolute address")
            .origin()
            .ascii_serialization();
        let response = self
            .client
            .post(url)
            .header(COOKIE, self.cookie_line())
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", origin)
            .body(body)
            .send()
            .await
            .expect("an answer");
        self.keep_cookies(&response);
        response
    }

    /// Walks an authorize address as a person would: signs in, ticks every scope, approves. Returns the redirect address with the code.
    pub async fn approve(&mut self, authorize: &str, email: &str, password: &str) -> String {
        self.approve_scopes(authorize, email, password, &["read", "write"])
            .await
    }

    /// Walks an authorize address as [`Browser::approve`] does, and ticks these scopes only.
    pub async fn approve_scopes(
        &mut self,
        authorize: &str,
        email: &str,
        password: &str,
        scopes: &[&str],
    ) -> String {
        let base = url::Url::parse(authorize).expect("an absolute address");
        let mut response = self.get(authorize).await;
        for _ in 0..6 {
            match response.status() {
                StatusCode::FOUND => return location(&response),
                StatusCode::SEE_OTHER => {
                    let next = base
                        .join(&location(&response))
                        .expect("a redirect of the same site");
                    response = self.get(next.as_str()).await;
                }
                StatusCode::OK => {
                    let page = response.text().await.expect("a page");
                    response = self.answer(&base, &page, (email, password), scopes).await;
                }
                status => panic!(
                    "{status} while signing in: {}",
                    response.text().await.unwrap_or_default()
                ),
            }
        }
        panic!("sign-in never came to an end");
    }

    async fn answer(
        &mut self,
        base: &url::Url,
        page: &str,
        (email, password): (&str, &str),
        scopes: &[&str],
    ) -> Response {
        let login = page.contains("name=\"password\"");
        let wanted = if login {
            "/oauth/login"
        } else {
            "/oauth/consent"
        };
        let form = forms(page)
            .into_iter()
            .find(|form| form.action.ends_with(wanted))
            .unwrap_or_else(|| panic!("no form for {wanted} in the page:\n{page}"));
        let mut fields = form.hidden;
        if login {
            fields.push(("email".into(), email.into()));
            fields.push(("password".into(), password.into()));
        } else {
            for scope in scopes {
                if page.contains(&format!("value=\"{scope}\"")) {
                    fields.push(("scope".into(), (*scope).into()));
                }
            }
            // Where there is one vault only, the page names it in a hidden field.
            let is_named = fields.iter().any(|(name, _)| name == "namespace");
            if !is_named && let Some(namespace) = chosen_namespace(page) {
                fields.push(("namespace".into(), namespace));
            }
            fields.push(("decision".into(), "approve".into()));
        }
        let target = base.join(&form.action).expect("a form of the same site");
        self.post(target.as_str(), &fields).await
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
            let pair = line
                .to_str()
                .expect("a cookie in ASCII")
                .split(';')
                .next()
                .unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.cookies.insert(name.trim().into(), value.trim().into());
            }
        }
    }
}

/// The `Location` of a redirect.
pub fn location(response: &Response) -> String {
    response
        .headers()
        .get(LOCATION)
        .expect("a Location")
        .to_str()
        .expect("a Location in ASCII")
        .to_owned()
}

/// Every form of a page, with its hidden fields.
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
