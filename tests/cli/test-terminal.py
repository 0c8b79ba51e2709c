# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn-info at a terminal: colour, widths, readers that go away; completion of all tools in bash, zsh and fish.

usage: test-terminal.py PLUGINS COMPLETION-DIRECTORY BUILD-ROOT ATTN-INFO TOOL...
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

PLUGINS, SCRIPTS, BUILD, INFO = sys.argv[1:5]
TOOLS = {os.path.basename(tool): tool for tool in sys.argv[4:]}
ESCAPE = "\033["
count = failed = 0


def check(good, name, more=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good and more:
        print("\n".join(f"# {line!r}" for line in str(more).splitlines()))


def environment(**variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_")}
    for name in ["NO_COLOR", "TERM", "PROMPT_COMMAND"]:
        kept.pop(name, None)
    if "ATTN_CACHE_DIR" in os.environ:
        kept["ATTN_CACHE_DIR"] = os.environ["ATTN_CACHE_DIR"]
    kept.update({"ATTN_PLUGIN_PATH": PLUGINS, **variables})
    return kept


class Terminal:
    """A program whose input and output are a terminal."""

    def __init__(self, words, **variables):
        self.said = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], words, environment(**variables))

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self, wanted=None, seconds=20.0):
        """Reads until `wanted` was said, or to the end; True if it was said."""
        end = time.monotonic() + seconds
        while wanted is None or wanted not in self.plain():
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                return False
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                piece = b""
            if not piece:
                return wanted is None
            self.said += piece.decode(errors="replace")
        return True

    def plain(self):
        """What was said, without the sequences that move a cursor or switch something."""
        return re.sub(r"\033\[[?0-9;]*[A-Za-z]|\r|\007", "", self.said)

    def close(self):
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def on_terminal(*arguments, **variables):
    terminal = Terminal([INFO, *arguments], **variables)
    terminal.read()
    return terminal.said, terminal.close()


def test_colour():
    for arguments in [["list"], ["matrix"], ["explain", "heads=8", "head_dim=64", "q=f16"]]:
        name = " ".join(arguments[:1])
        said, code = on_terminal(*arguments, TERM="xterm")
        check(code == 0 and ESCAPE in said, f"{name} is coloured on a terminal", said)
        plain = said.replace("\033[1m", "").replace("\033[32m", "").replace("\033[31m", "").replace("\033[0m", "")
        check(ESCAPE not in plain, f"{name} begins and ends colours with four sequences", said)
        for variables in [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}, {}]:
            said, code = on_terminal(*arguments, **variables)
            check(code == 0 and ESCAPE not in said, f"{name} has no colour with {variables or 'no TERM'}", said)
            check(said == plain, f"{name} says the same with {variables or 'no TERM'}", said)
        said, code = on_terminal(*arguments, TERM="xterm", NO_COLOR="")
        check(ESCAPE in said, f"an empty NO_COLOR is none for {name}", said)
        piped = subprocess.run([INFO, *arguments], env=environment(TERM="xterm"), capture_output=True, text=True)
        check(ESCAPE not in piped.stdout + piped.stderr, f"{name} has no colour in a pipe", piped.stdout)
    said, code = on_terminal("list", "--json", TERM="xterm")
    check(code == 0 and ESCAPE not in said, "JSON has no colour on a terminal", said)


