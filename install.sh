#!/bin/sh
# Installs vault for this user, from this checkout or from a release. Sends nothing to anybody.
#
#   ./install.sh
#   ./install.sh --allow-older    lets a release replace a newer one
#   ./install.sh --uninstall      removes the program and the starter skills; your skills and keys stay
#
# Where the program comes from [default: cargo builds it from the checkout of this script]:
#   VAULT_RELEASES=FOLDER|URL     the files of a release: SHA256SUMS, its signature and what it lists. The signature is checked with
#                                 ssh-keygen against the signers below; a URL must be https
#   VAULT_INSTALL_FROM=PATH|URL   a program, or a .tar.gz with it (and the folder `skills`); a URL must be https
#   VAULT_INSTALL_SHA256=HEX      SHA-256 of the program or archive: required for a URL of VAULT_INSTALL_FROM, checked for a path too. With
#                                 VAULT_RELEASES it takes the place of the signature where OpenSSH 8.1 or newer is missing
#   VAULT_INSTALL_DIR=FOLDER      where the program goes [default: ~/.local/bin]
# Switches (set to 1):
#   VAULT_NO_SETUP                do not start `vault setup` at the end (it starts only on a terminal)
#   VAULT_YES                     answer questions with their defaults if there is no terminal
#   VAULT_NO_BOOTSTRAP            install and offer no starter skills
#                                 [default: in $XDG_DATA_HOME/vault/skills, else ~/.local/share/vault/skills]
# Exit: 0 installed, 1 failed, 2 wrong use, or a question without a terminal. A failure changes nothing.
set -eu

# Who signs releases, with the lines of release/allowed_signers. Empty until a maintainer has made a key: then no signature counts.
signers() {
    cat <<'SIGNERS'
SIGNERS
}

say() { printf '%s\n' "$*" >&2; }
stop() {
    code=$1
    shift
    say "install.sh: $*"
    exit "$code"
}

[ $# -le 1 ] || stop 2 "give one option (see --help)"
uninstall='' allow_older=''
case "${1:-}" in
'') ;;
--uninstall) uninstall=1 ;;
--allow-older) allow_older=1 ;;
-h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0"
    exit 0
    ;;
*) stop 2 "unknown argument $1 (see --help)" ;;
esac

on() {
    case "$1" in
    1) return 0 ;;
    '' | 0) return 1 ;;
    *) stop 2 "$2 is 1 or not set, not $1" ;;
    esac
}
# Read once and early: a slip in one of them changes nothing.
no_setup='' no_bootstrap='' yes=''
if on "${VAULT_NO_SETUP:-}" VAULT_NO_SETUP; then no_setup=1; fi
if on "${VAULT_NO_BOOTSTRAP:-}" VAULT_NO_BOOTSTRAP; then no_bootstrap=1; fi
if on "${VAULT_YES:-}" VAULT_YES; then yes=1; fi
terminal=''
if [ -t 0 ] && [ -t 2 ]; then terminal=1; fi

