#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Side effects of the CUDA plugin on a driver that leaves descriptors and threads in the process once, as a real one
does; and that one more for each context, as a fault of the plugin would leave it, is found.

test-side-effects.py ATTN-CHECK CUDA-PLUGIN FAKE-DRIVER
"""
import os
import subprocess
import sys
import tempfile

CHECK, PLUGIN, FAKE = (os.path.abspath(p) for p in sys.argv[1:4])
LEFT = {"descriptors", "closed standard files", "descriptors over many lives", "threads", "threads over many lives",
        "orders of destruction"}
lines = 0
failures = 0


def run(words):
    env = {n: v for n, v in os.environ.items() if not n.startswith(("ATTN_", "FAKE_"))}
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(FAKE, directory + "/libcuda.so.1")  # the name by which the plugin asks
        env.update(LD_LIBRARY_PATH=directory, FAKE_CUDA=words)
        return subprocess.run([CHECK, PLUGIN, "--kind", "side-effects"], env=env, capture_output=True, text=True,
                              check=False)


def check(good, what, result):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}")
    if not good:
        failures += 1
        for line in (result.stderr.splitlines() + result.stdout.splitlines())[-25:]:
            print("# " + line[:300])


def failed(result):
    return {line.split("side-effects: ")[1].split(" seed ")[0] for line in result.stdout.splitlines()
            if line.startswith("not ok")}


result = run("keeps")
check(result.returncode == 0 and " 0 failed" in result.stdout and "no device" not in result.stdout,
      "what a driver keeps for the process is not the plugin's", result)
result = run("keeps,leaks-descriptor,leaks-thread")
check(failed(result) >= LEFT, "what is left of each context is: " + ", ".join(sorted(LEFT)), result)
print(f"1..{lines}")
sys.exit(failures != 0)
