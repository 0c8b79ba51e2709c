# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The OpenCL platforms that tests know, each seen alone, and lines of TAP."""
import glob
import os
import subprocess
import sys

DRIVERS = {"pocl": "PoCL", "rusticl": "Rusticl"}
lines = 0
failures = 0


def vendor_of(platform):
    """The vendor file of a platform, or None where it is not installed."""
    for path in glob.glob("/etc/OpenCL/vendors/*.icd"):
        with open(path, encoding="utf-8") as file:
            if platform in file.read().lower():
                return path
    return None


def alone(platform, work):
    """Variables with which the loader sees this platform and no other."""
    directory = os.path.join(work, platform)
    os.makedirs(directory, exist_ok=True)
    link = os.path.join(directory, "one.icd")
    if not os.path.exists(link):
        os.symlink(vendor_of(platform), link)
    return {"OCL_ICD_VENDORS": directory, "RUSTICL_ENABLE": "llvmpipe"}


def loader():
    """The file of the OpenCL loader of this machine, or None; the one that stands in may be before it here."""
    find = ("import ctypes\nctypes.CDLL('libOpenCL.so.1')\n"
            "print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libOpenCL.so' in line))")
    env = {n: v for n, v in os.environ.items() if n != "LD_LIBRARY_PATH"}
    result = subprocess.run([sys.executable, "-c", find], env=env, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def report(good, what, result):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}", flush=True)
    if not good:
        failures += 1
        for line in [f"exit status {result.returncode}"] + (result.stderr + result.stdout).splitlines()[-40:]:
            print("# " + line)


def end():
    print(f"1..{lines}")
    return failures != 0
