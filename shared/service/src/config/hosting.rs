//! Settings of a service on which people can create hosted vaults, free or for payment.

use secrecy::{ExposeSecret as _, SecretString};
use url::{Host, Url};

use super::BadSetting;
use super::quota::SetQuota;

/// Variable that permits accounts to create vaults: `on` or `off`.
pub const SIGN_UP_VAULTS: &str = "VAULT_SIGN_UP_VAULTS";
/// Variable with the plans, their checkout pages and limits.
pub const PLANS: &str = "VAULT_PLANS";
/// Variable with the signing secrets of payment events.
pub const PAYMENT_SECRETS: &str = "VAULT_PAYMENT_SECRETS";
/// Variable with the mode of the payment provider whose events are accepted: `live` or `test`.
pub const PAYMENT_MODE: &str = "VAULT_PAYMENT_MODE";
/// Variable with the address of the page where customers manage their subscriptions.
pub const BILLING_URL: &str = "VAULT_BILLING_URL";
/// Variable with the length of the grace period after a failed payment, in days.
pub const PAYMENT_GRACE_DAYS: &str = "VAULT_PAYMENT_GRACE_DAYS";

/// Default length of the grace period, in days.
const GRACE_DAYS: i64 = 7;
const MAX_GRACE_DAYS: i64 = 90;
/// Minimum number of characters of a signing secret.
const MIN_SECRET_CHARS: usize = 16;
/// Maximum number of characters of an id of a payment link or price.
const MAX_OFFER_CHARS: usize = 128;
/// Maximum number of characters of a plan's name.
const MAX_PLAN_CHARS: usize = 32;

/// Settings for the creation of vaults and for payment.
#[derive(Clone, Debug)]
pub struct Hosting {
    /// Whether signed-in people may create vaults.
    pub sign_up: bool,
    /// Plans for sale. If empty, vaults of this service are free.
    pub plans: Vec<Plan>,
    /// Secrets with which the payment provider signs events. Any of them is valid, so that one can
    /// replace another. If empty, the service accepts no events.
    pub payment_secrets: Vec<SecretString>,
    /// Whether events of the provider's live mode are accepted; otherwise those of its test mode
    /// are.
    pub live_payments: bool,
    /// Page of the payment provider where a customer pays invoices and cancels.
    pub billing: Option<Url>,
    /// Number of days for which a vault is still served after a failed payment.
    pub grace_days: i64,
}

impl Default for Hosting {
    fn default() -> Self {
        Self {
            sign_up: false,
            plans: Vec::new(),
            payment_secrets: Vec::new(),
            live_payments: true,
            billing: None,
            grace_days: GRACE_DAYS,
        }
    }
}

/// The payments that buy a plan.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Offer {
    /// Ids of payment links (`plink_…`). If there is any, a checkout must come from one of them.
    pub links: Vec<String>,
    /// Ids of prices (`price_…`). If there is any, the subscription must be for one of them.
    pub prices: Vec<String>,
    /// Currencies, as three lower-case letters. If there is none, every currency is accepted.
    pub currencies: Vec<String>,
}

impl Offer {
    /// Whether payments in this currency are accepted.
    pub fn accepts_currency(&self, currency: &str) -> bool {
        self.currencies.is_empty() || self.currencies.iter().any(|known| known == currency)
    }

    /// Parses the words after the address of the plan called `plan`.
    fn parse_words<'w>(
        plan: &str,
        words: impl Iterator<Item = &'w str>,
    ) -> Result<Self, BadSetting> {
        let mut offer = Self::default();
        for word in words {
            let is_id = |prefix: &str| {
                let rest = word.strip_prefix(prefix).unwrap_or_default();
                let is_id_byte = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                !rest.is_empty() && word.len() <= MAX_OFFER_CHARS && rest.bytes().all(is_id_byte)
            };
            let is_currency = word.len() == 3 && word.bytes().all(|b| b.is_ascii_lowercase());
            match word {
                _ if is_id("plink_") => offer.links.push(word.to_owned()),
                _ if is_id("price_") => offer.prices.push(word.to_owned()),
                _ if is_currency => offer.currencies.push(word.to_owned()),
                _ => return Err(BadSetting::PlanWord(word.to_owned())),
            }
        }
        // A buyer can add the reference of a sign-up to the address of any payment link. So without
        // an id, the cheapest link of the operator would buy the most expensive plan.
        if offer.links.is_empty() && offer.prices.is_empty() {
            return Err(BadSetting::PlanOffer(plan.to_owned()));
        }
        Ok(offer)
    }
}

