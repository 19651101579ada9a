# The long part of tests/release/run: two builds, and each channel installed from a local registry in a root folder without Rust. Sourced.
# shellcheck shell=bash disable=SC2154 # variables of tests/release/run

verdaccio=6.1.6 pypiserver=2.4.2 auditwheel=6.8.2 uv=0.13.9
# The Node of the machine on which npm installs.
machine_node=24.22.3
[ "$(id -u)" = 0 ] || fail 3 "--full needs root: it makes a root folder with mmdebstrap and enters it"
packages=()
for package in mmdebstrap lintian skopeo umoci docker-registry; do
    dpkg -s "$package" >/dev/null 2>&1 || packages+=("$package")
done
if [ ${#packages[@]} -gt 0 ]; then
    say "installing ${packages[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >/dev/null 2>&1 ||
        fail 3 "could not install ${packages[*]}"
fi
install_pypi "$tools/release-registries" "pypiserver==$pypiserver" "auditwheel==$auditwheel"
# A plug-in of verdaccio names a tag of node-fetch and no version, and not every mirror of npm has tags.
install_verdaccio() {
    printf '{"private": true, "dependencies": {"verdaccio": "%s"}, "overrides": {"node-fetch": "2.6.7"}}\n' "$verdaccio" >"$1/package.json"
    npm install --prefix "$1" --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error
}
install_once "$tools/verdaccio" "verdaccio $verdaccio" install_verdaccio "$tools/verdaccio"
install_npm "$tools/node-24" "node $machine_node" "$(node_package)@$machine_node"
install_pypi "$tools/uv" "uv==$uv"
registries=$tools/release-registries/venv/bin

servers=()
end_servers() {
    local process
    for process in "${servers[@]}"; do kill "$process" 2>/dev/null || :; done
    end_test
}
trap end_servers EXIT

# --- two builds ---------------------------------------------------------------------------------
release=${VAULT_RELEASE_BUILT:-$work/release}
if [ -z "${VAULT_RELEASE_BUILT:-}" ]; then
    "$root/release/build" --twice "$release"
fi
cp -R "$release" "$work/signed"
release=$work/signed
mkdir "$work/checkout"
cp -R install.sh release infra "$work/checkout/"
ssh-keygen -q -t ed25519 -N '' -C 'throwaway key of a test' -f "$work/key"
"$work/checkout/release/make-key" tester@example.com "$work/key"
"$work/checkout/release/sign" "$release" "$work/key"
wheel=$(ls "$release"/*.whl)
"$registries/auditwheel" show "$wheel" | tee "$work/auditwheel" >&2
grep -q 'manylinux_2_17\|manylinux2014' "$work/auditwheel" || fail 1 "the wheel is not manylinux2014"
lintian --fail-on error --suppress-tags bogus-mail-host "$release"/*.deb >&2 || fail 1 "lintian found an error"

# --- a machine without Rust ---------------------------------------------------------------------
base=$work/base.tar
say "making a root folder"
mmdebstrap --variant=minbase --include=ca-certificates,curl,openssh-client,python3-pip,python3-venv,pipx "$(. /etc/os-release; echo "$VERSION_CODENAME")" "$base" >/dev/null 2>"$work/mmdebstrap.log" ||
    { cat "$work/mmdebstrap.log" >&2; fail 1 "mmdebstrap failed"; }
rows=()
# channel NAME COMMAND PROGRAM FILE...: unpacks a fresh root folder, runs the command in it, then the demo of the program that it installed; adds a
# row to the table with the size of the files.
channel() {
    local name=$1 command=$2 installed=$3 size start end machine=$work/machine
    shift 3
    rm -rf "$machine"
    mkdir "$machine"
    tar -xf "$base" -C "$machine"
    mkdir -p "$machine/release"
    cp -R "$release/." "$machine/release/"
    cp "$work/checkout/install.sh" "$machine/install.sh"
    cp "$tools/node-24/node_modules/$(node_package)/bin/node" "$tools/uv/venv/bin/uv" "$tools/uv/venv/bin/uvx" "$machine/usr/local/bin/"
    cp -R "$work/npm" "$machine/npm"
    cp "$work/npmrc" "$machine/root/.npmrc"
    start=$(date +%s.%N)
    run_in "$machine" "$command" >"$work/channel.log" 2>&1 || { cat "$work/channel.log" >&2; fail 1 "$name could not be installed"; }
    end=$(date +%s.%N)
    run_in "$machine" "PATH=/root/.local/bin:/root/venv/bin:\$PATH; $installed demo --exit" >"$work/channel.log" 2>&1 || { cat "$work/channel.log" >&2; fail 1 "$name does not run the demo"; }
    size=$(du -b -c "$@" | tail -n 1 | cut -f 1)
    rows+=("$(python3 -c 'import sys; print("| {} | {:.1f} MB | {:.1f} s |".format(sys.argv[1], int(sys.argv[2]) / 1e6, float(sys.argv[4]) - float(sys.argv[3])))' "$name" "$size" "$start" "$end")")
    say "${rows[-1]}"
}
npm="node /npm/bin/npm-cli.js" npx="node /npm/bin/npx-cli.js"
# check_cpu PROGRAM: half of the starts take less than five milliseconds of CPU.
check_cpu() {
    python3 - "$1" <<'END' || fail 1 "a start takes too long"
import resource, statistics, subprocess, sys
def spent(): return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
def start():
    before = spent()
    subprocess.run([sys.argv[1], "--version"], stdout=subprocess.DEVNULL, check=True)
    return (spent() - before) * 1000
median = statistics.median(start() for _ in range(50))
print(f"== vault --version: {median:.1f} ms of CPU (median of 50)", file=sys.stderr)
sys.exit(median >= 5)
END
}
# The machine's network is this one's, so that it reaches the registries on loopback.
run_in() {
    # shellcheck disable=SC2016 # the inner shell expands these
    unshare --mount --pid --fork sh -c 'mount --bind "$1" "$1"; mount -t proc proc "$1/proc"; mount --bind /dev "$1/dev"; exec env -i PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root "$(command -v chroot)" "$1" sh -e -c "$2"' sh "$1" "$2"
}

# --- registries ---------------------------------------------------------------------------------
npm_port=$(free_port) pypi_port=$(free_port) oci_port=$(free_port) file_port=$(free_port)
mkdir "$work/verdaccio" "$work/pypi" "$work/registry"
cat >"$work/verdaccio/config.yaml" <<END
storage: $work/verdaccio/storage
auth: { htpasswd: { file: $work/verdaccio/htpasswd } }
packages: { '**': { access: \$all, publish: \$all } }
max_body_size: 100mb
log: { type: stdout, level: error }
END
"$node" "$tools/verdaccio/node_modules/verdaccio/bin/verdaccio" --config "$work/verdaccio/config.yaml" --listen "127.0.0.1:$npm_port" >"$work/verdaccio.log" 2>&1 &
servers+=($!)
cp "$wheel" "$work/pypi/"
# pipx brings its own pip up to date, from the same place.
"$registries/python3" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work/pypi" pip setuptools wheel
"$registries/pypi-server" run --disable-fallback -i 127.0.0.1 -p "$pypi_port" "$work/pypi" >"$work/pypi.log" 2>&1 &
servers+=($!)
cat >"$work/registry.yml" <<END
version: 0.1
storage: { filesystem: { rootdirectory: $work/registry } }
http: { addr: 127.0.0.1:$oci_port }
END
docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
servers+=($!)
python3 -m http.server --bind 127.0.0.1 --directory "$release" "$file_port" >"$work/files.log" 2>&1 &
servers+=($!)
for port in "$npm_port" "$pypi_port" "$oci_port" "$file_port"; do await "$port"; done

# npm publishes only with a token, and this registry takes any.
printf '//127.0.0.1:%s/:_authToken="none"\nregistry=http://127.0.0.1:%s/\n' "$npm_port" "$npm_port" >"$work/npmrc"
for package in "$release"/vault-skills-linux-*.tgz "$release"/vault-skills-[0-9]*.tgz; do
    npm publish --userconfig "$work/npmrc" "$package" >"$work/publish.log" 2>&1 || { cat "$work/publish.log" >&2; fail 1 "npm did not publish"; }
done
cp -RL "$(npm root --global)/npm" "$work/npm"

pypi=http://127.0.0.1:$pypi_port/simple/
channel "archive, from a folder" 'VAULT_RELEASES=/release VAULT_NO_SETUP=1 sh /install.sh' vault "$release"/vault-*.tar.gz
# The programs of a release run on this machine too: what it keeps is still in the folder of the channel.
check_cpu "$work/machine/root/.local/bin/vault"
open_earlier "$work/machine/root/.local/bin/vault"
python3 "$here/flip.py" "$release" "$work/checkout" "$work/machine/root/.local/bin/vault" || fail 1 "a changed file was accepted"
channel "archive, from a file server" "VAULT_RELEASES=http://127.0.0.1:$file_port VAULT_NO_SETUP=1 sh /install.sh" vault "$release"/vault-*.tar.gz
channel "npm, \`npm install --global\`" "$npm install --global --prefix /root/.local vault-skills" vault "$release"/vault-skills-*.tgz
channel "npm, \`npx vault-skills\`" "$npx --yes vault-skills version" "$npx --yes vault-skills" "$release"/vault-skills-*.tgz
channel "PyPI, \`pip install\`" "python3 -m venv /root/venv && /root/venv/bin/pip install --quiet --index-url $pypi vault-skills" vault "$wheel"
channel "PyPI, \`pipx install\`" "PIP_INDEX_URL=$pypi pipx install vault-skills" vault "$wheel"
channel "PyPI, \`uv tool install\`" "uv tool install --quiet --default-index $pypi vault-skills" vault "$wheel"
channel "PyPI, \`uvx --from vault-skills vault\`" "uvx --default-index $pypi --from vault-skills vault version" "uvx --default-index $pypi --from vault-skills vault" "$wheel"
channel "Debian package" 'apt-get install -y -qq --no-install-recommends /release/*.deb' vault "$release"/*.deb

# --- the image ----------------------------------------------------------------------------------
image=$(ls "$release"/*.oci.tar)
version=$(sed -n 's/.*vault-\([0-9][^-]*\)-.*\.tar\.gz$/\1/p' "$release/SHA256SUMS" | head -n 1)
start=$(date +%s.%N)
skopeo copy --quiet --dest-tls-verify=false "oci-archive:$image:vault-skills:$version" "docker://127.0.0.1:$oci_port/vault:$version"
skopeo copy --quiet --src-tls-verify=false "docker://127.0.0.1:$oci_port/vault:$version" "oci:$work/pulled:$version"
umoci unpack --image "$work/pulled:$version" "$work/bundle" >"$work/umoci.log" 2>&1 || { cat "$work/umoci.log" >&2; fail 1 "umoci cannot unpack the image"; }
end=$(date +%s.%N)
"$here/start-image" "$work/bundle/rootfs" /usr/bin/vault demo --exit >"$work/channel.log" 2>&1 || { cat "$work/channel.log" >&2; fail 1 "the image does not run the demo"; }
rows+=("$(python3 -c 'import sys; print("| image, through a registry | {:.1f} MB, {:.1f} MB unpacked | {:.1f} s |".format(int(sys.argv[1]) / 1e6, int(sys.argv[2]) / 1e6, float(sys.argv[4]) - float(sys.argv[3])))' \
    "$(stat -c %s "$image")" "$(du -b -s "$work/bundle/rootfs" | cut -f 1)" "$start" "$end")")

printf '\n| Channel | Download | Installed in |\n|---|---|---|\n'
printf '%s\n' "${rows[@]}"
