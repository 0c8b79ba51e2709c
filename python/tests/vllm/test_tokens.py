# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares greedy tokens of vLLM on libattn with those on vLLM's own CPU backend, by small models of six families.

Prints TAP; exit status 1 if anything failed, 0 with a skip where vLLM is not installed. Takes about two minutes on two
cores: three processes, of which each loads every model. In f32 tokens have to be equal; in 16 bits they may differ for
reasons of rounding alone, so there is nothing to compare.
"""
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from tap import check, finish, installed  # noqa: E402

LARGEST_DIFFERENCE = 1e-3  # of log probabilities; 2e-5 was seen


def plugin_path(folder: str) -> list[str]:
    """What to put on PYTHONPATH for vLLM to find the plugin: nothing if the package is installed."""
    found = [point for group in ("vllm.general_plugins", "vllm.platform_plugins")
             for point in importlib.metadata.entry_points(group=group) if point.value.startswith("libattn.vllm:")]
    if len(found) >= 2:
        return []
    information = os.path.join(folder, "plugin", "libattn_under_test-0.dist-info")
    os.makedirs(information)
    with open(os.path.join(information, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: libattn-under-test\nVersion: 0\n")
    with open(os.path.join(information, "entry_points.txt"), "w") as file:
        file.write("[vllm.general_plugins]\nlibattn = libattn.vllm:register\n"
                   "[vllm.platform_plugins]\nlibattn = libattn.vllm:platform\n")
    return [os.path.dirname(information)]


def serve(folder: str, name: str, backend: str, models: list[str], **variables: str) -> tuple[dict[str, Any], str]:
    """Runs serve.py in a process of its own. Returns its results by model, and its log."""
    out = os.path.join(folder, f"{name}.json")
    path = [*plugin_path(os.path.join(folder, name)), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                   "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **variables}
    command = [sys.executable, os.path.join(HERE, "serve.py"), backend, out, *models]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not os.path.exists(out):
        return {}, run.stdout
    with open(out) as file:
        return json.load(file), run.stdout


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest difference of a log probability."""
    return max(abs(a - b) for one, other in zip(ours["logprobs"], theirs["logprobs"], strict=True)
               for a, b in zip(one, other, strict=True))


def compare(family: str, ours: dict[str, Any], theirs: dict[str, Any], faulty: dict[str, Any]) -> None:
    """The lines of one model."""
    for name, result in (("libattn", ours), ("CPU_ATTN", theirs), ("libattn with a fault", faulty)):
        if "tokens" not in result:
            check(False, f"{family}: {name} serves", result.get("error", "no result"))
            return
    check(ours["tokens"] == theirs["tokens"], f"{family}: tokens of prompts of 5 to 300 tokens, in chunks of 64",
          f"libattn  {ours['tokens']}\nCPU_ATTN {theirs['tokens']}")
    found = difference(ours, theirs) if ours["tokens"] == theirs["tokens"] else float("inf")
    check(found < LARGEST_DIFFERENCE, f"{family}: log probabilities differ by {found:.1g}")
    # vLLM's own backend for MLA caches no prefixes.
    alike = ours["cached"] == theirs["cached"] or family == "deepseek-v2"
    check(ours["again"] == ours["tokens"] and alike and max(ours["cached"]) >= 128,
          f"{family}: the same with {ours['cached']} tokens found in the cache", f"{ours['again']}")
    calls = ours["calls"]
    # At least 24 steps of either pass over the prompts, in each of two layers.
    check(all(calls.get(call, 0) >= least for call, least in (("build", 48), ("update", 96), ("forward", 96))),
          f"{family}: libattn served ({calls.get('forward', 0)} runs of layers)", f"{calls}")
    check(not theirs["calls"], f"{family}: without CUSTOM it does not", f"{theirs['calls']}")
    check(faulty["tokens"] != theirs["tokens"], f"{family}: a small fault changes tokens")


def main() -> None:
    if not installed("vllm"):
        print("1..0 # SKIP vLLM is not installed")
        return
    import models

    with tempfile.TemporaryDirectory() as folder:
        made = {family: models.make(family, folder) for family in models.FAMILIES}
        theirs, _ = serve(folder, "theirs", "CPU_ATTN", list(made.values()))
        ours, log = serve(folder, "ours", "CUSTOM", list(made.values()))
        faulty, _ = serve(folder, "faulty", "CUSTOM", list(made.values()), TEST_FAULT="1")
    for family, path in made.items():
        compare(family, ours.get(path, {}), theirs.get(path, {}), faulty.get(path, {}))
    line = next((line for line in log.splitlines() if "libattn 0." in line), None)
    check(line is not None, "a line of the log says which backend and kernels serve", log[-2000:])
    print(f"# {line}")
    finish()


if __name__ == "__main__":
    main()