/// A subscription that people can buy for a vault: an entry of `VAULT_PLANS`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Name of the plan: 1 to 32 characters a-z, 0-9 and `-`.
    pub name: String,
    /// Payments that count as a purchase of this plan.
    pub offer: Offer,
    /// Limits of vaults with this plan, where they differ from the default.
    pub quota: SetQuota,
    checkout: Url,
}

impl Plan {
    /// Returns the address of the checkout page for the sign-up with this reference, of the person
    /// with this e-mail address. The query parameters are those of Stripe's payment links.
    pub fn checkout(&self, reference: &str, email: &str) -> String {
        let mut url = self.checkout.clone();
        url.query_pairs_mut()
            .append_pair("client_reference_id", reference)
            .append_pair("prefilled_email", email);
        url.into()
    }

    /// Parses `name=address id… limit=number…`, where the ids are those of an [`Offer`] and the
    /// limits those of a [`SetQuota`].
    fn parse_plan(text: &str) -> Result<Self, BadSetting> {
        let (name, address) = text
            .split_once('=')
            .ok_or_else(|| BadSetting::Plan(text.to_owned()))?;
        let (limits, words): (Vec<_>, Vec<_>) =
            address.split_whitespace().partition(|word| is_limit(word));
        let mut words = words.into_iter();
        let (name, address) = (name.trim(), words.next().unwrap_or_default());
        let is_name_byte = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || name.len() > MAX_PLAN_CHARS || !name.bytes().all(is_name_byte) {
            return Err(BadSetting::PlanName(name.to_owned()));
        }
        let checkout = Url::parse(address)
            .ok()
            .filter(is_checkout)
            .ok_or_else(|| BadSetting::Checkout(name.to_owned()))?;
        let mut quota = SetQuota::default();
        for word in limits {
            let (limit, number) = word.split_once('=').unwrap_or((word, ""));
            if !quota.set_word(limit, number) {
                return Err(BadSetting::PlanLimit(name.to_owned(), word.to_owned()));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            quota,
            offer: Offer::parse_words(name, words)?,
            checkout,
        })
    }
}

