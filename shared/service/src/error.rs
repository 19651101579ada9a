//! All refusals of the service: one table of error codes, and the error type that handlers return.
//!
//! A handler returns `Err(ErrorCode::X.into())`; status, title, fault and text are only in the
//! table, from which the page `ERRORS.md` is generated. A fault of the service never looks like a
//! refusal: if a store is down the answer is `unavailable`, whatever the request was. Internal
//! causes go to the log, never into an answer.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use vault_api::Problem;
use vault_store::StoreError;

/// The party that can remove the cause of a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The caller: the request is wrong, or its sender lacks a right.
    Caller,
    /// The service, or a system that it depends on; the same request may succeed later.
    Service,
}

/// One row of the table of error codes.
#[derive(Clone, Copy, Debug)]
pub struct ErrorRow {
    /// Status of the answer; a code always has the same one.
    pub status: StatusCode,
    /// Stable machine-readable name, `snake_case`.
    pub code: &'static str,
    /// The party that can remove the cause.
    pub fault: Fault,
    /// One sentence for people, used as `detail` if the handler has nothing more specific.
    pub detail: &'static str,
}

impl ErrorRow {
    /// Returns the `title` of the answer: the status phrase, as RFC 9457 demands for the type
    /// `about:blank`.
    pub fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Error")
    }
}

macro_rules! codes {
    ($($name:ident $status:ident $code:literal $fault:ident $detail:literal;)*) => {
        /// Every code that a problem answer can carry.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $code, "`: ", $detail)] $name,)*
        }

        impl ErrorCode {
            /// All codes in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the code's row of the table.
            pub const fn row(self) -> ErrorRow {
                match self {
                    $(Self::$name => ErrorRow {
                        status: StatusCode::$status,
                        code: $code,
                        fault: Fault::$fault,
                        detail: $detail,
                    },)*
                }
            }
        }
    };
}

