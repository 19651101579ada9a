//! Settings of the sign-in: with a password, through an OpenID Connect provider (here "the
//! provider"), or either.

use std::str::FromStr;

use url::Url;

use super::is_this_machine;

/// The ways to sign in that the service offers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum SignIn {
    /// Only with a password, which is set through an operator's link or by the settings of the
    /// first start.
    #[default]
    Password,
    /// Only through the provider.
    Provider(ProviderSettings),
    /// With a password or through the provider.
    Both(ProviderSettings),
}

/// An OpenID Connect provider, and the registration of this service there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProviderSettings {
    /// Issuer identifier, which is the address of the provider.
    pub issuer: Issuer,
    /// Client id that the provider gave this service.
    pub client_id: String,
    /// Name of the provider on the sign-in page.
    pub name: String,
    /// Rule for the creation of accounts.
    pub sign_up_rule: SignUpRule,
}

/// Rule for the creation of accounts at a first sign-in through the provider.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SignUpRule {
    /// Only e-mail addresses that an owner or an operator invited get an account.
    #[default]
    Invited,
    /// Every e-mail address that the provider has verified gets an account.
    Open,
}

/// The issuer identifier of a provider: an https address, or http on this machine. It is not
/// normalized, because the provider's documents and tokens must contain exactly this text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issuer {
    text: String,
    loopback: Option<String>,
}

/// Error: a variable has a value that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadVariable {
    /// Name of the environment variable, such as `VAULT_OIDC_ISSUER`.
    pub name: &'static str,
    /// The problem, and what to do about it.
    pub problem: BadSignIn,
}

/// Reason why a setting of the sign-in cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSignIn {
    /// The value of `VAULT_SIGN_IN` is none of the known words; the field holds it.
    #[error("`{0}` is none of password, oidc and both")]
    Ways(String),
    /// The value of `VAULT_SIGN_UP` is none of the known words; the field holds it.
    #[error("`{0}` is neither invited nor open")]
    SignUp(String),
    /// `VAULT_OIDC_ISSUER` is neither an https address nor http on this machine, or it has a
    /// password, a query or a fragment.
    #[error(
        "`{0}` is not the address of a provider: write it like https://id.example, or http on this machine"
    )]
    Issuer(String),
    /// The issuer or the client id is missing although people are to sign in through a provider.
    #[error("must be set too: a provider needs VAULT_OIDC_ISSUER and VAULT_OIDC_CLIENT_ID")]
    Missing,
    /// The setting has no effect without a provider.
    #[error(
        "has no effect without VAULT_OIDC_ISSUER and VAULT_OIDC_CLIENT_ID; set them, or unset this"
    )]
    NoProvider,
    /// A provider is configured although `VAULT_SIGN_IN` permits passwords only.
    #[error("`password` leaves VAULT_OIDC_ISSUER without effect; write `both` or `oidc`")]
    Unused,
}

const WAYS: &str = "VAULT_SIGN_IN";
const ISSUER: &str = "VAULT_OIDC_ISSUER";
const CLIENT_ID: &str = "VAULT_OIDC_CLIENT_ID";
const NAME: &str = "VAULT_OIDC_NAME";
const SIGN_UP: &str = "VAULT_SIGN_UP";
/// Variable with the secret that authenticates this service to the provider.
pub const CLIENT_SECRET: &str = "VAULT_OIDC_CLIENT_SECRET";

