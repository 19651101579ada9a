//! `/oauth/*` and the well-known documents. Numbers in test names are those of the OAuth
//! requirements.

mod authorize;
mod bearer;
mod bootstrap;
mod cors;
mod document;
mod families;
mod invite;
mod oidc;
mod pages;
mod password;
mod register;
mod replays;
mod requirements;
mod revoke;
mod secrets;
mod sign_in;
mod token;
mod well_known;

use vault_service::config::Config;
use vault_service::model::client::{ClientId, Connection, connection_key};
use vault_service::model::user::{NamespaceRef, Role, Scopes, User};

use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Reply, Tokens, Visitor, authorize, bootstrap,
    is_good, member, namespace, put, read, refresh, tokens,
};
use crate::support::{World, world, world_with};

/// The first owner, and how to sign in.
const ADMIN: (&str, &str) = (OWNER, OWNER_PASSWORD);
/// Somebody with a part in `acme`, and how to sign in.
const ADA: (&str, &str) = ("ada@example.org", PASSWORD);
/// The heading of the consent page.
const CONSENT: &str = "200 Allow this app to use your vault?";
/// A client that was never registered.
const UNKNOWN: &str = "cli_00000000000000000000000000";

/// A service without rate limits that people reach at this address.
pub fn world_at(public_url: &str, change: impl FnOnce(&mut Config)) -> World {
    world_with(|config| {
        config.public_url = public_url.parse().unwrap();
        change(config);
    })
}

/// A service with the first owner.
async fn owned() -> World {
    let world = world();
    bootstrap(&world.app).await;
    world
}

impl World {
    /// Tokens of the first owner for `default`.
    async fn tokens(&self, scopes: Scopes) -> Tokens {
        tokens(&self.app, ADMIN, "default", scopes).await
    }

    async fn refresh(&self, held: &Tokens) -> Reply {
        refresh(&self.app, &held.client, &held.refresh).await
    }

    /// The pair that a refresh gives.
    async fn renewed(&self, held: &Tokens) -> Tokens {
        Tokens::of(&held.client, &self.refresh(held).await)
    }

    async fn is_good(&self, access: &str) -> bool {
        is_good(&self.app, access).await
    }

    /// The first owner's consent for a client that has the address [`CALLBACK`]; its code.
    async fn code(&self, client: &str) -> String {
        let address = authorize(client, CALLBACK, &[]);
        let mut visitor = Visitor::new(&self.app);
        let answer = visitor.approve(&address, ADMIN, "default", Scopes::ALL);
        answer.await.returned("code").unwrap()
    }

    /// What an owner of `default` does to a client.
    async fn end_connection(&self, client: &ClientId) {
        let home = self.read_namespace("default").await;
        let key = connection_key(&home.id, client);
        let mut connection: Connection = read(&self.app, &key).await;
        connection.revoked_at = Some(self.now());
        put(&self.app, key, &connection).await;
    }

    /// Makes the namespace `acme` with ADA in it.
    async fn ada(&self, role: Role, scopes: Scopes) -> (NamespaceRef, User) {
        let acme = namespace(&self.app, "acme").await;
        let user = member(&self.app, ADA.0, &acme, role, scopes).await;
        (acme, user)
    }
}
