# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where a library of ggml's is found: a file, a folder, or wheels, which are unpacked and not installed."""

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NAME = re.compile(r"libggml-cpu[^/]*\.so(\.[0-9.]+)?")
DESCRIBE_SECONDS = 60


class Unpacked:
    """Wheels of a folder in a temporary one, as long as this object lives."""

    def __init__(self, wheels):
        self.folder = tempfile.TemporaryDirectory(prefix="cpu-bench-")
        self.path = Path(self.folder.name)
        for index, wheel in enumerate(wheels):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.path / str(index))

    def folders(self):
        """One for each wheel, as entries of a module path."""
        return sorted(self.path.iterdir())


def wheels_of(folder):
    return sorted(folder.glob("*.whl"))


def candidates(place):
    """Libraries below a folder: of one that is there under several names, the plain one."""
    found = [path for path in sorted(place.rglob("*.so*")) if NAME.fullmatch(path.name)]
    plain = {path.parent for path in found if path.suffix == ".so"}
    return [path for path in found if path.suffix == ".so" or path.parent not in plain]


def describe(path):
    """What a library says of itself, in a process of its own: two of them may not share one."""
    child = [sys.executable, str(Path(__file__).with_name("peer.py")), "describe", str(path)]
    try:
        out = subprocess.run(child, capture_output=True, text=True, timeout=DESCRIBE_SECONDS, check=False)
        return json.loads(out.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return {"missing": f"{path} cannot be asked what it is"}


def version_of(about):
    return tuple(int(part) for part in re.findall(r"[0-9]+", about["version"])[:3])


def find(given, unpacked):
    """The library to measure, of which there may be one for each kind of CPU: the newest, and of these the one that
    scores best here. Raises ValueError with the reason that there is none."""
    if given is not None and given.is_file():
        paths, where = [given], str(given)
    else:
        places = [given] if given is not None else [unpacked.path] if unpacked is not None else []
        if not places:
            raise ValueError("no library of ggml's was given: see --wheels and --ggml")
        paths, where = candidates(places[0]), "--ggml" if given is not None else "--wheels"
    if not paths:
        raise ValueError(f"{where} has no file libggml-cpu*.so")
    told = [describe(path) for path in paths]
    usable = [about for about in told if "missing" not in about and about["score"] != 0]
    if not usable:
        raise ValueError(next((about["missing"] for about in told if "missing" in about),
                              f"no library of {where} runs on this CPU"))
    return max(usable, key=lambda about: (version_of(about), about["score"] or 0, len(about["features"])))
