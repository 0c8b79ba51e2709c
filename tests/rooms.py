# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/README.md promises of the rooms: core names no vendor; and, done in a scratch copy of the sources, a head dim
of the CUDA plugin is one row of one file, a level of CPU instructions one row and one file.

usage: rooms.py ROOT ATTN-INFO ARCHITECTURE [--level]; CC and CXX are the compilers. --level: a level, whose CPU plugin is
built, and nothing else
"""

import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT, INFO, ARCHITECTURE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
SOURCES = ["core", "backends", "transports", "tools", "examples", "plugins", "docs",
           *(f"tests/{x}" for x in ("oracle", "conformance", "golden", "gpu", "own"))]
# What Meson installs beside them.
FILES = ["meson.build", "meson_options.txt", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md",
         "python/README.md", "clients/ggml/README.md"]
INCLUDES = [f"-I{folder}" for folder in ("core/include", "backends/common", "backends/serving/include", "backends/gpu/kernels", "backends/gpu/host")]
HEAD_DIM = "MMA(mma_128_64, 128, 64, 2, 64)"
LEVEL = f'CPU_LEVEL({ARCHITECTURE}, wide, "-Wno-psabi", vectors, true, {{"wide"}})'
# Prints the module that a plan takes, by columns of keys, columns of values and type.
TAKES = """#include "mma.c"
int main(void)
{
    static const struct attn_problem problems[] = {
        {.head_dim = 128, .head_dim_vo = 64, .k_dtype = ATTN_F16},
        {.head_dim = 96, .head_dim_vo = 64, .k_dtype = ATTN_F16},
        {.head_dim = 128, .head_dim_vo = 128, .k_dtype = ATTN_F16},
        {.head_dim = 128, .head_dim_vo = 64, .k_dtype = ATTN_E4M3},
        {.head_dim = 64, .head_dim_vo = 64, .k_dtype = ATTN_F16}};
    for (int i = 0; i < 5; i++)
        printf("%s ", instance_of(&problems[i])->name);
}
"""
VENDORS = re.compile(r"\b(cuda|hip|rocm|opencl)\b", re.I)
count = failed = 0


def check(good, name, more=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good:
        print("\n".join(f"# {line}" for line in str(more).splitlines()))


def run(where, *command, variables=()):
    """(exit status, what was printed). Arguments may be lists."""
    words = [str(word) for part in command for word in (part if isinstance(part, list) else [part])]
    done = subprocess.run(words, cwd=where, env=dict(os.environ, **dict(variables)), encoding="utf-8", check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def copy(to):
    ignored = shutil.ignore_patterns("__pycache__", "*.tar")
    for name in SOURCES:
        shutil.copytree(ROOT / name, to / name, ignore=ignored)
    for name in FILES:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, to / name)


def touched(scratch):
    """The sources that are not those of ROOT."""
    files = [path.relative_to(scratch) for path in scratch.rglob("*") if path.is_file()]
    return {str(p) for p in files if not (ROOT / p).is_file() or not filecmp.cmp(ROOT / p, scratch / p, shallow=False)}


def add_row(path, row, before):
    """Puts a row in front of the first line that begins like that."""
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(rf"^{re.escape(before)}", lambda found: f"{row}\n{found[0]}", text, count=1, flags=re.M),
                    encoding="utf-8")


def taken(scratch, out):
    """The modules that plans of the copy's CUDA plugin take, as TAKES asks."""
    (out / "takes.c").write_text(TAKES, encoding="utf-8")
    status, text = run(scratch, os.environ["CC"].split(), "-std=gnu11", "-w", INCLUDES, "-Ibackends/cuda",
                       "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections",  # of mma.c the table alone is asked
                       out / "takes.c", "backends/common/dtype.c", "-o", out / "takes")
    return run(out, out / "takes")[1].split() if status == 0 else text


