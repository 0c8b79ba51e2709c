#!/bin/sh
# Debian packages as their users have them: in a system made by mmdebstrap they are installed, programs in C and C++ are built
# from them and run, they are upgraded, removed and purged, and nothing of them is left; and lintian has nothing to say
# that tests/package/lintian-accepted does not list. Where no such system can be made, dpkg installs into a directory, as it does
# with packages of another architecture, whose programs qemu runs.
#   tests/package.sh DIRECTORY   what tools/package --out DIRECTORY made
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
debs=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

fail() {
    echo "package.sh: $*" >&2
    exit 1
}

# What the system or directory gets: the packages, the same as of a later version, and what is built from them.
inside=$work/inside
mkdir -p "$inside/debs" "$inside/later" "$inside/project"
for deb in "$debs"/lib*.deb; do
    case $deb in
    *-dbgsym_*) ;;
    *) cp "$deb" "$inside/debs/" ;;
    esac
done
for package in libattn0 libattn-dev libattn-tools libattn-plugin-cpu; do
    set -- "$inside/debs/${package}"_*.deb
    if [ ! -e "$1" ] || [ $# -ne 1 ]; then
        fail "$debs has not one file of $package"
    fi
done
version=$(dpkg-deb -f "$1" Version)
arch=$(dpkg-deb -f "$1" Architecture)
gnu=
[ "$arch" = "$(dpkg --print-architecture)" ] || gnu=$(dpkg-architecture -a "$arch" -q DEB_HOST_GNU_TYPE 2>/dev/null)

# demand PLUGIN FILE...: one of the files builds it; of another architecture only what is built fast
demand() {
    plugin=$1
    shift
    for file; do
        [ ! -e "$file" ] || [ -e "$inside/debs/libattn-plugin-${plugin}_${version}_$arch.deb" ] ||
            fail "$file is there, but no package libattn-plugin-$plugin"
    done
}
demand opencl /usr/include/CL/cl.h
if [ -z "$gnu" ]; then
    demand cuda "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc
    demand hip /usr/lib/llvm-22/bin/clang
fi
later="$version+later1"
depends=
for deb in "$inside"/debs/*.deb; do
    name=$(basename "$deb" .deb)
    dpkg-deb -R "$deb" "$work/$name"
    sed -i "s/^Version: .*/Version: $later/; s/(= $version)/(= $later)/" "$work/$name/DEBIAN/control"
    dpkg-deb --root-owner-group -b "$work/$name" "$inside/later/" >"$work/log"
    depends="$depends, $(dpkg-deb -f "$deb" Depends)"
    [ -e "$work/$name/usr/share/doc/${name%%_*}/copyright" ] || fail "$name has no copyright"
done
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$source/README.md" >"$inside/program.c"
[ -s "$inside/program.c" ] || fail "the README has no program"
cp "$source/tests/cmake/CMakeLists.txt" "$inside/project/"
cp "$source/tests/package/inside.sh" "$inside/"

# Programs that use experimental functions depend on the release that they were built with.
release=${version%-*}
grep -qF "| libattn0 (>= $release), libattn0 (<< " "$work"/libattn0_*/DEBIAN/symbols ||
    fail "libattn0 has no symbols that name release $release"

# Manual pages go with what they describe.
for page in libattn-tools:man1/attn-info.1 libattn-tools:man7/attn-env.7 libattn-dev:man3/attn-layer.3 \
    libattn-dev:man7/attn-plugin.7 libattn-plugin-hip:man7/attn-hip.7 libattn-plugin-opencl:man7/attn-opencl.7; do
    for tree in "$work/${page%%:*}"_*; do
        [ ! -d "$tree" ] || [ -e "$tree/usr/share/man/${page#*:}.gz" ] || fail "${page%%:*} has no page ${page#*:}"
    done
done

if command -v lintian >/dev/null; then
    grep -o '^[a-z0-9-]*' "$source/tests/package/lintian-accepted" >"$work/tags"
    lintian --allow-root --fail-on error,warning --suppress-tags-from-file "$work/tags" "$inside"/debs/*.deb ||
        fail "lintian has complaints"
    # What is accepted and no longer there goes from the list.
    lintian --allow-root --fail-on none "$inside"/debs/*.deb >"$work/lintian" || true
    while read -r tag; do
        grep -q ": $tag\b" "$work/lintian" || fail "lintian does not say $tag any more: take it from the list"
    done <"$work/tags"
    echo "lintian: nothing but what is listed"
else
    echo "package.sh: lintian is not installed; its part is left out" >&2
fi

# The libraries of other projects that the packages need, with what builds programs.
others=$(echo "$depends" | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g' | grep -v '^libattn' | sort -u | grep . | tr '\n' ',')
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mirrors=
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources /etc/apt/sources.list; do
    [ ! -s "$file" ] || [ -n "$mirrors" ] || mirrors=$file
done
if [ -z "$gnu" ] && command -v mmdebstrap >/dev/null && [ "$(id -u)" -eq 0 ]; then
    # shellcheck disable=SC2016 # $1 is mmdebstrap's
    mmdebstrap --quiet --variant=minbase --format=null --include="${others}gcc,g++,make,cmake,pkg-config" \
        --customize-hook="copy-in $inside /tmp" \
        --customize-hook='chroot "$1" sh /tmp/inside/inside.sh /' "${suite:-stable}" /dev/null ${mirrors:+"$mirrors"} \
        >"$work/system.log" 2>&1 && status=0 || status=$?
    if [ "$status" -eq 0 ]; then
        grep '^inside: ' "$work/system.log"
        exit 0
    elif grep -q '^inside: ' "$work/system.log"; then
        tail -n 40 "$work/system.log" >&2
        fail "fails in a system made by mmdebstrap"
    fi
    tail -n 3 "$work/system.log" >&2
    echo "package.sh: mmdebstrap makes no system here; the packages go into a directory" >&2
fi
if [ -n "$gnu" ]; then
    # Where the libraries of that architecture are, which packages are built with, nothing else may be missing.
    apt-get install -s -q "$inside"/debs/*.deb >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "dependencies are not met"; }
fi
[ "$(id -u)" -eq 0 ] || fail "neither mmdebstrap nor dpkg --root works for others than root"
mkdir -p "$work/root/var/lib/dpkg/info" "$work/root/var/lib/dpkg/updates" "$work/root/tmp"
touch "$work/root/var/lib/dpkg/status"
cp -r "$inside" "$work/root/tmp/"
# shellcheck disable=SC2086 # two words or none
sh "$work/root/tmp/inside/inside.sh" "$work/root" ${gnu:+$gnu "qemu-${gnu%%-*}-static"}