codes! {
    // HTTP itself
    RequestInvalid BAD_REQUEST "request_invalid" Caller "The request is malformed.";
    JsonInvalid BAD_REQUEST "json_invalid" Caller "The body must be the JSON object that this route expects.";
    NotFound NOT_FOUND "not_found" Caller "There is nothing at this path.";
    MethodNotAllowed METHOD_NOT_ALLOWED "method_not_allowed" Caller "This route does not support the method.";
    BodyTimeout REQUEST_TIMEOUT "body_timeout" Caller "The body took too long.";
    BodyTooLarge PAYLOAD_TOO_LARGE "body_too_large" Caller "The body is larger than this route accepts.";
    PathTooLong URI_TOO_LONG "path_too_long" Caller "The request target is too long.";
    MediaType UNSUPPORTED_MEDIA_TYPE "media_type" Caller "This route does not accept this media type.";
    HeadersTooLarge REQUEST_HEADER_FIELDS_TOO_LARGE "headers_too_large" Caller "The header fields are too large.";
    ParameterInvalid UNPROCESSABLE_ENTITY "parameter_invalid" Caller "A parameter or member has a value that this route does not accept.";
    RateLimited TOO_MANY_REQUESTS "rate_limited" Caller "Too many requests; wait as long as Retry-After says.";

    // device-signed requests
    SignatureRequired UNAUTHORIZED "signature_required" Caller "This route accepts only requests that a device signed.";
    SignatureInvalid UNAUTHORIZED "signature_invalid" Caller "The device signature is not valid for this request.";
    TimestampOutOfRange UNAUTHORIZED "timestamp_out_of_range" Caller "The time stamp is more than 300 seconds from the service's clock.";
    DeviceUnknown UNAUTHORIZED "device_unknown" Caller "No device with this key is enrolled here.";
    DevicePending FORBIDDEN "device_pending" Caller "The owner has not admitted this device yet.";
    DeviceRevoked FORBIDDEN "device_revoked" Caller "The owner revoked this device.";
    VaultSuspended FORBIDDEN "vault_suspended" Caller "This vault is suspended.";
    VaultNotFound NOT_FOUND "vault_not_found" Caller "There is no vault with this name.";
    PublicKeyMismatch BAD_REQUEST "public_key_mismatch" Caller "The body's public_key is not the key in X-Vault-Device.";
    HostnameInvalid BAD_REQUEST "hostname_invalid" Caller "The hostname must have 1 to 64 printable characters.";
    PendingQueueFull CONFLICT "pending_queue_full" Caller "Too many devices are waiting for the owner; try again when the owner has decided, or enrol with an enrolment code of the owner.";
    EnrolmentNeedsCode FORBIDDEN "enrolment_needs_code" Caller "Machines need an enrolment code of the owner to enrol in this vault.";
    EnrolmentCodeInvalid FORBIDDEN "enrolment_code_invalid" Caller "The enrolment code is unknown, used up, expired, or for machines of another name.";
    SubscriptionLapsed PAYMENT_REQUIRED "subscription_lapsed" Caller "The subscription of this vault has lapsed.";
    CatalogNotPublished NOT_FOUND "catalog_not_published" Caller "This vault has no published catalog yet.";
    BundleNotFound NOT_FOUND "bundle_not_found" Caller "This vault serves no bundle with this hash.";
    BundleUnavailable SERVICE_UNAVAILABLE "bundle_unavailable" Service "The current catalog names this bundle, but the service cannot read it.";

    // people and clients
    TokenRequired UNAUTHORIZED "token_required" Caller "This route accepts only requests with an access token.";
    TokenInvalid UNAUTHORIZED "token_invalid" Caller "The access token is unknown, expired, revoked, or for another resource.";
    InsufficientScope FORBIDDEN "insufficient_scope" Caller "The access token lacks a scope that this route needs.";
    HostForbidden FORBIDDEN "host_forbidden" Caller "The request names a host that is not this service's: use the address at which the service is published.";
    OriginForbidden FORBIDDEN "origin_forbidden" Caller "Pages of this origin must not call this service.";
    OwnerRequired FORBIDDEN "owner_required" Caller "Only an owner may do this.";
    PublisherRequired FORBIDDEN "publisher_required" Caller "Only an owner or a publisher may do this.";
    OperatorRequired FORBIDDEN "operator_required" Caller "Only an operator may do this.";
    OperatorElevationRequired FORBIDDEN "operator_elevation_required" Caller "This needs a token with the scope operator, for which the operator just signed in.";
    ConfirmationNeeded FORBIDDEN "confirmation_needed" Caller "The person must confirm this on the page that `confirmation` names; then send the request again.";
    ConfirmationDeclined FORBIDDEN "confirmation_declined" Caller "The person declined this; ask again in a minute at the earliest.";
    SecondFactorRequired FORBIDDEN "second_factor_required" Caller "Owners and operators of this service sign in with a second factor, and this token is from a sign-in without one.";
    ConfirmationMismatch UNPROCESSABLE_ENTITY "confirmation_mismatch" Caller "The confirmation does not match what is to be changed.";
    DeviceState CONFLICT "device_state" Caller "The device is in a state that does not allow this.";
    UserNotFound NOT_FOUND "user_not_found" Caller "There is no user with this id.";
    LastOwner CONFLICT "last_owner" Caller "A vault must keep one owner who can sign in and has the scope write.";
    UserExists CONFLICT "user_exists" Caller "This person is already a user of this vault.";
    AccountNotFound NOT_FOUND "account_not_found" Caller "There is no account with this address.";
    AccountDeletionBegun CONFLICT "account_deletion_begun" Caller "The deletion of this account has begun, so a link would lead nowhere; enable the account first, which cancels the deletion.";
    OwnAccountLarge CONFLICT "own_account_large" Caller "Your account has more than 200 memberships, and your rights as an operator end with the first step of its deletion; another operator has to delete it.";
    LastOperator CONFLICT "last_operator" Caller "The service must keep one operator who can sign in.";
    ScopeUnknown UNPROCESSABLE_ENTITY "scope_unknown" Caller "Unknown scope; use read or write.";
    RoleUnknown UNPROCESSABLE_ENTITY "role_unknown" Caller "Unknown role; use role:owner, role:publisher or role:member.";
    ProfileInvalid UNPROCESSABLE_ENTITY "profile_invalid" Caller "The profile name must have 1 to 64 printable characters.";
    ClientNotFound NOT_FOUND "client_not_found" Caller "No client with this id is connected here.";
    SlugInvalid UNPROCESSABLE_ENTITY "slug_invalid" Caller "The vault name must have 1 to 63 characters a-z, 0-9 and single hyphens inside.";
    SlugReserved UNPROCESSABLE_ENTITY "slug_reserved" Caller "This name is reserved.";
    SlugTaken CONFLICT "slug_taken" Caller "This name is taken; names of deleted vaults are not reused.";
    EmailInvalid UNPROCESSABLE_ENTITY "email_invalid" Caller "The e-mail address is not valid.";

    // events of the payment provider
    PaymentSignatureInvalid BAD_REQUEST "payment_signature_invalid" Caller "The event is not signed with a secret that this service shares with its payment provider.";
    PaymentEventOld BAD_REQUEST "payment_event_old" Caller "The event was signed more than 300 seconds from the service's clock.";

    // notices
    WebhookAddressInvalid UNPROCESSABLE_ENTITY "webhook_address_invalid" Caller "The address of a webhook must be an https address on a public host.";
    WebhookLimit CONFLICT "webhook_limit" Caller "The vault has three webhooks already; remove one first.";
    MailUnavailable CONFLICT "mail_unavailable" Caller "This service sends no mail; its operator can configure a mail server.";

    // drafts
    DraftNotFound NOT_FOUND "draft_not_found" Caller "There is no draft with this id.";
    DraftState CONFLICT "draft_state" Caller "The draft is in a state that does not allow this.";
    DraftChanged CONFLICT "draft_changed" Caller "The draft has other files now than those that were reviewed.";
    DraftBase CONFLICT "draft_base" Caller "The skill has changed since its author made the draft.";
    DraftQueueFull CONFLICT "draft_queue_full" Caller "Too many drafts are waiting already.";
    DraftTooLarge PAYLOAD_TOO_LARGE "draft_too_large" Caller "The change is larger than a draft may be.";
    KeyRequestInvalid UNPROCESSABLE_ENTITY "key_request_invalid" Caller "This is not a key request for this vault that the key in it has signed.";
    KeyRequested CONFLICT "key_requested" Caller "Another user has asked to publish with this key; an owner decides on that request first.";
    SkillBlocked UNPROCESSABLE_ENTITY "skill_blocked" Caller "The gate refuses the skill; the findings say why.";
    SkillUnchanged CONFLICT "skill_unchanged" Caller "The vault has this skill with exactly these files.";
    SkillNotFound NOT_FOUND "skill_not_found" Caller "The vault has no skill of this name.";
    NameTaken CONFLICT "name_taken" Caller "The vault has a skill of this name from another source.";
    SourceRefused UNPROCESSABLE_ENTITY "source_refused" Caller "The skill cannot be fetched from this source.";
    LibraryElsewhere SERVICE_UNAVAILABLE "library_elsewhere" Service "Another server holds the library of this vault; try again.";
    LibraryBusy SERVICE_UNAVAILABLE "library_busy" Service "The library of this vault is being changed; try again.";

    // publishing
    NamespaceSelfSigned CONFLICT "namespace_self_signed" Caller "This vault signs its releases itself; nothing can be pushed into it.";
    PackInvalid BAD_REQUEST "pack_invalid" Caller "The body is not a pack of objects.";
    ObjectHash UNPROCESSABLE_ENTITY "object_hash" Caller "The bytes do not match their hash.";
    ObjectsMissing CONFLICT "objects_missing" Caller "The catalog names objects that were not uploaded.";
    PreconditionRequired PRECONDITION_REQUIRED "precondition_required" Caller "Publishing needs If-Match with the current catalog's hash, or If-None-Match: *.";
    ReleaseConflict PRECONDITION_FAILED "release_conflict" Caller "Another release became current.";
    QuotaFull CONFLICT "quota_full" Caller "All places that the quota of this vault allows are taken. To those who may know it, the member `quota` has the numbers.";
    QuotaExceeded PAYLOAD_TOO_LARGE "quota_exceeded" Caller "The quota of this vault has no room for this; the member `quota` has the numbers.";
    CatalogSchema UNPROCESSABLE_ENTITY "catalog_schema" Caller "The catalog does not have the form vault.catalog/2.";
    DerivedMismatch UNPROCESSABLE_ENTITY "derived_mismatch" Caller "What was signed about a skill is not what its files say.";
    VaultChanged UNPROCESSABLE_ENTITY "vault_changed" Caller "The catalog's root versions belong to another vault than the pinned one.";
    RootInvalid UNPROCESSABLE_ENTITY "root_invalid" Caller "The catalog's root versions are not valid.";
    RootForked UNPROCESSABLE_ENTITY "root_forked" Caller "The catalog's root versions contradict the pinned ones.";
    RootRolledBack UNPROCESSABLE_ENTITY "root_rolled_back" Caller "The catalog names an older root version than the pinned one.";
    NewerVault UNPROCESSABLE_ENTITY "newer_vault" Caller "The catalog's root versions need a newer version of this service.";
    SignaturesMissing UNPROCESSABLE_ENTITY "signatures_missing" Caller "Too few keys of the release role have signed the catalog.";
    ReleaseAwaited UNPROCESSABLE_ENTITY "release_awaited" Caller "The catalog was signed under an older root version; sign a new release.";
    CatalogKey UNPROCESSABLE_ENTITY "catalog_key" Caller "The public key that the catalog names is not one of the publishers who signed it.";
    CatalogSigner UNPROCESSABLE_ENTITY "catalog_signer" Caller "The catalog lists a skill that no key of the release role has signed, or a revoked one.";
    SkillRolledBack UNPROCESSABLE_ENTITY "skill_rolled_back" Caller "The catalog lists a lower version of a skill than the current or an earlier release, or the same version with other content.";
    CatalogVaultId UNPROCESSABLE_ENTITY "catalog_vault_id" Caller "The catalog belongs to another vault.";
    CatalogSlug UNPROCESSABLE_ENTITY "catalog_slug" Caller "The catalog is for another name.";
    CatalogAudience UNPROCESSABLE_ENTITY "catalog_audience" Caller "The catalog is not meant for this address.";
    CatalogClock UNPROCESSABLE_ENTITY "catalog_clock" Caller "The catalog is issued in the future, or lasts too long or too short.";
    ReleaseExpired UNPROCESSABLE_ENTITY "release_expired" Caller "The catalog, or the list of keys that it names, has expired; sign a new release.";
    CatalogRelease UNPROCESSABLE_ENTITY "catalog_release" Caller "The catalog's release is not above the current one.";
    CatalogPrevious UNPROCESSABLE_ENTITY "catalog_previous" Caller "The catalog does not follow the current one.";
    ProposalOutdated CONFLICT "proposal_outdated" Caller "Another release or root version has come before the proposed release.";
    ProposalComplete UNPROCESSABLE_ENTITY "proposal_complete" Caller "The catalog has enough signatures: publish it with PUT …/catalog.";
    CatalogWithdrawn UNPROCESSABLE_ENTITY "catalog_withdrawn" Caller "The catalog withdraws too many bundles.";

    // faults of the service itself
    Unavailable SERVICE_UNAVAILABLE "unavailable" Service "The service cannot answer at the moment.";
    Internal INTERNAL_SERVER_ERROR "internal" Service "The service failed; its log has the details under this request id.";
}