impl SignIn {
    /// Reads the variables of the sign-in. `has_secret` tells whether the client has a secret, from
    /// any source. Fails with the first variable that is missing or wrong.
    pub fn from_variables<'v>(
        variable: &dyn Fn(&str) -> Option<&'v str>,
        has_secret: bool,
    ) -> Result<Self, BadVariable> {
        let bad = |name, problem| BadVariable { name, problem };
        let provider = match (variable(ISSUER), variable(CLIENT_ID)) {
            (None, None) => {
                // Settings of a provider that is not configured would silently have no effect, so
                // the start fails.
                let dependent = [
                    (CLIENT_SECRET, has_secret),
                    (NAME, variable(NAME).is_some()),
                    (SIGN_UP, variable(SIGN_UP) == Some("open")),
                ];
                if let Some((name, _)) = dependent.into_iter().find(|(_, is_set)| *is_set) {
                    return Err(bad(name, BadSignIn::NoProvider));
                }
                None
            }
            (Some(_), None) => return Err(bad(CLIENT_ID, BadSignIn::Missing)),
            (None, Some(_)) => return Err(bad(ISSUER, BadSignIn::Missing)),
            (Some(issuer), Some(client_id)) => Some((issuer, client_id)),
        };
        let sign_up_rule = variable(SIGN_UP).map_or(Ok(SignUpRule::Invited), str::parse);
        let sign_up_rule = sign_up_rule.map_err(|problem| bad(SIGN_UP, problem))?;
        let provider = provider.map(|(issuer, client_id)| {
            let issuer: Issuer = issuer.parse().map_err(|problem| bad(ISSUER, problem))?;
            let host = || issuer.host().to_owned();
            Ok(ProviderSettings {
                client_id: client_id.to_owned(),
                name: variable(NAME).map_or_else(host, str::to_owned),
                issuer,
                sign_up_rule,
            })
        });
        match (variable(WAYS), provider.transpose()?) {
            (None | Some("password"), None) => Ok(Self::Password),
            (Some("oidc"), Some(provider)) => Ok(Self::Provider(provider)),
            (None | Some("both"), Some(provider)) => Ok(Self::Both(provider)),
            (Some("oidc" | "both"), None) => Err(bad(ISSUER, BadSignIn::Missing)),
            (Some("password"), Some(_)) => Err(bad(WAYS, BadSignIn::Unused)),
            (Some(other), _) => Err(bad(WAYS, BadSignIn::Ways(other.to_owned()))),
        }
    }

    /// Returns the settings of the provider; `None` if people sign in with passwords only.
    pub const fn provider(&self) -> Option<&ProviderSettings> {
        match self {
            Self::Password => None,
            Self::Provider(provider) | Self::Both(provider) => Some(provider),
        }
    }

    /// Whether people can sign in with a password.
    pub const fn takes_passwords(&self) -> bool {
        !matches!(self, Self::Provider(_))
    }
}

impl FromStr for SignUpRule {
    type Err = BadSignIn;

    fn from_str(text: &str) -> Result<Self, BadSignIn> {
        match text {
            "invited" => Ok(Self::Invited),
            "open" => Ok(Self::Open),
            other => Err(BadSignIn::SignUp(other.to_owned())),
        }
    }
}

impl FromStr for Issuer {
    type Err = BadSignIn;

    fn from_str(text: &str) -> Result<Self, BadSignIn> {
        let bad = || BadSignIn::Issuer(text.to_owned());
        let url = Url::parse(text).map_err(|_| bad())?;
        // Compared byte for byte with tokens, so nothing is normalized: `https://id.example` and
        // `https://id.example/` are two issuers.
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic())
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        let loopback = loopback_host(&url);
        let secure = url.scheme() == "https" || (url.scheme() == "http" && loopback.is_some());
        if !plain || !secure || url.host().is_none() {
            return Err(bad());
        }
        Ok(Self {
            text: text.to_owned(),
            loopback: loopback.filter(|_| url.scheme() == "http"),
        })
    }
}

impl Issuer {
    /// Returns the issuer identifier as it was configured.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address of the discovery document (OpenID Connect Discovery 1.0, section 4).
    pub fn discovery_address(&self) -> String {
        let base = self.text.trim_end_matches('/');
        format!("{base}/.well-known/openid-configuration")
    }

    /// Returns the host if the provider uses plain http on this machine; `None` otherwise.
    pub fn plain_http_host(&self) -> Option<&str> {
        self.loopback.as_deref()
    }

    /// Whether this service accepts `address` from a document of the provider: https, or this
    /// machine if the provider itself uses http on this machine.
    pub fn may_name(&self, address: &str) -> bool {
        // The addresses go into redirects and pages, so quotes and angle brackets are refused.
        let graphic = address
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\"'<>".contains(&byte));
        let Ok(url) = Url::parse(address) else {
            return false;
        };
        graphic
            && match url.scheme() {
                "https" => url.host().is_some(),
                "http" => self.loopback.is_some() && loopback_host(&url).is_some(),
                _ => false,
            }
    }

    fn host(&self) -> &str {
        let rest = self.text.split("//").nth(1).unwrap_or_default();
        rest.split('/').next().unwrap_or_default()
    }
}

