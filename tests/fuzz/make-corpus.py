#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the corpus of one fuzz target together in the build directory.

Usage: make-corpus.py TARGET DIRECTORY DEPFILE MAKER [ARGUMENT...]

Its inputs are the seeds, which MAKER writes into the directory that is its last argument; what the fuzzer kept for
the code it reaches, in corpus-TARGET.tar; and single inputs that once broke something, corpus-TARGET/found-WHAT.
Writes DIRECTORY.list, the names of the inputs, and what it read into DEPFILE. An archive is packed anew, in its
folder, with
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 --format=ustar -cf corpus-TARGET.tar *
"""
import os
import shutil
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    target, directory, depfile, *maker = sys.argv[1:]
    archive = f"{HERE}/corpus-{target}.tar"
    singles = f"{HERE}/corpus-{target}"
    read = [HERE]  # changes where an archive or a folder of single inputs comes or goes
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    subprocess.run([*maker, directory], check=True)
    count = len(os.listdir(directory))
    if os.path.exists(archive):
        read.append(archive)
        with tarfile.open(archive) as tar:
            for member in tar:
                count += 1
                with open(f"{directory}/{os.path.basename(member.name)}", "wb") as file:
                    file.write(tar.extractfile(member).read())
    if os.path.isdir(singles):
        read.append(singles)
        for name in os.listdir(singles):
            count += 1
            read.append(f"{singles}/{name}")
            shutil.copy(read[-1], directory)
    names = sorted(os.listdir(directory))
    if len(names) != count:
        sys.exit(f"make-corpus.py: {target}: {count} inputs have {len(names)} names")
    with open(directory + ".list", "w", encoding="utf-8") as file:
        file.write("\n".join(names) + "\n")
    with open(depfile, "w", encoding="utf-8") as file:
        file.write(f"{directory}.list: {' '.join(path.replace(' ', chr(92) + ' ') for path in read)}\n")


main()
