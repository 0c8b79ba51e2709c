#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the seeds of fuzz-gguf into a directory: small good models and small lies.

Usage: make-gguf-corpus.py DIRECTORY
"""
import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    if kind == STRING:
        return string(content)
    if kind == ARRAY:
        item, items = content
        return struct.pack("<IQ", item, len(items)) + b"".join(value(item, i) for i in items)
    return struct.pack("<" + PACK[kind], content)


def pair(key, kind, content):
    return string(key) + struct.pack("<I", kind) + value(kind, content)


def info(name, shape, kind, offset):
    return (string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in shape)
            + struct.pack("<IQ", kind, offset))


def join(pairs, infos=(), data=b"", version=3, pair_count=None, info_count=None, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos) if info_count is None else info_count,
                                 len(pairs) if pair_count is None else pair_count)
    head += b"".join(pairs) + b"".join(infos)
    return head + b"\0" * (-len(head) % alignment) + data


def vocab(tokens=("h", "e", "he", "\u0120", "l", "<|im_start|>", "<|im_end|>"), kinds=(1, 1, 1, 1, 1, 3, 3),
          merges=("h e", "\u0120 he"), model="gpt2", pre="smollm"):
    return [pair("tokenizer.ggml.model", STRING, model), pair("tokenizer.ggml.pre", STRING, pre),
            pair("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            pair("tokenizer.ggml.token_type", ARRAY, (I32, kinds)),
            pair("tokenizer.ggml.merges", ARRAY, (STRING, merges))]


def shape(**changes):
    numbers = {"block_count": 1, "context_length": 16, "embedding_length": 4, "feed_forward_length": 4,
               "attention.head_count": 2, "attention.head_count_kv": 1}
    numbers.update(changes.pop("numbers", {}))
    return ([pair("general.architecture", STRING, changes.get("architecture", "llama"))]
            + [pair("llama." + k, U32, v) for k, v in numbers.items()]
            + [pair("llama.attention.layer_norm_rms_epsilon", F32, changes.get("epsilon", 1e-5))])


def tensors(kind=0, width=4, rows=7):
    size = {0: 4, 1: 2, 30: 2}[kind]
    infos, data = [], b""
    for name, dims in [("token_embd", (width, rows)), ("output_norm", (width,)), ("blk.0.attn_norm", (width,)),
                       ("blk.0.attn_q", (width, 4)), ("blk.0.attn_k", (width, 2)), ("blk.0.attn_v", (width, 2)),
                       ("blk.0.attn_output", (4, width)), ("blk.0.ffn_norm", (width,)), ("blk.0.ffn_gate", (width, 4)),
                       ("blk.0.ffn_up", (width, 4)), ("blk.0.ffn_down", (4, width))]:
        count = 1
        for d in dims:
            count *= d
        data += b"\0" * (-len(data) % 32)
        infos.append(info(name + ".weight", dims, kind, len(data)))
        data += bytes(i * 37 % 60 for i in range(count * size))
    return infos, data


def one(kind, dims, offset=0, data=b"\x11" * 64, extra=()):
    return join(list(extra), [info("t", dims, kind, offset)], data)


def nested(depth):
    text = string("deep") + struct.pack("<I", ARRAY)
    return text + struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U8, 1) + b"\x01"


TEMPLATE = ("{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{{'<|im_start|>' + message['role'] + '\n' "
            "+ message['content'] + '<|im_end|>' + '\n'}}")


def files():
    infos, data = tensors()
    whole = join(shape() + vocab(), infos, data)
    yield "good-f32", whole
    yield "good-f16", join(shape() + vocab(), *tensors(1))
    yield "good-bf16-v2", join(shape() + vocab(), *tensors(30), version=2)
    yield "good-chat", join(vocab() + [pair("tokenizer.chat_template", STRING, TEMPLATE)])
    yield "good-names", join([pair("general.name", STRING, "a\tb"), pair("general.basename", STRING, "in"),
                              pair("general.size_label", STRING, "put")])
    yield "good-quants", join([], [info("a", (32,), 2, 0), info("b", (32,), 3, 32), info("c", (32,), 8, 64)], b"\x22" * 98)
    yield "good-roles", join(vocab() + [pair("tokenizer.ggml.bos_token_id", U32, 5),
                                        pair("tokenizer.ggml.eos_token_id", U64, 6),
                                        pair("tokenizer.ggml.add_bos_token", BOOL, 1)])
    for part in (0, 3, 8, 23, 24, 40, 300, 700, len(whole) - 1):
        yield "cut-%04d" % part, whole[:part]
    yield "version-1", join([], version=1)
    yield "big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    yield "pairs-huge", join([], pair_count=2**64 - 1)
    yield "tensors-huge", join([], info_count=2**63)
    yield "key-huge", join([struct.pack("<Q", 2**64 - 9) + b"abcdefgh" * 2], pair_count=1)
    yield "key-empty", join([pair("", U8, 1)])
    yield "string-huge", join([string("k") + struct.pack("<IQ", STRING, 2**63)])
    yield "array-huge", join([string("k") + struct.pack("<IIQ", ARRAY, F64, 2**61 + 1)])
    yield "array-huge-strings", join([string("k") + struct.pack("<IIQ", ARRAY, STRING, 2**60) + b"\0" * 64])
    yield "array-nested-4", join([nested(3)])
    yield "array-nested-200", join([nested(200)])
    yield "type-unknown", join([string("k") + struct.pack("<IQ", 77, 0)])
    yield "bool-odd", join([pair("k", BOOL, 9)])
    yield "key-twice", join([pair("k", U8, 1), pair("k", U8, 2)])
    yield "tensor-twice", join([], [info("t", (1,), 0, 0)] * 2, b"\0" * 32)
    yield "dims-zero", one(0, ())
    yield "dims-nine", one(0, (1,) * 9)
    yield "dim-zero", one(0, (4, 0))
    yield "dims-overflow", one(0, (2**32, 2**32))
    yield "bytes-overflow", one(0, (2**62,))
    yield "block-odd", one(3, (33,))
    yield "type-strange", one(4, (32,))
    yield "offset-beyond", one(0, (4,), offset=2**63)
    yield "offset-unaligned", one(0, (4,), offset=2)
    yield "alignment-zero", one(0, (4,), extra=[pair("general.alignment", U32, 0)])
    yield "alignment-huge", one(0, (4,), extra=[pair("general.alignment", U64, 2**63)])
    yield "alignment-one", join([pair("general.alignment", U8, 1)], [info("t", (1,), 0, 1)], b"\0" * 5, alignment=1)
    yield "heads-zero", join(shape(numbers={"attention.head_count": 0}), infos, data)
    yield "heads-many", join(shape(numbers={"attention.head_count_kv": 2, "block_count": 1024}), infos, data)
    yield "epsilon-nan", join(shape(epsilon=float("nan")), infos, data)
    yield "vocab-kinds-short", join(vocab(kinds=(1, 3)))
    yield "vocab-empty", join(vocab(tokens=(), kinds=()))
    yield "merge-odd", join(vocab(merges=("he", " ", "  ", "a b c")))
    yield "token-empty", join(vocab(tokens=("", "", "h", "\xff", "e", "", ""), kinds=(4, 3, 4, 4, 1, 1, 1)))
    yield "tokens-numbers", join([pair("tokenizer.ggml.model", STRING, "gpt2"),
                                  pair("tokenizer.ggml.pre", STRING, "smollm"),
                                  pair("tokenizer.ggml.tokens", ARRAY, (U8, (1, 2)))])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, data in files():
        with open(os.path.join(sys.argv[1], name + ".gguf"), "wb") as file:
            file.write(data)


main()
