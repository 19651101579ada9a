# What `up --full` adds to the emulated service. Sourced by `up` and `down`, after localstack/emulator.sh.
#
# An OpenID Connect provider: npm `oidc-provider`, run by localstack/provider.mjs on a free loopback port. It is kept as long as the emulator.

oidc_provider_version=9.13.3

stop() { fail "$@"; }
# shellcheck source=infra/npm.sh
. "$root/infra/npm.sh"

provider_running() { process_runs "$state/provider.pid"; }

# start_provider: the provider, unless it runs. Its issuer is in the file `provider`, the client's secret in `provider.secret`.
start_provider() {
    local tries
    provider_running && return 0
    install_node
    install_npm "$tools/oidc-provider" "oidc-provider $oidc_provider_version" "oidc-provider@$oidc_provider_version"
    secret provider.secret
    rm -f "$state/provider"
    say "starting the OpenID Connect provider"
    set -m
    env -i PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 HOME="$state/home" MODULES="$tools/oidc-provider" \
        "$node" "$root/localstack/provider.mjs" 0 "$(cat "$state/provider.secret")" \
        </dev/null >"$state/provider" 2>"$state/provider.log" &
    printf '%s\n%s\n' "$!" "$(began "$!")" >"$state/provider.pid"
    set +m
    for tries in $(seq 100); do
        [ ! -s "$state/provider" ] || return 0
        provider_running || break
        sleep 0.1
    done
    stop_full
    fail 1 "the OpenID Connect provider did not start; the log is $state/provider.log"
}

# full_settings: the variables of the functions, as members of an HCL map.
full_settings() {
    printf 'VAULT_OIDC_ISSUER="%s",VAULT_OIDC_CLIENT_ID="vault",VAULT_OIDC_CLIENT_SECRET="%s",VAULT_OIDC_NAME="the test provider"' \
        "$(cat "$state/provider")" "$(cat "$state/provider.secret")"
}

# with_full_settings MAP: an HCL map with these members too.
with_full_settings() {
    local members
    members=$(printf '%s' "$1" | sed 's/^[[:space:]]*{//; s/,*[[:space:]]*}[[:space:]]*$//')
    printf '{%s%s}' "${members:+$members,}" "$(full_settings)"
}

# What `up` prints about it.
full_summary() {
    cat <<END
provider  $(cat "$state/provider")
          any e-mail address with any password is an account there, with a verified
          address; one that begins with "unverified" is not verified
          the owner and the operator connect it with their password once
END
}

# Stops what --full started, and nothing else.
stop_full() {
    stop_process "$state/provider.pid"
    rm -f "$state/provider"
}