/// Whether a word of a plan sets a limit; the text before `=` of an address is not alphanumeric.
fn is_limit(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Whether a checkout page may have this address: https, or http on this machine.
fn is_checkout(url: &Url) -> bool {
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let scheme = url.scheme();
    (scheme == "https" || (scheme == "http" && loopback))
        // Every customer sees this address, so a password in it would be no secret.
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
}

impl Hosting {
    /// Reads the variables. Fails with the name of the one that is wrong, and the reason.
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, (&'static str, BadSetting)> {
        let secrets = variable(PAYMENT_SECRETS).unwrap_or_default();
        let has_secrets = split_list(&secrets).next().is_some();
        let mut hosting = Self::from_variables_without_secrets(variable, has_secrets)?;
        hosting
            .set_payment_secrets(&secrets)
            .map_err(|why| (PAYMENT_SECRETS, why))?;
        Ok(hosting)
    }

    /// Reads the variables like [`Hosting::from_variables`], but only checks the secrets of payment
    /// events and does not keep them. A process that receives no events must not hold the secrets;
    /// one that gets them from elsewhere calls [`Hosting::set_payment_secrets`]. `has_secrets`
    /// tells whether there are any.
    pub fn from_variables_without_secrets(
        variable: impl Fn(&str) -> Option<String>,
        has_secrets: bool,
    ) -> Result<Self, (&'static str, BadSetting)> {
        let text = |name| variable(name).unwrap_or_default();
        let mut plans: Vec<Plan> = Vec::new();
        for plan in split_list(&text(PLANS)) {
            let plan = Plan::parse_plan(plan).map_err(|why| (PLANS, why))?;
            if plans.iter().any(|earlier| earlier.name == plan.name) {
                return Err((PLANS, BadSetting::PlanTwice(plan.name)));
            }
            plans.push(plan);
        }
        parse_secrets(&text(PAYMENT_SECRETS)).map_err(|why| (PAYMENT_SECRETS, why))?;
        // Without a secret the service accepts no events, and no payment would ever be confirmed.
        if !plans.is_empty() && !has_secrets {
            return Err((PAYMENT_SECRETS, BadSetting::PaymentSecretsMissing));
        }
        let sign_up = match text(SIGN_UP_VAULTS).as_str() {
            // Plans without sign-up could not be bought, so plans imply it unless it is switched
            // off.
            "" => !plans.is_empty(),
            "on" => true,
            "off" => false,
            other => return Err((SIGN_UP_VAULTS, BadSetting::SignUpVaults(other.to_owned()))),
        };
        let live_payments = match text(PAYMENT_MODE).as_str() {
            "" | "live" => true,
            "test" => false,
            other => return Err((PAYMENT_MODE, BadSetting::PaymentMode(other.to_owned()))),
        };
        let billing = match text(BILLING_URL).as_str() {
            "" => None,
            address => {
                let url = Url::parse(address).ok().filter(is_checkout);
                Some(url.ok_or((BILLING_URL, BadSetting::BillingUrl))?)
            }
        };
        let grace_days = match text(PAYMENT_GRACE_DAYS).as_str() {
            "" => GRACE_DAYS,
            days => days
                .parse()
                .ok()
                .filter(|days| (0..=MAX_GRACE_DAYS).contains(days))
                .ok_or((PAYMENT_GRACE_DAYS, BadSetting::GraceDays))?,
        };
        Ok(Self {
            sign_up,
            plans,
            payment_secrets: Vec::new(),
            live_payments,
            billing,
            grace_days,
        })
    }

    /// Sets the secrets with which the payment provider signs events, separated by commas. Fails if
    /// plans are for sale and there is none, or if one is too short.
    pub fn set_payment_secrets(&mut self, text: &str) -> Result<(), BadSetting> {
        let secrets = parse_secrets(text)?;
        if !self.plans.is_empty() && secrets.is_empty() {
            return Err(BadSetting::PaymentSecretsMissing);
        }
        self.payment_secrets = secrets;
        Ok(())
    }

    /// Returns the plan with this name; `None` if no such plan is for sale.
    pub fn plan(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.name == name)
    }
}

fn parse_secrets(text: &str) -> Result<Vec<SecretString>, BadSetting> {
    let secrets: Vec<SecretString> = split_list(text).map(SecretString::from).collect();
    let is_short = |secret: &SecretString| secret.expose_secret().len() < MIN_SECRET_CHARS;
    if secrets.iter().any(is_short) {
        return Err(BadSetting::PaymentSecret);
    }
    Ok(secrets)
}

fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Hosting, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(named, _)| *named == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Hosting::from_variables(variable).map_err(|(name, why)| format!("{name}: {why}"))
    }

    const SECRET: (&str, &str) = (PAYMENT_SECRETS, "whsec_0123456789, whsec_9876543210");

    #[test]
    fn nothing_set_means_no_sign_up_and_no_payment() {
        let hosting = read(&[]).unwrap();
        assert!(!hosting.sign_up && hosting.plans.is_empty() && hosting.payment_secrets.is_empty());
        assert_eq!(hosting.grace_days, 7);
    }

    #[test]
    fn plans_open_the_sign_up_unless_it_is_off() {
        let plans = (
            PLANS,
            "team=https://buy.example/a?x=1 plink_1 bytes=5GiB machines=50 people=9 drafts=7 price_1 price_2 eur objects=0, solo = http://127.0.0.1:9/b  price_3",
        );
        let hosting = read(&[plans, SECRET]).unwrap();
        assert!(hosting.sign_up);
        assert_eq!(hosting.payment_secrets.len(), 2);
        assert_eq!(
            hosting
                .plan("team")
                .unwrap()
                .checkout("ref", "a+b@example.org"),
            "https://buy.example/a?x=1&client_reference_id=ref&prefilled_email=a%2Bb%40example.org"
        );
        let offer = &hosting.plan("team").unwrap().offer;
        assert_eq!(offer.links, ["plink_1"]);
        assert_eq!(offer.prices, ["price_1", "price_2"]);
        assert_eq!(offer.currencies, ["eur"]);
        let quota = hosting.plan("team").unwrap().quota;
        assert_eq!((quota.bytes, quota.objects), (Some(5 << 30), Some(0)));
        assert_eq!((quota.machines, quota.people), (Some(50), Some(9)));
        assert_eq!(quota.drafts, Some(7));
        assert_eq!(hosting.plan("solo").unwrap().quota, SetQuota::default());
        assert!(hosting.plan("solo").is_some() && hosting.plan("other").is_none());
        assert!(hosting.live_payments && hosting.billing.is_none());
        assert!(
            !read(&[plans, SECRET, (SIGN_UP_VAULTS, "off")])
                .unwrap()
                .sign_up
        );
        assert!(read(&[(SIGN_UP_VAULTS, "on")]).unwrap().sign_up);
    }

    #[test]
    fn a_wrong_setting_is_named_without_its_secret() {
        for (variables, wanted) in [
            (
                &[(PLANS, "team=https://buy.example plink_1")][..],
                "VAULT_PAYMENT_SECRETS: must be set",
            ),
            (&[(PLANS, "team"), SECRET], "VAULT_PLANS: `team` is not"),
            (
                &[(PLANS, "Team=https://buy.example"), SECRET],
                "VAULT_PLANS: `Team` is not a valid plan name",
            ),
            (
                &[(PLANS, "team=http://buy.example"), SECRET],
                "VAULT_PLANS: the checkout page",
            ),
            (
                &[(PLANS, "team=https://u:p@buy.example"), SECRET],
                "VAULT_PLANS: the checkout page",
            ),
            (
                &[(PLANS, "team=https://buy.example/#x"), SECRET],
                "VAULT_PLANS: the checkout page",
            ),
            (
                &[
                    (
                        PLANS,
                        "a=https://buy.example plink_1,a=https://buy.example plink_1",
                    ),
                    SECRET,
                ],
                "VAULT_PLANS: the plan `a` is listed twice",
            ),
            (
                &[(PLANS, "team=https://buy.example"), SECRET],
                "VAULT_PLANS: the plan `team` names no payment link or price; add its id, as in",
            ),
            (
                &[(PLANS, "team=https://buy.example eur"), SECRET],
                "VAULT_PLANS: the plan `team` names no payment link or price",
            ),
            (
                &[(PLANS, "team=https://buy.example prod_1"), SECRET],
                "VAULT_PLANS: `prod_1` is not",
            ),
            (
                &[(PLANS, "team=https://buy.example price_"), SECRET],
                "VAULT_PLANS: `price_` is not",
            ),
            (
                &[
                    (PLANS, "team=https://buy.example plink_1 bytes=5GB"),
                    SECRET,
                ],
                "VAULT_PLANS: `bytes=5GB` is no limit of the plan `team`",
            ),
            (
                &[(PLANS, "team=https://buy.example plink_1 seats=5"), SECRET],
                "VAULT_PLANS: `seats=5` is no limit of the plan `team`",
            ),
            (
                &[
                    (
                        PLANS,
                        "team=https://buy.example plink_1 objects=1 objects=2",
                    ),
                    SECRET,
                ],
                "VAULT_PLANS: `objects=2` is no limit of the plan `team`",
            ),
            (
                &[(PAYMENT_MODE, "sandbox")],
                "VAULT_PAYMENT_MODE: `sandbox` is neither live nor test",
            ),
            (
                &[(BILLING_URL, "http://billing.example")],
                "VAULT_BILLING_URL: must be",
            ),
            (
                &[(PAYMENT_SECRETS, "hunter2")],
                "VAULT_PAYMENT_SECRETS: a secret has fewer",
            ),
            (
                &[(SIGN_UP_VAULTS, "yes")],
                "VAULT_SIGN_UP_VAULTS: `yes` is neither on nor off",
            ),
            (
                &[(PAYMENT_GRACE_DAYS, "91")],
                "VAULT_PAYMENT_GRACE_DAYS: must be 0 to 90",
            ),
            (
                &[(PAYMENT_GRACE_DAYS, "-1")],
                "VAULT_PAYMENT_GRACE_DAYS: must be 0 to 90",
            ),
        ] {
            let why = read(variables).unwrap_err();
            assert!(why.starts_with(wanted), "{why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn settings_are_printed_without_secrets() {
        let hosting = read(&[SECRET]).unwrap();
        assert!(!format!("{hosting:?}").contains("0123456789"));
    }
}
