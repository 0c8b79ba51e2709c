# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mistakes of the first hour, each answered by one message of at most two lines that says what to do.

usage: test-first-errors.py [--update] GOLDEN FIRST-ERRORS ATTN-INFO PLUGINS MOCKS [ATTN-GENERATE]

GOLDEN holds the messages word for word; --update writes it anew.
"""

import pathlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

UPDATE = sys.argv[1] == "--update"
GOLDEN, PROGRAM, INFO, PLUGINS, MOCKS = map(pathlib.Path, sys.argv[1 + UPDATE : 6 + UPDATE])
GENERATE = pathlib.Path(sys.argv[6 + UPDATE]) if len(sys.argv) > 6 + UPDATE else None
REMEDY = re.compile(r"accepted|did you mean|needed|needs|give |set |say |rebuild|install|move it away|see |try |are cuda|or kv")

# What somebody does: a program's mistake, or a command, with variables of the environment.
MISTAKES = [
    ("a program without an element type", [PROGRAM, "no-dtype"], {}),
    ("a key with a typing error", [PROGRAM, "unknown-key"], {}),
    ("f32 memory for a bf16 problem", [PROGRAM, "f32-for-bf16"], {}),
    ("a struct without its size", [PROGRAM, "no-struct-size"], {}),
    ("more tokens than the problem allows", [PROGRAM, "too-many-tokens"], {}),
    ("a problem that wants a cache, and none", [PROGRAM, "no-cache"], {}),
    ("a backend that does not exist", [PROGRAM, "no-backend"], {"ATTN_BACKEND": "gpu"}),
    ("a backend with a typing error", [PROGRAM, "no-backend"], {"ATTN_BACKEND": "cpu/flash-atn"}),
    ("a plugin path without plugins", [PROGRAM, "no-backend"], {"ATTN_PLUGIN_PATH": "EMPTY"}),
    ("a plugin of an older interface", [PROGRAM, "no-backend"], {"ATTN_PLUGIN_PATH": "OLD"}),
    ("a file that is no plugin", [PROGRAM, "no-backend"], {"ATTN_PLUGIN_PATH": "TEXT"}),
    ("a command with a typing error", [INFO, "explian"], {}),
    ("an option that does not exist", [INFO, "--jsn"], {}),
    ("a variable with a typing error", [INFO, "exists", "cpu"], {"ATTN_BAKEND": "cpu"}),
]
if GENERATE is not None:
    MISTAKES.append(("a model that is not there", [GENERATE, "-m", "/nowhere/model.gguf", "-p", "x"], {}))


def message(command, variables, work):
    """The exit code and what is printed, without paths and times."""
    replace = {name: str(work / name.lower()) for name in ("EMPTY", "OLD", "TEXT")}
    own = {name: value for name, value in os.environ.items() if not name.startswith("ATTN_")}
    environment = {**own, "ATTN_PLUGIN_PATH": str(PLUGINS), "ATTN_CACHE_DIR": str(work / "cache"),
                   **{name: replace.get(value, value) for name, value in variables.items()}}
    result = subprocess.run([replace.get(str(word), str(word)) for word in command], capture_output=True, text=True,
                            check=False, env=environment, stdin=subprocess.DEVNULL)
    text = result.stderr.strip() or result.stdout.strip()
    text = re.sub(r"^\S+ libattn", "TIME libattn", text, flags=re.M)
    for path, name in ((str(work), "WORK"), (str(PLUGINS), "PLUGINS"), (str(MOCKS), "MOCKS")):
        text = text.replace(path, name)
    return result.returncode, text


def main():
    kept = dict(re.findall(r"^## (.*)\n\n((?:    .*\n)+)", GOLDEN.read_text(encoding="utf-8"), re.M)) if not UPDATE else {}
    page, count, failed = "", 0, 0
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        for folder in ("empty", "old", "text"):
            (work / folder).mkdir(mode=0o755)
        shutil.copy(MOCKS / "libattn-too-old.so", work / "old")
        (work / "text/libattn-text.so").write_text("no shared object\n", encoding="utf-8")
        for what, command, variables in MISTAKES:
            code, text = message(command, variables, work)
            lines = "".join(f"    {line}\n" for line in text.splitlines())
            page += f"## {what}\n\n{lines}\n"
            for good, rule in ((code != 0 or "variable" in what, "fails"), (len(text.splitlines()) <= 2, "two lines at most"),
                               (REMEDY.search(text), "says what to do"), (UPDATE or kept.get(what) == lines, "as kept")):
                count += 1
                failed += not good
                print(f"{'' if good else 'not '}ok {count} - {what}: {rule}")
                if not good:
                    print("".join(f"# {line}\n" for line in text.splitlines()))
    if UPDATE:
        GOLDEN.write_text(page.rstrip("\n") + "\n", encoding="utf-8")
    print(f"1..{count}")
    return failed != 0


sys.exit(main())
