//! Parses the addresses of git repositories: https, ssh, and the scp form `user@host:path`. A
//! second `//` names a folder in the repository. Rejects addresses that contain a password or that
//! could make git start a helper program.

use url::Url;
use vault_format::name::is_deceptive;

use super::Parser;
use crate::source::check::{check_segments, check_ssh_word, decode_folder};
use crate::source::{BadSource, GitSource, is_loopback};

impl Parser<'_> {
    pub(super) fn git_address(&self, text: &str) -> Result<GitSource, BadSource> {
        // Outside of an IPv6 literal, `::` starts a helper program of git.
        let literal = text.starts_with("https://[") || text.starts_with("ssh://");
        if text.starts_with('-')
            || (text.contains("::") && !literal)
            || text.chars().any(|c| c.is_whitespace() || is_deceptive(c))
        {
            return Err(self.invalid_source("git cannot fetch this address"));
        }
        // In an address with a scheme, a second `//` separates the repository from a folder in it.
        let (text, inside) = match text.find("://").map(|at| at + 3) {
            Some(after) => match text[after..].split_once("//") {
                Some((before, inside)) => (&text[..after + before.len()], Some(inside)),
                None => (text, None),
            },
            None => (text, None),
        };
        let mut git = if text.contains("://") {
            self.git_url(text)?
        } else {
            self.parse_scp(text)?
        };
        if let Some(inside) = inside.map(|inside| inside.trim_matches('/')) {
            git.path = Some(decode_folder(self.text, inside.split('/'))?);
        }
        Ok(git)
    }

    fn git_url(&self, text: &str) -> Result<GitSource, BadSource> {
        let url: Url = text
            .parse()
            .map_err(|error| self.invalid_source(format!("it is not an address: {error}")))?;
        let plain = matches!(url.scheme(), "http" | "file") && self.options.loopback;
        if url.scheme() == "http" && !plain && is_loopback(&url) {
            return Err(self
                .invalid_source("repositories are fetched over https or ssh")
                .with_hint("clone it, then add the folder"));
        }
        if !plain && !matches!(url.scheme(), "https" | "ssh") {
            return Err(
                self.invalid_source(format!("{}: addresses are not supported", url.scheme()))
            );
        }
        // The user name of an SSH address is no secret, and most hosts require `git@`.
        if url.scheme() != "ssh" && !url.username().is_empty() || url.password().is_some() {
            return Err(self.invalid_source("an address cannot contain a user name or password").with_hint(
                "git's credential helpers are used for private repositories: leave the credentials out",
            ));
        }
        check_ssh_word(self.text, url.username())?;
        let host = if url.scheme() == "file" {
            "localhost"
        } else {
            url.host_str().unwrap_or_default()
        };
        check_ssh_word(self.text, host)?;
        if host.is_empty() || url.query().is_some() || url.fragment().is_some() {
            return Err(self.invalid_source("a repository has a host and a path, and no query"));
        }
        let path = url.path().trim_matches('/');
        check_segments(self.text, path.split('/'))?;
        if path.contains('%') {
            return Err(self.invalid_source("the path of a repository holds no escapes"));
        }
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let scheme = if url.scheme() == "ssh" {
            "ssh"
        } else {
            "https"
        };
        Ok(Self::repository_source(
            text.to_owned(),
            scheme,
            &authority,
            path,
        ))
    }

    fn parse_scp(&self, text: &str) -> Result<GitSource, BadSource> {
        let (login, path) = text
            .split_once(':')
            .ok_or_else(|| self.invalid_source("git cannot fetch this address"))?;
        let (user, host) = match login.rsplit_once('@') {
            Some((user, host)) => (user, host),
            None => ("", login),
        };
        check_ssh_word(self.text, user)?;
        check_ssh_word(self.text, host)?;
        // Host names ignore letter case, but patterns of the policy are compared as text.
        let host = host.to_ascii_lowercase();
        let host_is_fine = !host.is_empty()
            && host
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
        let path = path.trim_matches('/');
        if !host_is_fine || path.contains('%') {
            return Err(self.invalid_source("git cannot fetch this address"));
        }
        check_segments(self.text, path.split('/'))?;
        Ok(Self::repository_source(text.to_owned(), "ssh", &host, path))
    }

    fn repository_source(address: String, scheme: &str, authority: &str, path: &str) -> GitSource {
        let bare = path.strip_suffix(".git").unwrap_or(path);
        // Only projects directly below an owner have a short identifier.
        let two = bare.split('/').count() == 2;
        let identifier = match authority {
            "github.com" if two => format!("github:{bare}"),
            "gitlab.com" if two => format!("gitlab:{bare}"),
            authority => format!("git:{scheme}://{authority}/{path}"),
        };
        GitSource::new(address, identifier, format!("{authority}/{bare}"))
    }
}
