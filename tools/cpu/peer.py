#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process of one peer: answers requests, a line of JSON each, from standard input on standard output.

peer.py KIND SETTINGS, where SETTINGS is an object: threads, seed, cold_bytes, bound, and of ggml the file. Threads of
OpenMP are set in the environment before. `peer.py describe FILE` tells about one library of ggml's and ends.
"""

import importlib
import json
import os
import sys

sys.dont_write_bytecode = True
KINDS = {"torch": "torch_peer", "ggml": "ggml_peer", "vllm": "vllm_peer"}


def reason(error):
    """The first line of what went wrong."""
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is not there for this Python; --python names another"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]


def serve(kind, settings, answer):
    try:
        peer = importlib.import_module(KINDS[kind]).Peer(settings)
        answer({"about": peer.about()})
    except Exception as error:  # whatever a package raises while it is loaded
        answer({"missing": reason(error)})
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "open":
                answer(peer.open(request["case"]))
            elif request["do"] == "sample":
                answer({"us": peer.sample(request["seconds"])})
            else:
                peer.close()
                answer({})
        except Exception as error:  # a peer that refuses a case is no reason to lose the rest
            answer({"missing": reason(error)})


def main():
    # What libraries print must not come between answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(document):
        out.write(json.dumps(document) + "\n")
        out.flush()

    kind, text = sys.argv[1:3]
    if kind == "describe":
        try:
            answer(importlib.import_module("ggml_library").describe(text))
        except ValueError as error:
            answer({"missing": reason(error)})
        return
    serve(kind, json.loads(text), answer)


if __name__ == "__main__":
    main()
