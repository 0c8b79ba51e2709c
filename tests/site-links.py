#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every link of a site leads to a file of it, and to an anchor that is there; addresses elsewhere are well formed.

usage: site-links.py DIRECTORY

Reads every page below DIRECTORY. Nothing is fetched.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(sys.argv[1]).resolve()


class Page(html.parser.HTMLParser):
    """The anchors and links of one page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = {"", "top"}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id" or key == "name" and tag == "a":
                self.anchors.add(value)
            elif key in ("href", "src") and value is not None:
                self.links.append((self.getpos()[0], value))


def fault(pages, page, link):
    """What is wrong with a link, or None."""
    parts = urllib.parse.urlsplit(link)
    if re.search(r"\s", link):
        return "has a space"
    if parts.scheme or parts.netloc:
        good = parts.scheme in ("http", "https") and re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", parts.netloc)
        return None if good or parts.scheme in ("data", "mailto", "javascript") else "is no address"
    path = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
    if not path.is_relative_to(ROOT) or not path.is_file():
        return "leads to nothing"
    if path in pages and urllib.parse.unquote(parts.fragment) not in pages[path].anchors:
        return "leads to an anchor that is not there"
    return None


pages = {path: Page(path) for path in sorted(ROOT.rglob("*.html"))}
count = failed = 0
for path, page in pages.items():
    for line, link in page.links:
        count += 1
        wrong = fault(pages, path, link)
        if wrong:
            failed += 1
            print(f"{path.relative_to(ROOT)}:{line}: {link} {wrong}")
print(f"{count} links in {len(pages)} pages, {failed} of them broken")
sys.exit(failed > 0 or count < 1000)
