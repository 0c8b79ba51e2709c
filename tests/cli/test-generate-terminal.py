# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn-generate at a terminal: the line of progress, and an interrupt in the middle of the texts.

usage: test-generate-terminal.py ATTN-GENERATE PLUGINS
"""

import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time

GENERATE, PLUGINS = sys.argv[1:3]
count = failed = 0


def check(good, name, more=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good:
        print("\n".join(f"# {line!r}" for line in str(more).splitlines()))


def environment(**variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_") and key != "TERM"}
    if "ATTN_CACHE_DIR" in os.environ:
        kept["ATTN_CACHE_DIR"] = os.environ["ATTN_CACHE_DIR"]
    return {**kept, "ATTN_PLUGIN_PATH": PLUGINS, **variables}


def read_all(fd):
    said = b""
    while select.select([fd], [], [], 60)[0]:
        try:
            piece = os.read(fd, 65536)
        except OSError:  # what a terminal says at its end
            break
        if not piece:
            break
        said += piece
    return said.decode(errors="replace")


def run(arguments, terminal_out, **variables):
    """Standard error is a terminal; standard output too, or a file. Returns what both received, and the code."""
    master, slave = pty.openpty()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [GENERATE, *arguments], stdin=subprocess.DEVNULL, stdout=slave if terminal_out else out, stderr=slave,
            env=environment(**variables))
        os.close(slave)
        said = read_all(master)
        os.close(master)
        code = child.wait()
        out.seek(0)
        return said, out.read().decode(), code


def test_progress(prompts):
    arguments = ["--toy", "--batch", prompts, "-n", "60", "--parallel", "2"]
    plain = subprocess.run([GENERATE, *arguments], env=environment(TERM="xterm"), capture_output=True, check=False)
    texts = plain.stdout.decode()
    check(plain.returncode == 0 and b"\r" not in plain.stderr and b"\033" not in plain.stderr,
          "nothing of it without a terminal", plain.stderr)
    said, out, code = run(arguments, False, TERM="xterm")
    check(code == 0 and out == texts, "the texts are the same", out)
    lines = [part for part in said.split("\r\033[K") if " waiting; " in part]
    check(len(lines) > 0 and all(" done, " in line and " running, " in line and " tokens/s; cache " in line
                                 for line in lines), "a line tells how far the batch is", said)
    check(said.rfind(" waiting; ") < said.rfind("\r\033[K") < said.rfind("model: "),
          "it is gone before the report", said)
    said, _, code = run(arguments, True, TERM="xterm")
    kept = "".join(part for part in said.replace("\r\n", "\n").split("\r\033[K") if " waiting; " not in part)
    check(code == 0 and kept.startswith(texts), "texts at the same terminal are whole", said)
    for variables in [{"TERM": "dumb"}, {}]:
        said, _, code = run(arguments, False, **variables)
        check(code == 0 and "\033" not in said, f"no line with {variables or 'no TERM'}", said)
    said, _, code = run(["--toy", "-p", "hello", "-n", "60"], False, TERM="xterm")
    check(code == 0 and "\033" not in said, "no line for one prompt", said)


def test_interrupt(prompts):
    child = subprocess.Popen([GENERATE, "--toy", "--batch", prompts, "-n", "4000", "--parallel", "2"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    begun = os.read(child.stdout.fileno(), 10)
    child.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = child.communicate(timeout=60)
    seconds = time.monotonic() - begin
    check(child.returncode == 1 and b"interrupted: 4 of 4 texts are not complete" in err and b"model: toy" in err,
          "an interrupt ends the texts, and the report comes all the same", err)
    check(begun == b"=== 1 ===\n"[: len(begun)] and out.endswith(b"\n") and seconds < 30,
          "what was there is printed", out[-200:])


with tempfile.TemporaryDirectory() as place:
    file = pathlib.Path(place, "prompts")
    file.write_text("hello\nwhat is this\nthe third one is longer than the others\nand a fourth\n")
    test_progress(str(file))
    test_interrupt(str(file))
print(f"1..{count}")
sys.exit(failed > 0)