[ -n "${HOME:-}" ] || stop 2 "HOME is not set"
target=${VAULT_INSTALL_DIR:-$HOME/.local/bin}
share=${XDG_DATA_HOME:-$HOME/.local/share}
case "$share" in /*) ;; *) share=$HOME/.local/share ;; esac
is_vault() { case "$("$1" version 2>/dev/null </dev/null)" in 'vault '[0-9]*) return 0 ;; *) return 1 ;; esac; }

# --- uninstall ----------------------------------------------------------------------------------
if [ -n "$uninstall" ]; then
    config=${XDG_CONFIG_HOME:-$HOME/.config}
    case "$config" in /*) ;; *) config=$HOME/.config ;; esac
    if [ -e "$target/vault" ]; then
        is_vault "$target/vault" || stop 2 "$target/vault is a different program; nothing was removed"
        rm -f "$target/vault"
        say "removed $target/vault"
    else
        say "$target/vault does not exist; VAULT_INSTALL_DIR names another folder"
    fi
    if [ -d "$share/vault/skills" ]; then
        rm -rf "$share/vault/skills"
        rmdir "$share/vault" 2>/dev/null || :
        say "removed the starter skills in $share/vault/skills"
    fi
    root=${VAULT_STORAGE_PATH:-$HOME/.vault}
    for kept in "$root" "$config/vault"; do
        [ ! -d "$kept" ] || say "kept $kept"
    done
    if [ -d "$root" ] || [ -d "$config/vault" ]; then
        say "$root has your skills, which agents still read; $config/vault has your keys. Remove them only if no other machine needs them."
    fi
    exit 0
fi

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

place=$(mktemp -d "${TMPDIR:-/tmp}/vault-install.XXXXXX")
made=''
clean() {
    rm -rf "$place"
    [ -z "$made" ] || rm -f "$made"
}
trap clean EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

digest() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    else
        stop 1 "cannot check the SHA-256: neither sha256sum nor shasum is installed"
    fi
}

# download URL FILE: over https, or over http from this machine.
download() {
    case "$1" in
    *@*) stop 2 "the address must not contain @: $1" ;;
    https://* | http://127.0.0.1[:/]* | http://localhost[:/]*) ;;
    *) stop 2 "the address must begin with https://: $1" ;;
    esac
    if command -v curl >/dev/null 2>&1; then
        # A redirect must not lead to a connection that anybody can read and change.
        curl -fsSL --globoff --proto '=https,http' --proto-redir '=https' --max-filesize 536870912 --max-time 600 -o "$2" -- "$1" ||
            stop 1 "$1 cannot be downloaded"
    elif command -v wget >/dev/null 2>&1; then
        wget -q --https-only --max-redirect=5 -O "$2" -- "$1" || stop 1 "$1 cannot be downloaded with wget; install curl, and run this again"
    else
        stop 1 "cannot download: neither curl nor wget is installed"
    fi
}

# --- a release ----------------------------------------------------------------------------------
# fetch NAME: a file of the release, into $place.
fetch() {
    case "$releases" in
    *://*) download "${releases%/}/$1" "$place/$1" ;;
    *)
        [ -f "$releases/$1" ] || stop 1 "$releases has no $1"
        cp -- "$releases/$1" "$place/$1"
        ;;
    esac
}

has_verify() {
    command -v ssh-keygen >/dev/null 2>&1 || return 1
    case "$(ssh-keygen -Y verify 2>&1 </dev/null || :)" in *'option -- '*) return 1 ;; esac
}

# Refuses a signature with other bytes than `ssh-keygen -Y sign` writes for an Ed25519 key and this namespace, which are always 306. `ssh-keygen
# -Y verify` skips some of them, and a file that nobody signed in this form is no release.
has_exact_form() {
    LC_ALL=C awk '
        NR == 1 { good = ($0 == "-----BEGIN SSH SIGNATURE-----") }
        NR == 2 { good = good && index($0, "U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg") == 1 }
        NR > 1 && $0 !~ /^[A-Za-z0-9+\/=]+$/ && $0 != "-----END SSH SIGNATURE-----" { good = 0 }
        NR > 2 && previous != 70 && $0 != "-----END SSH SIGNATURE-----" { good = 0 }
        { bytes += length($0) + 1; previous = length($0); last = $0 }
        END { if (!good || last != "-----END SSH SIGNATURE-----") exit 1; print bytes }
    ' "$1" >"$place/bytes" && [ "$(cat "$place/bytes")" -eq 306 ] && [ "$(wc -c <"$1")" -eq 306 ]
}

# check_signature: SHA256SUMS is what one of the signers signed.
check_signature() {
    signers >"$place/signers"
    [ -s "$place/signers" ] || stop 1 "this script names no signer of releases yet, so no signature counts; nothing was installed"
    has_exact_form "$place/SHA256SUMS.sig" || stop 1 "SHA256SUMS.sig is not a signature as ssh-keygen writes it; nothing was installed"
    principals=$(awk '{ print $1 }' "$place/signers")
    for name in $principals; do
        if ssh-keygen -Y verify -f "$place/signers" -I "$name" -n vault-release -s "$place/SHA256SUMS.sig" <"$place/SHA256SUMS" >/dev/null 2>&1; then
            say "SHA256SUMS is signed by $name"
            return
        fi
    done
    stop 1 "SHA256SUMS is not signed by a signer of this script; nothing was installed"
}

# listed NAME: the SHA-256 that SHA256SUMS has for a file.
listed() {
    awk -v name="$1" 'substr($0, 65) == "  " name { print substr($0, 1, 64); rows++ } END { exit rows != 1 }' "$place/SHA256SUMS" ||
        stop 1 "SHA256SUMS does not list $1 once; nothing was installed"
}
check_sum() {
    expected=$(listed "$1")
    actual=$(digest "$place/$1")
    [ "$actual" = "$expected" ] || stop 1 "$1 has the SHA-256 $actual, and SHA256SUMS says $expected; nothing was installed"
}

# is_older A B: version A comes before version B, as semver.org orders them: 1.0.0-rc.9, 1.0.0-rc.10, 1.0.0.
is_older() {
    awk -v a="$1" -v b="$2" '
        function compare(x, y) {
            if (x ~ /^[0-9]+$/ && y ~ /^[0-9]+$/) return x + 0 < y + 0 ? -1 : x + 0 > y + 0
            # A number comes before a word, and nothing before both.
            if (x == "" || y == "") return x == y ? 0 : (x == "" ? -1 : 1)
            if (x ~ /^[0-9]+$/) return -1
            if (y ~ /^[0-9]+$/) return 1
            return x "" < y "" ? -1 : x "" > y ""
        }
        function suffix(version) { return version ~ /-/ ? substr(version, index(version, "-") + 1) : "" }
        BEGIN {
            sub(/[+].*/, "", a); sub(/[+].*/, "", b)
            p = suffix(a); q = suffix(b)
            sub(/-.*/, "", a); sub(/-.*/, "", b)
            split(a, x, "."); split(b, y, ".")
            for (i = 1; i <= 3; i++) if (order = compare(x[i], y[i])) exit order > 0
            # A version without a suffix comes after those with one.
            if (p == "" || q == "") exit !(p != "" && q == "")
            n = split(p, x, "."); m = split(q, y, ".")
            for (i = 1; i <= n || i <= m; i++) if (order = compare(i <= n ? x[i] : "", i <= m ? y[i] : "")) exit order > 0
            exit 1
        }'
}

