//! What is stored, and what is logged, about secrets: never they themselves.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use vault_service::model::account::invite;
use vault_service::model::user::Scopes;
use vault_store::StoreError;
use vault_testing::memory::Memory;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use super::place;
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Tokens, VERIFIER, Visitor, authorize, bootstrap, exchange,
    refresh, register,
};

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
    let mut place = place();
    let memory = Arc::new(Memory::new(place.clock.clone()));
    let recording = Arc::new(Recording::default());
    place.app.records = Hooked::new(&memory, recording.clone());
    let app = &place.app;
    bootstrap(app).await;
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[("scope", "read write")]);
    let mut visitor = Visitor::new(app);
    let answer = visitor
        .approve(&address, (OWNER, OWNER_PASSWORD), "default", Scopes::ALL)
        .await;
    let code = answer.returned("code").unwrap();
    let first = Tokens::of(&client, &exchange(app, &client, &code).await);
    let next = Tokens::of(&client, &refresh(app, &client, &first.refresh).await);
    let email = "eve@example.org".parse().unwrap();
    let invited = invite(
        &*app.records,
        &email,
        "https://vault.example",
        app.clock.now(),
        &*app.random,
    );
    let invited = invited.await.unwrap();
    assert!(app.records.commit(invited.writes).await.unwrap().is_done());
    let link = invited.url.unwrap();
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
