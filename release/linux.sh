# What only Linux has: the check of the C library, the Debian package, and the container image. Sourced by release/build.
# shellcheck shell=bash disable=SC2154,SC2034 # release/build sets and reads the variables

# The program must start with glibc 2.17, as Python's manylinux2014 and every distribution since 2014 have it.
check_glibc() {
    local newest
    need readelf "install binutils"
    newest=$(readelf --version-info --wide "$1" | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -n 1)
    printf '%s\n' "$newest" "GLIBC_$glibc" | sort -V -C || {
        # A program that was handed in was not linked here.
        [ "${checks_glibc:-}" = no ] || fail 1 "the program needs $newest; it must run with glibc $glibc"
        say "this program needs $newest: it is no release"
    }
}

# check_size NAME BYTES LIMIT: refuses what a person would have to download or unpack beyond the limit.
check_size() {
    [ "$2" -le "$3" ] && return
    # A program that was handed in is a debug build.
    [ "${checks_glibc:-}" = no ] || fail 1 "$1 has $2 bytes; the limit is $3"
    say "$1 has $2 bytes, more than the $3 of a release"
}

debian_processor() { case "$platform" in x86_64-*) echo amd64 ;; *) echo arm64 ;; esac; }

build_deb() {
    local tree=$work/deb name=vault-skills page
    need dpkg-deb "install dpkg"
    mkdir -p "$tree/DEBIAN" "$tree/usr/bin" "$tree/usr/share/man/man1" "$tree/usr/share/doc/$name" "$tree/usr/share/$name" \
        "$tree/usr/share/bash-completion/completions" "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/fish/vendor_completions.d"
    cp "$stage/vault" "$tree/usr/bin/vault"
    for page in "$stage"/man/*.1; do gzip -9 -n -c "$page" >"$tree/usr/share/man/man1/${page##*/}.gz"; done
    cp "$stage/completions/vault.bash" "$tree/usr/share/bash-completion/completions/vault"
    cp "$stage/completions/_vault" "$tree/usr/share/zsh/vendor-completions/_vault"
    cp "$stage/completions/vault.fish" "$tree/usr/share/fish/vendor_completions.d/vault.fish"
    cp -R "$stage/skills" "$tree/usr/share/$name/skills"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: vault\n\n'
        printf 'Files: *\nCopyright: 2026 The vault authors\nLicense: Apache-2.0\n On Debian systems, the text of this licence is in\n /usr/share/common-licenses/Apache-2.0.\n'
        printf 'Comment: THIRD-PARTY-NOTICES.md has the licences of the packages in the program.\n'
    } >"$tree/usr/share/doc/$name/copyright"
    cp "$root/NOTICE" "$root/THIRD-PARTY-NOTICES.md" "$tree/usr/share/doc/$name/"
    printf '%s (%s) unstable; urgency=medium\n\n  * Release %s; CHANGELOG.md of the sources has the changes.\n\n -- %s  %s\n' \
        "$name" "${version/-/\~}" "$version" "$maintainer" "$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')" |
        gzip -9 -n >"$tree/usr/share/doc/$name/changelog.gz"
    chmod -R u=rwX,go=rX "$tree"
    chmod 755 "$tree/usr/bin/vault"
    # The time of a folder or file is that of the commit.
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    cat >"$tree/DEBIAN/control" <<END
Package: $name
Version: ${version/-/\~}
Section: utils
Priority: optional
Architecture: $(debian_processor)
Maintainer: $maintainer
Installed-Size: $(find "$tree/usr" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
Depends: libc6 (>= $glibc)
Recommends: ca-certificates, git
Conflicts: vault
Description: scans, signs and distributes skills for AI agents
 vault scans each skill before it accepts it, signs it with the key of its
 owner, and delivers exactly the bytes that were signed. Nobody in between can
 change a skill or bring back a version that the owner replaced.
END
    touch -d "@$SOURCE_DATE_EPOCH" "$tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Zxz -z"${PACK_LEVEL:-6}" --build "$tree" "$out/${name}_${version}_$(debian_processor).deb" >/dev/null || fail 1 "the Debian package could not be built"
}

