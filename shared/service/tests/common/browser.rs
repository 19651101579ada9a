//! A browser without scripts, and the requests of programs, in process.

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use serde_json::Value;
use vault_service::App;
use vault_service::http::Peer;
use vault_service::model::user::Scopes;
use vault_service::web::form::with_query;

use super::exchange;

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
