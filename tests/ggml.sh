#!/bin/sh
# The ggml client in llama.cpp, unmodified: ggml's own tests of attention, and what a model makes of a text with and
# without it.
#   tests/ggml.sh BUILD    with LLAMA_CPP=DIR its sources are taken from there, else from PyPI's llama-cpp-python
# Exit 77: nothing can be fetched.
set -eu
cd "$(dirname "$0")/.."
build=$1
work=$PWD/$build/ggml
command -v cmake >/dev/null || { echo "cmake, which builds ggml and the client, is not installed"; exit 1; }
rm -rf "$work/root"
mkdir -p "$work"

DESTDIR=$work/root meson install -C "$build" --no-rebuild --quiet
pkgconfig=$(dirname "$(find "$work/root" -name libattn.pc)")

[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
pip() { "$work/venv/bin/pip" --disable-pip-version-check -q "$@"; }
# fetched COMMAND...: ends the test if PyPI is not there.
fetched() {
    "$@" >"$work/pip.log" 2>&1 && return
    grep -qiE 'connection|name resolution|timed out' "$work/pip.log" || { cat "$work/pip.log"; exit 1; }
    echo "PyPI is not reachable"
    exit 77
}
fetched pip install gguf==0.19.0 scikit-build-core==1.1.2
llama=${LLAMA_CPP-$work/llama_cpp_python-0.3.36/vendor/llama.cpp}
if [ ! -d "$llama" ]; then
    fetched pip download --no-deps --no-build-isolation --no-binary :all: -d "$work" llama-cpp-python==0.3.36
    tar -C "$work" -xzf "$work/llama_cpp_python-0.3.36.tar.gz"
fi

# quietly COMMAND...: its output, should it fail.
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }; }
quietly cmake -S "$llama" -B "$work/llama" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF \
    -DBUILD_SHARED_LIBS=ON
quietly ninja -C "$work/llama" ggml-cpu llama test-backend-ops
quietly env PKG_CONFIG_PATH="$pkgconfig" PKG_CONFIG_SYSROOT_DIR="$work/root" cmake -S clients/ggml -B "$work/client" -G Ninja \
    -DGGML_SOURCE="$llama" -DCMAKE_C_FLAGS=-Werror
quietly ninja -C "$work/client"
for program in likelihood memory; do
    quietly cc -std=c11 -Wall -Wextra -Werror -isystem "$llama/include" -isystem "$llama/ggml/include" \
        clients/ggml/tests/$program.c -o "$work/$program" -L "$work/llama/bin" -Wl,-rpath,"$work/llama/bin" -lllama -lggml \
        -lggml-base -lm
done

plugin=$work/client/libggml-libattn.so
unset ATTN_PLUGIN_PATH
# ops DEVICE WANTED ARGUMENT...: ggml's tests of attention, of which so many are to be served.
ops() {
    device=$1 wanted=$2
    shift 2
    GGML_BACKEND_PATH=$plugin "$work/llama/bin/test-backend-ops" test -o FLASH_ATTN_EXT -b "$device" -j 2 "$@" >"$work/ops.log" 2>&1 || {
        grep -aE 'FAIL|libattn:' "$work/ops.log" | head -n 20
        echo "test-backend-ops fails"
        exit 1
    }
    served=$(grep -acE 'FLASH_ATTN_EXT\(.*OK' "$work/ops.log")
    echo "$device: $served of $(grep -ac 'FLASH_ATTN_EXT(' "$work/ops.log") cases of FLASH_ATTN_EXT are served"
    [ "$served" -ge "$wanted" ] || { echo "$wanted cases are wanted"; exit 1; }
}
ops LIBATTN 5300

# A GPU: the CUDA plugin over a driver that stands in, whose kernels run as host code on fibers.
[ -f "$work/fake/build.ninja" ] ||
    quietly meson setup "$work/fake" --buildtype=release -Dcuda=disabled -Dhip=disabled -Dopencl=disabled
quietly ninja -C "$work/fake" tests/cuda/libfake-cuda.so tests/cuda/libattn-cuda.so
export ATTN_PLUGIN_PATH="$work/fake/tests/cuda" ATTN_CUDA_LIBRARY="$work/fake/tests/cuda/libfake-cuda.so"
served=$(GGML_BACKEND_PATH=$plugin "$work/llama/bin/test-backend-ops" support -o FLASH_ATTN_EXT -b LIBATTN1 --output csv \
    2>"$work/log" | grep -c '"1","yes"' || true)
echo "LIBATTN1: $served cases of FLASH_ATTN_EXT are served"
[ "$served" -ge 3000 ] || { cat "$work/log"; echo "3000 cases are wanted"; exit 1; }
ops LIBATTN1 900 -p 'kv=113,nb=(1|32|75),.*type_K=(f16|bf16|f32)|kv=512,nb=3,.*type_K=(f16|bf16|f32)'
GGML_BACKEND_PATH=$plugin "$work/memory"
# The same in buffers of ggml's CUDA backend, in whose place is a plugin that computes nothing.
mkdir -p "$work/beside"
quietly cc -std=c11 -Wall -Wextra -Werror -shared -fPIC -isystem "$llama/ggml/include" -isystem "$llama/ggml/src" \
    clients/ggml/tests/buffers.c -o "$work/beside/libggml-cuda.so"
(cd "$work/beside" && ops LIBATTN1 100 -p 'kv=113,nb=3,.*type_K=f16')
grep -q 'CUDA0: a buffer' "$work/ops.log" || { echo "no buffer is CUDA0's"; exit 1; }
unset ATTN_PLUGIN_PATH ATTN_CUDA_LIBRARY

# judge CACHE MEAN MOST OTHER: 100 tokens, each a run of all 30 layers. ggml rounds queries to the type of the cache (of a
# quantised one to q8_0), libattn does not: the bounds are twice what that makes.
judge() {
    "$work/likelihood" "$work/model.gguf" "$1" >"$work/theirs"
    ATTN_LOG=trace GGML_BACKEND_PATH=$plugin "$work/likelihood" "$work/model.gguf" "$1" >"$work/ours" 2>"$work/trace"
    runs=$(grep -c 'call: run,cpu/flash-attn' "$work/trace" || true)
    paste "$work/theirs" "$work/ours" | awk -v cache="$1" -v mean="$2" -v bound="$3" -v flips="$4" -v runs="$runs" '
        { d = $5 - $2; d = d < 0 ? -d : d; sum += d; if (d > most) most = d; other += $3 != $6 }
        END { printf "%s: log probabilities of %d tokens differ by %.4f in the mean and %.4f at most, %d other tokens are best, %d runs\n",
                     cache, NR, sum / NR, most, other, runs
              exit !(NR == 100 && sum / NR < mean && most < bound && other <= flips && runs >= 3000) }'
}
language=$(tools/fetch-model 2>"$work/fetch.log") || { tail -n 1 "$work/fetch.log"; exit 1; }
"$work/venv/bin/python" clients/ggml/tests/dequantise.py "$language" "$work/model.gguf"
judge f16 0.0016 0.012 0
judge bf16 0.005 0.06 0
judge q8_0 0.016 0.13 1
rm "$work/model.gguf"
