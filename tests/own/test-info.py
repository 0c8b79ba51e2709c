# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn-info says of a vendor, flavours and devices that nothing of libattn knows by name.

usage: test-info.py ATTN-INFO PLUGINS
"""

import json
import os
import subprocess
import sys

INFO, PLUGINS = sys.argv[1:3]
PROBLEM = ["heads=4", "head_dim=32", "q=f32"]
count = failed = 0


def check(good, name, more=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good:
        print("\n".join(f"# {line}" for line in str(more).splitlines()))


def run(*arguments, wanted=None):
    """(exit status, standard output)"""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_") or key == "ATTN_CACHE_DIR"}
    kept.update({"ATTN_PLUGIN_PATH": PLUGINS, "ATTN_LOG": "error"}, **({"ATTN_BACKEND": wanted} if wanted else {}))
    done = subprocess.run([INFO, *arguments], env=kept, encoding="utf-8", check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def test_commands():
    text = run("list")[1]
    check(all(f"own/{name} shelf:0 ready" in " ".join(text.split()) for name in ("mystyle", "borrowed")), "list", text)
    text = run("devices")[1]
    check("shelf:0: a shelf in host memory" in text and "backends: own/mystyle, own/borrowed" in " ".join(text.split()), "devices",
          text)
    status, text = run("explain", *PROBLEM, wanted="own/mystyle")
    check(status == 0 and text.startswith("own/mystyle on shelf:0\n") and "attention_f32_shelf" in text, "explain", text)
    status, text = run("explain", "heads=4", "head_dim=32", "q=bf16", wanted="own")
    check(status != 0 and "q: only f32 is served" in text, "explain why not", text)
    text = run("matrix", wanted="own")[1]
    check("own/mystyle on shelf:0" in text and "own/borrowed on shelf:0" in text, "matrix", text)
    text = run("--complete", "--", "caps", "own")[1]
    check(text.split() == ["own", "own/mystyle", "own/borrowed"], "complete", text)


def test_names():
    for wanted, winner in (("own/mystyle", "own/mystyle"), ("mystyle", "own/mystyle"), ("MyStyle", "own/mystyle"),
                           ("borrowed", "own/borrowed"), ("own", "own/borrowed"), ("none-such,mystyle", "own/mystyle")):
        status, text = run("explain", "--json", *PROBLEM, wanted=wanted)
        effective = json.loads(text)["effective"] if status == 0 else None
        check(effective == winner, f"ATTN_BACKEND={wanted} takes {winner}", text)
    for wanted, near in (("own/mystile", "own/mystyle"), ("mystlye", "mystyle"), ("onw", "own")):
        status, text = run("explain", *PROBLEM, wanted=wanted)
        check(status != 0 and f"the nearest name is '{near}'" in " ".join(text.split()), f"{wanted} is told of {near}",
              text)
    status, text = run("explain", *PROBLEM, wanted="own/other")
    check(status != 0 and "offers no 'own/other'" in " ".join(text.split()), "a flavour that the vendor has not", text)


test_commands()
test_names()
print(f"1..{count}")
sys.exit(failed != 0)
