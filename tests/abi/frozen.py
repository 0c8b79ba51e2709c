#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Releases that are kept, and this tree: what CONTRIBUTING.md (Versions) promises of their programs, libraries and plugins runs
together, and a plugin of another interface is refused with both numbers.

Usage: frozen.py [--sanitized] ARCHITECTURE ROOT LIBRARY CLIENT ATTN-CHECK ATTN-INFO|- PLUGIN...; CC is the compiler
Prints TAP. tests/abi/frozen/README.md says what is kept. --sanitized: what this tree built needs a sanitizer's program.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

import guard

SANITIZED = sys.argv[1] == "--sanitized"
ARCHITECTURE, ROOT, LIBRARY, CLIENT, CHECK, INFO, *PLUGINS = sys.argv[1 + SANITIZED:]
BACKENDS = {"cpu": ["cpu/flash-attn"], "own": ["own/mystyle", "own/borrowed"]}  # of others the name is enough
NO_SANITIZER = "a program without the sanitizer takes nothing that was built with it"
STRICT = "-std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only".split()
OLD_LIBRARY = "the C library is older than that of the release"
tap = guard.Tap()


def skip(text, reason):
    tap.count += 1
    print(f"ok {tap.count} - {text} # SKIP {reason}")


def interface(headers, library):
    """(major, minor) of the library or of the plugin interface."""
    with open(os.path.join(headers, "attn/version.h"), encoding="utf-8") as file:
        text = file.read()
    name = "LIBATTN_VERSION" if library else "ATTN_ABI"
    return tuple(int(re.search(rf"^#define {name}_{part} (\d+)$", text, re.M)[1]) for part in ("MAJOR", "MINOR"))


def runs(program, library):
    """Whether a program of one version is promised to run with a library of another."""
    return program == library if library[0] == 0 else program[0] == library[0] and program[1] <= library[1]


takes = runs  # plugins, by the interface's numbers; core/plugin/note.c refuses others


def dotted(version):
    return ".".join(map(str, version))


def run(command, library, plugins="", backend="", cache=""):
    """(exit code, standard output, standard error)"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATTN_")}
    # Beside a library that is kept no attn-probe lies: it belongs to the library.
    kept.update(LD_LIBRARY_PATH=library, ATTN_PLUGIN_PATH=plugins, ATTN_BACKEND=backend, ATTN_CACHE_DIR=cache, ATTN_LOG="error",
                ATTN_PROBE="auto" if os.path.exists(os.path.join(library, "attn-probe")) else "never")
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def plugin_name(path):
    return os.path.basename(path)[len("libattn-"):-len(".so")]


def with_interface(path, folder, old, new):
    """A copy of a plugin whose note has another interface."""
    with open(path, "rb") as file:
        data = file.read()
    head = struct.pack("<I", 1) + b"libattn\0" + struct.pack("<I", 1)  # type, owner, version of the note
    assert data.count(head + struct.pack("<II", *old)) == 1, path
    os.makedirs(folder, exist_ok=True)
    copy = os.path.join(folder, os.path.basename(path))
    with open(copy, "wb") as file:
        file.write(data.replace(head + struct.pack("<II", *old), head + struct.pack("<II", *new)))
    return copy


class Side:
    """A release that is kept, or this tree: its files and versions."""

    def __init__(self, name, headers, library, client, plugins, sanitized=False):
        self.name, self.library, self.client, self.plugins, self.sanitized = name, library, client, plugins, sanitized
        self.version, self.interface = interface(headers, True), interface(headers, False)
        self.headers = headers


def refusal(name, built_for, host):
    return f"plugin {name} was built for interface {dotted(built_for)}; this libattn speaks {dotted(host.interface)}"


def test_client(client, host, plugin_of, path, work, seen):
    """A program on a library with all backends of a plugin."""
    name = plugin_name(path)
    for backend in BACKENDS.get(name, [name]):
        text = f"program of {client.name}, library of {host.name}, {backend} of {plugin_of.name}"
        if (host.sanitized or plugin_of.sanitized) and not client.sanitized:
            skip(text, NO_SANITIZER)
            continue
        status, out, err = run([client.client] + ["unjudged"] * (name == "noop"), os.path.dirname(host.library),
                               os.path.dirname(path), backend, os.path.join(work, "cache"))
        if not takes(plugin_of.interface, host.interface):
            tap.tell(status == 3 and refusal(name, plugin_of.interface, host) in err, text + ": refused with both interfaces",
                     f"{status}: {err}")
            continue
        # The same numbers and optional calls on both libraries.
        before = seen.setdefault((client.name, plugin_of.name, backend), out)
        tap.tell(status == 0 and "numbers" in out and out == before, text, f"{status}: {out}{err}, before: {before}")


def test_refusals(old, new, work):
    """Plugins whose interface is not the host's, in each host those of the other side."""
    for host, other, path in ((new, old, old.plugins[0]), (old, new, new.plugins[0])):
        major, minor = host.interface
        for kind, wrong in (("a newer", (major, minor + 1)), ("an older", (major, minor - 1))):
            name = plugin_name(path)
            text = f"library of {host.name} refuses {name} of {other.name} with {kind} interface, by both numbers"
            if kind == "an older" and (major > 0 or minor == 0):
                continue  # from 1.0 on it is served
            client = old if host is old else new
            copy = with_interface(path, os.path.join(work, f"{host.name} {kind}"), other.interface, wrong)
            status, _, err = run([client.client], os.path.dirname(host.library), os.path.dirname(copy), name)
            refused = refusal(name, wrong, host)
            code = "ABI_TOO_NEW" if kind == "a newer" else "ABI_TOO_OLD"
            tap.tell(status == 3 and refused in err and code in err, text, f"{status}: {err}")