def test_vendors():
    """Public headers may show vendors as examples, and number devices as DLPack does."""
    files = [path for path in sorted((ROOT / "core").rglob("*.[ch]")) if ROOT / "core/include/attn" not in path.parents]
    named = [f"{path.relative_to(ROOT)}:{number}: {line}" for path in files
             for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if VENDORS.search(line)]
    check(len(files) > 50 and not named, "no file of core names a vendor", "\n".join(named) or f"{len(files)} files")


def test_head_dim(scratch, out):
    old = taken(scratch, out)
    check(old == ["mma_128", "mma_128", "mma_128", "mma_128_kv8", "mma_64"], "plans take the rows that there are", old)
    add_row(scratch / "backends/cuda/instances.def", HEAD_DIM, "MMA(mma_128,")
    check(touched(scratch) == {"backends/cuda/instances.def"}, "a CUDA head dim is one file", touched(scratch))
    new = taken(scratch, out)
    check(new == ["mma_128_64", "mma_128_64", *old[2:]], "plans take the new row where it is the narrowest", new)
    instance = re.sub(r"^MMA\(|[ )]", "", HEAD_DIM)
    status, text = run(scratch, os.environ["CXX"].split(), "-std=gnu++17", "-w", "-fno-exceptions", "-fno-rtti",
                       INCLUDES, "-Itests/gpu", f"-DINSTANCE={instance}", "-c", "tests/gpu/driver-mma.cc", "-o", out / "driver.o")
    names = re.findall(r"\bcall_(mma_128_64_\w+?)(?=\b|PK)", run(out, "nm", "-C", "driver.o")[1]) if status == 0 else [text]
    wanted = sorted([f"mma_128_64_r{rows}_{kind}" for rows in (8, 16, 64) for kind in ("bf16", "f16")] +
                    [f"mma_128_64_r{rows}_combine" for rows in (16, 64)])
    check(sorted(names) == wanted, "its kernels compile on the host, by the names that plans ask for", "\n".join(names))


def test_level(scratch, out):
    before = touched(scratch)
    shutil.copy(ROOT / "tests/cpu/wide.h", scratch / "backends/cpu/simd/wide.h")
    add_row(scratch / "backends/cpu/levels.def", LEVEL, f"CPU_LEVEL({ARCHITECTURE},")
    files = touched(scratch) - before
    wanted = {"backends/cpu/levels.def", "backends/cpu/simd/wide.h"}
    check(files == wanted, "a level of CPU instructions is one file and one row", files)
    off = [f"-D{name}=disabled" for name in ("tools", "generate", "man", "cuda", "hip", "blas", "unit_tests")]
    status, text = run(scratch, "meson", "setup", out / "build", "--buildtype=plain", "-Dtests=false", off)
    if status == 0:
        status, text = run(scratch, "ninja", "-C", out / "build", "backends/cpu/libattn-cpu.so")
    check(status == 0, "the CPU plugin builds with it", text)
    variables = {"ATTN_PLUGIN_PATH": out / "build/backends/cpu", "ATTN_PROBE": "never"}
    for name, maxima in (("decode", "max_q=1"), ("prefill", "max_q=512")):
        status, text = run(out, INFO, "explain", "heads=8", "head_dim=64", "q=f32", maxima, variables=variables)
        check(status == 0 and f"paged_{name}_f32_wide" in text, f"a {name} runs on it", text)


def main():
    if not shutil.which("meson") or not shutil.which("ninja"):
        print("1..0 # SKIP no meson or no ninja in PATH")
        return 0
    level = "--level" in sys.argv
    if not level:
        test_vendors()
    with tempfile.TemporaryDirectory(prefix="attn-rooms-") as place:
        scratch, out = pathlib.Path(place) / "sources", pathlib.Path(place) / "out"
        out.mkdir()
        copy(scratch)
        check(not touched(scratch), "the copy is the sources", touched(scratch))
        if level:
            test_level(scratch, out)
        else:
            test_head_dim(scratch, out)
    print(f"1..{count}")
    return failed != 0


sys.exit(main())
