#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes one operator of the CPU plugin's reference kernel at a time; the quick checks must notice each.

mutate.py BUILD [NUMBER...]: BUILD is a build directory that is up to date. A change that computes the same as
before does not belong into the list; a text that is not found exactly once ends the program, so that the list
follows the code.
"""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

PLUGIN = "backends/cpu/libattn-cpu.so"
KERNEL = "backends/cpu/attention-c.c"
EMIT = "backends/cpu/emit.c"
MASK = "backends/cpu/mask.c"
WALK = "backends/cpu/walk.c"
VISIBLE = "backends/common/visible-range.h"
# What is compiled for a header: its only user in the plugin.
USERS = {VISIBLE: "backends/common/visible.c"}

# File, text, and what of it becomes what.
MUTANTS = [
    (KERNEL, "row->h = pass->head * run->group + index % run->group;", "%", "/"),
    (KERNEL, "cap > 0 ? cap * tanh(s / cap)", "/", "*"),
    (KERNEL, "return cap > 0 ?", "0", "1"),
    (KERNEL, "if (!covered || !row->mask.square || run->positions == NULL)", "square ||", "square &&"),
    (KERNEL, "*bias *= row->slope;", "*=", "+="),
    (KERNEL, "difference = -difference;", "-", "+"),
    (KERNEL, "*bias += row->slope * difference;", "+=", "-="),
    (KERNEL, "exp(row->most - most)", "row->most - most", "most - row->most"),
    (KERNEL, "row->l_total *= factor;", "*=", "+="),
    (KERNEL, "tile->key[begin] < row->lo", "<", "<="),
    (KERNEL, "most > row->most + SLACK", ">", "<"),
    (KERNEL, "l += (double)p;", "+=", "-="),
    (KERNEL, "row->tile[d] += p * v[d];", "*", "+"),
    (KERNEL, "row->l_total += row->l_span;", "+=", "="),
    (KERNEL, "row->total[d] += row->span[d];", "+=", "="),
    (KERNEL, "(float)(row->most + log(row->l_total))", "+", "-"),
    (KERNEL, "end % CPU_SPAN_KEYS == 0 || end == hi", "||", "&&"),
    (KERNEL, "lo = pass->row[r].lo < lo ?", "<", ">"),
    (KERNEL, "uint32_t cached = end < fresh ? end : fresh;", "<", ">"),
    (VISIBLE, "visible->causal != 0 && p + 1 < end", "&&", "||"),
    (VISIBLE, "end = p + 1;", "p + 1", "p"),
    (VISIBLE, "begin = p - visible->left;", "-", "+"),
    (VISIBLE, "end = p + visible->right + 1;", "right + 1", "right"),
    (WALK, "k[i] = k_at + i * run->k.token_stride;", "+", "-"),
    (WALK, "*token = key % run->block;", "%", "/"),
    (EMIT, "buffer[i] += weights[part] * o[i];", "*", "+"),
    (EMIT, "buffer[i] = o[d + i] * share;", "*", "/"),
    (EMIT, "sum = weigh(sink, most);", "weigh", "1 - weigh"),
    (MASK, "column >= 0 && column < mask->columns", ">=", ">"),
    (MASK, ">> (bit % 8) & 1", "%", "/"),
    (MASK, "value == lowest || value == -INFINITY", "||", "&&"),
]


def fail(text):
    print(f"mutate.py: {text}", file=sys.stderr)
    sys.exit(2)


def read_commands(build):
    """Source file, as the list names it, to its command of compilation."""
    with open(f"{build}/compile_commands.json", encoding="utf-8") as file:
        commands = json.load(file)
    source_root = os.path.realpath(f"{os.path.dirname(os.path.abspath(__file__))}/../..")
    wanted = {USERS.get(mutant[0], mutant[0]) for mutant in MUTANTS}
    found = {}
    for entry in commands:
        name = os.path.relpath(os.path.realpath(os.path.join(entry["directory"], entry["file"])), source_root)
        if name in wanted:
            found[name] = entry
    if wanted - set(found):
        fail(f"{build} does not compile {', '.join(sorted(wanted - set(found)))}")
    link = subprocess.run(["ninja", "-C", build, "-t", "commands", "-s", PLUGIN],
                          capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]
    return source_root, found, shlex.split(link)


class Builder:
    """Compiles one changed file and links it with the other objects of the build."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.root, self.commands, self.link = read_commands(build)

    def make(self, number, name, text, old, new):
        folder = f"{self.build}/mutation/{number}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{self.root}/{name}", encoding="utf-8") as file:
            source = file.read()
        if source.count(text) != 1:
            fail(f"{name} has {source.count(text)} times, not once: {text}")
        user = USERS.get(name, name)
        with open(f"{folder}/{os.path.basename(name)}", "w", encoding="utf-8") as file:
            file.write(source.replace(text, text.replace(old, new, 1)))
        changed, result = f"{folder}/{os.path.basename(user)}", f"{folder}/{os.path.basename(user)}.o"
        if user != name:  # beside the changed header, which it then includes
            shutil.copyfile(f"{self.root}/{user}", changed)
        entry = self.commands[user]
        command = shlex.split(entry["command"])
        original = command[command.index("-o") + 1]
        command = [changed if word == entry["file"] else word for word in command]
        for option in ("-o", "-MQ"):
            if option in command:
                command[command.index(option) + 1] = result
        if "-MF" in command:
            command[command.index("-MF") + 1] = result + ".d"
        command.insert(1, f"-iquote{os.path.dirname(self.root + '/' + name)}")
        self.run(command + ["-w", "-Wno-error", "-O2"])
        plugin = f"{folder}/libattn-cpu.so"
        link = [result if word == original else word for word in self.link]
        if original not in self.link:  # of the static library: taken before what it holds
            link.insert(next(i for i, word in enumerate(link) if word.endswith(".a")), result)
        link[link.index("-o") + 1] = plugin
        self.run(link)
        return plugin

    def run(self, command):
        run = subprocess.run(command, cwd=self.build, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            fail(f"{' '.join(command)}\n{run.stderr}")


def judge(builder, number):
    """What the checks say about a mutant, or None if it survives."""
    plugin = builder.make(number, *MUTANTS[number - 1])
    check = f"{builder.build}/tests/conformance/attn-check"
    options = [plugin, "--level", "none", "--quick", "--fail-fast"]
    for more in (["--kind", "attention", "--backend", "cpu/flash-attn"], []):
        run = subprocess.run([check, *options, *more], capture_output=True, text=True, errors="replace", check=False)
        failure = re.search(r"^not ok .*\n# (.*)", run.stdout, re.MULTILINE)
        if failure is not None:
            return failure[1]
        if run.returncode != 0:
            fail(f"mutant {number}: {run.stderr}")
    return None


def main():
    builder = Builder(sys.argv[1])
    numbers = [int(word) for word in sys.argv[2:]] or list(range(1, len(MUTANTS) + 1))
    killed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, failure in zip(numbers, pool.map(lambda n: judge(builder, n), numbers)):
            name, text, old, new = MUTANTS[number - 1]
            killed += failure is not None
            title = f"mutant {number} of {name}, {text} with {new} for {old}"
            print(f"{title}: {failure or 'SURVIVES'}", flush=True)
    print(f"{len(numbers)} mutants, {killed} killed")
    return 0 if killed == len(numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
