#!/bin/sh
# The promise to outsiders: the examples build and run; the template plugin, built with cc and pkg-config from an install in a foreign
# prefix and dropped into a directory, is seen, chosen by ATTN_BACKEND, and runs; so does a plugin that takes tables of
# libattn-serving and brings others of its own; the plugin for OpenCL builds by itself; and the installed tools find the
# installed plugins without any variable.
#   tests/outsider.sh BUILD-DIRECTORY
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
unset ATTN_PLUGIN_PATH ATTN_BACKEND ATTN_LOG 2>/dev/null || true

fail() {
    echo "outsider: $*" >&2
    exit 1
}

# An install into a prefix that the build does not know: the tree is moved there.
DESTDIR=$work/stage meson install -C "$build" --no-rebuild >"$work/install.log" 2>&1 ||
    { tail -n 20 "$work/install.log" >&2; fail "meson install failed"; }
built_prefix=$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
prefix=$work/prefix
mv "$work/stage$built_prefix" "$prefix"
pc=$(find "$prefix" -name libattn.pc)
libdir=$(dirname "$(dirname "$pc")")

"$source/tests/installed-pages.py" "$prefix"

# Built the way plugins/README.md says, in an empty directory.
mkdir "$work/plugin" "$work/drop"
cp "$source/plugins/template/template.c" "$work/plugin"
cd "$work/plugin"
export PKG_CONFIG_PATH="$libdir/pkgconfig"
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags libattn)
# shellcheck disable=SC2086 # a list of flags
cc -std=c11 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fPIC -shared -fvisibility=hidden $flags \
    -o libattn-template.so template.c -lm
cp libattn-template.so "$work/drop"
needs=$(readelf -d libattn-template.so | grep NEEDED | grep -c libattn || true)
[ "$needs" -eq 0 ] || fail "the plugin links libattn"

# A plugin with a builder, a state and layers of its own, and a backend that borrows those of the static library. The
# archive is hidden in it, though there is no version script here.
mkdir "$work/own"
cp "$source"/tests/own/own.h "$source"/tests/own/plugin.c "$source"/tests/own/kernels.c "$source"/tests/own/builder.c \
    "$source"/tests/own/state.c "$work/own"
# shellcheck disable=SC2086,SC2046 # lists of flags
(cd "$work/own" && cc -std=c11 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fPIC -shared \
    -fvisibility=hidden $(pkg-config --define-variable=prefix="$prefix" --cflags libattn-serving) \
    -o "$work/drop/libattn-own.so" plugin.c kernels.c builder.c state.c \
    $(pkg-config --define-variable=prefix="$prefix" --static --libs libattn-serving) -lm -Wl,-z,defs)
[ "$(nm -D --defined-only "$work/drop/libattn-own.so" | cut -d ' ' -f 3)" = attn_plugin_entry_v1 ] ||
    fail "libattn-own.so exports more than its entry"

# The plugin for OpenCL, a project of its own.
if [ -e /usr/include/CL/cl.h ]; then
    printf '#!/bin/sh\nexec pkg-config --define-variable=prefix=%s "$@"\n' "$prefix" >"$work/pkg-config"
    chmod +x "$work/pkg-config"
    { PKG_CONFIG="$work/pkg-config" meson setup --werror "$work/opencl" "$source/plugins/opencl" &&
        ninja -C "$work/opencl"; } >"$work/opencl.log" 2>&1 ||
        { tail -n 20 "$work/opencl.log" >&2; fail "plugins/opencl does not build from the installed prefix"; }
    [ "$(nm -D --defined-only "$work/opencl/libattn-opencl.so" | cut -d ' ' -f 3)" = attn_plugin_entry_v1 ] ||
        fail "libattn-opencl.so exports more than its entry"
    # By the two lines that docs/opencl.md gives.
    cp -r "$source/plugins/opencl" "$work/opencl-cc"
    grep -E '^    (python3 embed|cc )' "$source/docs/opencl.md" | sed "s|pkg-config|$work/pkg-config|" >"$work/opencl.lines"
    (cd "$work/opencl-cc" && sh -eu "$work/opencl.lines") ||
        fail "the lines of docs/opencl.md do not build plugins/opencl"
fi