# Sets $from to the archive of the release for this machine, and $version.
take_release() {
    case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) platform=x86_64-unknown-linux-gnu ;;
    Linux-aarch64 | Linux-arm64) platform=aarch64-unknown-linux-gnu ;;
    Darwin-x86_64) platform=x86_64-apple-darwin ;;
    Darwin-arm64) platform=aarch64-apple-darwin ;;
    *) stop 1 "there are no releases for $(uname -s) on $(uname -m); ./install.sh in a clone builds vault" ;;
    esac
    fetch SHA256SUMS
    if has_verify; then
        fetch SHA256SUMS.sig
        check_signature
    elif [ -n "${VAULT_INSTALL_SHA256:-}" ]; then
        say "OpenSSH 8.1 or newer is missing: the signature is not checked, only the SHA-256 that you gave"
    else
        stop 1 "the signature cannot be checked: install OpenSSH 8.1 or newer, or set VAULT_INSTALL_SHA256 to the archive's SHA-256"
    fi
    version=$(sed -n "s/^[0-9a-f]\{64\}  vault-\([0-9][0-9A-Za-z.+-]*\)-$platform\.tar\.gz\$/\1/p" "$place/SHA256SUMS")
    case "$version" in
    '') stop 1 "the release has no archive for $platform; ./install.sh in a clone builds vault" ;;
    *[!0-9A-Za-z.+-]*) stop 1 "SHA256SUMS lists several archives for $platform; nothing was installed" ;;
    esac
    if [ -z "$allow_older" ] && [ -e "$target/vault" ] && is_vault "$target/vault"; then
        installed=$("$target/vault" version </dev/null)
        installed=${installed#vault }
        ! is_older "$version" "$installed" ||
            stop 1 "vault $version is older than vault $installed, which is installed; --allow-older replaces it"
    fi
    archive=vault-$version-$platform.tar.gz
    statement=vault-$version-$platform.provenance.json
    fetch "$archive"
    fetch "$statement"
    check_sum "$archive"
    check_sum "$statement"
    from=$place/$archive
}

# Sets $program, and $skills where starter skills came with it.
program='' skills='' version=''
from=${VAULT_INSTALL_FROM:-} releases=${VAULT_RELEASES:-}
[ -z "$from" ] || [ -z "$releases" ] || stop 2 "set VAULT_RELEASES or VAULT_INSTALL_FROM, not both"
[ -z "$allow_older" ] || [ -n "$releases" ] || stop 2 "--allow-older needs VAULT_RELEASES"
[ -z "$releases" ] || take_release
case "$from" in
'')
    [ -f "$here/cli/Cargo.toml" ] || stop 2 "no checkout beside this script: set VAULT_INSTALL_FROM to a program or a .tar.gz"
    command -v cargo >/dev/null 2>&1 || stop 1 "cargo is missing: install Rust, or set VAULT_INSTALL_FROM"
    say "building vault; this takes some minutes"
    # Cargo names the program that it built: its settings may have another folder or target.
    (cd "$here" && cargo build --release --locked --quiet --message-format json-render-diagnostics -p vault-cli --bin vault) >"$place/built" ||
        stop 1 "the build failed"
    program=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$place/built")
    skills=$here/shared/service/starter
    ;;