def test_sources(old, new):
    """Programs and plugins that were written for the headers of one side compile with those of the other."""
    ours, theirs = os.path.join(ROOT, "tests/abi/client.c"), os.path.join(old.headers, "../client.c")
    template = os.path.join(ROOT, "plugins/template/template.c")
    for source, name, promised, side in ((theirs, f"the program of {old.name}", runs(old.version, new.version), new),
                                         (ours, "the program of this tree", runs(new.version, old.version), old),
                                         (template, "plugins/template", takes(new.interface, old.interface), old)):
        if promised:
            done = subprocess.run([*os.environ.get("CC", "cc").split(), *STRICT, "-I" + side.headers, source],
                                  capture_output=True, text=True, check=False)
            tap.tell(done.returncode == 0, f"{name} compiles with the headers of {side.name}", done.stderr)


def test_tools(old, new, folder):
    """attn-check judges plugins that are kept; tools run on the library that is kept, if that has what they call."""
    # Kind abi holds plugins against the very headers, also from 1.0 on.
    kinds = ["--kind", "attention,query,serving", "--share", "1/64"]
    for path in old.plugins if takes(old.interface, new.interface) else []:
        status, out, err = run([CHECK, path, *kinds], os.path.dirname(new.library))
        judged = len(re.findall(r"^ok (?!.*# SKIP)", out, re.M))
        tap.tell(status == 0 and judged > 10, f"attn-check of this tree: {plugin_name(path)} of {old.name} computes what is right",
                 "\n# ".join([f"{status}: {err}"] + re.findall(r"^not ok.*", out, re.M)))
    if not takes(new.interface, old.interface):
        return
    has = set(guard.Elf(old.library).exports)
    for tool, arguments, wanted in ((CHECK, [new.plugins[0], "--kind", "attention", "--share", "1/64"], r"^ok "),
                                    (INFO, ["list"], r"cpu/flash-attn .*ready")):
        needed = set(re.findall(r" UND (attn_\w+)", guard.readelf("--dyn-syms", tool))) if tool != "-" else set("-")
        if needed <= has:
            status, out, err = run([tool, *arguments], folder, os.path.dirname(new.plugins[0]))
            tap.tell(status == 0 and re.search(wanted, out, re.M),
                     f"{os.path.basename(tool)} of this tree runs on the library of {old.name}", f"{status}: {out[-1000:]}{err}")


def test_release(old, new, work):
    if re.search(r"GLIBC_\S+' not found", run([old.client], os.path.dirname(old.library))[2]):
        skip(old.name, OLD_LIBRARY)
        return
    if old.version == new.version:
        tap.tell(old.interface == new.interface, f"plugin interface {dotted(new.interface)} is that of {old.name}",
                 f"{old.name} is kept with {dotted(old.interface)}. If it is not released yet: tools/abi --freeze; if it is, "
                 "another interface is for another minor in core/include/attn/version.h")
    if runs(old.version, new.version):
        headers = os.path.join(ROOT, "tests/abi/frozen", old.name, "include/attn")
        want, early = guard.declared(headers), guard.experimental(headers)
        before, now = guard.Elf(old.library).exports, guard.Elf(new.library).exports
        stable = sorted(set(want) - early - {guard.ENTRY})
        lost = [name for name in stable if name not in before or now.get(name, ())[:1] != before[name][:1]]
        tap.tell(len(stable) > 100 and not lost,
                 f"the {len(stable)} stable functions of {old.name} are exported, in their version", lost)
    seen = {}
    for host in (old, new):
        for client in (old, new):
            if runs(client.version, host.version):
                for plugin_of in (old, new):
                    for path in plugin_of.plugins:
                        if {client, host, plugin_of} != {new}:
                            test_client(client, host, plugin_of, path, work, seen)
    test_refusals(old, new, work)
    test_sources(old, new)
    test_tools(old, new, os.path.dirname(old.library))


def main():
    if ARCHITECTURE != "x86_64":
        print("1..0 # SKIP files of releases are kept for x86_64")
        return 0
    frozen = os.path.join(ROOT, "tests/abi/frozen")
    releases = sorted(name for name in os.listdir(frozen) if os.path.isdir(os.path.join(frozen, name)))
    tap.tell(releases, "releases are kept")
    with tempfile.TemporaryDirectory(prefix="attn-frozen-") as work:
        copies = []
        for path in PLUGINS:  # each alone in a folder
            copies.append(os.path.join(work, "new", plugin_name(path), os.path.basename(path)))
            os.makedirs(os.path.dirname(copies[-1]))
            shutil.copy(path, copies[-1])
        new = Side("this tree", os.path.join(ROOT, "core/include"), LIBRARY, CLIENT, copies, SANITIZED)
        for name in releases:
            kept, place = os.path.join(frozen, name), os.path.join(work, name)
            with tarfile.open(os.path.join(kept, "files.tar.xz")) as archive:
                archive.extractall(place)
            plugins = []
            for plugin in ("own", "device"):
                plugins.append(os.path.join(place, plugin, f"libattn-{plugin}.so"))
                os.makedirs(os.path.dirname(plugins[-1]))
                os.rename(os.path.join(place, os.path.basename(plugins[-1])), plugins[-1])
            old = Side(name, os.path.join(kept, "include"), os.path.join(place, "libattn.so.0"), os.path.join(place, "client"),
                       plugins)
            test_release(old, new, work)
    print(f"1..{tap.count}")
    return tap.failed > 0


sys.exit(main())
