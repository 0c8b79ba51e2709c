# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every file that the documents name in backticks exists, and the site has a place for every document.

usage: test-paths.py ROOT

Reads docs/*.md, README.md, CONTRIBUTING.md and SECURITY.md. A path counts from the root, from core/include as in an #include, or from
a folder that the same row of a table, or the same paragraph, names. Words in capitals stand for something.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
ENDING = re.compile(r"\.(c|h|cc|cu|hip|def|md|py|sh|scd|txt|csv|map|build|html)$")
TOP = {path.name for path in ROOT.iterdir() if path.is_dir()}
# Pages about one folder name files from there.
HOMES = {"coverage.md": ["core"]}
# Where documents are that the site shows.
FOLDERS = ("clients", "docs", "examples", "plugins", "python", "tests")


def spans(text):
    """[(line, [code spans])] for each line of a table and each paragraph; blocks of code are left out."""
    text = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    line = 1
    for block in re.split(r"(?<=\n)(?=\n|\|)", text):
        if not block.startswith("    "):
            yield line + len(block) - len(block.lstrip("\n")), re.findall(r"`([^`]+)`", block)
        line += block.count("\n")


def looks_like_a_file(word):
    if not re.fullmatch(r"[\w.*/-]+", word) or re.search(r"\b[A-Z]{3,}\b(?!\.md)", word):
        return False
    return ENDING.search(word) is not None or "/" in word and word.split("/")[0] in TOP


def found(word, homes):
    return [path for home in homes for path in home.glob(word.strip("/"))] if word[0] not in "/." else []


def missing(page):
    """[line and word of every file that is not there], and how many were looked for."""
    homes = [ROOT, ROOT / "core/include", page.parent, *(ROOT / home for home in HOMES.get(page.name, []))]
    wrong, count = [], 0
    for line, words in spans(page.read_text(encoding="utf-8")):
        words = [word.split()[0] for word in words if word.strip()]
        near = {path if path.is_dir() else path.parent for word in words for path in found(word, homes)} - set(homes)
        for word in filter(looks_like_a_file, words):
            count += 1
            if not found(word, homes) and not found(word, near):
                wrong.append(f"{page.relative_to(ROOT)}:{line}: {word}")
    return wrong, count


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
total = failed = 0
for number, page in enumerate(PAGES, 1):
    wrong, count = missing(page)
    total += count
    failed += len(wrong) > 0
    print(f"{'not ' if wrong else ''}ok {number} - {page.relative_to(ROOT)} names {count} files, all of which exist")
    print("".join(f"# {line}\n" for line in wrong), end="")
failed += total < 150
print(f"{'not ' if total < 150 else ''}ok {len(PAGES) + 1} - names were found")
contents = (ROOT / "tools/pages/contents.md").read_text(encoding="utf-8").split()
documents = {*(ROOT / "docs").glob("*.md"),
             *(page for folder in FOLDERS for depth in ("", "*/", "*/*/") for page in (ROOT / folder).glob(depth + "README.md"))}
lost = sorted(str(page.relative_to(ROOT)) for page in documents if str(page.relative_to(ROOT))[:-3] not in contents)
failed += len(lost) > 0
print(f"{'not ' if lost else ''}ok {len(PAGES) + 2} - tools/pages/contents.md has all {len(documents)} documents")
print("".join(f"# {page}\n" for page in lost), end="")
print(f"1..{len(PAGES) + 2}")
sys.exit(failed != 0)
