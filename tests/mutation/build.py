# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A build of a source tree, of which files are made and tests are run one by one."""
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import time

OPTIONS = ("-Dman=disabled", "-Dcuda=disabled", "-Dhip=disabled", "-Dopencl=disabled")
NOT_QUICK = {"model", "images", "repeats", "slow"}  # the suites that tools/check --quick leaves out
PRODUCTS = {"attn", "attn-cpu", "attn-probe"}  # targets that programs load or start
WAIT = 4  # times the seconds of a processor that a test may take, where others work too
NOT_OK = re.compile(rb"^(not ok\b|Bail out!)(?!.*#\s*(skip|todo))", re.MULTILINE | re.IGNORECASE)


def output_of(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=True, **more).stdout


def hash_of(name):
    if not os.path.isfile(name):
        return None
    with open(name, "rb") as file:
        return hashlib.sha256(file.read()).digest()


class Build:
    """The tests are those of tools/check --quick, or of some of its suites."""

    def __init__(self, source, folder, suites, *options):
        self.folder, self.suites = folder, suites
        if not os.path.exists(f"{folder}/build.ninja"):
            output_of("meson", "setup", folder, source, *OPTIONS, *options)
        output_of("ninja", "-C", folder, "build.ninja")
        with open(f"{folder}/meson-info/intro-targets.json", encoding="utf-8") as file:
            targets = {target["id"]: target for target in json.load(file)}
        with open(f"{folder}/meson-info/intro-tests.json", encoding="utf-8") as file:
            tests = json.load(file)
        self.products = {name for target in targets.values() if target["name"] in PRODUCTS
                         for name in target["filename"]}
        self.tests = {}
        for test in tests:
            its = {suite.split(":")[-1] for suite in test["suite"]}
            if not its & NOT_QUICK and (not suites or its & set(suites)):
                test["files"] = {name for target in test["depends"] for name in targets[target]["filename"]}
                self.tests[test["name"]] = test
        files = self.products.union(*(test["files"] for test in self.tests.values()))
        built = self.compile(files)
        if built.returncode != 0:
            raise SystemExit(f"{folder} does not build without a change:\n{built.stdout[-2000:]}")
        self.good = {name: hash_of(name) for name in files}

    def compile(self, files):
        return subprocess.run(["ninja", "-C", self.folder, *(os.path.relpath(name, self.folder) for name in files)],
                              capture_output=True, text=True, check=False)

    def is_changed(self, files):
        return any(hash_of(name) != self.good[name] for name in files)

    def passes(self, name, limit=None, **environment):
        """Whether a test passes; with a limit of a processor's seconds, it is ended there and at the first "not ok"."""
        test = self.tests[name]
        end = time.monotonic() + WAIT * (limit or test["timeout"])
        command = test["cmd"]
        if limit is not None:
            command = ["sh", "-c", f'ulimit -t {limit:.0f}; exec "$@"', "sh", *command]
        environment = {**os.environ, "ATTN_CACHE_DIR": f"{self.folder}/cache", "MALLOC_PERTURB_": "85", **test["env"],
                       **environment}
        with open(f"{self.folder}/{name}.log", "wb") as log, open(log.name, "rb") as told, subprocess.Popen(
                command, cwd=test["workdir"] or self.folder, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            line, passed, code = b"", True, None
            while code is None and time.monotonic() < end and (passed or limit is None):
                time.sleep(0.01)
                code = process.poll()
                lines, _, line = (line + told.read()).rpartition(b"\n")
                passed &= NOT_OK.search(lines) is None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return passed and code in (0, 77)
