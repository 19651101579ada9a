//! Errors in settings, as texts for the operator.

use super::TOKEN_TTL;

/// Why a setting is refused. The text does not contain the name of the variable: the caller adds
/// it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSetting {
    /// `VAULT_TOKEN_TTL` is below a minute or above a day.
    #[error("must be {} to {} seconds", TOKEN_TTL.start(), TOKEN_TTL.end())]
    TokenTtl,
    /// The text is not an origin as the header `Origin` of a browser contains it, for example
    /// because it has a path.
    #[error("`{0}` is not an origin; write it like https://app.example")]
    Origin(String),
    /// Not a host as the header `Host` of a request contains it.
    #[error("`{0}` is not a host; write it like vault.internal or vault.internal:8443")]
    Host(String),
    /// `VAULT_SECOND_FACTOR` is neither optional nor owners.
    #[error("`{0}` is neither optional nor owners")]
    SecondFactor(String),
    /// `VAULT_MEMBER_WRITES` is neither draft nor sign.
    #[error("`{0}` is neither draft nor sign")]
    MemberWrites(String),
    /// `VAULT_TOOL_NAMES` is neither plain nor dotted.
    #[error("`{0}` is neither plain nor dotted")]
    ToolNames(String),
    /// An entry of `VAULT_WEBHOOK_PORTS` that is not a port number.
    #[error("`{0}` is not a port; use 1 to 65535")]
    WebhookPort(String),
    /// `VAULT_SIGN_UP_VAULTS` is neither on nor off.
    #[error("`{0}` is neither on nor off")]
    SignUpVaults(String),
    /// An entry of `VAULT_PLANS` without `=`.
    #[error("`{0}` is not a plan; write it like team=https://buy.example/… plink_…")]
    Plan(String),
    /// The text before `=` in an entry of `VAULT_PLANS` is not a valid name of a plan.
    #[error("`{0}` is not a valid plan name; use 1 to 32 characters a-z, 0-9 and -")]
    PlanName(String),
    /// A plan whose address cannot be that of a checkout page.
    #[error(
        "the checkout page of the plan `{0}` needs an https address without a password or fragment"
    )]
    Checkout(String),
    /// A plan without the id of a payment link or price: any payment could buy it.
    #[error(
        "the plan `{0}` names no payment link or price; add its id, as in {0}=https://buy.example/… plink_… or price_…"
    )]
    PlanOffer(String),
    /// A word after the address of a plan that is neither an id, a currency nor a limit.
    #[error(
        "`{0}` is not the id of a payment link (plink_…), that of a price (price_…) or a currency (eur)"
    )]
    PlanWord(String),
    /// A limit of a plan that is unknown, set twice or not a valid number.
    #[error(
        "`{1}` is no limit of the plan `{0}`; write bytes=5GiB, objects=300000, machines=50, people=10 or drafts=50, each once, where 0 is no limit"
    )]
    PlanLimit(String, String),
    /// `VAULT_PAYMENT_MODE` is neither live nor test.
    #[error("`{0}` is neither live nor test")]
    PaymentMode(String),
    /// `VAULT_BILLING_URL` is not the address of a page for customers.
    #[error("must be an https address without a password or fragment")]
    BillingUrl,
    /// Two plans with the same name.
    #[error("the plan `{0}` is listed twice")]
    PlanTwice(String),
    /// A signing secret of the payment provider that is too short.
    #[error("a secret has fewer than 16 characters; copy it from the payment provider")]
    PaymentSecret,
    /// There are plans, but no signing secret of the payment provider.
    #[error("must be set where VAULT_PLANS is: without it no payment is ever confirmed")]
    PaymentSecretsMissing,
    /// `VAULT_PAYMENT_GRACE_DAYS` is out of range.
    #[error("must be 0 to 90 days")]
    GraceDays,
}
