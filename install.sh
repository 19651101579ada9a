#!/bin/sh
# Installs vault for this user, from this checkout or from a release. Sends nothing to anybody.
#
#   ./install.sh
#   ./install.sh --uninstall      removes the program and the starter skills; your skills and keys stay
#
# Where the program comes from:
#   VAULT_INSTALL_FROM=PATH|URL   a program, or a .tar.gz with it (and the folder `skills`); a URL must be https
#                                 [default: cargo builds it from the checkout of this script]
#   VAULT_INSTALL_SHA256=HEX      its SHA-256: required for a URL, checked for a path too
#   VAULT_INSTALL_DIR=FOLDER      where the program goes [default: ~/.local/bin]
# Switches (set to 1):
#   VAULT_NO_SETUP                do not start `vault setup` at the end (it starts only on a terminal)
#   VAULT_YES                     answer questions with their defaults if there is no terminal
#   VAULT_NO_BOOTSTRAP            install and offer no starter skills
#                                 [default: in $XDG_DATA_HOME/vault/skills, else ~/.local/share/vault/skills]
# Exit: 0 installed, 1 failed, 2 wrong use, or a question without a terminal. A failure changes nothing.
set -eu

say() { printf '%s\n' "$*" >&2; }
stop() {
    code=$1
    shift
    say "install.sh: $*"
    exit "$code"
}

uninstall=''
case "${1:-}" in
'') ;;
--uninstall) uninstall=1 ;;
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

# Sets $program, and $skills where starter skills came with it.
program='' skills=''
from=${VAULT_INSTALL_FROM:-}
case "$from" in
'')
    [ -f "$here/cli/Cargo.toml" ] || stop 2 "no checkout beside this script: set VAULT_INSTALL_FROM to a program or a .tar.gz"
    command -v cargo >/dev/null 2>&1 || stop 1 "cargo is missing: install Rust, or set VAULT_INSTALL_FROM"
    say "building vault; this takes some minutes"
    (cd "$here" && cargo build --release --locked --quiet -p vault-cli --bin vault >&2) || stop 1 "the build failed"
    program=${CARGO_TARGET_DIR:-$here/target}/release/vault
    skills=$here/shared/service/starter
    ;;
https://*)
    [ -n "${VAULT_INSTALL_SHA256:-}" ] || stop 2 "set VAULT_INSTALL_SHA256: a download is checked before it runs"
    say "downloading $from"
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --proto '=https' --max-filesize 536870912 --max-time 600 -o "$place/download" -- "$from" || stop 1 "the download failed"
    elif command -v wget >/dev/null 2>&1; then
        wget -q --https-only -O "$place/download" -- "$from" || stop 1 "the download failed"
    else
        stop 1 "cannot download: neither curl nor wget is installed"
    fi
    from=$place/download
    ;;
*://*) stop 2 "VAULT_INSTALL_FROM is a path or an https address" ;;
*) [ -f "$from" ] || stop 2 "VAULT_INSTALL_FROM must be a program or a .tar.gz: $from is not a file" ;;
esac

if [ -n "$from" ]; then
    if [ -n "${VAULT_INSTALL_SHA256:-}" ]; then
        found=$(digest "$from")
        wanted=$(printf '%s' "$VAULT_INSTALL_SHA256" | tr 'A-F' 'a-f')
        [ "$found" = "$wanted" ] || stop 1 "the SHA-256 of the file is $found, not $wanted; nothing was installed"
    fi
    if gzip -t "$from" 2>/dev/null; then
        mkdir "$place/unpacked"
        # Names that would leave the folder are refused by tar itself.
        tar -xzf "$from" -C "$place/unpacked" || stop 1 "the archive cannot be unpacked"
        for inner in "$place/unpacked" "$place"/unpacked/*; do
            if [ -f "$inner/vault" ]; then
                program=$inner/vault
                [ ! -d "$inner/skills" ] || skills=$inner/skills
            fi
        done
        [ -n "$program" ] || stop 1 "the archive contains no program named vault"
    else
        program=$from
        [ ! -d "$here/shared/service/starter" ] || skills=$here/shared/service/starter
    fi
fi

# --- the program --------------------------------------------------------------------------------
mkdir -p "$target"
made=$target/.vault-install.$$
cp "$program" "$made"
chmod 755 "$made"
is_vault "$made" || stop 1 "the program does not run on this machine; nothing was installed"
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
    exec "$target/vault" setup ${no_bootstrap:+--no-starters}
fi
