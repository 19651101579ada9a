//! The types of `vault_api`: their JSON Schemas, and how a value is held to them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vault_testing::schema::{line, table};

/// A type that a request or an answer is of.
pub struct Type {
    add: fn(&mut SchemaGenerator) -> Schema,
    /// Fails unless a value is of the type, with every member that it must have and no other.
    pub check: fn(&Value) -> Result<(), String>,
}

/// Types of `vault_api` by their names, and pages of the types behind the semicolon.
macro_rules! types {
    ($($type:ident)+; $($item:ident)*) => {
        BTreeMap::from([
            $(Type::of::<vault_api::$type>(),)+
            $(Type::of::<vault_api::Items<vault_api::$item>>(),)*
        ])
    };
}

/// What requests are, by name.
static REQUESTS: LazyLock<BTreeMap<String, Type>> = LazyLock::new(|| {
    types! {
        ConfirmedPinReset ConfirmedVault DeniedMachines DraftAcceptance DraftRefusal Enrolment
        EnrolmentSetting JsonRpcRequest NewAccount NewEnrolmentCode NewNamespace NewUser NewWebhook
        NoticeMail ObjectQuestion OperatorActs PaymentEvent ProfileChange QuotaChange Registration RoleChange ScopeChange VaultActs
        ServiceSignOut;
    }
});

/// What answers are, by name.
static ANSWERS: LazyLock<BTreeMap<String, Type>> = LazyLock::new(|| {
    types! {
        Account AuthorizationServer Confirmation CreatedNamespace CurrentDevice DeletedAccount DeletedEntries DeletedVault
        Device Draft DraftKind DraftState EnrolledDevice EnrolmentCode EnrolmentSetting Health
        JsonRpcAnswer JsonRpcError MissingObjects NoticeDestinations NoticeMail OAuthError
        ObjectReference PaymentOutcome PinResetDone Problem ProtectedResource Registered Release
        RevokedClient SignedOut StoredObjects TestedWebhook Tokens User Vault Webhook;
        Account AuditEntry Client Device Draft EnrolmentCode ListedDevice Namespace PaymentProblem
        Release User VaultSummary
    }
});

/// The type that an answer of this name is of.
pub fn answer(name: &str) -> &'static Type {
    let found = ANSWERS.get(name);
    found.unwrap_or_else(|| panic!("{name}: list this type in tests/routes/api/types.rs"))
}

/// All types as members of `components.schemas`.
pub fn schemas() -> BTreeMap<String, Value> {
    let requests = definitions(&REQUESTS, Contract::Deserialize);
    let mut schemas = definitions(&ANSWERS, Contract::Serialize);
    for (name, schema) in requests {
        let held = schemas.entry(name).or_insert_with(|| schema.clone());
        assert_eq!(
            *held, schema,
            "a type of requests and of answers reads as two"
        );
    }
    schemas
}

fn definitions(types: &BTreeMap<String, Type>, contract: Contract) -> BTreeMap<String, Value> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.contract = contract;
    let mut generator = settings.into_generator();
    for kind in types.values() {
        (kind.add)(&mut generator);
    }
    let mut found: BTreeMap<_, _> = generator.take_definitions(true).into_iter().collect();
    found.values_mut().for_each(simplify);
    found
}

/// Removes what says nothing to a reader: the sizes of Rust's integers, and values that readers take
/// in place of members of earlier versions.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("default");
            if members
                .get("format")
                .is_some_and(|it| it.as_str().is_some_and(is_size))
            {
                members.remove("format");
            }
            members.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

fn is_size(format: &str) -> bool {
    format.trim_start_matches('u').starts_with("int")
}

impl Type {
    fn of<T: JsonSchema + DeserializeOwned + Serialize>() -> (String, Self) {
        let check = |value: &Value| {
            let read: T = serde_json::from_value(value.clone()).map_err(|it| it.to_string())?;
            let written = json!(read);
            let is_same = written == *value;
            is_same
                .then_some(())
                .ok_or_else(|| format!("is {value}, its type writes {written}"))
        };
        let add = SchemaGenerator::subschema_for::<T>;
        (T::schema_name().into_owned(), Self { add, check })
    }
}

/// All types as `docs/api.md` shows them.
pub fn listing() -> String {
    let schemas = schemas();
    let described = |(name, schema): (&String, &Value)| {
        let note = schema["description"].as_str().unwrap_or_default();
        format!("\n### {name}\n\n{}\n\n{}", line(note), table(schema))
    };
    schemas.iter().map(described).collect()
}
