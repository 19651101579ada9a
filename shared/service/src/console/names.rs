//! Who did something, as a page names them: by address where the person is still in the vault.

use std::collections::{BTreeSet, HashMap};

use vault_store::StoreError;
use vault_store::records::MAX_KEYS;

use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::user::{User, is_user_id, user_key};

/// The addresses of users of a vault by their ids.
pub(super) struct Names(HashMap<String, String>);

impl Names {
    /// Reads the addresses of the users with these ids; what is no user's id costs nothing.
    pub(super) async fn read<'i>(
        app: &App,
        namespace: &Namespace,
        ids: impl IntoIterator<Item = &'i str>,
    ) -> Result<Self, StoreError> {
        let ids: BTreeSet<&str> = ids.into_iter().filter(|id| is_user_id(id)).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let mut names = HashMap::new();
        for some in ids.chunks(MAX_KEYS) {
            let keys: Vec<_> = some.iter().map(|id| user_key(&namespace.id, id)).collect();
            for record in app.records.get_many(&keys).await?.into_iter().flatten() {
                let user: User = record.read()?;
                names.insert(user.id, user.email.to_string());
            }
        }
        Ok(Self(names))
    }

    /// What a page calls the one with this id.
    pub(super) fn of(&self, id: &str) -> String {
        match self.0.get(id) {
            Some(email) => email.clone(),
            None if id.starts_with("enc_") => format!("the enrolment code {id}"),
            None if is_user_id(id) => "a person who has left".to_owned(),
            None => id.to_owned(),
        }
    }
}
