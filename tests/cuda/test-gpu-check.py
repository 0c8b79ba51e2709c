#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/gpu-check without a GPU: its options, and its sums over programs that only pretend.

test-gpu-check.py TOOLS/GPU-CHECK FAKE-DRIVER
"""
import os
import stat
import subprocess
import sys
import tempfile

TOOL, FAKE = (os.path.abspath(p) for p in sys.argv[1:3])
lines = 0
failures = 0
PASSES = 'echo "ok 1 - a"; echo "3 passed, 0 failed, 1 skipped"'
FAILS = 'echo "not ok 1 - a"; echo "2 passed, 1 failed, 0 skipped"; exit 1'
FAULT = 'case "$*" in *--faulty) echo "========= Invalid __global__ read of size 4 bytes"; exit 1 ;; esac\n'


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write("#!/bin/sh\n" + text + "\n")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def run(*arguments, library=FAKE, check=PASSES, gpu='echo "ok 1 - a"', golden='echo "5 passed, 0 failed"', sanitizer=None, fault=FAULT,
        engine=None, hip=False):
    with tempfile.TemporaryDirectory() as directory:
        build = directory + "/build"
        write(build + "/backends/cuda/libattn-cuda.so", "")
        write(build + "/tests/conformance/attn-check", check)
        write(build + "/tests/cuda/test-gpu", gpu)
        for name in "test-ladder", "test-builders":
            write(build + "/tests/cuda/" + name, 'echo "ok 1 - a"')
        write(build + "/tests/golden/golden-check", golden)
        if hip:
            write(build + "/tests/hip/plain/libattn-hip.so", "")
        for name in ("test-engine", "test-elsewhere") if engine is not None else ():
            write(build + "/tests/model/" + name, engine)
        path = os.environ["PATH"]
        if sanitizer is not None:
            write(directory + "/bin/compute-sanitizer", fault + sanitizer)
            path = directory + "/bin:" + path
        env = {n: v for n, v in os.environ.items() if not n.startswith(("ATTN_", "FAKE_"))}
        env.update(ATTN_CUDA_LIBRARY=library, PATH=path)
        if "--part" in arguments:
            arguments += ("--build", build)
        return subprocess.run([TOOL, *arguments], env=env, capture_output=True, text=True, check=False)


def check(good, what, result):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}")
    if not good:
        failures += 1
        for line in [f"exit status {result.returncode}"] + (result.stderr + result.stdout).splitlines()[:40]:
            print("# " + line)


def ends(result, status, counts):
    return result.returncode == status and result.stdout.splitlines()[-1:] == [counts]


def test_options():
    result = run(library="/nonexistent/libcuda.so.1")
    check(result.returncode == 77 and "no NVIDIA GPU" in result.stderr and result.stdout == "",
          "without a GPU: a text, exit status 77, and nothing passes", result)
    result = run("--list")
    check(result.returncode == 0 and len(result.stdout.splitlines()) == 10, "it lists its parts", result)
    result = run("--help")
    check(result.returncode == 0 and "--part N" in result.stdout and "77" in result.stdout, "it helps", result)
    refused = (("--part", "0"), ("--part", ""), ("--part",), ("--jobs", "x"), ("--jobs", "0"), ("--minutes", "0"),
               ("--part", "1", "--part", "opencl"), ("--parts", "1"), ("5",))
    for bad in refused:
        result = run(*bad)
        check(result.returncode == 2 and result.stderr != "" and result.stdout == "", f"{' '.join(bad)} is refused",
              result)


def test_sums():
    result = run("--part", "5", "--part", "6")
    check(ends(result, 0, "11 passed, 0 failed, 1 skipped") and "part 5 " in result.stdout and
          "part 6 " in result.stdout, "parts are summed, each with its minutes", result)
    result = run("--part", "1", "--jobs", "3", check='echo "$*" >&2; ' + PASSES)
    check(ends(result, 0, "9 passed, 0 failed, 3 skipped") and "share 3 of 3" in result.stdout,
          "each job has its share", result)
    result = run("--part", "2", "--jobs", "2", check='case "$*" in *1/2) ' + FAILS + " ;; esac; " + PASSES)
    check(ends(result, 1, "5 passed, 1 failed, 1 skipped"), "a failure is one, and the exit status tells", result)
    result = run("--part", "6", gpu="kill -SEGV $$")
    check(ends(result, 1, "5 passed, 1 failed, 1 skipped"), "a program that dies has failed", result)
    result = run("--part", "6", gpu="true")
    check(ends(result, 1, "5 passed, 1 failed, 1 skipped"), "so has one that says nothing", result)
    result = run("--part", "6", gpu='echo "1..0 # SKIP no CUDA device"')
    check(ends(result, 1, "5 passed, 1 failed, 1 skipped"), "and one that finds no device", result)
    result = run("--part", "6", gpu='echo "ok 1 - a"; exit 3')
    check(ends(result, 1, "6 passed, 1 failed, 1 skipped"), "and one that ends badly after all", result)


def test_sanitizer():
    clean = 'echo "========= $3 SUMMARY: 0 errors"; ' + PASSES
    result = run("--part", "7", sanitizer=clean)
    check(ends(result, 0, "7 passed, 0 failed, 0 skipped"), "the sanitizer's tools pass", result)
    result = run("--part", "7", sanitizer='echo "========= ERROR SUMMARY: 2 errors"; exit 1')
    check(ends(result, 1, "1 passed, 6 failed, 0 skipped"), "or fail", result)
    result = run("--part", "7", sanitizer='[ "$2" = racecheck ] && echo "========= Device not supported" && exit 1; ' + clean)
    check(ends(result, 0, "5 passed, 0 failed, 2 skipped") and "not run: racecheck" in result.stdout,
          "or refuse the device, which is said and not passed", result)
    result = run("--part", "7", sanitizer='echo "========= ERROR SUMMARY: 0 errors"; exit 1')
    check(result.returncode == 1, "no errors of a program that fails are not passed", result)
    result = run("--part", "7", sanitizer=clean, fault="")
    check(ends(result, 0, "0 passed, 0 failed, 7 skipped") and "not run" in result.stdout,
          "where it does not see a fault on purpose nothing is passed", result)
    result = run("--part", "7", sanitizer="exit 0")
    check(ends(result, 1, "1 passed, 6 failed, 0 skipped"), "nor is a tool that says nothing", result)


def test_engine():
    result = run("--part", "8", engine='echo "ok 1 - $*"; echo "not ok 2"; exit 1')
    check(ends(result, 1, "3 passed, 3 failed, 0 skipped"), "the engine's tests run on both backends", result)
    result = run("--part", "8")
    check(ends(result, 0, "0 passed, 0 failed, 3 skipped") and "not run: the build has no attn-generate" in result.stdout,
          "a build without the engine is said and not passed", result)


def test_hip():
    said = 'echo "ok 1 - $FAKE_HIP ${FAKE_HIP_DRIVER##*/} ${FAKE_HIP_CUBINS##*/} ${ATTN_HIP_LIBRARY##*/}"; '
    result = run("--part", "9", "--jobs", "2", hip=True)
    check(ends(result, 0, "23 passed, 0 failed, 5 skipped") and "HIP device layer: 1 passed" in result.stdout,
          "the HIP plugin is checked over the driver", result)
    result = run("--part", "9", "--jobs", "1", hip=True, gpu='[ "${FAKE_HIP_DRIVER##*/}" = libshim-cuda.so ] && ' + said)
    check(result.returncode == 0, "its device layer over the library that watches", result)
    result = run("--part", "9", "--jobs", "1", hip=True,
                 check='[ "$FAKE_HIP_DRIVER" = "$ATTN_CUDA_LIBRARY" ] && [ -n "$FAKE_HIP_CUBINS" ] && ' + PASSES)
    check(result.returncode == 0, "and attn-check over the driver, with code for it", result)
    result = run("--part", "9", "--jobs", "1", hip=True, gpu="kill -SEGV $$")
    check(result.returncode == 1, "a program that dies has failed", result)
    result = run("--part", "9")
    check(ends(result, 0, "0 passed, 0 failed, 1 skipped") and "not run: the build has no tests" in result.stdout,
          "a build without it is said and not passed", result)


test_options()
test_sums()
test_hip()
test_sanitizer()
test_engine()
print(f"1..{lines}")
sys.exit(failures != 0)
