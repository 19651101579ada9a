//! Storage of the WebAuthn challenges of a browser, by the hash of its cookie and by purpose.

use serde::Serialize;
use serde::de::DeserializeOwned;
use vault_store::StoreError;

use crate::app::App;
use crate::model::passkey_challenge::{Challenge, ChallengePurpose, challenge_key};
use crate::transaction::Transaction;
use crate::web::browser::Browser;

/// Stores a challenge for a browser, with the state that its answer is checked against. It replaces
/// an earlier challenge for the same purpose.
pub async fn store_challenge<T: Serialize>(
    app: &App,
    browser: &Browser,
    purpose: ChallengePurpose,
    state: T,
) -> Result<(), StoreError> {
    let challenge = Challenge::begin_now(state, app.clock.now());
    let write = challenge.creation_write(&browser.hash(), purpose)?;
    let store = async |tx: Transaction<'_>| {
        tx.write(write.clone());
        Ok(())
    };
    app.change(store).await
}

/// Removes and returns the challenge of a browser, so that it can be answered only once. Returns
/// `None` if there is none, it has expired, or another answer took it.
pub async fn take_challenge<T: Serialize + DeserializeOwned>(
    app: &App,
    browser: &Browser,
    purpose: ChallengePurpose,
) -> Result<Option<Challenge<T>>, StoreError> {
    // Deleted before the answer is checked: of two answers to one challenge, only one is checked.
    let taken = app.take_once::<Challenge<T>>(challenge_key(&browser.hash(), purpose));
    // A store may return a record for a while after it expired.
    let is_current = |challenge: &Challenge<T>| app.clock.now() < challenge.ends_at;
    Ok(taken.await?.filter(is_current))
}
