#!/bin/sh
# The Python package as its users have it: a wheel of an installed build, in an environment of its own, tested from there.
#   tests/python.sh BUILD            what numpy alone can test
#   tests/python.sh BUILD --clients  also torch, transformers, vLLM and SGLang: 8 GB when unpacked
# Exit 77: nothing can be fetched.
set -eu
cd "$(dirname "$0")/.."
build=$1 clients=${2-}
work=$PWD/$build/python
rm -rf "$work/root" "$work/dist"
mkdir -p "$work"

DESTDIR=$work/root meson install -C "$build" --no-rebuild --quiet
prefix=$(dirname "$(find "$work/root" -type d -name include | head -n 1)")

[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
pip() { "$work/venv/bin/pip" --disable-pip-version-check -q "$@"; }
if ! pip install -r python/tests/requirements.txt >"$work/pip.log" 2>&1; then
    grep -qiE 'connection|name resolution|timed out' "$work/pip.log" || { cat "$work/pip.log"; exit 1; }
    echo "PyPI is not reachable"
    exit 77
fi
tools/wheel --prefix "$prefix" --out "$work/dist" >"$work/wheel.log" 2>&1 || { tail -n 40 "$work/wheel.log"; exit 1; }
wheel=$(echo "$work"/dist/libattn-*.whl)
size=$(stat -c %s "$wheel")
[ "$size" -lt 2000000 ] || { echo "$wheel has $size bytes; the bar is 2,000,000"; exit 1; }
pip install --force-reinstall --no-deps "$wheel"

# A directory where the sources are not, so that what was installed is what is imported.
sources=$PWD
run() {
    path=
    [ "$1" != test_sglang.py ] || path=$work/sglang
    (cd "$work" && unset ATTN_PLUGIN_PATH && PYTHONPATH=$path "$work/venv/bin/python" "$sources/python/tests/$1")
}
tests="test_core.py"
if [ "$clients" = --clients ]; then
    pip install --no-deps -r python/tests/clients.txt
    # Beside it, for vLLM runs otherwise where it finds some of these packages.
    pip install --no-deps --upgrade --target "$work/sglang" -r python/tests/sglang.txt
    tests="$tests test_torch.py test_transformers.py test_sglang.py"
    tests="$tests vllm/test_layers.py vllm/test_tokens.py vllm/test_server.py"
fi
for test in $tests; do
    echo "== $test"
    run "$test" >"$work/$(basename "$test" .py).log" 2>&1 || { grep -v '^ok' "$work/$(basename "$test" .py).log"; exit 1; }
    grep -c '^ok' "$work/$(basename "$test" .py).log"
    grep '# SKIP' "$work/$(basename "$test" .py).log" || true
done
pip install nanobind==3.1.0
"$work/venv/bin/python" -m nanobind.stubgen -q -m libattn._native -o "$work/_native.pyi"
cmp "$work/_native.pyi" python/libattn/_native.pyi || { echo "python/libattn/_native.pyi is not what nanobind.stubgen makes"; exit 1; }
rm -rf "$work/records"
ATTN_RECORD=$work/records,calls=1 "$work/venv/bin/python" examples/python/paged_cache.py >"$work/example.log" || { echo "examples/python/paged_cache.py fails"; exit 1; }
"$work/venv/bin/python" examples/python/serving.py >"$work/serving.log" || { cat "$work/serving.log"; echo "examples/python/serving.py fails"; exit 1; }
"$work/venv/bin/attn-info" list | grep -q cpu/flash-attn || { echo "attn-info of the wheel does not list the CPU"; exit 1; }
"$work/venv/bin/attn-replay" "$work"/records/*.record >"$work/replay.log" 2>&1 || { cat "$work/replay.log"; exit 1; }

pip uninstall -y libattn
left=$(find "$work/venv" -path '*libattn*' -not -name '*.pyc' -type f)
[ -z "$left" ] || { echo "uninstalling leaves $left"; exit 1; }