download_packages() { (cd "$packages" && apt-get download --quiet libc6 libgcc-s1 ca-certificates >/dev/null 2>&1); }

# The image has the program, the C library that it links, and certificates, both from packages of Debian or Ubuntu: no shell and no package manager.
build_image() {
    local tree=$work/image packages=$work/packages unpacked=$work/unpacked library file triplet
    need apt-get "the image takes the C library and certificates from Debian packages: build it on Debian"
    mkdir -p "$packages" "$unpacked"
    # A fresh machine has no lists of packages yet.
    download_packages || { apt-get update -qq >/dev/null 2>&1 && download_packages; } ||
        fail 3 "apt-get could not download libc6, libgcc-s1 and ca-certificates"
    packages_used=$(python3 -c 'import hashlib, json, pathlib, sys
uri = lambda path: "pkg:deb/{}/{}@{}?arch={}".format(sys.argv[2], *path.stem.split("_"))
print(json.dumps({uri(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in pathlib.Path(sys.argv[1]).glob("*.deb")}))' "$packages" "$(. /etc/os-release && echo "$ID")")
    for file in "$packages"/*.deb; do dpkg-deb -x "$file" "$unpacked"; done
    mkdir -p "$tree/usr/bin" "$tree/etc/ssl/certs" "$tree/data" "$tree/tmp" "$tree/usr/share/doc"
    cp "$stage/vault" "$tree/usr/bin/vault"
    triplet=${platform%%-*}-linux-gnu
    # Those that the program names, and those that the C library opens to look up a host.
    for library in $(readelf --dynamic --wide "$stage/vault" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') libresolv.so.2 libnss_dns.so.2 libnss_files.so.2; do
        file=$(find "$unpacked" -name "$library" -path "*$triplet*" | head -n 1)
        case "$library" in
        ld-linux*) continue ;;
        esac
        [ -n "$file" ] || fail 1 "the program needs $library, which libc6 and libgcc-s1 do not have"
        mkdir -p "$tree/lib/$triplet"
        cp -L "$file" "$tree/lib/$triplet/$library"
    done
    for file in "$unpacked"/lib64/ld-linux-*.so.* "$unpacked"/lib/ld-linux-*.so.* "$unpacked"/usr/lib64/ld-linux-*.so.*; do
        [ -e "$file" ] || [ -L "$file" ] || continue
        library=${file#"$unpacked"}
        library=${library#/usr}
        mkdir -p "$tree/${library%/*}"
        cp "$(find "$unpacked" -name "${file##*/}" -type f | head -n 1)" "$tree$library"
    done
    find "$unpacked/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | xargs cat >"$tree/etc/ssl/certs/ca-certificates.crt"
    for file in libc6 libgcc-s1 ca-certificates; do
        mkdir -p "$tree/usr/share/doc/$file"
        cp -L "$unpacked/usr/share/doc/$file/copyright" "$tree/usr/share/doc/$file/" 2>/dev/null || rmdir "$tree/usr/share/doc/$file"
    done
    mkdir -p "$tree/usr/share/doc/vault"
    cp "$root/LICENSE" "$root/NOTICE" "$root/THIRD-PARTY-NOTICES.md" "$tree/usr/share/doc/vault/"
    printf 'hosts: files dns\n' >"$tree/etc/nsswitch.conf"
    printf 'root:x:0:0:root:/:/nonexistent\nvault:x:65532:65532:vault:/data:/nonexistent\n' >"$tree/etc/passwd"
    printf 'root:x:0:\nvault:x:65532:\n' >"$tree/etc/group"
    check_size "the unpacked image" "$(find "$tree" -type f -printf '%s\n' | awk '{ bytes += $1 } END { print bytes }')" "$image_limit"
    "$root/release/pack.py" image "$tree" "$out" "$version" "$platform"
}