def at_width(columns, arguments, **variables):
    """What a terminal of that many columns is sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen([INFO, *arguments], env=environment(**variables), stdout=slave, stderr=subprocess.DEVNULL) as run:
        os.close(slave)
        said = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            said += piece
        run.wait()
    os.close(master)
    return said.decode().replace("\r", "")


def test_widths():
    """Lines end where the terminal does, at spaces alone, and a path is told once."""
    problem = ["heads=32", "kv_heads=8", "head_dim=128", "q=bf16"]
    file = f"{PLUGINS}/libattn-cpu.so"
    cases = {
        "list": (["list"], {}),
        "list of what is not wanted": (["list"], {"ATTN_BACKEND": "cuda"}),
        "devices": (["devices"], {}),
        "caps": (["caps"], {}),
        "path": (["path"], {}),
        "env": (["env"], {"ATTN_BAKEND": "x", "ATTN_THREADS": "many"}),
        "env of one": (["env", "ATTN_PROBE"], {}),
        "why": (["why", "--stable", file], {}),
        "doctor": (["doctor"], {"ATTN_BAKEND": "x", "ATTN_BACKEND": "gpu"}),
        "version": (["version"], {}),
        "help": (["help", "explain"], {}),
        "explain": (["explain", *problem], {}),
        "explain of generic kernels": (["explain", *problem], {"ATTN_CPU_FLAGS": "none"}),
        "explain of a refusal": (["explain", "heads=8", "head_dim=63", "layout=paged-x", "q=f16"], {}),
        "explain of a wrong name": (["explain", *problem], {"ATTN_BACKEND": "gpu"}),
    }
    for name, (arguments, variables) in cases.items():
        said = {columns: at_width(columns, arguments, **variables) for columns in [60, 80, 160]}
        for columns, text in said.items():
            # A word that is longer than the line stands alone on it, behind a number or a dash at most.
            wide = [line for line in text.splitlines() if len(line) > columns and len(line.split()[-1]) + 30 < columns]
            check(text and not wide, f"{name} fits {columns} columns", "\n".join(wide))
            check(text.split() == said[160].split(), f"{name} breaks no word at {columns} columns", text)
        check(said[60].count("\n") >= said[160].count("\n"), f"{name} uses the width there is", said[160])
        paths = re.findall(r"/\S*libattn-\S*\.so", said[80])
        check(len(paths) == len(set(paths)), f"{name} tells a path once", said[80])
    narrow, wide = (at_width(columns, ["caps"]) for columns in [60, 160])
    check(max(map(len, narrow.splitlines())) <= 60 < 100 < max(map(len, wide.splitlines())) <= 160, "caps is as wide as the terminal", wide)
    check(at_width(0, ["caps"]) == at_width(80, ["caps"]), "a terminal without a width has 80 columns")
    piped = subprocess.run([INFO, "caps"], env=environment(), capture_output=True, text=True).stdout
    check(piped == at_width(80, ["caps"]), "a pipe has 80 columns", piped)


def test_pipes():
    """Nobody reads: quiet, and the exit code is the command's."""
    for handler in [signal.SIG_DFL, signal.SIG_IGN]:
        name = "ignored" if handler == signal.SIG_IGN else "not ignored"
        for arguments, wanted in [
            (["list"], 0),
            (["matrix", "--json"], 0),
            (["--help"], 0),
            (["explain", "heads=8", "head_dim=63", "layout=paged-x", "--json"], 1),
        ]:
            reader, writer = os.pipe()
            os.close(reader)
            result = subprocess.run(
                [INFO, *arguments],
                env=environment(),
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                restore_signals=False,
                preexec_fn=lambda: signal.signal(signal.SIGPIPE, handler),
            )
            os.close(writer)
            broken = "standard output" in result.stderr or "JSON" in result.stderr
            check(
                result.returncode == wanted and not broken,
                f"{' '.join(arguments)} without a reader, SIGPIPE {name}",
                f"exit {result.returncode}\n{result.stderr}",
            )
    line = f"set -o pipefail; '{INFO}' matrix --json | head -n 1; echo $?"
    result = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, text=True)
    check(result.stdout == "{\n0\n" and result.stderr == "", "attn-info | head -n 1", result.stdout + result.stderr)
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([INFO, "list"], env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    check(result.returncode == 1 and "No space" in result.stderr, "a full disk is still a failure", result.stderr)


def complete(*words, tool=INFO):
    return subprocess.run(
        [tool, "--complete", "--", *words], env=environment(), capture_output=True, text=True
    ).stdout.split()


def test_candidates():
    commands = complete("")
    check("list" in commands and "matrix" in commands and "rescan" in commands, "commands", commands)
    check(complete("env", "ATTN_PLUGIN") == ["ATTN_PLUGIN_PATH", "ATTN_PLUGIN_PATH_ADD"], "variables", complete("env", "ATTN_"))
    check(complete("help", "doc") == ["doctor"], "commands that have help", complete("help", ""))
    check(complete("e") == ["explain", "env", "exists"], "commands that begin with e", complete("e"))
    options = complete("--")
    check("--json" in options and "--stable" in options and "--all" in options, "options", options)
    check(complete("list", "--sta") == ["--stable"], "an option behind a command", complete("list", "--sta"))
    check(complete("--json", "expl") == ["explain"], "a command behind an option", complete("--json", "expl"))
    keys = complete("explain", "heads=8", "h")
    check(keys == ["head_dim="], "keys, but for those that are given", keys)
    values = complete("explain", "addr=")
    check(values == ["addr=dense", "addr=table", "addr=csr"], "values of a key", values)
    check(complete("explain", "heads=") == [], "a number has none", complete("explain", "heads="))
    names = complete("caps", "cpu")
    check("cpu" in names and "cpu/flash-attn" in names, "names of backends", names)
    check(complete("exists", "cpu/flashi") == ["cpu/flashinfer"], "one backend", complete("exists", "cpu/flashi"))
    check(complete("why", "/et") == [], "files are the shell's business", complete("why", "/et"))
    check(complete("list", "") == [], "list takes no argument", complete("list", ""))


def test_tools():
    """Every option of --help is offered, and no other; = stands where a value has to follow."""
    for name, tool in TOOLS.items():
        said = subprocess.run([tool, "--help"], env=environment(), capture_output=True, text=True).stdout
        helped = {f"--{option}{value}" for option, value in re.findall(r"^ {2,6}(?:-., )?--([a-z-]+)(=?)", said, re.M)}
        offered = complete("--", tool=tool)
        check(len(offered) > 4 and helped == set(offered), f"{name} offers the options of --help", helped ^ set(offered))
        wrong = subprocess.run([tool, "--json", "--complete"], env=environment(), capture_output=True, text=True)
        check(wrong.returncode == 2 and "--complete" in wrong.stderr, f"{name} wants --complete first", wrong.stderr)
    bench, judge, generate = (TOOLS.get(name) for name in ["attn-bench", "attn-check", "attn-generate"])
    said = subprocess.run([bench, "--help"], env=environment(), capture_output=True, text=True).stdout
    modes = re.findall(r"^ {2}([a-z]+) ", said.split("Modes:")[1], re.M)
    check(complete("", tool=bench) == modes, "attn-bench offers the modes of --help", complete("", tool=bench))
    check(complete("decode,pre", tool=bench) == ["decode,prefill"], "a mode behind a comma", complete("decode,pre", tool=bench))
    check(complete("decode,comp", tool=bench) == [], "compare stands alone")
    keys = complete("decode", "seqs=2", "se", tool=bench)
    check("seq_causal=" in keys and "seqs=" not in keys, "keys of a mode, but for those that are given", keys)
    keys = complete("ceilings", "", tool=bench)
    check(keys == ["threads=", "reps=", "cold="], "a mode has its own keys alone", keys)
    check(complete("compare", "", tool=bench) == [], "compare takes files")
    kinds = complete("--kind=attention,q", tool=judge)
    check(kinds == ["--kind=attention,query"], "kinds of checks", kinds)
    check(complete("-k", "ab", tool=judge) == ["abi"], "a kind behind a short option", complete("-k", "ab", tool=judge))
    check(complete("--cases", "1", "--sh", tool=judge) == ["--share="], "an option behind a value")
    check(complete("", tool=judge) == [], "plugins are the shell's business")
    replay = TOOLS.get("attn-replay")
    names = complete("--backend=cpu/flashi", tool=replay)
    check(names == ["--backend=cpu/flashinfer"], "backends to replay on", names)
    if generate:
        check(complete("--graph=", tool=generate) == ["--graph=on", "--graph=off"], "values of an option")
        check(complete("--kv=e5", tool=generate) == ["--kv=e5m2", "--kv=e5m2fnuz"], "types of a cache")
        check(complete("--q", "b", tool=generate) == ["bf16"], "types of queries")


LINES = [
    ("attn-info matr", "attn-info matrix"),
    ("attn-info --mark", "attn-info --markdown"),
    ("attn-info --json expl", "attn-info --json explain"),
    ("attn-info explain heads=8 alib", "attn-info explain heads=8 alibi="),
    ("attn-info explain alibi=dis", "attn-info explain alibi=distance"),
    ("attn-info exists cpu/flash-", "attn-info exists cpu/flash-attn"),
    ("attn-info why /etc/passw", "attn-info why /etc/passwd"),
    ("attn-bench decode,pref", "attn-bench decode,prefill"),
    ("attn-bench decode alibi=dis", "attn-bench decode alibi=distance"),
    ("attn-check --device", "attn-check --device-memory"),
    ("attn-check --kind=side", "attn-check --kind=side-effects"),
    ("attn-check /etc/passw", "attn-check /etc/passwd"),
    ("attn-replay --back", "attn-replay --backend="),
    ("attn-replay /etc/passw", "attn-replay /etc/passwd"),
    ("attn-generate --kv=e4m3f", "attn-generate --kv=e4m3fnuz"),
    ("attn-generate --model=/etc/passw", "attn-generate --model=/etc/passwd"),
]


def test_shell(name, words, prepare):
    """Types into an interactive shell; an echo before the line shows what Tab made of it."""
    path = ":".join([*map(os.path.dirname, TOOLS.values()), os.environ["PATH"]])
    terminal = Terminal(words, PATH=path, TERM="xterm", PS1="> ", HISTFILE="/dev/null", ZDOTDIR="/nonexistent")
    terminal.type(prepare + "; echo pre''pared\n")
    check(terminal.read("prepared"), f"{name} starts", terminal.said)
    for typed, wanted in LINES:
        if typed.split()[0] not in TOOLS:
            continue
        terminal.said = ""
        terminal.type(typed + "\t")
        terminal.read(wanted, 5)
        # To the front of the line, where an echo makes an argument of it.
        terminal.type("\001echo got: \n")
        good = terminal.read(f"\ngot: {wanted}", 5)
        rest = terminal.plain().rsplit("got: ", 1)[-1].splitlines()[:1]
        check(good and rest and rest[0].strip() == wanted, f"{name}: {typed} Tab", terminal.said)
    terminal.type("exit\n")
    terminal.read()
    terminal.close()


def test_fish(fish):
    """fish says itself what it would complete, each candidate with a description behind a tab or none."""
    path = ":".join([*map(os.path.dirname, TOOLS.values()), os.environ["PATH"]])
    scripts = pathlib.Path(BUILD) / "tools/completion"
    for typed, wanted in LINES:
        if typed.split()[0] not in TOOLS:
            continue
        script = f"source '{scripts}/{typed.split()[0]}.fish'; complete -C '{typed}'"
        run = subprocess.run([fish, "-N", "-c", script], env=environment(PATH=path), capture_output=True, text=True)
        words = [line.split("\t")[0] for line in run.stdout.splitlines()]
        check(wanted.split()[-1] in words, f"fish: {typed} Tab", run.stdout + run.stderr)


def skip(shell):
    global count
    count += 1
    print(f"ok {count} - {shell} # SKIP {shell} is not installed")


def test_completion():
    installed = json.loads((pathlib.Path(BUILD) / "meson-info/intro-installed.json").read_text(encoding="utf-8"))
    places = ["zsh/site-functions/_attn"]
    for name in TOOLS:
        places += [f"bash-completion/completions/{name}", f"fish/vendor_completions.d/{name}.fish"]
    missing = [place for place in places if not any(to.endswith("/share/" + place) for to in installed.values())]
    check(not missing, "completion is installed for every tool and shell", missing)
    test_shell("bash", ["bash", "--norc", "--noprofile", "-i"], f". '{SCRIPTS}/attn.bash'")
    zsh = shutil.which("zsh")
    if zsh is None:
        skip("zsh")
    else:
        test_shell(
            "zsh",
            [zsh, "-f", "-i"],
            f"PROMPT='> '; fpath=('{SCRIPTS}' $fpath); autoload -Uz compinit; compinit -D; bindkey -e; unsetopt auto_menu",
        )
    fish = shutil.which("fish")
    if fish is None:
        skip("fish")
    else:
        test_fish(fish)


test_colour()
test_widths()
test_pipes()
test_candidates()
test_tools()
test_completion()
print(f"1..{count}")
sys.exit(failed != 0)
