//! The last part of the walk: what somebody who owns nothing may not do.

use reqwest::header::WWW_AUTHENTICATE;
use serde_json::json;
use url::Url;
use vault_tests::browser::{Browser, forms, no_answer, words};

use crate::report::{Report, left_out};
use crate::walk::{
    Consent, MadeAccount, Service, Step, Tokens, authorize, call, exchange, random_text,
};
use crate::web::{Failure, send, text};

impl Service {
    /// A member is invited, gets in, and may not publish.
    pub(crate) async fn policy(
        &mut self,
        report: &mut Report,
        client: &str,
        owner: &Tokens,
    ) -> Option<()> {
        let email = format!("smoke-{}@vault.invalid", random_text(9).to_lowercase());
        let invited = report
            .step("policy, invitation", self.invite(&owner.access, &email))
            .await?;
        self.member = Some(invited);
        let link = report
            .step("policy, operator's link", self.link(client, &email))
            .await?;
        let Some(url) = link else {
            let why = "only an operator makes a link to set a password";
            left_out("policy, member signs in", why);
            return Some(());
        };
        let password = random_text(24);
        let member = report
            .step(
                "policy, member signs in",
                self.join(&url, client, &email, &password),
            )
            .await?;
        report
            .step("policy, skill.publish", self.publish(&member.access))
            .await
    }

    /// The link by which the member sets a password: the owner signs in again, as an operator.
    /// `None` when the owner is none.
    async fn link(&mut self, client_id: &str, email: &str) -> Step<Option<String>> {
        let account = self.settings.account.as_ref();
        let account = account.map(|(email, word)| (&**email, &**word));
        let asked = self.asked(client_id, "read write operator");
        let mut browser = Browser::with(self.client.clone());
        let (consent, _) = authorize(&mut browser, &asked, account).await?;
        let Consent::Code(code) = consent else {
            return Err(Failure::new("a code", "a sign-in elsewhere"));
        };
        let expected = "access_token, scope";
        let fields = exchange(client_id, &asked, &code);
        let answer = self.granted(&fields, expected).await?;
        let scope = text(&answer, "scope")?;
        if !scope.split(' ').any(|word| word == "operator") {
            return Ok((None, format!("scope {scope}: the account is no operator")));
        }
        let expected = "a link to set a password";
        let operator = text(&answer, "access_token")?;
        // Before the request: whatever its answer is, the account may exist afterwards.
        self.account = Some(MadeAccount {
            operator: operator.to_owned(),
            email: email.to_owned(),
        });
        let request = self
            .client
            .post(self.url("/admin/operator/accounts"))
            .bearer_auth(operator)
            .json(&json!({ "email": email }));
        let answer = send(request, expected).await?.with_status(201, expected)?;
        let link = text(&answer.json(expected)?, "invite_url")?.to_owned();
        Ok((Some(link), "made".to_owned()))
    }

    async fn invite(&self, token: &str, email: &str) -> Step<String> {
        let expected = "an invited member";
        let request = self
            .client
            .post(self.url("/admin/users"))
            .bearer_auth(token)
            .json(&json!({ "email": email, "role": "role:member", "scopes": ["read"] }));
        let answer = send(request, expected).await?.with_status(201, expected)?;
        let id = text(&answer.json(expected)?, "id")?.to_owned();
        Ok((id.clone(), format!("{email} is {id}")))
    }

    /// The member sets a password by the link, signs in, and gets a token.
    async fn join(&self, url: &str, client_id: &str, email: &str, word: &str) -> Step<Tokens> {
        let mut browser = Browser::with(self.client.clone());
        let expected = "200: a page to set a password";
        let failed = |error: &reqwest::Error| Failure::new(expected, no_answer(error));
        let page = browser.try_get(url).await.map_err(|error| failed(&error))?;
        let status = page.status();
        let page = page.text().await.map_err(|error| failed(&error))?;
        let form = forms(&page)
            .into_iter()
            .find(|form| form.action.contains("/oauth/invite/"))
            .ok_or_else(|| Failure::new(expected, format!("{status} {}", words(&page))))?;
        let target = Url::parse(url).and_then(|base| base.join(&form.action));
        let target = target.map_err(|_| Failure::new(expected, "a form that leads nowhere"))?;
        let mut fields = form.hidden;
        fields.push(("password".into(), word.into()));
        let done = browser.try_post(target.as_str(), &fields).await;
        let done = done.map_err(|error| failed(&error))?;
        let status = done.status();
        if !status.is_success() && !status.is_redirection() {
            let page = done.text().await.unwrap_or_default();
            let came = format!("{status} {}", words(&page));
            return Err(Failure::new("the password set", came));
        }
        let asked = self.asked(client_id, "read write");
        let (consent, _) = authorize(&mut browser, &asked, Some((email, word))).await?;
        let Consent::Code(code) = consent else {
            return Err(Failure::new("a code", "a sign-in elsewhere"));
        };
        let (tokens, note) = self.token(client_id, &asked, &code).await?;
        if tokens.scope != "read" {
            return Err(Failure::new("the scope read for a member", tokens.scope));
        }
        Ok((tokens, note))
    }

    async fn publish(&self, token: &str) -> Step<()> {
        let expected = "403 for a member's skill.publish, without a challenge";
        let skill =
            "---\nname: smoke-remote\ndescription: A member may not publish this.\n---\nNothing.\n";
        let message = call("skill.publish", &json!({ "skill_md": skill }));
        let answer = self.ask(token, &message, expected).await?;
        if answer.status.as_u16() != 403 || answer.headers.contains_key(WWW_AUTHENTICATE) {
            return Err(answer.instead_of(expected));
        }
        Ok(((), "403".to_owned()))
    }
}
