#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints wordpiece-table.c: what uncased WordPiece vocabularies make of each character, by Unicode's own data."""
import unicodedata

HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic


def fold(code):
    """Text for a character: controls and accents vanish, white space becomes a blank, letters become small."""
    char = chr(code)
    kind = unicodedata.category(char)
    if char in "\t\n\r" or kind in ("Zs", "Zl", "Zp"):
        return " "
    if code in (0, 0xFFFD) or kind in ("Cc", "Cf", "Co"):
        return ""
    bare = (c for c in unicodedata.normalize("NFD", char) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in bare)


def stretches(pairs):
    """Cuts (code, result) pairs into (first, count, step, result, result's step), greedily."""
    at = 0
    while at < len(pairs):
        best = (1, 1, 0)
        for step in (1, 2):
            for result_step in (0, 1, 2):
                end = at
                while end + 1 < len(pairs) and pairs[end + 1] == (pairs[end][0] + step, pairs[end][1] + result_step):
                    end += 1
                if end - at + 1 > best[0]:
                    best = (end - at + 1, step, result_step)
        yield pairs[at][0], best[0], best[1], pairs[at][1], best[2]
        at += best[0]


def ranges(codes):
    first = last = None
    for code in codes:
        if last is not None and code == last + 1:
            last = code
            continue
        if first is not None:
            yield first, last
        first = last = code
    yield first, last


def rows(items, width=108):
    line = ""
    for item in items:
        if len(line) + len(item) + 2 > width:
            print("    " + line.strip())
            line = ""
        line += " " + item + ","
    print("    " + line.strip())


def main():
    single = []
    several = []
    for code in range(0x110000):
        if code in HANGUL or 0xD800 <= code <= 0xDFFF:
            continue
        result = fold(code)
        if result == chr(code):
            continue
        if len(result) > 1:
            several.append((code, [ord(c) for c in result] + [0] * (3 - len(result))))
        else:
            single.append((code, ord(result) if result else 0))
    marks = [c for c in range(0x110000)
             if unicodedata.category(chr(c)).startswith("P") or (c < 128 and unicodedata.category(chr(c))[0] == "S")]
    print("/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */")
    print(f"/* Written by wordpiece-table.py from Unicode {unicodedata.unidata_version}: what becomes of characters. */")
    print('#include "wordpiece-impl.h"\n\n/* clang-format off */')
    print("const uint32_t wordpiece_folds[] = {")
    rows("%d,%d,%d,%d,%d" % s for s in stretches(single))
    print("};\nconst size_t wordpiece_fold_count = sizeof wordpiece_folds / sizeof wordpiece_folds[0] / WORDPIECE_FOLD;\n")
    print("const uint32_t wordpiece_splits[][4] = {")
    rows("{%d,%d,%d,%d}" % (code, *result) for code, result in several)
    print("};\nconst size_t wordpiece_split_count = sizeof wordpiece_splits / sizeof wordpiece_splits[0];\n")
    print("const uint32_t wordpiece_marks[][2] = {")
    rows("{%d,%d}" % r for r in ranges(marks))
    print("};\nconst size_t wordpiece_mark_count = sizeof wordpiece_marks / sizeof wordpiece_marks[0];")


main()
