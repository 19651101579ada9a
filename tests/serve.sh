# Read by the scripts beside it, not run: builds what they need, and runs `vault serve` for them on a free loopback port.
# shellcheck shell=bash

: "${CARGO_TARGET_DIR:=${XDG_CACHE_HOME:-$HOME/.cache}/vault-target}"
export CARGO_TARGET_DIR
built="$CARGO_TARGET_DIR/debug"

stop() {
    echo "${0##*/}: $2" >&2
    exit "$1"
}

# shellcheck source=infra/packages.sh
. "$root/infra/packages.sh"
node_here=(env "NODE_OPTIONS=--import=\"$root/tests/clients/localhost.mjs\"" "$node")

# build BINARY...: `vault` and these of the package vault-tests; nothing where VAULT_BUILT=yes says that they are there.
build() {
    local bins=()
    [ "${VAULT_BUILT:-}" != yes ] || return 0
    for name in "$@"; do bins+=(--bin "$name"); done
    (cd "$root" && cargo build --quiet -p vault-cli -p vault-tests --bin vault "${bins[@]}") || stop 1 "the build failed"
}

# bounded SECONDS COMMAND...: ends it after that time.
bounded() {
    if command -v timeout >/dev/null; then timeout -k 5 "$@"; else shift && "$@"; fi
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# until_said FILE WORDS: waits, 30 seconds at most, until the file has these words.
until_said() {
    local turn
    for turn in $(seq 150); do
        if grep -q "$2" "$1" 2>/dev/null; then return 0; fi
        sleep 0.2
    done
    return 1
}

# own_place [FOLDER]: a folder, $serve_home, that ends with the script, as do the processes in also_end. One that is named stays.
also_end=()
own_place() {
    kept_place=${1:-}
    serve_home=${1:-$(mktemp -d)}
    trap end_serve EXIT
    trap 'exit 130' INT TERM
}

# Further variables of `vault serve`, NAME=VALUE.
serve_settings=()

# serve [PUBLIC_URL]: starts the server, with three skills in its vault, one of them for one agent alone, and waits until it answers. It
# listens at $served_at, which a script may set before, and is a free port otherwise; VAULT_REMOTE_URL is the public address, which is the
# same where none is given. Ends with the script.
serve() {
    local home skill agents
    [ -n "${serve_home:-}" ] || own_place
    home=$serve_home
    export VAULT_ADMIN_EMAIL=owner@example.com VAULT_ADMIN_PASSWORD='correct horse battery staple 42'
    for skill in greeting release-notes table-of-files; do
        [ ! -d "$home/work/$skill" ] || continue
        mkdir -p "$home/work/$skill/references"
        agents=''
        [ "$skill" != release-notes ] || agents='agents: [codex]'$'\n'
        printf -- '---\nname: %s\ndescription: A made-up skill to see %s through the clients.\ntags: [test]\n%s---\nRead references/more.md.\n' "$skill" "$skill" "$agents" >"$home/work/$skill/SKILL.md"
        printf 'More about %s.\r\n' "$skill" >"$home/work/$skill/references/more.md"
        head -c 3000 /dev/urandom >"$home/work/$skill/noise.bin"
    done
    [ -d "$home/.vault" ] || run_vault add "$home"/work/* --yes >"$home/add.log" 2>&1 || { cat "$home/add.log" >&2; stop 1 "no skills could be added"; }
    : "${served_at:=http://127.0.0.1:$(free_port)}"
    export VAULT_REMOTE_URL="${1:-$served_at}"
    run_vault serve 2>"$home/serve.log" >/dev/null &
    serve_process=$!
    for _ in $(seq 150); do
        if curl --silent --fail --output /dev/null --max-time 2 "$served_at/healthz"; then return 0; fi
        kill -0 "$serve_process" 2>/dev/null || break
        sleep 0.2
    done
    cat "$home/serve.log" >&2
    stop 1 "vault serve did not start"
}

# start_script FILE: a script that becomes the server again, over the same data.
start_script() {
    vault_environment serve
    printf 'exec env -i' >"$1"
    printf ' %q' "${exec_env[@]}" "$built/vault" serve >>"$1"
}

# vault_environment COMMAND: sets exec_env to the environment of this command of `vault`.
vault_environment() {
    exec_env=(HOME="$serve_home" XDG_CONFIG_HOME="$serve_home/.config" PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8 NO_COLOR=1)
    if [ "$1" = serve ]; then
        # Clients and scenarios send more requests with one app, and ask more often for tokens, than a person does in a minute: those limits are
        # off. All others are those of a fresh installation.
        exec_env+=(VAULT_MODE=remote VAULT_PUBLIC_URL="$VAULT_REMOTE_URL" VAULT_PORT="${served_at##*:}" VAULT_ALLOWED_ORIGINS="$VAULT_REMOTE_URL"
            VAULT_DATABASE_URL="$serve_home/vault.db" VAULT_STORAGE_PATH="$serve_home/.vault" VAULT_LIMIT_TOKEN=0 VAULT_LIMIT_REFRESH=0 VAULT_LIMIT_GRANT=0 VAULT_LIMIT_NAMESPACE=0 VAULT_LIMIT_SIGN_IN="${VAULT_LIMIT_SIGN_IN:-30}"
            VAULT_ADMIN_EMAIL="$VAULT_ADMIN_EMAIL" VAULT_ADMIN_PASSWORD="$VAULT_ADMIN_PASSWORD"
            ${serve_settings[@]+"${serve_settings[@]}"})
    fi
}

# run_vault ARGUMENTS...: `vault` in that home, with nothing of this machine's environment.
run_vault() {
    vault_environment "$1"
    # In place of this shell, so that its id is the server's.
    [ "$1" != serve ] || exec env -i "${exec_env[@]}" "$built/vault" "$@"
    env -i "${exec_env[@]}" "$built/vault" "$@"
}

end_serve() {
    local status=$? process
    for process in "${also_end[@]}"; do
        kill -TERM "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    if [ -n "${serve_process:-}" ]; then
        kill -TERM "$serve_process" 2>/dev/null || true
        wait "$serve_process" 2>/dev/null || true
        if [ $status != 0 ] && [ -n "${VAULT_KEEP_LOG:-}" ]; then cp "$serve_home/serve.log" "$VAULT_KEEP_LOG"; fi
    fi
    ! declare -F end_postgres >/dev/null || end_postgres
    [ -n "${kept_place:-}" ] || rm -rf "$serve_home"
    return $status
}
