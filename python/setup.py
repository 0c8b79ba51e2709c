# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the extension module against an installed libattn: of LIBATTN_PREFIX, else the one that pkg-config finds."""
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import nanobind
from setuptools import Extension, setup

NANOBIND = Path(nanobind.__file__).parent
STABLE = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")  # nanobind's oldest stable ABI


def prefix():
    """Where libattn is installed."""
    given = os.environ.get("LIBATTN_PREFIX")
    if given:
        return Path(given).resolve()
    try:
        command = ["pkg-config", "--variable=prefix", "libattn"]
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit("libattn is not found: install it (meson install), or name its prefix in LIBATTN_PREFIX; "
                 "tools/wheel does both")
    return Path(asked.stdout.strip())


def version(installed):
    """The library's version, which is the package's."""
    header = (installed / "include/attn/version.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"LIBATTN_VERSION_{part}\s+(\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


INSTALLED = prefix()
LIBRARIES = next((path.parent for path in sorted(INSTALLED.rglob("libattn.so.0"))), None)
if LIBRARIES is None:
    sys.exit(f"{INSTALLED} has no libattn.so.0; LIBATTN_PREFIX is a prefix that meson install filled")
# A wheel of tools/wheel has the library inside; without it the installed one is found.
RUN_PATH = f"$ORIGIN/_prefix/{LIBRARIES.relative_to(INSTALLED)}" if os.environ.get("LIBATTN_WHEEL") else LIBRARIES
native = Extension(
    "libattn._native",
    sources=[f"src/{name}.cc"
             for name in ("array", "attention", "builder", "calls", "core", "graph", "handle", "module", "nanobind", "packed",
                          "plan", "serving", "tensors", "threads", "torch")],
    include_dirs=[str(INSTALLED / "include"),
                  *(str(NANOBIND / part) for part in ("include", "src", "ext/robin_map/include"))],
    depends=[f"src/{name}.h" for name in ("array", "calls", "graph", "handle", "plan", "serving", "tensors", "torch")],
    extra_objects=[str(LIBRARIES / "libattn.so.0")],
    extra_link_args=[f"-Wl,-rpath,{RUN_PATH}", "-Wl,-s"],
    extra_compile_args=["-std=c++17", "-O2", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"],
    py_limited_api=STABLE,
    define_macros=[("Py_LIMITED_API", "0x030C0000")] if STABLE else [],
)
setup(version=version(INSTALLED), ext_modules=[native],
      options={"bdist_wheel": {"py_limited_api": "cp312"}} if STABLE else {})
