# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every command of attn-info over mock plugins, word for word, with its exit code.

usage: test-golden.py [--update] GOLDEN ATTN-INFO MOCKS SELECT-MOCKS NOISY ABI

GOLDEN has one file a case: the command line, the exit code, standard output, standard error. After a text was
changed on purpose, the same command line with --update writes the files anew; read the difference before it is
committed.
"""

import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

UPDATE = sys.argv[1] == "--update"
os.environ.pop("COLUMNS", None)
GOLDEN, INFO, MOCKS, SELECT, NOISY = map(pathlib.Path, sys.argv[1 + UPDATE : 6 + UPDATE])
ABI = sys.argv[6 + UPDATE]

# What lies in the directory of a case: name of the file, where it is copied from.
WORLDS = {
    "devices": {
        "gpu": SELECT / "libattn-gpu.so",
        "gpub": SELECT / "libattn-gpub.so",
        "host": SELECT / "libattn-host.so",
        "nodev": SELECT / "libattn-nodev.so",
        "nodrv": SELECT / "libattn-nodrv.so",
    },
    "faults": {
        "a-abort": MOCKS / "libattn-trouble-abort.so",
        "b-good": MOCKS / "libattn-good.so",
        "c-second": MOCKS / "libattn-second.so",
        "d-no-note": MOCKS / "libattn-no-note.so",
        "e-too-new": MOCKS / "libattn-too-new.so",
        "f-needs-library": MOCKS / "libattn-needs-library.so",
        "g-text": b"no shared object\n",
        "h-empty": b"",
        "noisy": NOISY / "libattn-noisy.so",
    },
    "speeds": {
        "host": SELECT / "libattn-host.so",
        "slow": SELECT / "libattn-slow.so",
        "unsaid": SELECT / "libattn-unsaid.so",
    },
    "hip": {"hip": SELECT / "libattn-hip.so"},
    "hip-nodev": {"hip": SELECT / "libattn-hip-nodev.so"},
    "refused": {"text": b"no shared object\n", "no-note": MOCKS / "libattn-no-note.so"},
    "rows": {"rows": SELECT / "libattn-rows.so"},
    "empty": {},
}

# name: (world, arguments, variables)
CASES = {
    "list": ("devices", "list", {}),
    "list-faults": ("faults", "list", {}),
    "list-again": ("faults", "list", {}),
    "rescan": ("faults", "rescan", {}),
    "list-refused": ("refused", "", {}),
    "list-empty": ("empty", "list", {}),
    "list-wanted": ("devices", "list", {"ATTN_BACKEND": "host", "ATTN_DISABLE": "gpu/*"}),
    "devices": ("devices", "devices", {}),
    "devices-none": ("refused", "devices", {}),
    "caps-none": ("refused", "caps", {}),
    "rescan-none": ("refused", "rescan", {}),
    "caps": ("devices", "caps", {}),
    "caps-name": ("devices", "caps GPU/flash_attn", {}),
    "caps-generic": ("speeds", "caps", {}),
    "caps-unknown": ("devices", "caps nosuch", {}),
    "matrix": ("devices", "matrix", {}),
    "matrix-faults": ("faults", "matrix", {}),
    "matrix-markdown": ("devices", "matrix --markdown", {}),
    "matrix-generic": ("speeds", "matrix", {"ATTN_BACKEND": "slow,unsaid,host", "ATTN_DISABLE": "*/flashinfer"}),
    "matrix-none": ("empty", "matrix", {}),
    "explain": ("devices", "explain heads=8 head_dim=64 q=bf16", {}),
    "explain-all": ("devices", "explain --all heads=8 head_dim=64 q=bf16", {}),
    "explain-nobody": ("devices", "explain heads=8 head_dim=512 q=bf16", {}),
    "explain-fallback": ("devices", "explain heads=8 head_dim=200 q=bf16", {}),
    "explain-strict": ("devices", "explain heads=8 head_dim=200 q=bf16", {"ATTN_STRICT": "1"}),
    "explain-wanted": ("devices", "explain heads=8 head_dim=64 q=bf16", {"ATTN_BACKEND": "gpux,nodrv,host"}),
    "explain-hip": ("hip", "explain type=encoder_decoder heads=8 head_dim=64 q=bf16", {"ATTN_BACKEND": "hip"}),
    "explain-hip-nodev": ("hip-nodev", "explain type=encoder heads=8 head_dim=64 q=bf16", {"ATTN_BACKEND": "hip"}),
    "explain-hip-served": ("hip", "explain type=encoder_only heads=8 head_dim=64 q=bf16", {"ATTN_BACKEND": "hip"}),
    "explain-empty": ("empty", "explain heads=8 head_dim=64 q=bf16", {}),
    "explain-key": ("devices", "explain heads=8 head_dims=64 q=bf16", {}),
    "explain-generic": ("speeds", "explain --all heads=8 head_dim=128 q=bf16", {"ATTN_BACKEND": "slow,unsaid,host"}),
    "explain-generic-strict": ("speeds", "explain heads=8 head_dim=128 q=bf16", {"ATTN_BACKEND": "slow", "ATTN_STRICT": "2"}),
    "explain-value": ("devices", "explain heads=8 head_dim=64 q=f61", {}),
    "explain-nothing": ("devices", "explain", {}),
    "why": ("devices", "why @DIR@/libattn-gpu.so", {}),
    "why-crash": ("faults", "why @DIR@/libattn-a-abort.so", {}),
    "why-note": ("faults", "why @DIR@/libattn-d-no-note.so", {}),
    "why-interface": ("faults", "why @DIR@/libattn-e-too-new.so", {}),
    "why-library": ("faults", "why @DIR@/libattn-f-needs-library.so", {}),
    "why-noisy": ("faults", "why @DIR@/libattn-noisy.so", {}),
    "why-absent": ("faults", "why @DIR@/libattn-nosuch.so", {}),
    "explain-rows": ("rows", "explain heads=8 head_dim=64 q=bf16", {}),
    "explain-rows-refused": ("rows", "explain heads=8 head_dim=512 q=bf16", {}),
    "explain-untyped": ("devices", "explain heads=8 head_dim=64", {}),
    "explain-gpu": ("hip", "explain heads=8 head_dim=64 q=f16", {"ATTN_BACKEND": "gpu"}),
    "env-one": ("devices", "env ATTN_LOG", {}),
    "env-unknown": ("devices", "env ATTN_LOGS", {}),
    "doctor": ("devices", "doctor", {}),
    "doctor-faults": ("faults", "doctor", {"ATTN_BAKEND": "x", "ATTN_STRICT": "maybe"}),
    "doctor-generic": ("rows", "doctor", {}),
    "doctor-path": ("devices", "doctor", {"ATTN_PLUGIN_PATH": "/nonexistent/attn"}),
    "doctor-empty": ("empty", "doctor", {}),
    "version": ("devices", "version", {}),
    "help": ("devices", "help", {}),
    "help-explain": ("devices", "help explain", {}),
    "help-unknown": ("devices", "help explian", {}),
    "env": ("devices", "env", {"ATTN_BACKEND": "host", "ATTN_STRICT": "maybe", "ATTN_BAKEND": "x", "ATTN_HOST_X": "1"}),
    "path": ("devices", "path", {}),
    "path-missing": ("devices", "path", {"ATTN_PLUGIN_PATH": "/nonexistent/attn"}),
    "exists": ("devices", "exists host", {}),
    "exists-not": ("devices", "exists nodrv", {}),
    "usage-command": ("devices", "lst", {}),
    "usage-option": ("devices", "list --jsno", {}),
    "usage-all": ("devices", "list --all", {}),
}

count = failed = 0


def check(good, name, more=()):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good:
        print("\n".join(f"# {line}" for line in more))


def build(world, place):
    """A directory whose name is as long as any other one's, so that lines break at the same words."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="attn-", dir=place))
    for name, origin in WORLDS[world].items():
        path = directory / f"libattn-{name}.so"
        if isinstance(origin, bytes):
            path.write_bytes(origin)
        else:
            shutil.copyfile(origin, path)
        path.chmod(0o644)
    return str(directory)


