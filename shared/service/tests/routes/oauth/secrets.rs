//! What is stored, and what is logged, about secrets: never they themselves.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use vault_service::model::user::Scopes;
use vault_store::StoreError;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use super::ADMIN;
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Tokens, VERIFIER, Visitor, authorize, bootstrap, exchange,
    invite, register,
};
use crate::support::world;

/// Keeps all that was ever asked and written.
#[derive(Default)]
struct Recording(Mutex<String>);

#[async_trait]
impl Hook for Recording {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        self.0.lock().unwrap().push_str(&format!("{call:?}\n"));
        Ok(())
    }
}

#[tokio::test]
async fn requirements_26_35_no_secret_is_ever_stored() {
    let mut place = world();
    let recording = Arc::new(Recording::default());
    place.app.ports.records = Hooked::new(&place.memory, recording.clone());
    let app = &place.app;
    bootstrap(app).await;
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[("scope", "read write")]);
    let mut visitor = Visitor::new(app);
    let answer = visitor.approve(&address, ADMIN, "default", Scopes::ALL);
    let code = answer.await.returned("code").unwrap();
    let first = Tokens::of(&client, &exchange(app, &client, &code).await);
    let next = place.renewed(&first).await;
    let link = invite(app, "eve@example.org").await.unwrap();
    let cookie = visitor.cookie.unwrap();
    let written = recording.0.lock().unwrap();
    for (what, secret) in [
        ("password", OWNER_PASSWORD),
        ("verifier", VERIFIER),
        ("code", &code["vac_".len()..]),
        ("access token", &first.access["vat_".len()..]),
        ("access token", &next.access["vat_".len()..]),
        ("refresh token", &first.refresh["vrt_".len()..]),
        ("refresh token", &next.refresh["vrt_".len()..]),
        ("session", cookie.split_once("vse_").unwrap().1),
        ("invitation", link.split_once("vin_").unwrap().1),
    ] {
        assert!(secret.len() > 20 && !written.contains(secret), "{what}");
    }
    assert!(written.contains(OWNER), "what is stored was looked at");
}
