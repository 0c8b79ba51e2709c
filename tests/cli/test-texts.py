# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The texts of errors and complaints in the sources: one spelling, and what is wrong comes with what is right.

usage: test-texts.py ROOT

Reads the arguments of every call that fails or complains in core/, backends/, plugins/, tools/ and examples/.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
CALLS = re.compile(r"\b(attn__fail|attn_util_fail|complain|failure_set|fail_at|invalid)\s*\(")
# Word for word the text of another project, which programs compare.
FOREIGN = ("Expected attn_backend name to be", "Chunked prefill is not supported with")
# Where texts report what arrays of a step say against each other: there is nothing to give instead.
STEPS = re.compile(r"backends/(?:common|serving)/(advance|builder-build|builder-create|serialise-\w+|slot-map|builder-advance-check)\.c:")
# What a text about a wrong argument has somewhere: what is accepted, needed or to be done.
HELP = re.compile(
    r"accept|need|must|give |leave |set it|say |did you mean|multiple|at most|at least|call attn_|is served|are served"
    r"|lower |see |;|but the plan|but the problem's|the plan's|up to|is NULL|only "
)
BEGINNINGS = re.compile(r"^(%|[a-z0-9'\"/\[-]|ALiBi|CPU|ELF|GGUF|JSON|PCRE2|ATTN_|TERM)")
FORBIDDEN = re.compile(r"\b([Pp]lease|[Ss]orry|[Oo]ops|illegal|[Ii]nvalid|[Bb]ad|[Uu]nexpected|failed to)\b|n't\b|  |!")
count = failed = 0


def check(good, name, more=()):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}")
    if not good:
        print("\n".join(f"# {line}" for line in more))


def arguments(text, start):
    """The arguments of a call from its opening bracket on: (string literals joined, everything else)."""
    depth, strings, code, i = 1, [], "", start
    while depth and i < len(text):
        if text[i] == '"':
            end = re.compile(r'"((?:[^"\\]|\\.)*)"').match(text, i)
            strings.append((end[1], code.count(",")))
            i = end.end()
            continue
        macro = re.compile(r"(?<![\w])[A-Z][A-Z0-9_]{3,}").match(text, i)
        if macro: # stands for a text where it is between texts
            strings.append((None, code.count(",")))
            code += macro[0]
            i = macro.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        code += text[i]
        i += 1
    return strings, code


def sentences():
    for room in ["core", "backends", "plugins", "tools", "examples"]:
        for path in sorted((ROOT / room).rglob("*.[ch]")):
            text = path.read_text(encoding="utf-8")
            for call in CALLS.finditer(text):
                strings, code = arguments(text, call.end())
                literal = {place for piece, place in strings if piece is not None}
                strings = [(piece or "~", place) for piece, place in strings if place in literal]
                if not strings or code.startswith(("struct", "const", "void")):
                    continue
                joined = {}
                for piece, place in strings:
                    joined[place] = joined.get(place, "") + piece
                longest = max(joined.values(), key=lambda piece: ("%" in piece, len(piece))).replace("~", "%s")
                if " " in longest and not longest.startswith(FOREIGN):
                    line = text.count("\n", 0, call.start()) + 1
                    yield f"{path.relative_to(ROOT)}:{line}: {longest}", longest, code


ALL = list(sentences())
check(len(ALL) > 300, "texts were found", [len(ALL)])
for rule, broken in [
    ("no text ends with a sign", lambda text, code: text[-1] in ".:,;" or text.endswith("\\n")),
    ("texts begin with a small letter, a value or a name", lambda text, code: not BEGINNINGS.match(text)),
    ("no text begs, judges or shouts", lambda text, code: FORBIDDEN.search(text)),
    ("no text spans lines", lambda text, code: "\\n" in text or "\\t" in text),
    ("a wrong argument comes with what is right", lambda text, code: "E_INVALID" in code and not HELP.search(text)),
]:
    wrong = [where for where, text, code in ALL if broken(text, code)]
    if rule.startswith("a wrong argument"):
        wrong = [where for where in wrong if not STEPS.match(where)]
    check(not wrong, rule, wrong)
page = (ROOT / "docs/problem.md").read_text(encoding="utf-8")
aliases = re.findall(r"^ATTN_(KEY|VALUE)_ALIAS\((\w+), (\w+)", (ROOT / "core/select/alias.def").read_text(), re.M)
rows = {"KEY": [row for row in page.splitlines() if row.startswith("| `")], "VALUE": page.splitlines()}
missing = [name for kind, name, own in aliases
           if not any(re.search(rf"\b{name}\b", row) and re.search(rf"\b{own}\b", row.split("|")[1])
                      for row in rows[kind] if row.startswith("| "))]
check(len(aliases) > 30 and not missing, "docs/problem.md has every name of other projects", missing)
print(f"1..{count}")
sys.exit(failed != 0)
