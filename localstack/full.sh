# What `up --full` adds to the emulated service. Sourced by `up` and `down`, after localstack/emulator.sh.
#
# An OpenID Connect provider: npm `oidc-provider`, run by localstack/provider.mjs on a free loopback port. It is kept as long as the emulator.
# A payment provider: localstack/payment.mjs with npm `stripe`, on another. Its port is chosen before the deployment, which names it, and it
# starts after the deployment, which gives the address for its events.
# A mail server: localstack/mail.py, on another, which keeps mail as files.
#
# Their secrets are parameters of the emulator, as on AWS.

oidc_provider_version=9.13.3
stripe_version=23.1.0

stop() { fail "$@"; }
# shellcheck source=infra/packages.sh
. "$root/infra/packages.sh"

# start_provider: the provider, unless it runs. Its issuer is in the file `provider`, the client's secret in `provider.secret`.
start_provider() {
    process_runs "$state/provider.pid" && return 0
    install_node
    install_npm "$tools/oidc-provider" "oidc-provider $oidc_provider_version" "oidc-provider@$oidc_provider_version"
    secret provider.secret
    start_helper provider "starting the OpenID Connect provider" MODULES="$tools/oidc-provider" \
        "$node" "$root/localstack/provider.mjs" 0 "$(cat "$state/provider.secret")" && return 0
    stop_full
    fail 1 "the OpenID Connect provider did not start; the log is $state/provider.log"
}

# start_mail: the mail server, unless it runs. Its address is in the file `mail`, and what it was sent in the folder `mails`.
start_mail() {
    process_runs "$state/mail.pid" && return 0
    rm -rf "$state/mails"
    start_helper mail "starting the mail server" "$python" "$root/localstack/mail.py" 0 "$state/mails" && return 0
    stop_full
    fail 1 "the mail server did not start; the log is $state/mail.log"
}

# prepare_payment: the port of the payment provider, in the file `payment`, and its secret, in `payment.secret`.
prepare_payment() {
    install_node
    install_npm "$tools/stripe" "stripe $stripe_version" "stripe@$stripe_version"
    secret payment.secret
    [ -s "$state/payment" ] ||
        "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(f"http://127.0.0.1:{s.getsockname()[1]}")' >"$state/payment"
}

# start_payment SERVICE: the payment provider, unless it runs for this address.
start_payment() {
    local tries at
    if process_runs "$state/payment.pid" && [ "$(cat "$state/payment.service")" = "$1" ]; then return 0; fi
    stop_process "$state/payment.pid"
    at=$(cat "$state/payment")
    say "starting the payment provider"
    set -m
    env -i PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 HOME="$state/home" MODULES="$tools/stripe" \
        PAYMENT_SECRET="$(cat "$state/payment.secret")" NODE_OPTIONS="--import=\"$root/tests/clients/localhost.mjs\"" \
        "$node" "$root/localstack/payment.mjs" "${at##*:}" "$1" </dev/null >"$state/payment.log" 2>&1 &
    printf '%s\n%s\n' "$!" "$(began "$!")" >"$state/payment.pid"
    set +m
    printf '%s\n' "$1" >"$state/payment.service"
    for tries in $(seq 100); do
        ! grep -qxF "$at" "$state/payment.log" || return 0
        process_runs "$state/payment.pid" || break
        sleep 0.1
    done
    stop_process "$state/payment.pid"
    # The next `up` chooses another port.
    rm -f "$state/payment"
    fail 1 "the payment provider did not start at $at; the log is $state/payment.log; run the command again"
}

# put_secret NAME FILE: a SecureString parameter of the emulator with what is in the file.
put_secret() {
    "$python" -c 'import json, sys; print(json.dumps({"Name": sys.argv[1], "Value": open(sys.argv[2]).read().strip(), "Type": "SecureString", "Overwrite": True}))' \
        "$1" "$2" | curl -sf -o /dev/null "$endpoint/" -H 'X-Amz-Target: AmazonSSM.PutParameter' -H 'Content-Type: application/x-amz-json-1.1' \
        -H 'Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/ssm/aws4_request, SignedHeaders=host, Signature=x' --data-binary @- ||
        fail 1 "the emulator did not take the parameter $1"
}

# put_secrets: the parameters that the functions read; their names become variables of the deployment.
put_secrets() {
    put_secret "/$deployment/oidc-client-secret" "$state/provider.secret"
    put_secret "/$deployment/payment-secrets" "$state/payment.secret"
    put_secret "/$deployment/smtp-url" "$state/mail"
    sets+=(--set "oidc_client_secret_parameter=/$deployment/oidc-client-secret" --set "payment_secrets_parameter=/$deployment/payment-secrets"
        --set "smtp_url_parameter=/$deployment/smtp-url" --set mail_from=vault@vault.example)
}

# full_settings: the variables of the functions, as members of an HCL map.
full_settings() {
    printf 'VAULT_OIDC_ISSUER="%s",VAULT_OIDC_CLIENT_ID="vault",VAULT_OIDC_NAME="the test provider",VAULT_SIGN_UP="open"' "$(cat "$state/provider")"
    printf ',VAULT_PLANS="team=%s/checkout/team plink_team price_team eur",VAULT_PAYMENT_MODE="test"' "$(cat "$state/payment")"
}

# with_full_settings MAP: an HCL map with these members too.
with_full_settings() {
    local members
    members=$(printf '%s' "$1" | sed 's/^[[:space:]]*{//; s/,*[[:space:]]*}[[:space:]]*$//')
    printf '{%s%s}' "${members:+$members,}" "$(full_settings)"
}

# What `up` prints about it, once the address is known.
full_summary() {
    cat <<END
provider  $(cat "$state/provider")
          any e-mail address with any password is an account there, with a verified
          address; one that begins with "unverified" is not verified
          the owner and the operator connect it with their password once
payment   $(cat "$state/payment")/subscriptions
          a payment provider for tests; people who sign in create a vault at
          $address/account/new-vault and pay there
mail      $state/mails
          each mail of the service is a file there; nothing is sent
END
}

# Stops what --full started, and nothing else.
stop_full() {
    stop_process "$state/provider.pid"
    stop_process "$state/payment.pid"
    stop_process "$state/mail.pid"
    rm -f "$state/provider" "$state/payment" "$state/mail"
}
