//! Additional host names by which the service may be called, besides the host of its public URL.

use url::Url;

use super::{BadSetting, Config};

impl Config {
    /// Allows requests with this value of `Host` (an entry of `VAULT_ALLOWED_HOSTS`). Fails if it
    /// is not a host, with or without a port.
    pub fn allow_host(&mut self, host: &str) -> Result<(), BadSetting> {
        // A text that cannot be the host of a request is rejected, because the setting would have
        // no effect. That includes `*`: there are no wildcards.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let is_plain = host.bytes().all(plain);
        let is_host = is_plain
            && Url::parse(&format!("https://{host}/")).is_ok_and(|url| {
                let port = url
                    .port()
                    .map(|port| format!(":{port}"))
                    .unwrap_or_default();
                let named = url.host().map(|named| format!("{named}{port}"));
                named.is_some_and(|named| host.eq_ignore_ascii_case(&named))
            });
        if !is_host {
            return Err(BadSetting::Host(host.to_owned()));
        }
        self.allowed_hosts.push(host.to_ascii_lowercase());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_written_as_requests_name_it() {
        let mut config = Config::new("https://vault.example".parse().unwrap());
        for good in [
            "vault.internal",
            "Vault.Internal:8443",
            "10.0.0.7:8080",
            "[::1]",
        ] {
            config.allow_host(good).unwrap();
        }
        for bad in [
            "",
            "*",
            "https://vault.internal",
            "vault.internal/",
            "vault.internal:x",
            "user@vault.internal",
            "vault internal",
        ] {
            let refused = config.allow_host(bad);
            assert_eq!(refused, Err(BadSetting::Host(bad.to_owned())));
        }
        let held = [
            "vault.internal",
            "vault.internal:8443",
            "10.0.0.7:8080",
            "[::1]",
        ];
        assert_eq!(config.allowed_hosts, held);
    }
}
