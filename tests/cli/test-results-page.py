# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/results-page: the committed pages, what a bar stands for, and documents that are no results.

usage: test-results-page.py RESULTS-PAGE DOCS-RESULTS-DIRECTORY
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

TOOL, RESULTS = sys.argv[1], pathlib.Path(sys.argv[2])
count = failed = 0


def check(good, name, more=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}")
    if not good and more:
        print("\n".join(f"# {line}" for line in str(more).splitlines()))


def make(path):
    return subprocess.run(
        [sys.executable, TOOL, str(path)], capture_output=True, text=True, encoding="utf-8"
    )


def make_text(contents):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        path.write_text(contents if isinstance(contents, str) else json.dumps(contents), encoding="utf-8")
        return make(path)


def row(name, **members):
    plain = {
        "name": name,
        "mode": "decode",
        "us": {"median": 20},
        "gbps": 5,
        "ceiling_gbps": 10,
        "tflops": 1,
        "ceiling_tflops": 10,
        "roof_us": 10,
        "balance": 0.2,
        "roof_ratio": 0.5,
        "error": 1e-3,
    }
    return {**plain, **members}


def document(*rows, **members):
    return {"schema_version": 1, "libattn": "0", "rows": list(rows), **members}


def bars(page):
    """Class and width of the rectangles of each row."""
    tree = xml.fromstring(page.split("\n", 1)[1])
    return [
        [(part.get("class"), float(part.get("width"))) for part in group.iter("rect")]
        for group in tree.iter("g")
    ]


def committed():
    sources = sorted(RESULTS.glob("*.json"))
    check(len(sources) >= 1, "there are results")
    for source in sources:
        made, page = make(source), source.with_suffix(".html").read_text(encoding="utf-8")
        check(
            made.returncode == 0 and made.stdout == page,
            f"{source.stem}.html is what the tool makes",
            made.stderr,
        )
        results = json.loads(source.read_text(encoding="utf-8"))
        if "cases" in results:  # of tools/gpu-bench; a ceiling has no bar of its own
            runs = [pair for case in results["cases"] for pair in case["runs"].items()]
            drawn = [run for name, run in runs if run.get("share") and run["ceiling"] != name]
        else:
            drawn = [one for one in results["rows"] if one["roof_ratio"]]
        check(len(bars(page)) == len(drawn), f"{source.stem}: a bar for every row")
        for outside in ("http", "src=", "<script", "<link", "@import", "url("):
            check(outside not in page, f"{source.stem}.html has nothing of {outside}")
        check("prefers-color-scheme: dark" in page, f"{source.stem}.html has dark colours")


def drawing():
    made = make_text(
        document(
            row("twice"), row("fast", roof_ratio=1.25), row("sums", tflops=8), row("four", roof_ratio=0.25)
        )
    )
    found = bars(made.stdout)
    unit = found[0][0][1]
    check(
        unit > 0 and [part[0] for part in found[0]] == ["memory", "over", "notch"], "parts of a bar", found
    )
    check(abs(found[0][1][1] - unit) < 0.02, "half of the roof is a bar of two roofs", found)
    check(abs(found[3][1][1] - 3 * unit) < 0.03, "a quarter of the roof is a bar of four roofs", found)
    check(
        abs(found[1][0][1] - 0.8 * unit) < 0.02 and "over" not in dict(found[1]),
        "beyond the roof it is shorter",
        found,
    )
    check(found[2][0][0] == "arithmetic", "the longer time makes the roof", found)
    made = make_text(document(row("none", roof_ratio=None), row('<b>&"', mode="a<b")))
    check(
        len(bars(made.stdout)) == 1 and "&lt;b&gt;&amp;" in made.stdout and "<td>none</td>" in made.stdout,
        "a row without a roof is in the table alone, and names are escaped",
        made.stderr,
    )
    made = make_text(document(row("slow", roof_ratio=0.001, batch="1x1/1 " * 40)))
    check(
        made.returncode == 0 and made.stdout.count('class="grid"') < 12,
        "a slow row does not fill the page with lines",
    )
    machine = {"processor": "Some CPU", "cpus": 1, "caches": [{"level": 2, "type": "Unified", "kib": 2048}]}
    check("Some CPU, 1 CPU, L2 2 MiB" in make_text(document(machine=machine)).stdout, "the machine is told")


def refusals():
    for contents, said in (
        ("", "rows.json"),
        ("[]", "no object"),
        ({"rows": []}, "schema_version"),
        (document(3), "rows[0]"),
        (document(row("")), "rows[0] has no name"),
        (document(row("x", us=None)), "rows[0].us"),
        (document(row("x", us={"median": -1})), "us.median"),
        (document(row("x", roof_ratio="high")), "roof_ratio"),
        (document(row("x", mode=3)), "mode"),
        (document(machine={"caches": 3}), "caches"),
    ):
        made = make_text(contents)
        check(
            made.returncode == 2
            and made.stdout == ""
            and said in made.stderr
            and "Traceback" not in made.stderr,
            f"{str(contents)[:60]} is refused with {said}",
            made.stderr,
        )
    made = subprocess.run([sys.executable, TOOL], capture_output=True, text=True)
    check(made.returncode == 2 and "usage" in made.stderr, "usage")
    check(make("/nowhere/rows.json").returncode == 2, "a file that is not there")


committed()
drawing()
refusals()
print(f"1..{count}")
sys.exit(failed != 0)
