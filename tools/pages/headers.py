#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the public headers as Doxygen reads them, prints a table of them, and names what they leave without a word.

usage: headers.py OUT HEADER...

The headers are the manual for those who open them, so they carry no markup. What a comment documents follows from its
place: above a declaration, behind one, alone between empty lines (the header as a whole), a line of dashes (a group of
functions). Lists (*.def) become enumerators with the texts of their lines. Lines keep their numbers.

Every declaration has a comment, but members of structs where name and struct say all. A parameter is documented if the
comment of its function names it, if its type is of the library, which has a comment of its own, or if the top of
attn.h says what it is in all functions.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.S)
DIVIDER = re.compile(r"/\* -{20,} (.*?) \*/")
ALIGNED = re.compile(r"(?:^ *\*   +.*\n)+", re.M)
EXPERIMENTAL = "ATTN_EXPERIMENTAL"
FORWARD = re.compile(r"struct \w+;$")
BODY = re.compile(r"^\{\n.*?^\}\n", re.M | re.S)
# A macro that makes an enumerator of each line of a list, and the list.
LIST = re.compile(r"^#define \w+\(name,.*?\) (\w*)##name = .*\n#include \"(attn/\w+\.def)\"\n", re.M)
LINE = re.compile(r"^ATTN_\w+\((\w+), (-?\d+), (.*)\)$", re.M)
FUNCTION = re.compile(r"^(?:ATTN_API|ATTN_PLUGIN_EXPORT|static inline) [^;{(]*?(\w+)\(([^;{]*?)\)(?=;|\n\{)", re.M)
# What else has a name: macros with a value that is no attribute, types and data.
NAMED = re.compile(r"^(?:#define (\w+)(?:\(.*?\))? +(?!_)|(?:struct|enum) (attn_\w+) \{|typedef struct \{[^}]*\} (\w+);"
                   r"|typedef [a-z][^;{]*?\(?\*?(\w+)\)?(?:\([^)]*\))?;|extern const .* (\w+);).*", re.M)


def enumerators(include):
    """What replaces a match of LIST: all on one line, and an empty one."""
    def of(match):
        items, text = [], (include / match[2]).read_text(encoding="utf-8")
        for name, value, rest in LINE.findall(text):
            texts = [text for text in re.findall(r'"((?:[^"\\]|\\.)*)"', rest) if text]
            items.append(f"{match[1]}{name} = {value}, /**< {'; '.join(texts)} */ ")
        if len(items) != len(re.findall(r"^ATTN_\w+\(", text, re.M)):
            sys.exit(f"{match[2]}: a line is of another form than {LINE.pattern}")
        return "".join(items) + "\n\n"
    return of


def with_tables(comment):
    """A comment whose aligned lines, lists but for those of dashes, stay as they are."""
    return ALIGNED.sub(lambda match: match[0] if re.search(r"^[ *]*- ", match[0], re.M) else
                       re.sub(r"\*  ( *)", r"*  <pre>   \1", match[0].rstrip(), count=1) + "</pre>\n", comment)


def documentation(text):
    """The text with each comment as what its place makes of it."""
    out, last, group, opened = [], 0, "", False
    bodies = [match.span() for match in BODY.finditer(text)]
    for match in COMMENT.finditer(text):
        comment, start, end = with_tables(match[0]), match.start(), match.end()
        before = text[text.rfind("\n", 0, start) + 1:start].strip()
        about = re.match(r"\n(?:(?=\n)|(struct \w+);|#ifdef (\w+))", text[end:])
        out.append(text[last:start])
        last = end
        divider = DIVIDER.match(comment)
        if "SPDX" in comment or FORWARD.match(before) or any(a <= start < b for a, b in bodies):
            out.append(comment)
        elif divider:
            out.append("/** @} */ " if group else "")
            group = divider[1] + (f" ({EXPERIMENTAL})" if f"#ifdef {EXPERIMENTAL}" in text[:start] else "")
            out.append(f"/** @name {group} */ /** @{{ */")
        elif before:
            out.append("/**<" + comment[2:])
        elif not opened:
            opened = True
            out.append("/**" + comment[2:-2] + "@file */")
        elif about:
            out.append(f"/** @details <b>{about[1] or about[2] or group}:</b>" + comment[2:-2] + "@file */")
        else:
            out.append("/**" + comment[2:])
    text = "".join(out) + text[last:]
    at = text.rfind("#ifdef __cplusplus")
    return text[:at] + "/** @} */ " + text[at:] if group else text


def conventions(text):
    """Names that the opening comment explains for all functions, below "Parameters"."""
    section = re.search(r"^ \* Parameters.*:\n((?: \*   .*\n)+)", text, re.M)
    return set(re.findall(r"^ \*   (\w+)  ", section[1], re.M)) if section else set()


def comment_above(text, at):
    """The comment that ends on the line before a place, or an empty text."""
    above = text[:at].removesuffix("\n")
    return above[above.rfind("/*"):] if above.endswith("*/") and not DIVIDER.match(above[above.rfind("/*"):]) else ""


def undocumented(text, known):
    """(place, what) of declarations and parameters that nothing explains."""
    for match in NAMED.finditer(text):
        name = next(filter(None, match.groups()))
        if not (name.startswith("ATTN__") or "/*" in match[0] or comment_above(text, match.start())):
            yield match.start(), name
    for match in FUNCTION.finditer(text):
        comment = comment_above(text, match.start())
        if not comment:
            yield match.start(), match[1]
        for parameter in COMMENT.sub("", match[2]).split(",") if comment else []:
            kind, _, name = " ".join(parameter.split()).rpartition(" ")
            name = name.lstrip("*")
            if name != "void" and "attn_" not in kind and name not in known and not re.search(rf"\b{name}\b", comment):
                yield match.start(), f"{name} of {match[1]}"


def main():
    out = pathlib.Path(sys.argv[1])
    headers = [pathlib.Path(name) for name in sys.argv[2:]]
    include = next(path.parents[1] for path in headers if path.name == "attn.h")
    known = conventions((include / "attn/attn.h").read_text(encoding="utf-8"))
    failed = functions = 0
    print("| header | what it has |\n| --- | --- |")
    for path in headers:
        text = LIST.sub(enumerators(include), path.read_text(encoding="utf-8"))
        for place, what in undocumented(text, known):
            print(f"{path}:{text.count(chr(10), 0, place) + 1}: no comment says what is {what}", file=sys.stderr)
            failed += 1
        if '.def"' in text:
            print(f"{path}: a list that is not expanded", file=sys.stderr)
            failed += 1
        functions += len(FUNCTION.findall(text))
        text = documentation(text)
        opening = re.sub(r"^ \*", "", re.search(r"/\*\*(.*?)@file", text, re.S)[1], flags=re.M)
        print(f"| `attn/{path.name}` | {re.match(r'.*?[.](?= |$)', ' '.join(opening.split()))[0]} |")
        (out / path.name).write_text(text, encoding="utf-8")
    if functions < 100:
        sys.exit(f"only {functions} functions were found")
    sys.exit(failed > 0)


main()
