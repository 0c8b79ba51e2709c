#!/bin/sh
# The package of CMake, from an install that was moved into a prefix with a space in it: programs in C and C++ and a plugin
# build and run, versions and components are answered, and no file of the package has a path of the machine it was built on.
#   tests/cmake.sh BUILD-DIRECTORY
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
build=$1
command -v cmake >/dev/null || { echo "cmake is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
unset ATTN_PLUGIN_PATH ATTN_BACKEND ATTN_LOG CMAKE_PREFIX_PATH libattn_DIR LD_LIBRARY_PATH 2>/dev/null || true

fail() {
    echo "cmake.sh: $*" >&2
    exit 1
}

# quietly COMMAND...: its lines are shown if it fails
quietly() {
    "$@" >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; fail "failed: $*"; }
}

quietly env DESTDIR="$work/stage" meson install -C "$build" --no-rebuild
built_prefix=$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
prefix="$work/a prefix"
mv "$work/stage$built_prefix" "$prefix"
package=$(dirname "$(find "$prefix" -name libattn-config.cmake)")
libdir=$(cd "$package/../.." && pwd)
for path in "$built_prefix/" "$source" "$work" "$(cd "$build" && pwd)"; do
    if grep -F "$path" "$package"/*; then
        fail "the package has the path '$path'"
    fi
done

# One program in C, one in C++, a plugin.
quietly cmake -S "$source/tests/cmake" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
    -DEXAMPLES="$prefix/share/doc/libattn/examples"
quietly cmake --build "$work/build"
for program in simple-c simple-cc; do
    said=$("$work/build/$program") || fail "$program fails"
    [ "$said" = 1 ] || fail "$program prints '$said', not 1"
done
readelf -d "$work/build/simple-c" | grep -q 'NEEDED.*\[libattn\.so\.0\]' || fail "simple-c does not need libattn.so.0"
[ "$(sed -n 1p "$work/build/found")" = "$("$source/tools/version")" ] || fail "libattn_VERSION is wrong"
[ "$(sed -n 2p "$work/build/found")" = "$libdir/attn" ] || fail "libattn_PLUGIN_DIR is wrong: $(sed -n 2p "$work/build/found")"
[ "$(sed -n 3p "$work/build/found")" = "$("$source/tools/version" --abi)" ] || fail "libattn_ABI is wrong"
ATTN_PLUGIN_PATH_ADD="$work/build" "$prefix/bin/attn-check" "$work/build/libattn-device.so" --quick --share 1/64 >"$work/log" ||
    fail "the plugin that was linked with libattn::serving computes wrong results: $(tail -n 5 "$work/log")"

# Found through a link to the directory of libraries, as where /lib is one to /usr/lib.
ln -s "$libdir" "$work/link"
quietly cmake -S "$source/tests/cmake" -B "$work/linked" -Dlibattn_DIR="$work/link/cmake/libattn" \
    -DEXAMPLES="$prefix/share/doc/libattn/examples"
quietly cmake --build "$work/linked" --target simple-c
[ "$("$work/linked/simple-c")" = 1 ] || fail "the program built through a link does not print 1"

# A project without languages knows no directory of an architecture: it is told where the package is.
# finds WANTED: whether find_package takes these arguments
finds() {
    rm -rf "$work/versions"
    cmake -S "$source/tests/cmake/versions" -B "$work/versions" -Dlibattn_DIR="$package" -DWANTED="$1" >"$work/log" 2>&1
}
version=$("$source/tools/version")
major=${version%%.*} rest=${version#*.}
minor=${rest%%.*} patch=${rest#*.}
newer=$((minor + 1))
for wanted in "" "$version" "$major.$minor" "$major" "$version EXACT" "COMPONENTS attn" "COMPONENTS attn serving" \
    "$major.$minor...<$major.$newer" "0.0.1...$version" "0.0.1...99"; do
    finds "$wanted" || { cat "$work/log" >&2; fail "find_package(libattn $wanted) fails"; }
done
for wanted in "$major.$newer" "$((major + 1)).0" "$major.$minor.$((patch + 1))" "$major.$minor.$((patch + 1)) EXACT" \
    "0.0.1...<$version" "$major.$newer...99" "COMPONENTS attn nothing"; do
    ! finds "$wanted" || fail "find_package(libattn $wanted) finds version $version"
done
grep -q "libattn has no component 'nothing'" "$work/log" ||
    { cat "$work/log" >&2; fail "the message does not say which component"; }
[ "$minor" -eq 0 ] || ! finds "$major.$((minor - 1))" || fail "find_package takes $version for an older minor"

# Half of an installation is refused with the file that is missing.
mv "$prefix/include" "$prefix/elsewhere"
! finds "" || fail "find_package finds an installation without headers"
tr -d '\n' <"$work/log" | grep -q 'attn.h is not' || { cat "$work/log" >&2; fail "the message does not name attn.h"; }