def settle(text, directory):
    """What may differ from run to run or from version to version, replaced by a word."""
    text = text.replace(directory, "@DIR@")
    text = re.sub(r"((?:speaks|interface:|library:|\bby|interface)\s+)" + re.escape(ABI) + r"\b", r"\1@ABI@", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b", "(time)", text)
    text = re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} libattn ", "(time) libattn ", text, flags=re.M)
    text = re.sub(r"(attn-info \(libattn\)) [0-9.]+$", r"\1 @VERSION@", text, flags=re.M)
    text = re.sub(r"^plugin directory .*$", "plugin directory @PLUGINS@", text, flags=re.M)
    text = re.sub(r"install a\s+plugin into\s+\S+,\s+or\s+name\s+its\s+directory", "install a plugin into @PLUGINS@, or name its directory", text)
    return text


def start(case, directory, cache, before=(), after=()):
    _, arguments, variables = CASES[case]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_")}
    environment.update({"ATTN_PLUGIN_PATH": directory, "ATTN_CACHE_DIR": cache, "LC_ALL": "C", **variables})
    words = [*before, *arguments.replace("@DIR@", directory).split(), *after]
    return subprocess.run([INFO, *words], env=environment, capture_output=True, encoding="utf-8")


def run(case, directory, cache):
    _, arguments, variables = CASES[case]
    result = start(case, directory, cache, before=["--stable"])
    return settle(
        f"$ {''.join(f'{k}={v} ' for k, v in variables.items())}attn-info {arguments}\n[exit {result.returncode}]\n"
        f"{result.stdout}--- standard error\n{result.stderr}",
        directory,
    ).replace(cache, "@CACHE@"), result


