#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the code objects of the HIP plugin: objects.py LLVM-BIN WANTED OBJECT...

An object is MODULE.ARCH.co, and MODULE.ARCH.report beside it is what backends/hip/code-object says of it. WANTED
names the kernels that a module has, and the matrix instructions: each kernel that is to have some has as many as its
tiles have products, on the architectures that have them, and no kernel has any elsewhere. None spills.
"""
import fnmatch
import os
import re
import subprocess
import sys

SHARED_MOST = 65536
ROWS = ("vgprs", "agprs", "sgprs", "shared", "scratch", "spilled_sgprs", "spilled_vgprs", "kernarg", "wave")


def lines_of(path):
    for line in open(path, encoding="utf-8"):
        words = line.split("#")[0].split()
        if words:
            yield words


def products(module, kernel, arch):
    """Matrix instructions of a kernel of tiles: products of blocks of 16 by 16 by 16, of scores and of results."""
    dk = int(module.split("_")[1])
    dv, blocks = 128 if dk == 192 else dk, int(re.search(r"_r(\d+)_", kernel)[1]) // 16
    halves = 2 if dv > 128 and not arch.startswith("gfx9") else 1  # waves of 32 lanes share 256 columns by two
    short = arch == "gfx908"  # whose instructions take 8 elements of bf16
    bf16 = kernel.endswith("_bf16")
    scores = blocks * dk // 16 * (2 if short and bf16 else 1)
    return scores + blocks * dv // 16 // halves * (2 if short and (bf16 or "kv8" in module) else 1)


class Wanted:
    """Lines "kernel MODULE NAME..." and "matrix ARCHS MODULES PATTERN KERNELS"."""

    def __init__(self, path):
        self.kernels, self.matrix = {}, []
        for words in lines_of(path):
            if words[0] == "kernel":
                self.kernels.setdefault(words[1], set()).update(words[2:])
            elif words[0] == "matrix":
                self.matrix.append(words[1:])
            else:
                sys.exit(f"{path}: '{words[0]}'; accepted: kernel, matrix")

    def pattern(self, arch, module, kernel):
        for archs, modules, pattern, kernels in self.matrix:
            if fnmatch.fnmatch(module, modules) and fnmatch.fnmatch(kernel, kernels) and arch in archs.split(","):
                return pattern
        return None


class Judge:
    def __init__(self, llvm, wanted):
        self.llvm, self.wanted = llvm, Wanted(wanted)
        self.bad, self.kernels, self.matrix = [], 0, {}

    def blame(self, text):
        self.bad.append(text)

    def report(self, path, module, arch):
        lines = list(lines_of(path))
        if lines[0] != ["target", "amdgcn-amd-amdhsa--" + arch]:
            self.blame(f"{path} is for {' '.join(lines[0][1:])}, not for {arch}")
        found = {words[0]: dict(zip(ROWS, map(int, words[1:]))) for words in lines[1:]}
        wanted = self.wanted.kernels.get(module)
        if wanted is None:
            self.blame(f"no kernels are known of module {module}")
        elif wanted != set(found):
            self.blame(f"{module} for {arch} lacks {sorted(wanted - set(found))} and has {sorted(set(found) - wanted)}")
        for kernel, is_of in found.items():
            self.resources(kernel, arch, is_of)
        return found

    def resources(self, kernel, arch, is_of):
        self.kernels += 1
        spills = [is_of["spilled_sgprs"], is_of["spilled_vgprs"], is_of["scratch"]]
        if any(spills):
            self.blame(f"{kernel} for {arch} spills {spills[0]} scalar and {spills[1]} vector registers and needs "
                       f"{spills[2]} bytes of scratch")
        if is_of["shared"] > SHARED_MOST:
            self.blame(f"{kernel} for {arch} has {is_of['shared']} bytes of LDS, {SHARED_MOST} are there")
        if is_of["wave"] != (64 if arch.startswith("gfx9") else 32):
            self.blame(f"{kernel} for {arch} has waves of {is_of['wave']}")

    def code(self, path, module, arch, kernels):
        text = subprocess.run([os.path.join(self.llvm, "llvm-objdump"), "-d", "--no-show-raw-insn", path], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        counts, kernel = {}, None
        for line in text.splitlines():
            head = re.match(r"[0-9a-f]+ <(\w+)>:", line)
            kernel = head[1] if head else kernel
            word = line.split(None, 1)[0] if line[:1] == "\t" and line.strip() else ""
            if re.match(r"v_(mfma|smfmac|wmma|swmmac|dot\d)", word):
                counts.setdefault(kernel, {}).setdefault(word, 0)
                counts[kernel][word] += 1
        for kernel in kernels:
            pattern, have = self.wanted.pattern(arch, module, kernel), counts.get(kernel, {})
            right = sum(count for word, count in have.items() if pattern and re.match(pattern, word))
            self.matrix[arch] = self.matrix.get(arch, 0) + right
            if pattern and pattern.startswith("v_dot"):
                if right == 0:
                    self.blame(f"{kernel} for {arch} has no {pattern}, but {have}")
            elif pattern and (right == 0 or right % products(module, kernel, arch) != 0):  # a loop may be there twice
                self.blame(f"{kernel} for {arch} has {right} {pattern}, its tiles have "
                           f"{products(module, kernel, arch)} products: {have}")
            # Compilers make dot products of sums by themselves.
            if any(not word.startswith("v_dot") and not (pattern and re.match(pattern, word)) for word in have):
                self.blame(f"{kernel} for {arch} has {have}; accepted: {pattern}")

    def judge(self, path):
        module, arch = os.path.basename(path)[:-len(".co")].rsplit(".", 1)
        self.code(path, module, arch, self.report(path[:-len(".co")] + ".report", module, arch))


def main():
    judge = Judge(*sys.argv[1:3])
    for path in sys.argv[3:]:
        judge.judge(path)
    for text in judge.bad:
        print(text)
    print(f"{judge.kernels} kernels looked at; matrix instructions: {judge.matrix}")
    return 1 if judge.bad or judge.kernels == 0 else 0


sys.exit(main())
