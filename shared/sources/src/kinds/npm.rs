//! Plugins that are npm packages. Fetches one version of a package and checks its archive against
//! the registry's digest. Runs no code of the package and fetches no dependencies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sha2::{Digest as _, Sha512};
use url::Url;

use super::{MAX_JSON_BYTES, parse_json};
use crate::access::Access;
use crate::archive::MAX_DOWNLOAD_BYTES;
use crate::error::{FetchError, Result, escape_untrusted};
use crate::source::Source;

/// Maximum length of a package name in npm, in bytes.
const MAX_NAME: usize = 214;
/// Maximum length of a version or tag, in bytes.
const MAX_VERSION: usize = 100;

/// One version of a package.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Package {
    name: String,
    /// A version or a tag such as `latest`.
    version: String,
}

#[derive(Debug)]
pub(crate) struct Archive {
    /// `name@version`, with the version that the registry resolved.
    pub(crate) shown: String,
    pub(crate) url: Url,
    pub(crate) body: Vec<u8>,
}

#[derive(Deserialize)]
struct Description {
    name: String,
    version: String,
    dist: Dist,
}

#[derive(Deserialize)]
struct Dist {
    tarball: String,
    /// Digests in the format of Subresource Integrity. Old package versions have none.
    integrity: Option<String>,
}

impl Package {
    /// Creates a package reference. The default version is the tag `latest`. Fails with the reason
    /// if the name or version is invalid.
    pub(crate) fn new(name: &str, version: Option<&str>) -> Result<Self, String> {
        // The name and the version become segments of the registry's address.
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-', '_'])
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
        };
        let is_name = match name.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
            None => is_part(name),
        };
        if !is_name || name.len() > MAX_NAME {
            return Err(format!(
                "{} is not the name of a package",
                escape_untrusted(name)
            ));
        }
        let version = version.unwrap_or("latest");
        let is_version = (1..=MAX_VERSION).contains(&version.len())
            && version.starts_with(|first: char| first.is_ascii_alphanumeric())
            && version
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._+".contains(&byte));
        if !is_version {
            return Err(format!(
                "{} is not a version of the package {name}: a range is not accepted",
                escape_untrusted(version)
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
        })
    }

    /// Queries the registry for the version and fetches its archive. Fails if the registry lists no
    /// SHA-512 digest or the archive does not match it.
    pub(crate) async fn fetch_archive(&self, access: Access<'_>) -> Result<Archive> {
        let base = &access.fetcher.settings.npm;
        let access = access.to_base(Some(base));
        let mut url = base.clone();
        // `push` escapes the slash of a scoped name, as the registry expects it.
        url.path_segments_mut()
            .map_err(|()| FetchError::content_error(base, "it is not a base address"))?
            .pop_if_empty()
            .push(&self.name)
            .push(&self.version);
        access.policy.check_source(&Source::Archive(url.clone()))?;
        let got = access.fetch_if_found(&url, MAX_JSON_BYTES).await?;
        let got = got.ok_or_else(|| {
            FetchError::NotFound(format!(
                "the registry has no package {}@{}",
                self.name, self.version
            ))
        })?;
        let description: Description = parse_json(&url, &got.body)?;
        let place = format!(
            "{}@{}",
            escape_untrusted(&description.name),
            escape_untrusted(&description.version)
        );
        // Only a tag may resolve to another version. npm advises against tags that begin with a
        // digit, so such a text is treated as a version. npm ignores everything after a `+`.
        let version = self.version.split('+').next().unwrap_or_default();
        let is_tag = !version.starts_with(|first: char| first.is_ascii_digit());
        if description.name != self.name || !is_tag && description.version != version {
            let reason = format!("it describes {place}, not {}@{}", self.name, self.version);
            return Err(FetchError::content_error(&url, reason));
        }
        let archive: Url = description
            .dist
            .tarball
            .parse()
            .map_err(|_| FetchError::content_error(&url, "its archive has no address"))?;
        // Old versions only have a SHA-1, against which collisions can be made.
        let announced = description.dist.integrity.unwrap_or_default();
        let announced = announced
            .split_whitespace()
            .find_map(|digest| digest.strip_prefix("sha512-"))
            .ok_or_else(|| {
                FetchError::content_error(&place, "the registry names no SHA-512 of its archive")
            })?;
        // The archive may be on another host than the registry.
        access
            .policy
            .check_source(&Source::Archive(archive.clone()))?;
        let got = access.fetch_required(&archive, MAX_DOWNLOAD_BYTES).await?;
        let found = STANDARD.encode(Sha512::digest(&got.body));
        if found != announced {
            return Err(FetchError::Digest {
                place,
                wanted: format!("sha512-{}", escape_untrusted(announced)),
                found: format!("sha512-{found}"),
            });
        }
        Ok(Archive {
            shown: place,
            url: archive,
            body: got.body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_parts_of_an_address_and_no_more() {
        for (name, version) in [
            ("tools", None),
            ("@acme/review-tools", Some("1.2.3")),
            ("a.b_c~d", Some("2.0.0-rc.1+build")),
            ("tools", Some("next")),
        ] {
            assert!(Package::new(name, version).is_ok(), "{name} {version:?}");
        }
        for name in [
            "",
            "@acme",
            "@/x",
            "@acme/",
            "@acme/x/y",
            "acme/x",
            "..",
            ".x",
            "-x",
            "a b",
            "a%2fb",
            "\u{e9}",
        ] {
            assert!(Package::new(name, None).is_err(), "{name}");
        }
        assert!(Package::new(&"a".repeat(215), None).is_err());
        for version in ["", "^1.0.0", "~1", ">=1", "*", "1 || 2", "..", "1/2", "@x"] {
            assert!(Package::new("tools", Some(version)).is_err(), "{version}");
        }
    }
}