# The plugin of the examples, which takes tables of libattn-serving too.
mkdir "$work/device"
cp "$prefix"/share/doc/libattn/examples/device-plugin/* "$work/device"
# shellcheck disable=SC2086,SC2046 # lists of flags
(cd "$work/device" && cc -std=c11 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fPIC -shared \
    -fvisibility=hidden $(pkg-config --define-variable=prefix="$prefix" --cflags libattn-serving) \
    -o "$work/drop/libattn-device.so" plugin.c kernels.c stream.c \
    $(pkg-config --define-variable=prefix="$prefix" --static --libs libattn-serving) -lm -lpthread -Wl,-z,defs)

# The installed examples, by the line that the README gives, as C and as C++.
export LD_LIBRARY_PATH="$libdir"
examples=0
for compiler in "gcc -std=c11" "clang -std=c11" "g++ -x c++ -std=c++20 -Wno-missing-field-initializers"; do
    command -v "${compiler%% *}" >"$work/found" || { echo "outsider: skipped: no ${compiler%% *}"; continue; }
    for program in "$prefix"/share/doc/libattn/examples/*.c; do
        name=$(basename "$program" .c)
        # shellcheck disable=SC2086,SC2046 # lists of flags
        $compiler -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -o "$work/$name" "$program" \
            $(pkg-config --define-variable=prefix="$prefix" --cflags --libs libattn) ||
            fail "$compiler does not compile examples/$name.c"
        "$work/$name" >"$work/said" || fail "examples/$name.c, by $compiler, fails on the installed library"
        examples=$((examples + 1))
    done
done
[ "$examples" -ge 7 ] || fail "$examples examples were built; at least the 7 of one compiler are wanted"
"$work/layers" | grep -q '^cpu/flash-attn: 2 layers' || fail "examples/layers.c does not run on the cpu plugin"
info=$prefix/bin/attn-info
"$info" list | grep -q '^ *cpu/flash-attn .*ready' || fail "the installed attn-info does not find the installed cpu plugin"
"$info" exists template && fail "the template is seen before it was dropped in"
export ATTN_PLUGIN_PATH_ADD="$work/drop"
"$info" list | grep -q '^ *template/flash-attn .*ready' || fail "attn-info list does not show the template"
"$info" exists template || fail "attn-info exists template says no"
"$info" exists device || fail "attn-info exists device says no"
"$info" why "$work/drop/libattn-template.so" || fail "attn-info why fails on the template"

# By default the native CPU wins; by name the template does; what it cannot do is refused with the field.
problem='heads=4 kv_heads=2 head_dim=24 q=f32 block=7'
# shellcheck disable=SC2086 # a list of keys
{
    "$info" explain $problem | grep -q 'cpu/flash-attn' || fail "the cpu plugin does not win by default"
    ATTN_BACKEND=template "$info" explain $problem | head -n 3 | grep -q 'template/flash-attn' ||
        fail "ATTN_BACKEND=template does not choose it"
    ATTN_BACKEND=template "$info" explain $problem kv=f16 >"$work/refused" && fail "kv=f16 is not refused"
    grep -q DTYPE_K "$work/refused" || fail "the refusal of kv=f16 does not say DTYPE_K"
}

if [ -e "$work/opencl/libattn-opencl.so" ] && "$info" devices | grep -q '^opencl:'; then
    for plugin in "$work/opencl/libattn-opencl.so" "$work/opencl-cc/libattn-opencl.so"; do
        "$prefix/bin/attn-check" "$plugin" --kind attention --share 1/400 ||
            fail "the results of the OpenCL plugin are wrong"
    done
fi

# It computes what the oracle says, and a model's attention runs on it.
cd "$source"
"$prefix/bin/attn-check" "$work/drop/libattn-template.so" --quick --share 1/16 ||
    fail "the template's results are wrong"
"$prefix/bin/attn-check" "$work/drop/libattn-device.so" --quick --share 1/16 ||
    fail "the results of examples/device-plugin are wrong"
# Packages have stripped files.
strip --strip-unneeded -o "$work/libattn-cpu.so" "$libdir/attn/libattn-cpu.so"
"$prefix/bin/attn-check" "$work/libattn-cpu.so" --kind side-effects --cases 1 ||
    fail "attn-check finds side effects in the stripped plugin of the CPU"
"$prefix/bin/attn-generate" --toy=test -p hello -n 4 --kv f32 2>"$work/native" >"$work/native.text"
ATTN_BACKEND=template "$prefix/bin/attn-generate" --toy=test -p hello -n 4 --kv f32 2>"$work/log" >"$work/text"
grep -q '^backend: template/flash-attn' "$work/log" || fail "attn-generate did not run on the template"
cmp "$work/native.text" "$work/text" || fail "template and cpu generate different texts"
for backend in own/mystyle own/borrowed; do
    ATTN_BACKEND=$backend "$prefix/bin/attn-generate" --toy=test -p hello -n 4 --kv f32 2>"$work/log" >"$work/text"
    grep -q "^backend: $backend (shelf:0," "$work/log" || fail "attn-generate did not run on $backend"
    cmp "$work/native.text" "$work/text" || fail "$backend and cpu generate different texts"
done