/// A refused request: its code, and the details of this case.
#[derive(Clone)]
pub struct Refusal(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    detail: Option<Cow<'static, str>>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Further members of the problem document; the fixed ones are set when it is encoded.
    members: Problem,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Refusal {
    /// Creates a refusal with the status and the sentence of the table.
    pub fn new(code: ErrorCode) -> Self {
        let headers = match code.row().status {
            // Without this header, clients retry at once. A store that failed over is back after
            // about a second.
            StatusCode::SERVICE_UNAVAILABLE => {
                vec![(header::RETRY_AFTER, HeaderValue::from_static("1"))]
            }
            _ if code.is_device_401() => {
                vec![(
                    header::WWW_AUTHENTICATE,
                    HeaderValue::from_static("VaultDevice"),
                )]
            }
            _ => Vec::new(),
        };
        Self(Box::new(Inner {
            code,
            detail: None,
            headers,
            members: Problem::default(),
            cause: None,
        }))
    }

    /// Replaces the sentence for people. It must not contain a slug, key, id or secret; the address
    /// of a confirmation is allowed, because only the person it is for can use it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Sets a header of the answer; replaces one with the same name.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.retain(|(held, _)| *held != name);
        self.0.headers.push((name, value));
        self
    }

    /// Returns the header with this name, if the refusal sets it.
    pub fn header_value(&self, name: &HeaderName) -> Option<&HeaderValue> {
        let mut headers = self.0.headers.iter();
        headers
            .find(|(held, _)| held == name)
            .map(|(_, value)| value)
    }

    /// Sets the number of seconds after which a retry makes sense.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Sets members of the body of the answer, the RFC 9457 problem object, which tell about this
    /// case.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Problem)) -> Self {
        set(&mut self.0.members);
        self
    }

    /// Keeps the internal cause for the log; the answer never contains it.
    #[must_use]
    pub fn cause(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.caused_by(Arc::new(cause))
    }

    /// Keeps the internal cause like [`Self::cause`], for an error that is already shared.
    #[must_use]
    pub fn caused_by(mut self, cause: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// Returns the code, by which callers tell refusals apart.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Returns the HTTP status of the answer, which depends on the code alone.
    pub fn status(&self) -> StatusCode {
        self.0.code.row().status
    }

    /// Returns the internal cause for the log; the answer never contains it.
    pub fn source(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }

    /// Encodes the body of the answer: an RFC 9457 problem object, as JSON.
    pub fn problem(&self, request_id: &str) -> Vec<u8> {
        let row = self.0.code.row();
        let detail = self.0.detail.as_deref().unwrap_or(row.detail);
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: row.title().to_owned(),
            status: row.status.as_u16(),
            detail: detail.to_owned(),
            code: row.code.to_owned(),
            request_id: request_id.to_owned(),
            ..self.0.members.clone()
        };
        json!(problem).to_string().into_bytes()
    }
}

