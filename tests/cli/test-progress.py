# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn-check's line of progress: on a terminal, and nowhere else. And attn-bench's tables, as wide as the terminal.

usage: test-progress.py ATTN-CHECK PLUGIN.so CASES [ATTN-BENCH RESULTS.json]
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

COMMAND = [sys.argv[1], "--kind", "write,det", "--cases", sys.argv[3], "--backend", "cpu/flash-attn", "--level", "all", sys.argv[2]]
CLEAR = "\r\033[K"
count = failed = 0


def check(good, name, more=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good and more:
        print("\n".join(f"# {line!r}" for line in str(more).splitlines()[:20]))


def run(columns=80, out=None, command=COMMAND, **variables):
    """What a terminal on stderr was sent, and on stdout too unless `out` is a pipe; what the pipe got; the status."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    environment.pop("COLUMNS", None)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out or terminal, stderr=terminal, env=environment)
    os.close(terminal)
    sent = b""
    piped = b"" if out is None else child.stdout.read()
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # its other end is closed
            break
        if not piece:
            break
        sent += piece
    os.close(main)
    return sent.decode().replace("\r\n", "\n"), piped.decode(), child.wait()


plain = subprocess.run(COMMAND, capture_output=True, text=True)
check(plain.returncode == 0 and plain.stderr == "" and "\r" not in plain.stdout, "without a terminal there is no progress",
      plain.stderr)

sent, piped, status = run(out=subprocess.PIPE)
shown = sent.split(CLEAR)
check(status == 0 and piped == plain.stdout, "a file gets the lines of TAP alone", piped[:200])
check(shown[0] == "" and shown[-1] == "" and len(shown) > 2, "the line is written over, and gone at the end", sent)
check(all(re.fullmatch(r"(loading the plugin|[a-z-]+, kind [12] of 2): [0-9]+ cases, 0 failed, [0-9]+:[0-9]{2}", one)
          for one in shown[1:-1]), "it tells kind, cases, failures and time", sent)
check("\n" not in sent, "it is one line", sent)

narrow = run(columns=20, out=subprocess.PIPE)[0].split(CLEAR)
check(max(map(len, narrow)) == 19, "a narrow terminal gets what fits a line", narrow)

both, _, status = run()
left = "".join(line.rsplit(CLEAR, 1)[-1] for line in re.split(r"(?<=\n)", both))
check(status == 0 and left == plain.stdout, "lines of TAP on the same terminal are whole", left[:400])

check(run(out=subprocess.PIPE, TERM="dumb")[0] == "", "a dumb terminal gets none")
if len(sys.argv) > 4:
    for columns, titles in ((60, "case B / A share A share B"), (132, "case time A time B B / A share A share B")):
        table, _, status = run(columns, command=[sys.argv[4], "compare", sys.argv[5], sys.argv[5]])
        lines = table.splitlines()
        check(status == 0 and " ".join(lines[0].split()) == titles and max(map(len, lines)) <= columns,
              f"attn-bench fits a terminal of {columns} columns", table)
print(f"1..{count}")
sys.exit(failed != 0)
