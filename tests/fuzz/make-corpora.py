#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the seeds of a fuzz target of libattn, of the tokenizer or of the reader of sound into a directory.

Usage: make-corpora.py TARGET DIRECTORY
"""
import os
import re
import struct
import sys

KEY = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"


def note(name=b"mock", backends=b"mock/flash-attn", version=1, major=0, minor=2, kind=1, cls=4, level=1, owner=b"libattn\0",
         size=None, extra=b""):
    body = struct.pack("<6I", version, major, minor, cls, level, 0) + struct.pack(
        "<32s64s32s160s", name, b"Somebody", b"1.0", backends) + extra
    return struct.pack("<3I", len(owner), len(body) if size is None else size, kind) + owner + body


def elf(notes, machine=62, phnum=None, kind=3, cls=2, dynamic=True, note_size=None, filesz=None, align=4, phoff=64,
        gap=0, parts=1):
    count = 1 + dynamic + parts
    head = 64 + 56 * count
    at = head + gap
    size = at + len(notes) + 16
    phdr = lambda t, o, n, m=None, a=4096: struct.pack("<2I6Q", t, 4, o, o, o, n, n if m is None else m, a)
    table = phdr(1, 0, size if filesz is None else filesz)
    if dynamic:
        table += phdr(2, size - 16, 16, a=8)
    for _ in range(parts):
        table += phdr(4, at, len(notes) if note_size is None else note_size, a=align)
    ident = b"\x7fELF" + bytes([cls, 1, 1, 0]) + bytes(8)
    header = ident + struct.pack("<2HI3QI6H", kind, machine, 1, 0, phoff, 0, 0, 64, 56, count if phnum is None else phnum,
                                 64, 0, 0)
    return header + table + bytes(gap) + notes + bytes(16)


def elfnote():
    gnu = struct.pack("<3I", 4, 16, 5) + b"GNU\0" + bytes(16)
    good = elf(note())
    yield "good", good
    yield "good-two-backends", elf(note(backends=b"mock/flash-attn,mock/flashinfer"))
    yield "good-after-gnu", elf(gnu + note())
    yield "good-far", elf(note(), gap=4096)
    yield "good-align-8", elf(note(), align=8)
    yield "notes-alone", gnu + note()
    for cut in (0, 3, 4, 16, 63, 64, 100, 119, 231, 232, 243, 252, 300, len(good) - 17, len(good) - 1):
        yield "cut-%04d" % cut, good[:cut]
    yield "machine", elf(note(), machine=40)
    yield "class-32", elf(note(), cls=1)
    yield "executable", elf(note(), kind=2)
    yield "headers-none", elf(note(), phnum=0)
    yield "headers-many", elf(note(), phnum=65535)
    yield "headers-far", elf(note(), phoff=1 << 63)
    yield "no-dynamic", elf(note(), dynamic=False)
    yield "load-beyond", elf(note(), filesz=1 << 40)
    yield "load-short", elf(note(), filesz=10)
    yield "no-note", elf(gnu)
    yield "note-beyond", elf(note(), note_size=1 << 20)
    yield "note-huge", elf(note() + bytes(70000))
    yield "note-cut", elf(note(), note_size=40)
    yield "note-size-huge", elf(note(size=0xffffffff))
    yield "note-size-short", elf(note(size=20))
    yield "note-long", elf(note(extra=bytes(8)))
    yield "note-twice", elf(note() + note())
    yield "note-segment-twice", elf(note(), parts=2)
    yield "note-other-type", elf(note(kind=2))
    yield "note-other-owner", elf(note(owner=b"libattm\0"))
    yield "note-version-0", elf(note(version=0))
    yield "note-version-2", elf(note(version=2))
    yield "abi-major-9", elf(note(major=9))
    yield "abi-minor-0", elf(note(minor=0))
    yield "abi-minor-99", elf(note(minor=99))
    yield "name-empty", elf(note(name=b""))
    yield "name-capital", elf(note(name=b"Mock"))
    yield "name-endless", elf(note(name=b"m" * 32))
    yield "name-newline", elf(note(name=b"mo\nck"))
    yield "backends-other", elf(note(backends=b"other/flash-attn"))
    yield "backends-comma", elf(note(backends=b"mock/flash-attn,"))
    yield "class-0", elf(note(cls=0))
    yield "class-9", elf(note(cls=9))
    yield "level-4", elf(note(level=4))
    yield "level-99", elf(note(level=99))


def env():
    variables = {
        "ATTN_BACKEND": ["cpu", "auto", "none", "cuda,auto", " CPU/Flash_Attn , flashinfer,,", "xformers", "a-b", ",,,"],
        "ATTN_STRICT": ["1", "0", "yes"], "ATTN_DISABLE": ["cpu*", "*/flashinfer", "[", "**a*b*c*d*e*f*g*", "a_b/*"],
        "ATTN_PLUGIN_PATH": ["/tmp:/usr/lib", ":", "relative", "/proc/self/fd", "/tmp/../tmp/./", "/" * 50],
        "ATTN_PLUGIN_PATH_ADD": ["/tmp:/tmp", "/nowhere"], "ATTN_PROBE": ["auto", "always", "never", "Never"],
        "ATTN_CACHE_DIR": ["/tmp", "tmp"], "ATTN_LOG": ["debug", "info:loader,warn", "loud", "error:", "warn,"],
        "ATTN_LOG_FILE": ["/tmp/%p.log", "%%p%"], "ATTN_CPU_FLAGS": ["avx2,fma", "-avx2", "none", "a b", ","],
        "ATTN_THREADS": ["4", "65536", "-1", "4 ", ""], "ATTN_DETERMINISTIC": ["1", "2"], "ATTN_A_B_KEY": ["value"],
        "ATTN_CPU_SECRET": ["x"], "ATTN_BACKEMD": ["cpu"], "ATTN_": ["x"], "ATTN_X" * 30: ["x"],
    }
    for name, values in variables.items():
        for i, value in enumerate(values):
            yield "%s-%d" % (name[:24].lower().replace("_", "-"), i), "%s=%s" % (name, value)
    yield "call", ">ATTN_BACKEND=cpu\nATTN_BACKEND=cuda"
    yield "call-empty", ">ATTN_STRICT=\nATTN_STRICT=1"
    yield "call-wrong", ">PATH=/bin"
    yield "call-no-value", ">ATTN_STRICT"
    yield "elevated", "!ATTN_BACKEND=cpu\nATTN_PLUGIN_PATH=/tmp\nATTN_LOG=debug\nATTN_CPU_X=1"
    yield "twice", "ATTN_BACKEND=cpu\nATTN_BACKEND=a-b\nATTN_ODD=1\nATTN_ODD=2"
    yield "newline", "ATTN_LOG_FILE=a\1b\nATTN_ODD=a\1b"
    yield "long", "ATTN_BACKEND=" + "cpu," * 1030 + "\nATTN_DISABLE=" + "x" * 5000
    yield "no-equals", "ATTN_BACKEND\n=\nPATH=/bin"


def problem():
    base = "heads=32 head_dim=128 q=bf16"
    yield "least", base
    yield "empty", ""
    more = ["kv_heads=8", "kv_heads=5", "q=f16 kv=e4m3 scales=tensor", "q=bf16,k=int8,v=e5m2,k_scale=head,v_scale=token-head",
            "type=encoder_decoder causal=0", "type=encoder kv_source=new", "type=encoder_only mask=bits span=full",
            "addr=dense", "addr=csr index=i64", "addr=table block=128 layout=paged-x", "window=4096", "window=-1/7",
            "window=2147483648", "softcap=50", "softcap=1e-3", "softcap=nan", "softcap=-0", "softcap=inf", "alibi=mask mask=f16",
            "alibi=key sinks=1", "alibi=distance", "mask=bits alibi=mask", "positions=1 seq_causal=1 lse=1 det=1 cp=1",
            "graph=uniform max_seqs=256 max_q=8192 max_kv=131072 max_rows=8192", "max_seqs=2147483647 max_kv=2147483647",
            "mla=1 kv_heads=1 k=bf16", "align=start causal=1", "q=e4m3fnuz q_scale=unit kv=f16 out=f32",
            "out=int8 out_scale=head", "hed_dim=1", "type=decodr", "block=0", "heads=4", "q", "q=", "=", "causal=2",
            "index=i32 index=i32", "kv=f16 k=f16", "scales=unit k_scale=unit"]
    for i, text in enumerate(more):
        yield "keys-%02d" % i, base + " " + text
    yield "mla", "heads=128 head_dim=576/512 q=bf16 mla=1 kv=e4m3 scales=tensor"
    yield "dims", "heads=8 head_dim=192/128 q=bf16,kv_heads=8"
    yield "dims-odd", "heads=8 head_dim=/128 q=bf16"
    yield "long", "heads=8 " + "x" * 200 + "=" + "y" * 200
    yield "control", "heads=8\n head_dim=\x07"


def results():
    now = 1700000000
    line = lambda key=OTHER, outcome=1, number=0, since=now, step="finish", text="": "%s %d %d %d|%s|%s\n" % (
        key, outcome, number, since, step, text)
    yield "good", line()
    yield "effects", line(text="prints; starts threads")
    yield "crashed", line(OTHER, 2, 11, now - 100, "entry")
    yield "crashed-old", line(OTHER, 2, 11, now - 100000, "entry")
    yield "timed-out", line(OTHER, 3, 0, now - 599, "load")
    yield "timed-out-old", line(OTHER, 3, 0, now - 601, "load")
    yield "exited", line(OTHER, 4, 7, now - 86400, "query")
    yield "to-come", line(OTHER, 4, 7, now + 1, "query")
    yield "other-key", line(KEY, 2, 6)
    yield "two", line() + line(OTHER, 2)
    yield "long-text", line(text="x" * 1000)
    yield "most-text", line(text="x" * 159)
    yield "long-step", line(step="s" * 100)
    yield "most-step", line(step="s" * 23)
    yield "step-space", line(step=" load")
    yield "outcome-0", line(OTHER, 0)
    yield "outcome-5", line(OTHER, 5)
    yield "outcome-huge", line(OTHER, 99999999999999999999)
    yield "since-huge", line(OTHER, 2, 0, 1 << 63)
    yield "since-least", line(OTHER, 2, 0, -(1 << 63))
    yield "no-bar", OTHER + " 1 0 1700000000 finish\n"
    yield "one-bar", OTHER + " 1 0 1700000000|finish\n"
    yield "key-short", line("abc")
    yield "no-end", line().rstrip("\n")
    yield "zeros", line() + "\0" * 100
    yield "empty", ""


def probe():
    """What the guard of a probe writes: one byte, then struct attn__result."""
    def result(outcome, number=0, step=b"load", text=b""):
        return b"\0" + struct.pack("<IIq24s160s", outcome, number, 0, step, text)
    yield "good", result(1, step=b"exit")
    yield "effects", result(1, step=b"exit", text=b"prints; changes the environment")
    yield "crashed", result(2, 11)
    yield "broken", result(2, text=b"query does not preserve the register rbx")
    yield "timed-out", result(3)
    yield "exited", result(4, 7)
    yield "refused", result(0)
    yield "unavailable", result(5, text=b"the second process of a probe cannot be started")
    yield "outcome-6", result(6)
    yield "outcome-huge", result(0xffffffff, 0xffffffff)
    yield "no-end", result(1, step=b"s" * 24, text=b"t" * 160)
    yield "control", result(2, 11, b"a\nb|c\x7f", b"\x1b[31m\n|x\n")
    yield "step-space", result(2, 11, b" a")
    yield "silent", ""
    yield "begun", b"\0"
    yield "cut", result(1)[:-1]
    yield "more", result(1) + result(2)


def log():
    yield "plain", "warn\nx\nhello"
    yield "subsystem", "warn,debug:loader\n%p.log"
    yield "many", ",".join("info:s%d" % i for i in range(20)) + "\n"
    yield "same", "info:a,debug:a,error:a\n"
    for i, text in enumerate(["", ",", ":", "loud", "warn,", "debug:", "debug:abcdefghijklmnop", "debug:abcdefghijklmno",
                              "WARN", "warn:a:b", "warn ", "error,warn,info,dispatch,debug"]):
        yield "odd-%02d" % i, text + "\n%p%%p%"
    yield "long-file", "warn\n" + "%p" * 2500
    yield "control", "warn\na\x1b[31mb\x07\x7f\nsecond\r"
    yield "long-text", "warn\n" + "x" * 2000


def tokenizer():
    texts = ["hello", " hello hehe\nthe 12 hens", "<|im_start|>he<|im_end|>", "<|im_end|", "a   b\t\n\n c  \r\n",
             "I'm 42 years; we'll see!!! (no)", "\u00e9\u20ac\U0001f600 \u0416 \u0967\u0968\u0663", "\ufeffhello\nsecond\n\n",
             "\u0120h\u0120", "\U0010ffff\ud7ff\ue000\ufffd", "x" * 300, "he" * 200, " " * 100, "\r\n\r\n", "", "\u0301\u0301a\u0301"]
    for i, text in enumerate(texts):
        yield "text-%02d" % i, text
    for i, data in enumerate([b"ab\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80",
                              b"\xf5\x80\x80\x80", b"a\0b", b"\x80\x80", b"\xe0\x80\x80", b"hello\n\xff\n"]):
        yield "bytes-%02d" % i, data


class Record:
    """A record of core/record/record.h, whose fields and parts are those of its lists."""

    LISTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../core/record")
    FLOATS = {"heads": 2, "kv_heads": 1, "head_dim": 4, "q": "f32", "block": 2}

    def __init__(self, problem=(), numbers=(), parts=(), texts=()):
        maxima = {"max_seqs": 4, "max_q": 8, "max_kv": 8, "max_rows": 8}
        keys = {**self.FLOATS, **dict(problem), **maxima}
        self.texts = {"status": "ATTN_OK", "backend": "cpu/flash-attn",
                      "problem": " ".join(f"{key}={value}" for key, value in keys.items()), **dict(texts)}
        self.numbers = {"call": 1, "seqs": 1, "num_tokens": 1, "max_q": 1, "max_kv": 3, "table_width": 2,
                        "softmax_scale": 0x3f000000, "kv_pages": 2, "kv_block": 2, **dict(numbers)}
        self.parts = {"q_offsets": self.ints(0, 1), "kv_lens": self.ints(3), "table": ((1, 2, 1), 4, self.ints(1, 0)[2]),
                      "q": ((1, 2, 1), 16, bytes(32)), "k": ((2, 2, 1), 16, bytes(64)), "v": ((2, 2, 1), 16, bytes(64)),
                      "out": ((1, 2, 1), 16, bytes(32)), **dict(parts)}

    @staticmethod
    def ints(*values, size="i"):
        return (len(values), 1, 1), struct.calcsize(size), struct.pack(f"<{len(values)}{size}", *values)

    @staticmethod
    def hash(data):
        value = 0xcbf29ce484222325
        for byte in data:
            value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
        return value

    def names(self, name):
        with open(os.path.join(self.LISTS, name), encoding="utf-8") as file:
            return re.findall(r"^ATTN_RECORD_(\w+)\((\w+),", file.read(), re.M)

    def file(self, version=1, form=1):
        text = "".join(f"{name}={self.texts.get(name, '') if kind == 'TEXT' else self.numbers.get(name, 0)}\n"
                       for kind, name in self.names("field.def")).encode()
        kinds = [name for _, name in self.names("part.def")]
        table, data = b"", b""
        present = [name for name in kinds if self.parts.get(name) is not None]
        front = 40 + 88 * len(present) + len(text)
        for name in present:
            count, row, content, *place = self.parts[name]
            hashed = form == 2 and name in ("q", "k", "v", "out")
            at = -(front + len(data)) % 64
            offset = 0 if hashed else front + len(data) + at
            data += b"" if hashed else bytes(at) + content
            strides = [row * count[1] * count[2] * (count[0] > 1), row * count[2] * (count[1] > 1), row * (count[2] > 1)]
            table += struct.pack("<4IQ3QQ3qQ", kinds.index(name), 2 if hashed else 1, place[0] if place else 0, 0, offset,
                                 *count, row, *strides, self.hash(content))
        head = b"ATTNREC\n" + struct.pack("<2I2Q", version, len(present), front + len(data), len(text))
        return head + struct.pack("<Q", self.hash(head + table + text)) + table + text + data


def record():
    whole = Record().file()
    yield "table", whole
    yield "hashes", Record().file(form=2)
    yield "version", Record().file(version=2)
    yield "failed", Record(texts={"status": "ATTN_E_DEVICE", "message": "lost"}, parts={"out": None}).file()
    yield "csr", Record({"addr": "csr"}, {"table_width": 0}, {"table": None, "csr_indptr": Record.ints(0, 2),
                                                               "csr_indices": Record.ints(0, 1)}).file()
    yield "csr-wide", Record({"addr": "csr", "index": "i64"}, {"table_width": 0}, {
        "table": None, "csr_indptr": Record.ints(0, 2), "csr_indices": Record.ints(0, -1, size="q")}).file()
    dense = {"table": None, "k": ((1, 3, 1), 16, bytes(48)), "v": ((1, 3, 1), 16, bytes(48))}
    yield "dense", Record({"addr": "dense"}, {"table_width": 0, "kv_pages": 1, "kv_block": 3}, dense).file()
    yield "dense-run", Record({"addr": "dense"}, {"table_width": 0, "kv_pages": 1, "kv_block": 3},
                              {**dense, "kv_offsets": Record.ints(0, 3)}).file()
    new = {"table": None, "k": None, "v": None, "kv_lens": None, "kv_offsets": Record.ints(0, 3),
           "k_new": ((3, 1, 1), 16, bytes(48)), "v_new": ((3, 1, 1), 16, bytes(48))}
    yield "new", Record({"kv_source": "new"}, {"table_width": 0, "kv_pages": 0, "kv_block": 0}, new).file()
    yield "mla", Record({"heads": 2, "mla": 1, "head_dim": "6/4"}, {}, {
        "q": ((1, 2, 1), 16, bytes(32)), "q_rope": ((1, 2, 1), 8, bytes(16)), "k": ((2, 2, 1), 24, bytes(96)), "v": None}).file()
    bits = {"mask_starts": Record.ints(0, size="q"), "mask": ((8, 1, 1), 1, b"\5" + bytes(7))}
    yield "mask", Record({"mask": "bits", "span": "full"}, {"mask_row_stride": 1}, bits).file()
    yield "mask-none", Record({"mask": "f16"}, {"mask_row_stride": 2}, {
        "mask_starts": Record.ints(-1, size="q"), "mask": ((0, 1, 1), 1, b"")}).file()
    codes = {"k": ((2, 2, 1), 4, bytes(16)), "v": ((2, 2, 1), 4, bytes(16))}
    yield "scales", Record({"kv": "e4m3", "scales": "token-head"}, {}, {
        **codes, "k_scale": ((2, 2, 1), 4, bytes(16), 3), "v_scale": ((1, 1, 1), 4, bytes(4), 2)}).file()
    yield "heads", Record({"alibi": "key", "sinks": 1, "lse": 1, "positions": 1}, {"sinks_dtype": 0x12002}, {
        "alibi_slopes": Record.ints(0, 0), "sinks": Record.ints(0, 0), "q_positions": Record.ints(2),
        "lse": ((1, 2, 1), 4, bytes(8))}).file()
    for name, value in {"seqs": 2, "num_tokens": 9, "max_kv": 2, "table_width": 1, "kv_pages": 1, "kv_block": 4,
                        "call": 0, "cascade": 2, "softmax_scale": 1 << 40}.items():
        yield f"field-{name}", Record(numbers={name: value}).file()
    for name, part in {"q_offsets": Record.ints(0, -1), "kv_lens": Record.ints(-3), "table": ((1, 2, 1), 4, Record.ints(0, 7)[2]),
                       "q": ((1 << 40, 1 << 40, 1), 16, bytes(32)), "k": ((2, 2, 1), 1 << 59, bytes(64)), "lse": ((1, 2, 1), 4, bytes(8)),
                       "out": None}.items():
        yield f"part-{name}", Record(parts={name: part}).file()
    for cut in (0, 7, 39, 40, 100, 700, len(whole) - 1):
        yield "cut-%04d" % cut, whole[:cut]


def main():
    target, directory = sys.argv[1:]
    for name, data in MAKERS[target]():
        with open(os.path.join(directory, name), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))


MAKERS = {make.__name__: make for make in (elfnote, env, problem, results, probe, log, record, tokenizer)}
main()
