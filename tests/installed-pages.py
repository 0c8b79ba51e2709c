#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an installation tells its reader to read is installed.

usage: installed-pages.py PREFIX

Looks in headers, manual pages, the library and the documents for names such as docs/problem.md, and in the documents for
links. A name counts from share/doc/libattn or from the folder of its page. Folders of sources that are not installed
(tools, core, backends, examples/engine) are not looked for: pages that name them are about the sources.
"""

import pathlib
import re
import sys

PREFIX = pathlib.Path(sys.argv[1])
DOC = PREFIX / "share/doc/libattn"
NAME = re.compile(r"\b(?:docs|plugins|examples(?!/engine)|tests/own)/[\w./-]*\w")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
# docs/README.md is the map of the sources; the page of OpenCL is about the folder of its plugin.
SOURCES = {"docs/README.md", "docs/coverage.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/opencl.md"}

pages = [*(PREFIX / "include/attn").iterdir(), *PREFIX.glob("share/man/man*/*"), *PREFIX.glob("lib*/**/libattn.so"),
         *(path for path in DOC.rglob("*") if path.suffix in (".md", ".c", ".h", ".py"))]
count, wrong = 0, []
for page in pages:
    text = page.read_bytes().decode("utf-8", "replace").replace("\\-", "-").replace("\\&", "")
    names = set(LINK.findall(text)) if page.suffix == ".md" else set()
    if not page.is_relative_to(DOC) or str(page.relative_to(DOC)) not in SOURCES:
        names |= set(NAME.findall(text))
    for name in sorted(names):
        count += 1
        if not any((folder / name).exists() for folder in (DOC, page.parent)):
            wrong.append(f"{page.relative_to(PREFIX)}: {name}")
for name in ("LICENSE", "README.md", "CHANGELOG.md"):
    if not (DOC / name).is_file():
        wrong.append(f"share/doc/libattn: {name}")
for line in wrong:
    print(f"not installed, but named in {line}")
if count < 50:
    print(f"only {count} names were found in {len(pages)} files")
print(f"{count} names, {len(wrong)} of them not installed")
sys.exit(bool(wrong) or count < 50)
