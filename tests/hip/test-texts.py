#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn-info says of the HIP plugin with no runtime, one without a function, no device, an unknown
architecture, and good ones; and to encoders.

test-texts.py ATTN-INFO DIRECTORY-OF-THE-HIP-PLUGIN DIRECTORY-OF-THE-CPU-PLUGIN STAND-IN FAKE-DRIVER DRIVER-DEF
"""
import json
import os
import re
import subprocess
import sys
import tempfile

INFO, HIP, CPU, STAND_IN, FAKE, ENTRIES = sys.argv[1:7]
PROBLEM = ["heads=8", "kv_heads=2", "head_dim=128", "q=f32"]
NONE = "/nonexistent/libamdhip64.so.7"
WORDS = "ROCm/HIP is not currently supported with encoder/decoder models."
POSE = "any-image,arch=gfx90a:sramecc+:xnack-"
lines = 0
failures = 0


def run(library, *arguments, **more):
    # Variables of other tests are none of libattn's, which would be said.
    env = {n: v for n, v in os.environ.items() if not n.startswith("ATTN_") or n == "ATTN_CACHE_DIR"}
    env.update(ATTN_PLUGIN_PATH=HIP + ":" + CPU, ATTN_LOG="warn", FAKE_HIP_DRIVER=FAKE, FAKE_HIP=POSE)
    if library is not None:
        env["ATTN_HIP_LIBRARY"] = library
    env.update(more)
    return subprocess.run([INFO, *arguments], env=env, capture_output=True, text=True, check=False)


def check(good, what, result):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}")
    if not good:
        failures += 1
        for line in [f"exit status {result.returncode}"] + (result.stderr + result.stdout).splitlines()[:40]:
            print("# " + line)


def candidates(result):
    return [c for c in json.loads(result.stdout)["candidates"] if c["name"] == "hip/rocm-flash"]


def own_reasons(candidate):
    return [r["code"] for r in candidate["reasons"] if r["kernel"] is None]


def test_no_runtime():
    result = run(NONE, "list")
    check("NO_DRIVER" in result.stdout and NONE in result.stdout.replace("\n    ", ""),
          "without a runtime the list says which file is missing", result)
    result = run(NONE, "explain", "--json", *PROBLEM)
    hip = candidates(result)
    check(result.returncode == 0 and json.loads(result.stdout)["effective"].startswith("cpu/") and
          not json.loads(result.stdout)["fallback"] and result.stderr == "",
          "the CPU serves, which is no fallback, and nothing is printed about it", result)
    check(len(hip) == 1 and hip[0]["device"] is None and hip[0]["kernels"] and own_reasons(hip[0]) == ["NO_DRIVER"],
          "a problem that kernels would serve has one reason of its own: NO_DRIVER", result)
    result = run(NONE, "explain", *PROBLEM, ATTN_BACKEND="hip")
    check(result.returncode == 1 and "NO_DRIVER" in result.stdout, "hip alone is no backend", result)
    result = run(FAKE, "explain", "--json", *PROBLEM)
    check(own_reasons(candidates(result)[0]) == ["NO_DRIVER"] and "hipInit" in result.stdout,
          "a library that is none of HIP has no hipInit", result)


def test_without_entries():
    """Each function in turn is not found, for its name in a copy of the file is another."""
    text = re.sub(r"/\*.*?\*/", "", open(ENTRIES, encoding="utf-8").read(), flags=re.S)
    entries = re.findall(r'GPU_ENTRY\((\w+), \w+, "(\w+)", (\d)', text)
    whole = open(STAND_IN, "rb").read()
    bad = []
    answer = None
    needed = 0
    for _, symbol, optional in entries:
        with tempfile.TemporaryDirectory() as directory:
            path = directory + "/libamdhip64.so"
            name = b"\0" + symbol.encode() + b"\0"
            assert name in whole, symbol
            with open(path, "wb") as out:
                out.write(whole.replace(name, b"\0" + symbol.encode()[:-1] + b"_\0"))
            result = run(path, "explain", "--json", *PROBLEM)
            hip = candidates(result)[0]
            if optional == "0":
                needed += 1
                good = own_reasons(hip) == ["NO_DRIVER"] and f"has no {symbol}" in result.stdout
            else:
                good = hip["accepted"] and hip["device"] == "rocm:0"
            if not good:
                bad.append(symbol)
                answer = result
    check(not bad and needed > 25, f"each of {needed} functions that lack is named, {len(entries) - needed} others may lack "
          + " ".join(bad), answer if answer is not None else result)


def test_layouts():
    """ROCm 5 has the plain function alone, and the architecture elsewhere in what it fills."""
    whole = open(STAND_IN, "rb").read()
    for gone, what in ((["R0600"], "ROCm 6's function alone is missing"),
                       (["R0600", "R0000"], "only the plain function is there")):
        with tempfile.TemporaryDirectory() as directory:
            text = whole
            for name in gone:
                name = b"\0hipGetDeviceProperties" + name.encode() + b"\0"
                text = text.replace(name, name[:-2] + b"_\0")
            with open(directory + "/libamdhip64.so", "wb") as out:
                out.write(text)
            result = run(directory + "/libamdhip64.so", "devices", "--json")
            check("gfx90a:sramecc+:xnack-" in result.stdout and "Fake GPU 0" in result.stdout, what, result)
            result = run(directory + "/libamdhip64.so", "explain", "--json", *PROBLEM)
            check(candidates(result)[0]["accepted"], "and the device serves", result)


def test_no_device():
    for words, what in (("any-image", "a runtime without a device"), ("any-image,init=101", "and one as of ROCm 5")):
        result = run(STAND_IN, "explain", "--json", *PROBLEM, FAKE_CUDA="devices=0", FAKE_HIP=words)
        hip = candidates(result)
        check(result.returncode == 0 and not json.loads(result.stdout)["fallback"] and len(hip) == 1 and
              own_reasons(hip[0]) == ["NO_DEVICE"], what + ": NO_DEVICE, and no fallback", result)
    result = run(STAND_IN, "explain", "--json", *PROBLEM, FAKE_HIP="init=3")
    check(own_reasons(candidates(result)[0]) == ["NO_DRIVER"] and "hipErrorNotInitialized" in result.stdout,
          "one that does not start: NO_DRIVER, in its words", result)


def test_architectures():
    result = run(STAND_IN, "explain", "--json", *PROBLEM, FAKE_HIP="any-image,arch=gfx803")
    hip = candidates(result)
    reasons = [r for r in hip[0]["reasons"] if r["code"] == "DEVICE_ARCH"]
    check(json.loads(result.stdout)["fallback"] and hip[0]["device"] == "rocm:0" and reasons and
          "gfx803" in reasons[0]["text"] and all(n in reasons[0]["text"] for n in ("90a", "1201")),
          "an architecture without kernels is refused with its name and those that are served", result)
    for arch in ("gfx90", "gfx90a0", "gfx", "", "sm_90", "gfx90c:xnack-", "gfx90a+"):
        result = run(STAND_IN, "explain", "--json", *PROBLEM, FAKE_HIP="any-image,arch=" + arch)
        check(not candidates(result)[0]["accepted"] and result.returncode == 0, f"so is '{arch}'", result)
    for arch in ("gfx90a", "gfx942:sramecc+:xnack-", "gfx942:sramecc-:xnack+", "gfx906:sramecc+:xnack-", "gfx1100", "gfx1201"):
        result = run(STAND_IN, "explain", "--json", *PROBLEM, FAKE_HIP="any-image,arch=" + arch)
        check(candidates(result)[0]["accepted"], f"'{arch}' is served", result)
    for more, speed, said in ((["q=f16"], "optimised", ""), ([], "generic", "does not take q=f32 (wanted: f16)")):
        result = run(STAND_IN, "explain", "--json", *PROBLEM[:3], *(more or PROBLEM[3:]))
        check({k["speed"] for k in candidates(result)[0]["kernels"]} == {speed} and said in result.stderr and
              (said != "" or result.stderr == ""), f"kernels are {speed}, and a slow one is warned of", result)
    result = run(STAND_IN, "explain", "--json", *PROBLEM, FAKE_CUDA="devices=2",
                 FAKE_HIP="any-image,arch=gfx803;gfx1100")
    check([(c["device"], c["accepted"]) for c in candidates(result)] == [("rocm:0", False), ("rocm:1", True)] and
          json.loads(result.stdout)["device"] == "rocm:1", "of two devices the one that serves is chosen", result)


def test_encoders():
    for kind in ("encoder", "encoder_decoder"):
        for library, words in ((STAND_IN, "with a device"), (NONE, "without a runtime")):
            result = run(library, "explain", f"type={kind}", *PROBLEM, ATTN_BACKEND="hip")
            check(result.returncode == 1 and result.stdout.splitlines()[0] == WORDS and
                  result.stderr == f"attn-info: {WORDS}\n",
                  f"{kind} is refused {words}: exit status 1, in the words alone", result)
            for more in ("head_dim=63", "head_dim=1024", "q=bf16", "lse=1", "det=1"):
                keys = [key for key in PROBLEM if key.split("=")[0] != more.split("=")[0]]
                result = run(library, "explain", "--json", f"type={kind}", *keys, more, ATTN_BACKEND="hip")
                hip = candidates(result)[0]
                own = [r for r in hip["reasons"] if r["code"] not in ("NO_DRIVER", "NO_DEVICE")]
                check(result.returncode == 1 and json.loads(result.stdout)["text"] == WORDS and not hip["accepted"] and
                      [(r["code"], r["text"]) for r in own] == [("ENC_DEC_ROCM_HIP", WORDS)],
                      f"{kind} {words}, {more}: this reason and no other", result)
    result = run(STAND_IN, "explain", "--json", "type=encoder_only", *PROBLEM)
    check(candidates(result)[0]["accepted"], "encoder_only is served", result)


test_no_runtime()
test_without_entries()
test_layouts()
test_no_device()
test_architectures()
test_encoders()
print(f"1..{lines}")
sys.exit(failures != 0)
