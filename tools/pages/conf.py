# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How Sphinx makes the site of a copy of the documents. tools/site runs it, and says by variables where the API is.

Documents name pages, headers, functions and manual pages in backticks, as readers of the sources want it. Here such a
name is a link too.
"""

import os
import posixpath
import xml.etree.ElementTree

from docutils import nodes

project = "libattn"
release = version = os.environ["SITE_VERSION"]
html_title = f"libattn {release}"
extensions = ["myst_parser"]
root_doc = "README"
# What the site itself is made of, and what a test compares with.
exclude_patterns = ["tools/pages", "tests/cli/first-errors.md"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
highlight_language = "none"
# Anchors as code hosts make them.
myst_heading_anchors = 4


def api_names(tags):
    """{name: page and anchor} of what Doxygen's tag file lists; headers by their #include."""
    names = {}
    for compound in xml.etree.ElementTree.parse(tags).getroot():
        page = compound.findtext("filename").removesuffix(".html") + ".html"
        if compound.get("kind") == "file":
            names["attn/" + compound.findtext("name")] = page
        elif compound.get("kind") == "struct":
            names[compound.findtext("name")] = page
        if compound.get("kind") == "file":
            for member in compound.iter("member"):
                names[member.findtext("name")] = f"{member.findtext('anchorfile')}#{member.findtext('anchor')}"
            for value in compound.iter("enumvalue"):
                names[value.text] = f"{value.get('anchorfile')}#{value.get('anchor')}"
    return names


API = {name: "api/" + place for name, place in api_names(os.environ["SITE_TAGS"]).items()}


def target(app, page, text):
    """Where the site has what a page names, from its root, or None."""
    words = text.split()
    if len(words) > 1 and words[0] == "man":
        words = [f"man/{words[-1]}.{words[1] if words[1].isdigit() else 1}"]
    name = words[-1].rstrip("/") if len(words) == 1 or words[:-1] in (["struct"], ["enum"]) else ""
    for folder in ("", posixpath.dirname(page)):
        path = posixpath.normpath(posixpath.join(folder, name))
        for document in (path.removesuffix(".md"), path + "/README"):
            if name and document in app.env.found_docs and document != page and not path.endswith("README"):
                return app.builder.get_target_uri(document)
    return API.get(name.removeprefix("core/include/"))


def link_names(app, doctree, page):
    """Makes a link of each name in backticks that is no part of one."""
    for literal in list(doctree.findall(nodes.literal)):
        place = target(app, page, literal.astext())
        if place and not isinstance(literal.parent, (nodes.reference, nodes.title)):
            uri = posixpath.relpath(place, posixpath.dirname(page) or ".")
            literal.replace_self(nodes.reference("", "", literal.deepcopy(), internal=True, refuri=uri))


def setup(app):
    app.connect("doctree-resolved", link_names)