impl ErrorCode {
    /// Whether the answer needs `WWW-Authenticate: VaultDevice` (RFC 9110, section 15.5.2).
    const fn is_device_401(self) -> bool {
        matches!(
            self,
            Self::SignatureRequired
                | Self::SignatureInvalid
                | Self::TimestampOutOfRange
                | Self::DeviceUnknown
        )
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({})", self.0.code.row().code)?;
        match &self.0.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.detail.as_deref().unwrap_or(self.0.code.row().detail))
    }
}

impl std::error::Error for Refusal {}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::new(code)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            // A conflict that outlived all retries is load, not a mistake of the caller.
            StoreError::Unavailable(_) | StoreError::Conflict | StoreError::Busy => {
                ErrorCode::Unavailable
            }
            _ => ErrorCode::Internal,
        };
        Self::new(code).cause(error)
    }
}

impl IntoResponse for Refusal {
    /// Sets status and headers; the edge (`crate::edge`) writes the body, since it knows the
    /// request id.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        for (name, value) in &self.0.headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Creates a 405 that lists the methods of the route.
pub fn method_not_allowed(allow: &'static str) -> Refusal {
    Refusal::new(ErrorCode::MethodNotAllowed).header(header::ALLOW, HeaderValue::from_static(allow))
}

/// Whether RFC 9110 calls `method` safe: a refused safe request has changed nothing and is not
/// audited.
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Generates the page `ERRORS.md` from the table.
pub fn errors_page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         Written from `src/error.rs`; a test keeps this page equal to it. Every route except `/oauth/*` and `/mcp` answers errors as \
         `application/problem+json` (RFC 9457) with the members `type`, `title`, `status`, `detail`, `code` and `request_id`.\n\
         Match on `code`; the words may change.\n\n\
         | code | status | title | whose fault | meaning |\n|---|---|---|---|---|\n",
    );
    for code in ErrorCode::ALL {
        let row = code.row();
        let fault = match row.fault {
            Fault::Caller => "caller",
            Fault::Service => "service",
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {fault} | {} |",
            row.code,
            row.status.as_u16(),
            row.title(),
            row.detail,
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_snake_case_and_blame_fits_status() {
        let mut seen = HashSet::new();
        for code in ErrorCode::ALL {
            let row = code.row();
            assert!(seen.insert(row.code), "{} stands twice", row.code);
            assert!(
                row.code
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{}",
                row.code
            );
            assert_eq!(
                row.status.is_server_error(),
                row.fault == Fault::Service,
                "{}",
                row.code
            );
            assert!(row.detail.ends_with('.'), "{}", row.code);
        }
    }

    #[test]
    fn written_pages_have_the_table_of_errors() {
        vault_testing::page::assert_current("shared/service/ERRORS.md", &errors_page());
    }

    #[test]
    fn causes_stay_out_of_answers() {
        let refusal =
            Refusal::new(ErrorCode::Internal).cause(std::io::Error::other("password=hunter2"));
        let body = String::from_utf8(refusal.problem("01")).unwrap();
        assert!(!body.contains("hunter2"), "{body}");
        assert!(format!("{refusal:?}").contains("hunter2"));
    }
}
