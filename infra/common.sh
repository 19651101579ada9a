# Shared by the scripts of `infra/` and `localstack/`, which source it. Works with bash 3.2 (macOS).

state_home="${XDG_STATE_HOME:-$HOME/.local/state}/vault"
tool_home="${XDG_CACHE_HOME:-$HOME/.cache}/vault-tools"
functions="oauth mcp admin devices catalog"
ministack_version=1.4.21 # the emulator of AWS, for localstack/up and tests/run
cargo_lambda_version=1.9.2 # builds the functions
checkov_version=3.3.30 # rules for Terraform files, for infra/check

# Exit codes: 1 something failed, 2 wrong usage, 3 a tool or the provider is missing.
fail() { printf '%s: %s\n' "${0##*/}" "$2" >&2; exit "$1"; }
say() { printf '== %s\n' "$*" >&2; }

need() {
    command -v "$1" >/dev/null || fail 3 "$1 is missing: $2"
}

# tool PACKAGE VERSION: a Python package in a virtual environment of its own; prints the folder of its commands.
tool() {
    local home="$tool_home/$1"
    if ! "$home/bin/python3" -c "import importlib.metadata as m; assert m.version('$1') == '$2'" 2>/dev/null; then
        need python3 "install Python 3.10 or newer"
        say "installing $1 $2 below $tool_home"
        python3 -m venv "$home" >&2 && "$home/bin/python3" -m pip install --quiet --disable-pip-version-check "$1==$2" >&2 ||
            fail 3 "$1 could not be installed from PyPI"
    fi
    printf '%s\n' "$home/bin"
}

# Prints the folder in which cargo builds this checkout, as the environment and cargo's own settings say.
cargo_target() {
    (cd "$root" && cargo metadata --format-version 1 --no-deps) | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# Builds the zips of all functions for arm64 or x86_64; prints their folder.
build_functions() {
    local commands flag=--arm64 target
    [ "$1" = x86_64 ] && flag=--x86-64
    need cargo "install Rust 1.95 or newer"
    if ! cargo lambda --version >/dev/null 2>&1; then
        commands=$(tool cargo-lambda "$cargo_lambda_version") || exit
        PATH="$commands:$PATH"
    fi
    if command -v rustup >/dev/null; then
        case "$1" in arm64) rustup target add aarch64-unknown-linux-gnu ;; *) rustup target add x86_64-unknown-linux-gnu ;; esac >/dev/null 2>&1 ||
            fail 3 "the Rust standard library for $1 could not be installed"
    fi
    # Where a fresh clone has no build yet, its output stays outside.
    target=$(cargo_target)
    [ -d "$target" ] || [ -n "${CARGO_TARGET_DIR:-}" ] || target="${XDG_CACHE_HOME:-$HOME/.cache}/vault-target"
    say "building the functions for $1"
    (cd "$root" && CARGO_TARGET_DIR="$target" cargo lambda build --profile function "$flag" --output-format zip -p vault-functions) >&2 ||
        fail 1 "the functions could not be built"
    printf '%s\n' "$target/lambda"
}

# The most bytes of a function's zip: what a cold start has to fetch.
zip_limit=8000000

# check_zips FOLDER [ENDPOINT]: refuses a folder in which a function's zip is missing, or too large for AWS. An emulator also takes debug builds,
# which are larger.
check_zips() {
    local function bytes
    for function in $functions; do
        [ -f "$1/$function/bootstrap.zip" ] || fail 2 "$1 has no $function/bootstrap.zip"
        bytes=$(($(wc -c <"$1/$function/bootstrap.zip")))
        [ "$bytes" -le "$zip_limit" ] || [ -n "${2:-}" ] ||
            fail 1 "$1/$function/bootstrap.zip has $bytes bytes; the limit is $zip_limit: build it with --profile function"
    done
}

# Prints the folder of a mirror that has the provider for this machine; fails if there is none.
provider_mirror() {
    local platform folder found
    platform=$(terraform version | sed -n 's/^on //p')
    for folder in "$HOME/.terraform.d/plugins" "${XDG_DATA_HOME:-$HOME/.local/share}/terraform/plugins" \
        /usr/local/share/terraform/plugins /usr/share/terraform/plugins /usr/local/lib/* /opt/* /opt/*/* /srv/*; do
        for found in "$folder"/registry.terraform.io/hashicorp/aws/5.*/"$platform"/terraform-provider-aws* \
            "$folder"/registry.terraform.io/hashicorp/aws/terraform-provider-aws_5.*_"$platform".zip; do
            [ -e "$found" ] && { printf '%s\n' "$folder"; return 0; }
        done
    done
    return 1
}

# Prepares the work folder of a deployment: copies of the Terraform files, their state, the provider. The checkout stays unchanged.
prepare_terraform() {
    local mirror log="$work/init.log"
    need terraform "install Terraform 1.11 or newer"
    mkdir -p "$work"
    chmod 700 "$work"
    cp "$root"/infra/*.tf "$root/infra/routes.json" "$root/infra/partitions.json" "$work/"
    # The operator's own configuration is left alone. Without one, a mirror on this machine comes before the registry.
    if [ ! -e "${TF_CLI_CONFIG_FILE:-$HOME/.terraformrc}" ]; then
        unset TF_CLI_CONFIG_FILE
        if mirror=$(provider_mirror); then
            printf 'provider_installation {\n  filesystem_mirror {\n    path = "%s"\n  }\n}\n' "$mirror" >"$work/mirror.tfrc"
            export TF_CLI_CONFIG_FILE="$work/mirror.tfrc"
        fi
    fi
    export TF_IN_AUTOMATION=1 TF_INPUT=0 CHECKPOINT_DISABLE=1
    if ! terraform -chdir="$work" init -input=false -no-color >"$log" 2>&1; then
        grep -qE 'Failed to query available provider|Failed to install provider|could not connect to registry' "$log" &&
            fail 3 "the Terraform provider hashicorp/aws 5 could not be downloaded from the registry, and there is no mirror with it below ~/.terraform.d/plugins, /usr/local/share/terraform/plugins, /opt or /srv"
        cat "$log" >&2
        fail 1 "terraform init failed"
    fi
}

# The options of a deployment are kept beside its state; its secrets never are.
given_variables() {
    compgen -v TF_VAR_ | grep -vxE 'TF_VAR_(name|zips|admin_password|first_owner|origin_secrets)' || true
}

remember() {
    local variable
    for variable in $(given_variables); do
        printf 'export %s=%q\n' "$variable" "${!variable}"
    done >"$work/parameters"
    chmod 600 "$work/parameters"
}

recall() {
    local variable
    for variable in $(given_variables); do unset "$variable"; done
    # shellcheck disable=SC1091
    [ ! -f "$work/parameters" ] || . "$work/parameters"
}
