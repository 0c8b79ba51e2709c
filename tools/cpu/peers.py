# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes of peers, each of which is kept alive and asked: libraries with different threads do not mix."""

import json
import os
import selectors
import subprocess
import tempfile
import time
from pathlib import Path

START_SECONDS, OPEN_SECONDS, SAMPLE_SECONDS = 180, 600, 300  # that an answer may take
CLOSE_SECONDS = 10  # until a process that was told to end is ended
NAMES = ("torch", "ggml", "vllm")  # in the order in which they are measured
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}  # nothing here needs a network


class Missing(Exception):
    """Why a peer is not there, or does not serve a case."""


class Process:
    """One peer with so many threads."""

    def __init__(self, kind, python, settings, folders=()):
        self.kind, self.rest = kind, b""
        env = {**os.environ, **QUIET, **dict.fromkeys(VARIABLES, str(settings["threads"]))}
        if folders:
            env["PYTHONPATH"] = os.pathsep.join([*map(str, folders), *filter(None, [env.get("PYTHONPATH")])])
        self.errors = tempfile.TemporaryFile()
        command = [str(python), str(Path(__file__).with_name("peer.py")), kind, json.dumps(settings)]
        try:
            self.child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=self.errors)
        except OSError as error:
            self.errors.close()
            raise Missing(f"{python}: {error.strerror}") from error
        try:
            self.about = self.answer(START_SECONDS)["about"]
        except BaseException:
            self.stop()
            raise

    def ask(self, request, seconds):
        try:
            self.child.stdin.write(json.dumps(request).encode() + b"\n")
            self.child.stdin.flush()
        except OSError:
            raise Missing(self.end()) from None
        return self.answer(seconds)

    def answer(self, seconds):
        """The next line of the process; raises Missing with what it says, or how it ended."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.stop()
                    raise Missing(f"gave no answer within {seconds} s")
                more = os.read(self.child.stdout.fileno(), 1 << 16)
                if not more:
                    raise Missing(self.end())
                self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        document = json.loads(line)
        if "missing" in document:
            raise Missing(document["missing"])
        return document

    @property
    def alive(self):
        return self.child.poll() is None

    def end(self):
        """How the process ended, with the last line that it wrote."""
        self.stop()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        code = self.child.returncode
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return f"its process ended with {how}" + (f": {lines[-1][:160]}" if lines else "")

    def open(self, case):
        return self.ask({"do": "open", "case": case.as_request()}, OPEN_SECONDS)

    def sample(self, seconds):
        return self.ask({"do": "sample", "seconds": seconds}, SAMPLE_SECONDS)["us"]

    def close_case(self):
        self.ask({"do": "close"}, OPEN_SECONDS)

    def stop(self):
        if self.child.stdin and not self.child.stdin.closed:
            try:
                self.child.stdin.close()
            except OSError:
                pass
        try:
            self.child.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Peers:
    """The peers of one number of threads. What ended is started again for the next case."""

    def __init__(self, wanted, settings, ways):
        """`ways`: for each kind its Python, its module folders and its own settings, or why it is not there."""
        self.settings, self.ways, self.processes, self.missing = settings, ways, {}, {}
        for kind in wanted:
            self.start(kind)
        self.absent = dict(self.missing)  # those that no case has to mention

    def start(self, kind):
        way = self.ways[kind]
        if isinstance(way, str):
            self.missing[kind] = way
            return
        python, folders, own = way
        try:
            self.processes[kind] = Process(kind, python, {**self.settings, **own}, folders)
        except Missing as reason:
            self.missing[kind] = str(reason)

    def about(self):
        return {kind: process.about for kind, process in self.processes.items()}

    def get(self, kind):
        """The process; raises Missing."""
        process = self.processes.get(kind)
        if process is not None and not process.alive:
            del self.processes[kind]
            process.stop()
            self.start(kind)
        if kind not in self.processes:
            raise Missing(self.missing[kind])
        return self.processes[kind]

    def stop(self):
        for process in self.processes.values():
            process.stop()
            process.errors.close()
        self.processes.clear()