/// Returns the host of an address on this machine; `None` for other addresses.
fn loopback_host(url: &Url) -> Option<String> {
    let host = url.host()?;
    is_this_machine(&host).then(|| host.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &'static str)]) -> Result<SignIn, (&'static str, String)> {
        let variable = |name: &str| {
            let found = given.iter().find(|(held, _)| *held == name);
            found.map(|(_, value)| *value)
        };
        let has_secret = variable(CLIENT_SECRET).is_some();
        SignIn::from_variables(&variable, has_secret)
            .map_err(|bad| (bad.name, bad.problem.to_string()))
    }

    const PROVIDER: [(&str, &str); 2] = [(ISSUER, "https://id.example"), (CLIENT_ID, "vault")];

    #[test]
    fn a_provider_joins_passwords_unless_it_replaces_them() {
        assert_eq!(read(&[]), Ok(SignIn::Password));
        assert_eq!(read(&[(WAYS, "password")]), Ok(SignIn::Password));
        for (more, takes_passwords) in [
            (None, true),
            (Some((WAYS, "both")), true),
            (Some((WAYS, "oidc")), false),
        ] {
            let given: Vec<_> = PROVIDER.into_iter().chain(more).collect();
            let settings = read(&given).unwrap();
            assert_eq!(settings.takes_passwords(), takes_passwords);
            let provider = settings.provider().unwrap();
            assert_eq!(
                (provider.name.as_str(), provider.sign_up_rule),
                ("id.example", SignUpRule::Invited)
            );
        }
    }

    #[test]
    fn half_of_a_provider_is_refused_by_the_name_of_what_is_wrong() {
        let [issuer, client] = PROVIDER;
        for (given, name, says) in [
            (vec![issuer], CLIENT_ID, "must be set"),
            (vec![client], ISSUER, "must be set"),
            (vec![(WAYS, "oidc")], ISSUER, "must be set"),
            (vec![(WAYS, "both")], ISSUER, "must be set"),
            (vec![(WAYS, "ldap")], WAYS, "none of"),
            (
                vec![issuer, client, (WAYS, "password")],
                WAYS,
                "without effect",
            ),
            (vec![(CLIENT_SECRET, "x")], CLIENT_SECRET, "no effect"),
            (vec![(NAME, "Example")], NAME, "no effect"),
            (vec![(SIGN_UP, "open")], SIGN_UP, "no effect"),
            (vec![issuer, client, (SIGN_UP, "all")], SIGN_UP, "neither"),
            (
                vec![(ISSUER, "http://id.example"), client],
                ISSUER,
                "address",
            ),
            (vec![(ISSUER, "id.example"), client], ISSUER, "address"),
            (
                vec![(ISSUER, "https://id.example?a"), client],
                ISSUER,
                "address",
            ),
            (
                vec![(ISSUER, "https://u@id.example"), client],
                ISSUER,
                "address",
            ),
            (
                vec![(ISSUER, "ftp://id.example"), client],
                ISSUER,
                "address",
            ),
        ] {
            let (found, problem) = read(&given).unwrap_err();
            assert_eq!(found, name, "{given:?}");
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn a_provider_names_https_addresses_or_those_of_its_own_machine() {
        let there: Issuer = "https://id.example/tenant/".parse().unwrap();
        assert_eq!(
            there.discovery_address(),
            "https://id.example/tenant/.well-known/openid-configuration"
        );
        let here: Issuer = "http://127.0.0.1:9000".parse().unwrap();
        for (address, by_there, by_here) in [
            ("https://keys.example/jwks", true, true),
            ("http://keys.example/jwks", false, false),
            ("http://127.0.0.1:9000/jwks", false, true),
            ("https://keys.example/\"", false, false),
            ("javascript:alert(1)", false, false),
            ("/jwks", false, false),
        ] {
            assert_eq!(there.may_name(address), by_there, "{address}");
            assert_eq!(here.may_name(address), by_here, "{address}");
        }
    }
}
