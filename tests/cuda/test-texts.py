#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn-info says of the CUDA plugin with no driver, an old one, no device, an old one, and good ones.

test-texts.py ATTN-INFO DIRECTORY-OF-THE-CUDA-PLUGIN DIRECTORY-OF-THE-CPU-PLUGIN FAKE-DRIVER
"""
import json
import os
import pathlib
import re
import subprocess
import sys

INFO, CUDA, CPU, FAKE = sys.argv[1:5]
SHAPE = ["heads=8", "kv_heads=2", "head_dim=128"]
PROBLEM = [*SHAPE, "q=bf16"]
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "gpu.md"
NONE = "/nonexistent/libcuda.so.1"
lines = 0
failures = 0


def run(library, *arguments, **more):
    # Variables of other tests are none of libattn's, which would be said.
    env = {n: v for n, v in os.environ.items() if not n.startswith("ATTN_") or n == "ATTN_CACHE_DIR"}
    env.update(ATTN_PLUGIN_PATH=CUDA + ":" + CPU, ATTN_CUDA_LIBRARY=library, ATTN_LOG="warn", **more)
    return subprocess.run([INFO, *arguments], env=env, capture_output=True, text=True, check=False)


def check(good, what, result):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}")
    if not good:
        failures += 1
        for line in (result.stderr.splitlines() + result.stdout.splitlines())[:40]:
            print("# " + line)


def candidates(result, name):
    return [c for c in json.loads(result.stdout)["candidates"] if c["name"] == name]


def test_no_driver():
    result = run(NONE, "list", "--json")
    states = {b["name"]: b["state"] for b in json.loads(result.stdout)["backends"]}
    check(states.get("cuda/flash-attn") == "no-device" and states.get("cuda/flashinfer") == "no-device" and
          states.get("cpu/flash-attn") == "ready", "without a driver both backends have no device", result)
    result = run(NONE, "list")
    check("NO_DRIVER" in result.stdout and NONE in result.stdout.replace("\n    ", ""),
          "the list says which file is missing", result)
    result = run(NONE, "explain", "--json", *PROBLEM)
    answer = json.loads(result.stdout)
    cuda = candidates(result, "cuda/flash-attn")
    check(result.returncode == 0 and answer["effective"] == "cpu/flash-attn" and not answer["fallback"],
          "the CPU serves, which is no fallback", result)
    check(result.stderr == "", "and nothing is printed about it", result)
    check(len(cuda) == 1 and cuda[0]["device"] is None and cuda[0]["kernels"] and
          [r["code"] for r in cuda[0]["reasons"] if r["kernel"] is None] == ["NO_DRIVER"],
          "a problem that kernels would serve has one reason of its own: NO_DRIVER", result)
    serving = {k["name"] for k in cuda[0]["kernels"]}
    check(serving.isdisjoint(r["kernel"] for r in cuda[0]["reasons"]),
          "every other reason is of a kernel that would not serve it", result)
    result = run(NONE, "explain", "--json", "heads=8", "head_dim=1024", "q=bf16")
    codes = [r["code"] for r in candidates(result, "cuda/flash-attn")[0]["reasons"]]
    check(codes[0] == "NO_DRIVER" and "HEAD_DIM" in codes, "one that is not also tells why", result)
    result = run(NONE, "why", CUDA + "/libattn-cuda.so")
    check("cuda/flash-attn" in result.stdout and "no-device" in result.stdout, "why tells of one file", result)
    result = run(NONE, "explain", *PROBLEM, ATTN_BACKEND="cuda")
    check(result.returncode == 1 and "NO_DRIVER" in result.stdout, "cuda alone is no backend", result)
    result = run(NONE, "explain", "heads=8", "head_dim=128", "q=f32", ATTN_BACKEND="cuda")
    check("closest is cuda/flash-attn: NO_DRIVER" in result.stderr,
          "the driver is what is missing, not the types of kernels beside the one that would serve", result)
    result = run(NONE, "explain", "--json", *PROBLEM, ATTN_BACKEND="cuda,auto")
    check(result.returncode == 0 and json.loads(result.stdout)["fallback"], "cuda,auto falls back", result)


def test_old_driver():
    result = run(FAKE, "list", FAKE_CUDA="version=11040")
    text = " ".join(result.stdout.split())
    check("NO_DRIVER" in text and "11.4" in text and "12.0" in text,
          "of an old driver the list says which it is and which is needed", result)
    result = run(FAKE, "explain", "--json", *PROBLEM, FAKE_CUDA="version=11040")
    cuda = candidates(result, "cuda/flash-attn")
    check(result.returncode == 0 and json.loads(result.stdout)["effective"] == "cpu/flash-attn" and
          len(cuda) == 1 and cuda[0]["device"] is None and
          [r["code"] for r in cuda[0]["reasons"] if r["kernel"] is None] == ["NO_DRIVER"],
          "and the CPU serves: NO_DRIVER", result)
    check("11.4" in [r["text"] for r in cuda[0]["reasons"] if r["kernel"] is None][0],
          "the reason has the version too", result)


def test_no_device():
    result = run(FAKE, "explain", "--json", *PROBLEM, FAKE_CUDA="devices=0")
    cuda = candidates(result, "cuda/flash-attn")
    check(result.returncode == 0 and not json.loads(result.stdout)["fallback"] and len(cuda) == 1 and
          [r["code"] for r in cuda[0]["reasons"] if r["kernel"] is None] == ["NO_DEVICE"],
          "a driver without a device: NO_DEVICE, and no fallback", result)


def test_old_device():
    result = run(FAKE, "explain", "--json", *PROBLEM, FAKE_CUDA="arch=75")
    cuda = candidates(result, "cuda/flash-attn")
    reasons = [r for r in cuda[0]["reasons"] if r["code"] == "DEVICE_ARCH"]
    check(json.loads(result.stdout)["effective"] == "cpu/flash-attn" and len(cuda) == 1 and
          cuda[0]["device"] == "cuda:0" and reasons and "sm_75" in reasons[0]["text"] and "80" in reasons[0]["text"],
          "an old device is refused with its architecture: DEVICE_ARCH", result)
    check(json.loads(result.stdout)["fallback"], "which is a fallback: there is a GPU", result)


def test_small_device():
    keys = ("heads=8", "kv_heads=2", "q=bf16")
    for columns, row in ((128, "prefill_mma_bf16"), (256, "attn_reference")):
        result = run(FAKE, "explain", "--json", *keys, f"head_dim={columns}", FAKE_CUDA="arch=86")
        cuda = candidates(result, "cuda/flash-attn")
        check(cuda[0]["accepted"] and row in json.dumps(cuda[0]["kernels"]),
              f"with 99 KiB of shared memory {columns} columns are served by {row}", result)


def test_two_devices():
    result = run(FAKE, "explain", "--json", *PROBLEM, FAKE_CUDA="devices=2")
    devices = [c["device"] for c in candidates(result, "cuda/flash-attn") if c["accepted"]]
    check(devices == ["cuda:0", "cuda:1"] and json.loads(result.stdout)["device"] == "cuda:0",
          "of two devices both serve, and the first is chosen", result)


def test_driver():
    result = run(FAKE, "devices", "--json")
    text = result.stdout
    check("Fake GPU 0" in text and "sm_90" in text, "with a driver its device is listed", result)
    result = run(FAKE, "explain", "--json", *PROBLEM)
    answer = json.loads(result.stdout)
    check(answer["effective"] == "cuda/flash-attn" and answer["device"] == "cuda:0", "and serves", result)
    cuda = candidates(result, "cuda/flash-attn")
    check(cuda[0]["accepted"] and len(cuda[0]["kernels"]) >= 1, "with the names of its kernels", result)
    result = run(FAKE, "explain", "--json", "heads=8", "head_dim=1024", "q=bf16")
    check(json.loads(result.stdout)["effective"] == "cpu/flash-attn" and json.loads(result.stdout)["fallback"],
          "what it refuses goes to the CPU, as a fallback", result)
    result = run(FAKE, "caps", "--json", "cuda/flash-attn")
    check("bf16" in result.stdout and "e4m3" in result.stdout, "its capabilities come from the predicates", result)


def kernels_of(result):
    cuda = [c for c in candidates(result, "cuda/flashinfer") if c["accepted"]]
    return [k["name"] for k in cuda[0]["kernels"]] if cuda else []


def test_tensor_cores():
    option = "ATTN_FLASHINFER_TENSOR_CORES"
    exact, best = ["attn_reference", "prefill_mma_bf16"], ["decode_mma_bf16", "prefill_mma_bf16"]
    for value, wanted in (("auto", best), ("on", best), ("", best), ("off", exact)):
        result = run(FAKE, "explain", "--json", *PROBLEM, ATTN_BACKEND="cuda/flashinfer", **{option: value})
        check(kernels_of(result) == wanted, f"{option}={value} takes {' and '.join(wanted)}", result)
    check("belongs to the flavour flashinfer" in run(FAKE, "env", **{option: "on"}).stdout, "it is a flavour's", result)
    result = run(FAKE, "explain", "--json", *PROBLEM, ATTN_BACKEND="cuda/flash-attn", **{option: "off"})
    check([k["name"] for k in candidates(result, "cuda/flash-attn")[0]["kernels"]] == best,
          "cuda/flash-attn does not read it", result)
    for value, problem, wanted in (("on", "q=e4m3 q_scale=unit kv=f16", "auto or off"), ("yes", "q=bf16", "auto, on or off")):
        result = run(FAKE, "explain", "--json", *SHAPE, *problem.split(), ATTN_BACKEND="cuda/flashinfer", **{option: value})
        reasons = [r for r in candidates(result, "cuda/flashinfer")[0]["reasons"] if r["code"] == "OPTION"]
        check(result.returncode == 1 and len(reasons) == 1 and
              f"{option}={value} is not served; wanted: {wanted}" in reasons[0]["text"],
              f"{option}={value} refuses {problem}", result)


def speeds(result, name):
    return {k["name"]: k["speed"] for k in candidates(result, name)[0]["kernels"]}


def test_speed():
    result = run(FAKE, "explain", "--json", *PROBLEM)
    check(set(speeds(result, "cuda/flash-attn").values()) == {"optimised"} and result.stderr == "",
          "matrix kernels are optimised, and nothing is warned of", result)
    eight = [*PROBLEM, "v=e4m3", "v_scale=unit"]
    result = run(FAKE, "explain", "--json", *eight)
    check(speeds(result, "cuda/flash-attn") == {"attn_reference": "generic"}, "the reference kernel is generic", result)
    check(result.stderr.count("generic kernel attn_reference, for all of a batch") == 1 and
          "decode_mma_bf16 does not take v=e4m3 (wanted: bf16)" in result.stderr,
          "the log says once what keeps the optimised one", result)
    result = run(FAKE, "explain", "--json", *eight, ATTN_STRICT="2", ATTN_BACKEND="cuda")
    reasons = candidates(result, "cuda/flash-attn")[0]["reasons"]
    check(result.returncode == 1 and [r["code"] for r in reasons[:2]] == ["GENERIC_KERNEL", "DTYPE_V"] and
          (reasons[0]["key"], reasons[0]["got"]) == ("v", "e4m3"), "ATTN_STRICT=2 refuses it", result)
    result = run(FAKE, "explain", *PROBLEM, "--all", ATTN_BACKEND="cuda/flashinfer,cuda",
                 ATTN_FLASHINFER_TENSOR_CORES="off")
    check("does not take ATTN_FLASHINFER_TENSOR_CORES=off (wanted: auto or on); cuda/flash-attn on cuda:0 has" in
          result.stderr, "an option is named, and the backend that does not read it", result)
    result = run(FAKE, "explain", "heads=8", "kv_heads=2", "head_dim=256", "q=bf16", FAKE_CUDA="arch=86")
    check("decode_mma_bf16 does not take device=sm_86 (wanted: 112 KiB of shared memory)" in result.stderr,
          "a small device is named", result)
    result = run(FAKE, "explain", "heads=16", "kv_heads=1", "head_dim=576/512", "mla=1", "q=f16", "kv=int8",
                 "scales=head")
    check("mla_mma_f16_kv8 does not take scales=head (wanted: unit, tensor)" in result.stderr,
          "of MLA its own kernel is named", result)
    result = run(FAKE, "caps", "--json", "cuda/flash-attn")
    caps = json.loads(result.stdout)["backends"][0]
    check(caps["speed"] == "optimised" and "head_dim=513-576" in caps["generic"] and
          {"q=e4m3", "kv=e4m3", "kv=e4m3fnuz", "out=e4m3"}.isdisjoint(caps["generic"]), "caps tells what generic kernels serve", result)


def whole_problem(words):
    """A problem that differs from a usual one in these words; what has 8 bits has scales."""
    problem = {"heads": "8", "kv_heads": "2", "head_dim": "128", "q": "bf16"}
    if "mla=1" in words:
        problem.update(kv_heads="1", head_dim="576/512")
    problem.update(word.split("=") for word in words)
    cached = problem.get("k", problem.get("kv", problem["q"]))
    for dtype, scale in ((problem["q"], "q_scale"), (cached, "scales"), (problem.get("out", ""), "out_scale")):
        if re.match("e[45]m|int8", dtype):
            problem[scale] = "unit"
    problem["head_dim"] = problem["head_dim"].split("-")[0]
    return [f"{key}={value}" for key, value in problem.items()]


def test_page():
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8").split("## What the reference kernel serves")[1],
                      re.MULTILINE)
    told = set()
    for text, arch in re.findall(r"`([^`]*)`(?: on sm_(\d+))?", " ".join(rows)):
        told |= set(text.split())
        result = run(FAKE, "explain", "--json", *whole_problem(text.split()), FAKE_CUDA=f"arch={arch}" if arch else "")
        check("generic" in speeds(result, "cuda/flash-attn").values(),
              f"docs/gpu.md tells rightly that the reference kernel serves {text}", result)
    result = run(FAKE, "caps", "--json", "cuda/flash-attn")
    generic = json.loads(result.stdout)["backends"][0]["generic"]
    left = {word for word in generic if not re.match("(q|out)_scale=", word)} - told  # scales are those of 8 bits
    check(generic and not left, f"docs/gpu.md tells of all that it serves, but {sorted(left)}", result)


test_no_driver()
test_old_driver()
test_no_device()
test_old_device()
test_small_device()
test_two_devices()
test_driver()
test_tensor_cores()
test_speed()
test_page()
print(f"1..{lines}")
sys.exit(failures != 0)
