# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tools print with --json is what docs/schema says, and what docs/schema says stands in the manual;
docs/matrix.md is what attn-info prints.

usage: test-schema.py SCHEMAS MAN ATTN-INFO ATTN-BENCH ATTN-CHECK ATTN-REPLAY PLUGINS NOOP NOISY [ATTN-GENERATE SMALL-MODELS]

Readers may meet new keys, so the schemas allow them; the test does not, or a key could be printed that no schema
has. To see that a schema holds something back, every document is also damaged: a key is left out, added, or its
value exchanged, and that has to be noticed.
"""

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("1..0 # SKIP python3-jsonschema is not installed")
    sys.exit(0)

SCHEMAS, MAN = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
INFO, BENCH, CHECK, REPLAY, PLUGINS, NOOP, NOISY = sys.argv[3:10]
GENERATE = sys.argv[10] if len(sys.argv) > 10 else None
SMALL_MODELS = sys.argv[11] if len(sys.argv) > 11 else None
SAMPLE = 2  # entries of an array that are damaged
count = failed = 0


def check(good, name, more=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good and more:
        print("\n".join(f"# {line}" for line in str(more).splitlines()))


def load(name):
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


def inline(node, root):
    """The schema with parts of other files in their place."""
    if isinstance(node, list):
        return [inline(item, root) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        file, _, pointer = node["$ref"].partition("#")
        target = other = load(file) if file else root
        for step in pointer.strip("/").split("/"):
            target = target[step]
        return inline(target, other)
    return {key: inline(value, root) for key, value in node.items()}


def close(node):
    """The schema, but without room for keys that it does not name."""
    if isinstance(node, dict):
        open_rows = "may add keys" in str(node.get("description", ""))
        if "properties" in node and not open_rows:
            node["additionalProperties"] = False
        for value in node.values():
            close(value)
    elif isinstance(node, list):
        for value in node:
            close(value)
    return node


def run(program, *arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_")}
    if "ATTN_CACHE_DIR" in os.environ:
        environment["ATTN_CACHE_DIR"] = os.environ["ATTN_CACHE_DIR"]
    environment.update({"ATTN_PLUGIN_PATH": PLUGINS, **variables})
    return subprocess.run([program, *arguments], env=environment, capture_output=True, encoding="utf-8")


def damaged(value, path="document"):
    """Copies of a document with one fault each, and what the fault is."""
    if isinstance(value, dict):
        yield {**value, "key_that_is_not_there": 1}, f"{path} has a key too many"
        for key in value:
            yield {k: v for k, v in value.items() if k != key}, f"{path} lacks {key}"
            for other, fault in damaged(value[key], f"{path}.{key}"):
                yield {**value, key: other}, fault
    elif isinstance(value, list):
        yield {"0": value}, f"{path} is no array"
        for i, item in enumerate(value[:SAMPLE]):
            for other, fault in damaged(item, f"{path}[{i}]"):
                yield [*value[:i], other, *value[i + 1 :]], fault
    else:
        yield [value], f"{path} is an array"


def optional_keys(node):
    """Names of keys that may be missing or unknown somewhere in a schema: leaving them out is no fault."""
    found = set()
    if isinstance(node, dict):
        if "properties" in node:
            found |= set(node["properties"]) - set(node.get("required", []))
        for value in node.values():
            found |= optional_keys(value)
    elif isinstance(node, list):
        for value in node:
            found |= optional_keys(value)
    return found


def expect(schema_name, what, result, codes=(0,)):
    schema = load(schema_name)
    strict = jsonschema.Draft202012Validator(close(inline(copy.deepcopy(schema), schema)))
    check(result.returncode in codes, f"{what} exits {result.returncode}", result.stderr)
    try:
        document = json.loads(result.stdout)
    except ValueError as error:
        check(False, f"{what} prints JSON", f"{error}\n{result.stdout}")
        return
    errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in strict.iter_errors(document)]
    check(not errors, f"{what} is as {schema_name} says", "\n".join(errors[:20]))
    may_lack = optional_keys(inline(schema, schema))
    open_rows = "may add keys" in json.dumps(schema)
    missed = [
        fault
        for other, fault in damaged(shorten(document))
        if strict.is_valid(other)
        and not (" lacks " in fault and fault.rsplit(" ", 1)[1] in may_lack)
        and not (open_rows and fault.startswith("document.rows[") and fault.endswith("a key too many"))
    ]
    check(not missed, f"{schema_name} notices every damage to {what}", "\n".join(missed[:20]))


def shorten(value):
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items()}
    return [shorten(item) for item in value[:SAMPLE]] if isinstance(value, list) else value


def test_schemas():
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        try:
            jsonschema.Draft202012Validator.check_schema(inline(schema, schema))
            error = None
        except (jsonschema.SchemaError, KeyError, OSError) as wrong:
            error = wrong
        check(error is None and schema["$id"] == path.name, f"{path.name} is a schema", error)


def names(node):
    """Every key that a schema speaks of."""
    found = set()
    if isinstance(node, dict):
        found |= set(node.get("properties", {}))
        for value in node.values():
            found |= names(value)
    elif isinstance(node, list):
        for value in node:
            found |= names(value)
    return found


def test_manual():
    for tool in ["attn-info", "attn-bench", "attn-check", "attn-generate", "attn-replay"]:
        page = (MAN / f"{tool}.1.scd").read_text(encoding="utf-8").replace("\\_", "_")
        keys = set()
        for path in SCHEMAS.glob(f"{tool}*.json"):
            schema = load(path.name)
            keys |= names(inline(schema, schema))
        missing = sorted(key for key in keys if f"*{key}*" not in page)
        check(len(keys) > 5 and not missing, f"the keys of {tool} stand in its manual page", missing)


def test_info(directory):
    commands = run(INFO, "--complete", "--", "").stdout.split()
    arguments = {
        "explain": ["heads=32", "kv_heads=8", "head_dim=128", "cp=1", "lse=1", "max_rows=512", "max_kv=4096"],
        "why": [os.path.join(NOISY, "libattn-noisy.so")],
    }
    for command in commands:
        if command == "exists":
            continue
        name = "attn-info-list.json" if command == "rescan" else f"attn-info-{command}.json"
        for stable in [[], ["--stable"]]:
            result = run(INFO, command, "--json", *stable, *arguments.get(command, []))
            expect(name, f"attn-info {command}{' --stable' if stable else ''}", result)
    check(len(commands) >= 10, "the tool tells its commands", commands)
    bad = {"ATTN_PLUGIN_PATH": directory + ":" + NOISY, "ATTN_STRICT": "maybe", "ATTN_NOSUCH": "1"}
    for command in ["list", "path", "env", "devices", "caps", "matrix", "doctor", "version", "help"]:
        result = run(INFO, command, "--json", **bad)
        expect(f"attn-info-{command}.json", f"attn-info {command} among faults", result, [command == "doctor"])
    result = run(INFO, "list", "--json", ATTN_PLUGIN_PATH=directory)
    expect("attn-info-list.json", "attn-info list without a plugin", result, [3])
    result = run(INFO, "why", directory + "/libattn-text.so", "--json")
    expect("attn-info-why.json", "attn-info why of a text", result, [1])
    for problem, backend in [("head_dim=63 layout=paged-x", "auto"), ("head_dim=64", "nosuch,cuda"),
                             ("head_dim=64", "none")]:
        result = run(INFO, "explain", "--json", "--all", "heads=8", *problem.split(), ATTN_BACKEND=backend)
        expect("attn-info-explain.json", f"attn-info explain {problem} of {backend}", result, [1])


def test_page():
    page = SCHEMAS.parent / "matrix.md"
    if json.loads(run(INFO, "caps", "--json").stdout)["backends"][0]["speed"] == "generic":
        return  # a CPU without a level of vector instructions that has kernels: all of its page is generic
    opencl = pathlib.Path(INFO).resolve().parents[2] / "plugins/opencl"
    built = (opencl / "libattn-opencl.so").exists()
    wanted = page.read_text(encoding="utf-8")
    result = run(INFO, "matrix", "--markdown", ATTN_PLUGIN_PATH=f"{opencl}:{PLUGINS}" if built else PLUGINS)
    same = result.stdout == (wanted if built else without_columns(wanted, "opencl/"))
    check(same, "docs/matrix.md is what attn-info says of OpenCL and the CPU",
          "write it anew, with both plugins: attn-info matrix --markdown >docs/matrix.md")


def without_columns(page, vendor):
    """The page without the columns of a vendor's backends."""
    header = next(line for line in page.splitlines() if line.startswith("| |"))
    left_out = {i for i, name in enumerate(header.split("|")) if name.strip().startswith(vendor)}
    return "".join("|".join(cell for i, cell in enumerate(line.split("|")) if i not in left_out)
                   if line.startswith("|") else line for line in page.splitlines(keepends=True))


