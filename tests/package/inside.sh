#!/bin/sh
# What tests/package.sh does in the system that has the packages.
#   inside.sh ROOT [GNU-TYPE EMULATOR]   / in a system of its own, else a directory that dpkg installs into, which may
#                                        be of another architecture
set -eu
root=${1%/} gnu=${2-} emulator=${3-}
here=$(dirname "$0")
export CC="${gnu:+$gnu-g}cc" CXX="${gnu:+$gnu-}g++"
multiarch=$($CC -print-multiarch)
export ATTN_CACHE_DIR="$here/cache" LC_ALL=C
unset ATTN_PLUGIN_PATH ATTN_BACKEND ATTN_LOG 2>/dev/null || true

say() { echo "inside: $*"; }
# The log is of the last command that kept one.
fail() {
    [ ! -s "$here/log" ] || tail -n 20 "$here/log"
    say "$*"
    exit 1
}
# In a directory there are no other packages, and nothing tells the loader of libraries.
if [ -z "$root" ]; then
    manage() { dpkg "$@"; }
else
    manage() { dpkg --root="$root" --force-depends --force-script-chrootless "$@"; }
    export LD_LIBRARY_PATH="$root/usr/lib/$multiarch" PKG_CONFIG_SYSROOT_DIR="$root"
    export PKG_CONFIG_LIBDIR="$root/usr/lib/$multiarch/pkgconfig"
fi
# An emulated program cannot execute another one, so nothing is tried in a child there. Emulated SVE is slow.
[ -z "$gnu" ] || export ATTN_PROBE=never QEMU_CPU=max,sve=off
[ -z "$gnu" ] || dpkg --root="$root" --add-architecture "$(dpkg-deb -f "$here"/debs/libattn0_*.deb Architecture)"
# Every file but those of dpkg itself and the log of changes.
files() {
    find "$root/" -xdev '(' -path "$root/proc" -o -path "$root/sys" -o -path "$root/dev" -o -path "$root/tmp" \
        -o -path "$root/var/lib/dpkg" -o -path "$root/var/log" -o -path "$root/var/cache" ')' -prune -o -print | sort
}
names() { find "$root/var/lib/dpkg/info" -name 'libattn*'; }

# try: programs and tools of what is installed
try() {
    rm -rf "$here/build" "$here/program"
    # shellcheck disable=SC2046 # a list of flags
    $CC -std=c11 -Wall -Wextra -Werror -o "$here/program" "$here/program.c" $(pkg-config --cflags --libs libattn)
    [ "$($emulator "$here/program")" = 1 ] || fail "the README's program does not print 1"
    cmake -S "$here/project" -B "$here/build" -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_LIBRARY_ARCHITECTURE="$multiarch" \
        -DEXAMPLES="$root/usr/share/doc/libattn/examples" >"$here/log" 2>&1 || fail "CMake does not find libattn"
    cmake --build "$here/build" >"$here/log" 2>&1 || fail "CMake does not build"
    for program in simple-c simple-cc; do
        [ "$($emulator "$here/build/$program")" = 1 ] || fail "$program does not print 1"
    done
    $emulator "$root/usr/bin/attn-info" list >"$here/log" || fail "attn-info list fails"
    grep -q '^ *cpu/flash-attn .*ready' "$here/log" || fail "the packaged plugin for CPUs is not found"
    # In a system of its own, or emulated, there are no drivers.
    for plugin in cuda hip opencl; do
        [ ! -e "$root/usr/lib/$multiarch/attn/libattn-$plugin.so" ] || { [ -n "$root" ] && [ -z "$emulator" ]; } ||
            sed -n "/^ *$plugin\/.* no-device/,/^\$/p" "$here/log" | grep -q 'NO_DRIVER: ' ||
            fail "the packaged plugin $plugin is not listed as one without a driver"
    done
    for plugin in "$root/usr/lib/$multiarch"/attn/libattn-*.so; do
        $emulator "$root/usr/bin/attn-info" why "$plugin" >"$here/log" 2>&1 || fail "attn-info why $plugin fails"
    done
    # Emulated, the other kinds take minutes and gigabytes.
    $emulator "$root/usr/bin/attn-check" "$root/usr/lib/$multiarch/attn/libattn-cpu.so" --quick --share 1/64 \
        ${emulator:+--kind attention,write} >"$here/log" 2>&1 ||
        fail "results of the packaged plugin are wrong"
    $emulator "$root/usr/bin/attn-generate" --toy=test -p hello -n 4 >"$here/log" 2>&1 || fail "attn-generate fails"
}

files >"$here/before"
manage -i "$here"/debs/*.deb
[ -z "$root" ] || [ -n "$gnu" ] || say "dependencies are not checked: there is no system of its own"
try
say "installed: C by pkg-config, C and C++ by CMake, tools, plugins"
files >"$here/installed"
manage -i "$here"/later/*.deb
files | cmp -s - "$here/installed" || fail "after the upgrade there are other files than before"
try
say "upgraded"
# shellcheck disable=SC2046,SC2016 # a list of words, dpkg-deb's variables
set -- $(for deb in "$here"/debs/*.deb; do dpkg-deb -W --showformat='${Package}:${Architecture}\n' "$deb"; done)
manage -r "$@"
[ ! -e "$root/usr/lib/$multiarch/libattn.so.0" ] || fail "the library is left after the removal"
manage -P "$@" 2>&1
files >"$here/after"
diff "$here/before" "$here/after" || fail "files are left, or gone, after the purge"
[ -z "$(names)" ] || fail "dpkg still knows $(names)"
say "removed and purged; nothing is left"