https://*)
    [ -n "${VAULT_INSTALL_SHA256:-}" ] || stop 2 "set VAULT_INSTALL_SHA256: a download is checked before it runs"
    say "downloading $from"
    download "$from" "$place/download"
    from=$place/download
    ;;
*://*) stop 2 "VAULT_INSTALL_FROM is a path or an https address" ;;
*)
    [ -f "$from" ] || stop 2 "VAULT_INSTALL_FROM must be a program or a .tar.gz: $from is not a file"
    # A copy: the file that is checked must be the one that is unpacked.
    if [ -z "$version" ]; then
        cp -- "$from" "$place/download"
        from=$place/download
    fi
    ;;
esac

if [ -n "$from" ]; then
    if [ -n "${VAULT_INSTALL_SHA256:-}" ]; then
        found=$(digest "$from")
        wanted=$(printf '%s' "$VAULT_INSTALL_SHA256" | tr 'A-F' 'a-f')
        [ "$found" = "$wanted" ] || stop 1 "the SHA-256 of the file is $found, not $wanted; nothing was installed"
    fi
    if gzip -t "$from" 2>/dev/null; then
        mkdir "$place/unpacked"
        # tar keeps the members in the folder: it takes the / from names and refuses `..`.
        tar -xzf "$from" -C "$place/unpacked" || stop 1 "the archive cannot be unpacked"
        for inner in "$place/unpacked" "$place"/unpacked/*; do
            if [ -f "$inner/vault" ]; then
                program=$inner/vault
                [ ! -d "$inner/skills" ] || skills=$inner/skills
            fi
        done
        [ -n "$program" ] || stop 1 "the archive contains no program named vault"
    elif [ -n "$version" ]; then
        stop 1 "the archive of vault $version is not a .tar.gz; nothing was installed"
    else
        program=$from
        [ ! -d "$here/shared/service/starter" ] || skills=$here/shared/service/starter
    fi
fi

# --- the program --------------------------------------------------------------------------------
mkdir -p "$target"
[ ! -d "$target/vault" ] || stop 2 "$target/vault is a folder; VAULT_INSTALL_DIR names another place"
made=$(mktemp "$target/.vault-install.XXXXXX")
cp "$program" "$made"
chmod 755 "$made"
is_vault "$made" || stop 1 "the program does not run on this machine; nothing was installed"
[ -z "$version" ] || [ "$("$made" version </dev/null)" = "vault $version" ] ||
    stop 1 "the archive of vault $version has another program; nothing was installed"
if [ -e "$target/vault" ] && ! is_vault "$target/vault"; then
    if [ -n "$terminal" ]; then
        printf '%s is a different program. Replace it? [y/N] ' "$target/vault" >&2
        read -r answer || answer=''
        case "$answer" in y | Y | yes) ;; *) stop 2 "left $target/vault as it is; VAULT_INSTALL_DIR names another folder" ;; esac
    elif [ -z "$yes" ]; then
        stop 2 "$target/vault is a different program: set VAULT_YES=1 to replace it, or VAULT_INSTALL_DIR to another folder"
    fi
fi
mv -f "$made" "$target/vault"
made=''
say "installed $("$target/vault" version) as $target/vault"

# --- the starter skills -------------------------------------------------------------------------
if [ -z "$no_bootstrap" ] && [ -n "$skills" ]; then
    mkdir -p "$share/vault"
    rm -rf "$share/vault/skills.new"
    cp -R "$skills" "$share/vault/skills.new"
    rm -rf "$share/vault/skills"
    mv "$share/vault/skills.new" "$share/vault/skills"
    say "installed the starter skills in $share/vault/skills; vault add adds them"
fi

case ":${PATH:-}:" in
*":$target:"*) ;;
*) say "$target is not in PATH; add it: export PATH=\"$target:\$PATH\"" ;;
esac

# --- setup --------------------------------------------------------------------------------------
if [ -z "$no_setup" ] && [ -n "$terminal" ] && "$target/vault" setup --help >/dev/null 2>&1; then
    clean
    trap - EXIT
    # The installer is for the person, also in a clone of this repository.
    exec "$target/vault" setup --personal ${no_bootstrap:+--no-starters}
fi
