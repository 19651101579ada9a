//! Records of the service in the port `Records`: one module per resource, each beginning with its
//! table of partition, key and document.
//!
//! Functions that read and write records are plain functions over [`crate::ports::Ports`]. An index
//! record is written in the same commit as the record that it leads to. Uniqueness comes from
//! writes with the condition that no record exists. Of a secret, only the SHA-256 is stored. The
//! records of people, clients and tokens, and others:
//!
//! | partition | key | what | file |
//! |---|---|---|---|
//! | `service` | `owner` | the mark that the first owner was made | `account` |
//! | `service` | `epoch` | how often everybody was signed out | `account` |
//! | `accounts` | `<e-mail>` | index: the account of an address | `account` |
//! | `acct/<account_id>` | `account` | an account: proofs, operator or not, epoch | `account` |
//! | `acct/<account_id>` | `ns/<slug>` | index: the account's user in a namespace | `user` |
//! | `invited/<e-mail>` | `<slug>` | index: the user that waits for an answer to an invitation, 7 days | `membership` |
//! | `subject/<sha256>` | `subject` | index: the account of a person of an identity provider | `subject` |
//! | `passkey/<sha256>` | `passkey` | index: the account of a passkey | `passkey` |
//! | `invite/<sha256>` | `invite` | a link that sets a password, 72 hours, once | `account` |
//! | `user/<namespace_id>` | `<user_id>` | role, scopes, profile, last seen | `user` |
//! | `client/<client_id>` | `client` | a registration | `client` |
//! | `conn/<namespace_id>` | `<client_id>` | a client's standing in a namespace | `client` |
//! | `grant/<namespace_id>` | `<client_id>/<grant_id>` | a consent and its family of tokens; an operator's in `grant/service` | `grant`, `family` |
//! | `tok/<sha256>` | `tok` | an access or refresh token | `token` |
//! | `code/<sha256>` | `code` | an authorization code | `token` |
//! | `session/<sha256>` | `session`, `approval/…`, `spent/…` | a signed-in browser and its decisions | `session` |
//! | `session/<sha256>` | `provider/…`, `connect` | a browser on its way to the identity provider, or back from it | `provider_request` |
//! | `session/<sha256>` | `passkey/…` | a challenge that waits for the answer of a passkey | `passkey_challenge` |
//! | `limit/…` | a window | a counter of requests, of failed sign-ins, or of registrations that no app has used | `limits` |
//! | `browser/<sha256>` | `<sha256 of the account>` | the mark of a browser that signed in before | `web::remembered_browser` |
//! | `limit/refused/<sha256>` | a minute | the log's entry in which equal refusals are counted | `refusals` |
//! | `enrol-code/<namespace_id>` | `<sha256>` | a code with which machines enrol | `enrolment` |
//! | `enrol-used/<namespace_id>` | `<sha256>` | how often a code was used | `enrolment` |
//! | `enrol-app/<namespace_id>`, `enrol-hour/…` | `<client_id>`, … | the codes that an app made, and what they admitted | `enrolment` |
//! | `draft/<namespace_id>`, `draft-ended/<namespace_id>` | draft id | what a user asks for, open or ended | `draft` |
//! | `draft-by/<namespace_id>` | `<user_id>/<draft id>` | index: an author's drafts | `draft` |
//! | `draft-slot/<namespace_id>` | `<kind>/<user id or key>` | index: the one open draft of a user or a key | `draft` |
//! | `draft-count/<namespace_id>` | `all`, `by/<user_id>`, … | how many drafts wait | `draft` |
//! | `kept/<namespace_id>` | ULID | objects that an upload or a former release keeps for a while | `kept` |
//! | `doomed/<namespace_id>` | `<class>/<sha256>` | the mark of an object that no root reaches | `kept` |
//! | `stored/<namespace_id>` | `usage` | how much a namespace stores | `usage` |
//! | `provisioning/<reference>`, `provisioning-open` | | a sign-up for a hosted vault, and the open ones | `provisioning` |
//! | `reserved/<slug>` | `reservation` | a name that a sign-up may take, 24 hours | `provisioning` |
//! | `permit/<account_id>` | `<client_id>` | what a person confirmed that an app may do, some minutes | `permit` |
//! | `payment/<subscription id>`, `payment-event/<event id>` | | what the payment provider reported | `payment` |
//! | `payment-problem` | | payments that went wrong | `payment_problem` |
//! | `notices/<namespace_id>` | `destinations`, marks | where notices go, and which were sent | `notice` |
//! | `outbox/<namespace_id>` | ULID, `machines` | a notice that waits to be sent | `notice` |
//! | `outbox-due/<shard>` | `<namespace_id>` | when an outbox is visited next | `notice` |
//! | `removals` | `<slug>` | a deleted vault whose records and objects are being removed | `removal` |
//! | `work` | `collection`, `background` | the lock of the collection of objects, and the last run of all work | `upkeep` |
//! | `work` | `roots/<namespace_id>` | where a visit of the collection stands among uploads | `upkeep` |
//! | `collected` | `<slug>` | where the collection of objects stands in a namespace | `upkeep` |
//!
//! The check of an access token makes two reads: the token by its hash, then one `get_many` of its
//! grant, user, connection, account, namespace and the service's epoch (`standing`). So one write
//! ends a grant, a user, a connection, or all tokens of an account, a namespace or the service,
//! whatever the number of tokens; their records are deleted later.

pub mod account;
mod account_id;
pub mod audit;
pub mod client;
pub mod device;
pub mod draft;
pub mod earlier;
pub mod enrolment;
pub mod family;
pub mod grant;
pub mod kept;
pub mod limits;
pub mod made;
pub mod members;
pub mod membership;
pub mod namespace;
pub mod networks;
pub mod notice;
pub mod outcome;
pub mod passkey;
pub mod passkey_challenge;
pub mod payment;
pub mod payment_problem;
pub mod permit;
pub mod pkce;
pub mod places;
pub mod proposal;
pub mod provider_request;
pub mod provisioning;
pub mod redirect;
pub mod reference;
pub mod refusals;
pub mod release;
pub mod removal;
pub mod second_factor;
pub mod secret;
pub mod session;
pub mod standing;
pub mod subject;
pub mod token;
pub mod upkeep;
pub mod usage;
pub mod user;
pub mod webhook;

use ulid::Ulid;
use vault_format::time::Timestamp;
use vault_store::random::Random;

pub use crate::ports::Versioned;

/// Creates an id: the prefix and a lower-case ULID, so that ids sort by time.
pub fn fresh_id(prefix: &str, now: Timestamp, random: &dyn Random) -> String {
    let mut bits = [0; 16];
    // A ULID has 80 random bits; its other 48 are the time.
    random.fill_random(&mut bits[6..]);
    let millis = u64::try_from(now.unix()).unwrap_or(0).saturating_mul(1000);
    format!(
        "{prefix}{}",
        Ulid::from_parts(millis, u128::from_be_bytes(bits))
            .to_string()
            .to_ascii_lowercase()
    )
}

/// Whether a text has the form of an id that [`fresh_id`] creates with this prefix. Other text from
/// a request must not become part of a record key or an address.
pub fn is_id(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == 26
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}