def test_bench(directory):
    paths = []
    for mode in ["dispatch", "load"]:
        result = run(BENCH, mode, "reps=2", "--json")
        expect("attn-bench.json", f"attn-bench {mode}", result)
        paths.append(pathlib.Path(directory) / f"{mode}.json")
        paths[-1].write_text(result.stdout, encoding="utf-8")
    trace = pathlib.Path(directory) / "trace.csv"
    lines = [f"2023-11-16 18:15:{i:02}.5,{7 * i % 50 + 1},{i % 5 + 1}" for i in range(40)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]), encoding="utf-8")
    for seqs in [4, 100]:
        result = run(BENCH, "serve", f"trace={trace}", "noop=1", f"seqs={seqs}", "--json")
        expect("attn-bench.json", f"attn-bench serve of {seqs} batch slots", result)
    result = run(BENCH, "compare", *map(str, paths), "--json")
    expect("attn-bench-compare.json", "attn-bench compare", result)


def test_check():
    plugin = os.path.join(PLUGINS, "libattn-cpu.so")
    for arguments in [["--kind", "abi"], ["--kind", "attention", "--cases", "2", "--stable"]]:
        result = run(CHECK, plugin, "--json", *arguments)
        expect("attn-check.json", f"attn-check {' '.join(arguments)}", result)
    result = run(CHECK, NOOP, "--json", "--kind", "attention", "--cases", "1", "--fail-fast")
    expect("attn-check.json", "attn-check of a plugin that computes nothing", result, [0, 1, 3])


