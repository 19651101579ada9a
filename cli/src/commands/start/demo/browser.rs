//! A browser reduced to what sign-in needs: forms, cookies, redirects of one site. It knows the pages of our own service only.

use std::collections::BTreeMap;

use reqwest::{Client, Response, StatusCode, header};
use url::Url;

use crate::{
    context::Context,
    errors::{Exit, Failure},
    service::{Address, Http},
};

/// Walks from an authorize address to the loopback address of the command that waits there.
pub async fn sign_in(
    context: &Context,
    base: &str,
    authorize: &str,
    email: &str,
    password: &str,
) -> Result<(), Failure> {
    let base: Address = base.parse().map_err(failed)?;
    let mut browser = Browser {
        client: Http::new(context, &base.base)?.plain(),
        cookies: BTreeMap::new(),
    };
    let mut address = Url::parse(authorize).map_err(failed)?;
    let mut response = browser.get(&address).await?;
    for _ in 0..8 {
        match response.status() {
            StatusCode::FOUND => {
                let waiting = location(&response, &address)?;
                browser.get(&waiting).await?;
                return Ok(());
            }
            StatusCode::SEE_OTHER => {
                address = location(&response, &address)?;
                response = browser.get(&address).await?;
            }
            StatusCode::OK => {
                let page = response.text().await.map_err(failed)?;
                response = browser.answer(&address, &page, email, password).await?;
            }
            status => return Err(failed(format!("the sign-in page answered {status}"))),
        }
    }
    Err(failed("the sign-in never came to an end"))
}

struct Browser {
    client: Client,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    async fn get(&mut self, address: &Url) -> Result<Response, Failure> {
        let request = self.client.get(address.clone());
        self.send(request).await
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> Result<Response, Failure> {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let response = request
            .header(header::COOKIE, cookies.join("; "))
            .send()
            .await
            .map_err(failed)?;
        for cookie in response.headers().get_all(header::SET_COOKIE) {
            let pair = cookie.to_str().unwrap_or_default().split(';').next();
            if let Some((name, value)) = pair.and_then(|pair| pair.split_once('=')) {
                self.cookies
                    .insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
        Ok(response)
    }

    /// Fills in the form of the page: the password, or every box of the consent.
    async fn answer(
        &mut self,
        address: &Url,
        page: &str,
        email: &str,
        password: &str,
    ) -> Result<Response, Failure> {
        let login = page.contains("name=\"password\"");
        let wanted = if login {
            "/oauth/login"
        } else {
            "/oauth/consent"
        };
        let form = page
            .split("<form")
            .find(|form| form.contains(wanted))
            .and_then(|form| form.split("</form>").next())
            .ok_or_else(|| failed(format!("the page has no form for {wanted}")))?;
        let action = attribute(form, "action").unwrap_or_else(|| wanted.to_owned());
        let mut fields: Vec<(String, String)> = form
            .split("<input")
            .filter(|input| attribute(input, "type").as_deref() == Some("hidden"))
            .filter_map(|input| Some((attribute(input, "name")?, attribute(input, "value")?)))
            .collect();
        if login {
            fields.push(("email".to_owned(), email.to_owned()));
            fields.push(("password".to_owned(), password.to_owned()));
        } else {
            for scope in ["read", "write"] {
                fields.push(("scope".to_owned(), scope.to_owned()));
            }
            fields.push(("decision".to_owned(), "approve".to_owned()));
            if !fields.iter().any(|(name, _)| name == "namespace") {
                let choice = form
                    .split("<input")
                    .filter(|input| attribute(input, "name").as_deref() == Some("namespace"))
                    .find_map(|input| attribute(input, "value"))
                    .or_else(|| {
                        form.split("<option")
                            .nth(1)
                            .and_then(|option| attribute(option, "value"))
                    });
                fields.extend(choice.map(|slug| ("namespace".to_owned(), slug)));
            }
        }
        let target = address.join(&action).map_err(failed)?;
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(&fields)
            .finish();
        let request = self
            .client
            .post(target.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ORIGIN, target.origin().ascii_serialization())
            .body(body);
        self.send(request).await
    }
}

fn location(response: &Response, address: &Url) -> Result<Url, Failure> {
    response
        .headers()
        .get(header::LOCATION)
        .and_then(|value| address.join(value.to_str().ok()?).ok())
        .ok_or_else(|| failed("a redirect without an address"))
}

/// The value of an attribute in the tag that the text begins with.
fn attribute(text: &str, name: &str) -> Option<String> {
    let tag = text.split('>').next()?;
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    let value = tag[start..].split('"').next()?;
    Some(
        value
            .replace("&#38;", "&")
            .replace("&amp;", "&")
            .replace("&#x3D;", "=")
            .replace("&#61;", "="),
    )
}

fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Network,
        "sign_in_failed",
        format!("the demo could not sign in: {why}"),
    )
}
