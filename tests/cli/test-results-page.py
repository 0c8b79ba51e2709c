# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/results-page: the committed pages and pictures, what a bar stands for, and documents that are no results.

usage: test-results-page.py RESULTS-PAGE DOCS-RESULTS-DIRECTORY
"""

import json
import pathlib
import re
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


def make(path, *options):
    return subprocess.run(
        [sys.executable, TOOL, *options, str(path)], capture_output=True, text=True, encoding="utf-8"
    )


def make_text(contents, *options):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        path.write_text(contents if isinstance(contents, str) else json.dumps(contents), encoding="utf-8")
        return make(path, *options)


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


def parts(tree, tag, kind):
    """Elements of a class, which may have others too."""
    return [part for part in tree.iter(tag) if kind in (part.get("class") or "").split()]


def bars(page):
    """Of each bar its colour, and its length as a share of the ceiling."""
    found = []
    for track in parts(xml.fromstring(page.split("\n", 1)[1]), "span", "track"):
        most = float(re.fullmatch(r"--most: ([0-9.]+)", track.get("style"))[1])
        (bar,) = parts(track, "span", "bar")
        width = float(re.fullmatch(r"width: ([0-9.]+)%", bar.get("style"))[1])
        found.append((bar.get("class").split()[1], width / 100 * most, width))
    return found


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
        if results.get("tool") == "cpu-bench":  # a bar is a speed beside the fastest peer
            drawn = [{"share": case["bars"][0]["ratio"]} for case in results["cases"] if case["bars"][0]["ratio"]]
        elif "cases" in results:  # of tools/gpu-bench; a ceiling has no bar of its own
            runs = [pair for case in results["cases"] for pair in case["runs"].items()]
            drawn = [run for name, run in runs if run.get("share") and run["ceiling"] != name]
        else:
            drawn = [one for one in results["rows"] if one["roof_ratio"]]
        if "cases" not in results:  # a kernel is not faster than its ceiling, so such a ceiling was sampled too low
            above = [(one["name"], one["roof_ratio"]) for one in drawn if one["roof_ratio"] > 1.03]
            check(not above, f"{source.stem}: no kernel passes its ceiling by more than 3 %", above)
        shares = [one.get("share") or one.get("roof_ratio") for one in drawn]
        found = bars(page)
        check(
            len(found) == len(shares)
            and all(abs(one[1] - share) < 1e-3 * max(1, share)
                    for one, share in zip(sorted(found, key=lambda one: one[1]), sorted(shares))),
            f"{source.stem}: a bar for every row, as long as its share of the ceiling",
            found,
        )
        check(max(width for _, _, width in found) <= 100, f"{source.stem}: no bar is longer than its track")
        tree = xml.fromstring(page.split("\n", 1)[1])
        captions = ["".join(figure[0].itertext()) for figure in tree.iter("figure")]
        check(
            len(captions) >= 3 and all("longer is better" in caption for caption in captions),
            f"{source.stem}: every chart says that longer is better",
            captions,
        )
        for outside in ("http", "src=", "<script", "<link", "@import", "url("):
            check(outside not in page, f"{source.stem}.html has nothing of {outside}")
        check("prefers-color-scheme: dark" in page, f"{source.stem}.html has dark colours")


PEERS = ("flash", "cudnn", "cudnn, heads first", "efficient", "fa3", "fa3, paged", "flashinfer", "xqa")


def peers():
    """The rule of the picture, and that every peer's own figure stands beside libattn's, faster or not."""
    source = RESULTS / "cuda.json"
    results = json.loads(source.read_text(encoding="utf-8"))
    made, picture = make(source, "--picture"), (RESULTS / "cuda-peers.svg").read_text(encoding="utf-8")
    check(made.returncode == 0 and made.stdout == picture, "cuda-peers.svg is what the tool makes", made.stderr)
    for outside in ("href", "<script", "@import", "url(", "<image"):
        check(outside not in picture, f"cuda-peers.svg has nothing of {outside}")
    check("prefers-color-scheme: dark" in picture and 'class="back"' in picture, "it is readable on any background")
    tree = xml.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    texts = ["".join(text.itertext()) for text in tree.iter(f"{space}text")]
    wanted = {}
    for case in results["cases"]:
        times = {name: run["us"]["median"] for name, run in case["runs"].items() if "us" in run}
        others = [times[name] for name in PEERS if name in times]
        plain = "heads=32 head_dim=128 kv_heads=8 max_seqs=" in case["runs"].get("libattn", {}).get("problem", "")
        if "libattn" in times and others and (case["bars"] or (case["group"] == "decode" and plain)):
            wanted[case["name"]] = (min(others) / times["libattn"], times, case["timed"])
    check(4 <= len(wanted) <= 12 and all(name in texts for name in wanted), "the cases of the rule are drawn", wanted)
    check(any(ratio < 1 for ratio, _, _ in wanted.values()), "also those in which a peer is faster")
    widths = [float(part.get("width")) for part in parts(tree, f"{space}rect", "own")]
    unit = float(parts(tree, f"{space}rect", "track")[0].get("width")) / max(1, *(one[0] for one in wanted.values()))
    check(
        len(widths) == len(wanted)
        and all(abs(width - unit * ratio) < 0.02 for width, (ratio, _, _) in zip(widths, wanted.values())),
        "a bar is the time of the fastest peer by libattn's",
        widths,
    )
    lines = [text for text in texts if text.startswith("libattn ") and "µs" in text or " ms" in text]
    for line, (name, (ratio, times, timed)) in zip(lines, wanted.items()):
        figures = sum(name in times for name in ("libattn", *PEERS))
        check(
            len(re.findall(r"[0-9.]+ [µm]s", line)) == figures
            and ("(graph)" in line) == (timed == "calls in a graph")
            and f"{ratio:.2f}" in texts,
            f"{name}: a figure for libattn and for every peer, and how they were timed",
            line,
        )
    widest = max(len(text) for text in texts)
    check(widest <= 135, "no text is longer than the picture is wide", widest)
    page = (RESULTS / "cuda.html").read_text(encoding="utf-8")
    for name, (ratio, _, timed) in wanted.items():
        found = re.search(f"<tr><td>{name}</td>.*<td>{ratio:.2f}</td><td>{timed}</td></tr>", page)
        check(found, f"{name}: the page has the ratio too")
    single = any(case["timed"] == "single calls" and case["group"] != "operations on caches" for case in results["cases"])
    check(("peers look slower than they are" in page) == single, "the page says what single calls hide, if there are any")
    check(make(RESULTS / "cpu.json", "--picture").returncode == 2, "no picture is made of what has no peers")
    check(make_text({**results, "cases": []}, "--picture").returncode == 2, "nor of no cases")


def drawing():
    made = make_text(
        document(
            row("twice"), row("fast", roof_ratio=1.25), row("sums", tflops=8), row("four", roof_ratio=0.25)
        )
    )
    found = bars(made.stdout)
    check(
        [(kind, round(share, 2)) for kind, share, _ in found]
        == [("memory", 0.5), ("memory", 1.25), ("compute", 0.5), ("memory", 0.25)],
        "a bar is as long as its share, and tells the bound",
        found,
    )
    check(found[1][2] == 100, "a share above the ceiling has room beyond it", found)
    check("bound: memory" in made.stdout and "bound: compute" in made.stdout, "the bound is told in words")
    for word in ("roof", "notch", "balance", "shorter is better"):
        check(word not in made.stdout, f"no page speaks of {word}")
    made = make_text(document(row("none", roof_ratio=None), row('<b>&"', mode="a<b")))
    check(
        len(bars(made.stdout)) == 1 and "&lt;b&gt;&amp;" in made.stdout and "<td>none</td>" in made.stdout,
        "a row without a ceiling is in the table alone, and names are escaped",
        made.stderr,
    )
    made = make_text(document(row("slow", roof_ratio=0.001, us={"median": 2.5e6, "min": 812, "max": 3e6})))
    check(
        made.returncode == 0 and "2.50 s" in made.stdout and "812 µs to 3.00 s" in made.stdout,
        "times have a unit that fits",
    )
    made = make_text(document(row("rates", gbps=0.0318, tflops=0.0261, ceiling_tflops=0.0508)))
    check("26.1 of 50.8 GFLOP/s" in made.stdout and "0.0318 of 10.0 GB/s" in made.stdout, "so have rates", made.stdout)
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
peers()
drawing()
refusals()
print(f"1..{count}")
sys.exit(failed != 0)