def check_forms(case, result, directory, cache):
    """The same command with its option behind it, and as JSON."""
    after = start(case, directory, cache, after=["--stable"])
    same = (after.returncode, after.stdout) == (result.returncode, result.stdout)
    check(same, f"{case} with the option behind the command", [after.stdout, after.stderr])
    document = start(case, directory, cache, after=["--stable", "--json"])
    again = start(case, directory, cache, before=["--json", "--stable"])
    try:
        whole = document.stdout == "" or json.loads(document.stdout)["schema_version"] == 1
    except ValueError:
        whole = False
    check(whole, f"{case} as JSON is one document, or nothing", [document.stdout])
    check(document.returncode == result.returncode, f"{case} as JSON exits {result.returncode}", [document.stderr])
    check(document.stdout == again.stdout, f"{case} as JSON is the same twice", [again.stdout])


with tempfile.TemporaryDirectory(prefix="attn-golden-", dir="/tmp") as place:
    directories = {world: build(world, place) for world in WORLDS}
    cache = str(pathlib.Path(place) / "cache")
    os.mkdir(cache, 0o700)
    for case, (world, arguments, _) in CASES.items():
        said, result = run(case, directories[world], cache)
        path = GOLDEN / f"{case}.txt"
        if UPDATE:
            path.write_text(said, encoding="utf-8")
        wanted = path.read_text(encoding="utf-8") if path.exists() else ""
        difference = difflib.unified_diff(wanted.splitlines(), said.splitlines(), "golden", "said", lineterm="")
        check(said == wanted, f"{case}: {arguments or 'without a command'}", difference)
        wide = [line for line in result.stdout.splitlines() if len(line) > 80 and " " in line.strip()]
        check("matrix-markdown" in case or not wide, f"{case} fits 80 columns", wide)
        # A file that crashes is in quarantine the next time: that world is not the same twice.
        if world != "faults" and "--markdown" not in arguments:
            check_forms(case, result, directories[world], cache)
    known = set(CASES)
    commands = subprocess.run([INFO, "--complete", "--", ""], capture_output=True, encoding="utf-8").stdout.split()
    silent = [c for c in commands if not any((CASES[case][1].split() or ["list"])[0] == c for case in CASES)]
    check(len(commands) > 5 and not silent, "every command has a case", silent)
    strangers = sorted(path.name for path in GOLDEN.glob("*") if path.stem not in known)
    check(not strangers, "every golden file has a case", strangers)
print(f"1..{count}")
sys.exit(failed != 0)
