//! `/oauth/oidc/*`: sign-in through an identity provider, over one on loopback.

mod accounts;
mod answers;
mod double;
mod outages;

use std::sync::Arc;

use serde_json::Value;
use vault_service::App;
use vault_service::config::{Config, SignIn};
use vault_service::model::account::Account;
use vault_service::oidc::{ProviderClient, given_secret};

use self::double::{CLIENT_ID, CLIENT_SECRET, Double};
use crate::common::{CALLBACK, Reply, Visitor, account, authorize, bootstrap, register};
use crate::support::{World, world_with};

const SIGN_IN: &str = "200 Sign in";
const ACCOUNT: &str = "200 Your account";
const CONNECT: &str = "200 Connect your sign-in";
const EXPIRED: &str = "400 This sign-in has expired";
const NOT_VALID: &str = "403 The identity provider’s answer is not valid";
const UNVERIFIED: &str = "403 Your e-mail address is not verified";
const DOWN: &str = "503 The identity provider does not answer";
const START: &str = "/oauth/oidc/start";

/// A service with the first owner, and its provider.
struct Place {
    world: World,
    provider: Double,
}

impl Place {
    async fn new() -> Self {
        Self::with(&[], |_| {}).await
    }

    /// With these variables beside those of the provider.
    async fn with(
        variables: &[(&'static str, &'static str)],
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let provider = Double::start().await;
        let variable = |name: &str| match name {
            "VAULT_OIDC_ISSUER" => Some(provider.issuer()),
            "VAULT_OIDC_CLIENT_ID" => Some(CLIENT_ID),
            "VAULT_OIDC_NAME" => Some("Example <ID>"),
            _ => {
                let found = variables.iter().find(|(held, _)| *held == name);
                found.map(|(_, value)| *value)
            }
        };
        let sign_in = SignIn::from_variables(&variable, true).unwrap();
        let mut world = world_with(|config| {
            config.sign_in = sign_in;
            change(config);
        });
        // The provider reads the clock of the service.
        provider.follows(&world.clock);
        let secret = given_secret(CLIENT_SECRET.to_owned().into());
        world.app = world
            .app
            .with_provider(|issuer| Arc::new(ProviderClient::new(issuer)), Some(secret));
        bootstrap(&world.app).await;
        Self { world, provider }
    }

    fn app(&self) -> &App {
        &self.world.app
    }

    async fn account(&self, email: &str) -> Account {
        account(self.app(), email).await
    }

    /// An authorize address of a new client.
    async fn authorize(&self, more: &[(&str, &str)]) -> String {
        let client = register(self.app(), CALLBACK).await;
        authorize(&client, CALLBACK, more)
    }

    /// A browser at the provider, on its way to a page of ours; where it is at the provider.
    async fn at_provider(&self, path: &str) -> (Visitor<'_>, String) {
        let mut visitor = Visitor::new(self.app());
        let address = sent(&mut visitor, path).await;
        (visitor, address)
    }

    /// A browser that came back from the provider with these claims, and what it got.
    async fn back(&self, change: impl FnOnce(&mut Value)) -> (Visitor<'_>, Reply) {
        let (mut visitor, address) = self.at_provider("/account").await;
        let reply = visitor.get(&self.provider.answer(&address, change)).await;
        (visitor, reply)
    }

    /// A browser in which the person with these claims is signed in, and the account page.
    async fn signed_in(&self, change: impl FnOnce(&mut Value)) -> (Visitor<'_>, Reply) {
        let (mut visitor, reply) = self.back(change).await;
        let found = (reply.status, reply.header("location"));
        assert_eq!(found, (303, "/account"), "{}", reply.body);
        let page = visitor.get("/account").await;
        assert_eq!(page.page(), ACCOUNT, "{}", page.body);
        (visitor, page)
    }
}

/// Presses the button of the provider on the sign-in page that stands before `path`; where the
/// browser goes.
async fn sent(visitor: &mut Visitor<'_>, path: &str) -> String {
    let page = visitor.get(path).await;
    assert_eq!(page.page(), SIGN_IN, "{}", page.body);
    let leaving = visitor.fill(&page, START, &[]).await;
    let name = "Continue at Example &#60;ID&#62;";
    assert_eq!(
        (leaving.status, leaving.heading()),
        (200, name),
        "{}",
        leaving.body
    );
    let refresh = leaving.header("refresh").strip_prefix("0;url=");
    refresh.unwrap().to_owned()
}
