//! What is stored, and what is logged, about secrets: never they themselves.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use vault_service::model::account::invite;
use vault_service::model::user::Scopes;
use vault_store::StoreError;
use vault_store::records::{Commit, Record, RecordKey, Records, Write};
use vault_testing::memory::Memory;

use super::place;
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Tokens, VERIFIER, Visitor, authorize, bootstrap, exchange,
    refresh, register,
};

/// Keeps all that was ever written.
struct Recording(Arc<Memory>, Arc<Mutex<String>>);

#[async_trait]
impl Records for Recording {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        self.1.lock().unwrap().push_str(&format!("{keys:?}\n"));
        self.0.get_many(keys).await
    }
    async fn list(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        Records::list(&*self.0, partition, prefix, after, limit).await
    }
    async fn commit(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        self.1.lock().unwrap().push_str(&format!("{writes:?}\n"));
        self.0.commit(writes).await
    }
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.sweep(limit).await
    }
    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn requirements_26_35_no_secret_is_ever_stored() {
    let mut place = place();
    let memory = Arc::new(Memory::new(place.clock.clone()));
    let written = Arc::new(Mutex::new(String::new()));
    place.app.records = Arc::new(Recording(memory, Arc::clone(&written)));
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
    let written = written.lock().unwrap();
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