def test_replay(directory):
    for tensors in ["full", "hash"]:
        records = pathlib.Path(directory) / tensors
        run(BENCH, "decode", "heads=8", "head_dim=64", "q=bf16", "seqs=1", "ctx=64", "reps=1", "layers=1", "cold=16",
            ATTN_RECORD=f"{records},calls=1,tensors={tensors}")
        for record in records.iterdir():
            for arguments in [[], ["--backend", "cpu/flashinfer"]]:
                result = run(REPLAY, str(record), "--json", *arguments)
                expect("attn-replay.json", f"attn-replay of {tensors} tensors {' '.join(arguments)}", result)


def test_generate(directory):
    batch = pathlib.Path(directory) / "batch"
    batch.write_text("one\ntwo\n", encoding="utf-8")
    for arguments in [["-p", "a"], ["--batch", str(batch)], ["-p", "a", "--kv", "e4m3", "--compare-kv"]]:
        result = run(GENERATE, "--toy", "--json", "-n", "2", *arguments)
        expect("attn-generate.json", f"attn-generate {' '.join(arguments[:1] + arguments[2:])}", result)


def test_speech(directory):
    subprocess.run([SMALL_MODELS, directory], check=True)
    clips = pathlib.Path(directory) / "clips"
    clips.write_text(f"{directory}/clip.wav\n{directory}/clip.wav\n", encoding="utf-8")
    for arguments in [["--audio", f"{directory}/clip.wav"], ["--batch", str(clips)]]:
        result = run(GENERATE, "-m", f"{directory}/whisper.gguf", "--json", "-n", "2", *arguments)
        expect("attn-generate-speech.json", f"attn-generate of speech {arguments[0]}", result)


with tempfile.TemporaryDirectory() as place:
    (pathlib.Path(place) / "libattn-text.so").write_text("no shared object\n", encoding="utf-8")
    test_schemas()
    test_manual()
    test_info(place)
    test_page()
    test_bench(place)
    test_check()
    test_replay(place)
    if GENERATE:
        test_generate(place)
    if SMALL_MODELS:
        test_speech(place)
print(f"1..{count}")
sys.exit(failed != 0)
