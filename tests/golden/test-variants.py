#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Are traces replayed whose shape no record has: prefix hits in FlashInfer, cross-attention without new keys?

Each is made of a record: other sequences, with the metadata and calls that the original makes of them. It has to pass
as it is, and to fail with one value changed. Usage: test-variants.py GOLDEN-CHECK DIRECTORY. Prints TAP.
"""
import copy
import itertools
import json
import os
import subprocess
import sys
import tempfile

BLOCK = 16


def tensor(dtype, shape, values):
    return {"d": dtype, "s": shape, "v": values}


def list_of(dtype, values):
    return tensor(dtype, [len(values)], values)


def sums(values):
    return list_of("int32", [0] + list(itertools.accumulate(values)))


def table_of(rows):
    width = max(len(row) for row in rows)
    return tensor("int32", [len(rows), width], [cell for row in rows for cell in row + [0] * (width - len(row))])


class Sequence:
    """Tokens [context, length) are new; `shown` is what the block table shows of the blocks."""

    def __init__(self, length, context, blocks, shown, prompt=True):
        self.length, self.context, self.blocks, self.shown, self.prompt = length, context, blocks, shown, prompt
        self.query = length - context
        self.slots = [blocks[t // BLOCK] * BLOCK + t % BLOCK for t in range(context, length)]


def fill(meta, sequences):
    """The fields of every builder, and those of one where the record has them."""
    prompts = [s for s in sequences if s.prompt]
    decodes = [s for s in sequences if not s.prompt]
    pages = [-(-s.length // BLOCK) for s in sequences]
    fields = {
        "num_prefills": len(prompts),
        "num_prefill_tokens": sum(s.query for s in prompts),
        "num_decode_tokens": sum(s.query for s in decodes),
        "slot_mapping": list_of("int64", [slot for s in sequences for slot in s.slots]),
        "seq_lens": [s.length for s in sequences],
        "seq_lens_tensor": list_of("int32", [s.length for s in sequences]),
        "context_lens_tensor": list_of("int32", [s.context for s in sequences]),
        "query_start_loc": sums(s.query for s in sequences),
        "seq_start_loc": sums(s.length for s in sequences),
        "max_query_len": max(s.query for s in sequences),
        "max_prefill_seq_len": max((s.length for s in prompts), default=0),
        "max_decode_seq_len": max((s.length for s in decodes), default=0),
        "block_tables": table_of([s.shown for s in sequences]),
        "block_table_bound": list_of("int32", [0] * len(sequences)),
        "paged_kv_indptr": sums(pages),
        "paged_kv_indices": list_of("int32", [b for s, n in zip(sequences, pages) for b in s.blocks[:n]]),
        "paged_kv_last_page_len": list_of("int32", [(s.length - 1) % BLOCK + 1 for s in sequences]),
    }
    meta.update({name: value for name, value in fields.items() if name in meta})


def flashinfer(find, sequences):
    row = find("FLASHINFER", "mixed_chunked")
    fill(row["meta"], sequences)
    write, prefill, decode = row["calls"]
    prompts = row["meta"]["num_prefill_tokens"]
    tokens = prompts + row["meta"]["num_decode_tokens"]
    write[1][0]["s"][0] = write[1][1]["s"][0] = row["num_tokens"] = tokens
    write[1][4] = row["meta"]["slot_mapping"]
    prefill[1][0]["s"][0] = prompts
    decode[1][0]["s"][0] = tokens - prompts
    row["calls"] = [write, prefill] + ([decode] if tokens > prompts else [])
    return row


def flash(find, sequences):
    """Prompts alone, of which one has a hit."""
    row = find("FLASH_ATTN", "prefill_prefix_hit")
    meta = row["meta"]
    fill(meta, sequences)
    write, prefill = row["calls"]
    tokens = meta["num_prefill_tokens"]
    write[1][0]["s"][0] = write[1][1]["s"][0] = row["num_tokens"] = tokens
    write[1][4] = meta["slot_mapping"]
    prefill[2]["q"]["s"][0] = tokens
    prefill[2].update(cu_seqlens_q=meta["query_start_loc"], max_seqlen_q=meta["max_query_len"],
                      cu_seqlens_k=meta["seq_start_loc"], max_seqlen_k=meta["max_prefill_seq_len"],
                      block_table=meta["block_tables"])
    return row


def cross_decode(find, rows, slots):
    """Encoders of 4 and 6 tokens whose keys are in the cache already: neither new keys nor a write."""
    row = find("FLASH_ATTN", "decode")
    encoder = find("FLASH_ATTN", "cross_prefill")["meta"]
    row["meta"].update({name: value for name, value in encoder.items() if "encoder" in name})
    row["meta"].update(cross_slot_mapping=list_of("int64", slots), cross_block_tables=table_of(rows))
    row["attn_type"] = "ENCODER_DECODER"
    row["inputs"]["key_value"] = False
    run = row["calls"][1]
    run[2].update(block_table=table_of(rows), cache_seqlens=encoder["encoder_seq_lens_tensor"])
    row["calls"] = [run]
    return row


HIT = Sequence(20, 16, [3, 6], [3])
NEW = Sequence(3, 0, [4], [])
# What the trace is, how it is made, and places where a changed value has to be noticed.
VARIANTS = [
    ("FlashInfer, a prefix hit beside a whole prompt", lambda find: flashinfer(find, [HIT, NEW]),
     ["meta/block_tables/v/0", "meta/paged_kv_indices/v/1", "meta/seq_lens_tensor/v/0", "calls/0/1/4/v/0",
      "calls/1/1/0/s/0"]),
    ("FlashInfer, two computed blocks and one", lambda find: flashinfer(
        find, [Sequence(40, 32, [3, 6, 8], [3, 6]), Sequence(20, 16, [4, 5], [4])]),
     ["meta/block_tables/v/1", "meta/block_tables/v/2", "meta/query_start_loc/v/1", "calls/0/1/4/v/8"]),
    ("FlashInfer, a hit of every block: the last token alone", lambda find: flashinfer(
        find, [Sequence(32, 31, [3, 6], [3, 6]), NEW]), ["meta/block_tables/v/1", "calls/0/1/4/v/0"]),
    ("FlashInfer, a chunk behind computed blocks", lambda find: flashinfer(
        find, [Sequence(40, 32, [3, 6, 8], [3])]), ["meta/block_tables/v/0", "calls/0/1/4/v/0"]),
    ("FlashInfer, a prefix hit beside a decode", lambda find: flashinfer(
        find, [HIT, Sequence(18, 17, [4, 5], [4, 5], prompt=False)]),
     ["meta/block_tables/v/2", "meta/paged_kv_indptr/v/2", "calls/2/1/0/s/0"]),
    ("FlashAttention, a hit of the second prompt", lambda find: flash(
        find, [Sequence(5, 0, [4], [4]), Sequence(20, 16, [3, 6], [3, 6])]),
     ["meta/block_tables/v/0", "meta/context_lens_tensor/v/1", "calls/1/2/block_table/v/3", "calls/1/2/max_seqlen_q"]),
    ("cross-attention of decodes without new keys", lambda find: cross_decode(find, [[10], [11]], []),
     ["meta/encoder_seq_lens/0", "meta/cross_block_tables/v/0", "calls/0/2/block_table/v/1", "calls/0/2/cache_seqlens/v/0"]),
    ("the same, with more blocks than the encoder's tokens fill",
     lambda find: cross_decode(find, [[10, 12, 13], [11]], []),
     ["meta/cross_block_tables/s/1", "calls/0/2/block_table/v/2", "calls/0/2/block_table/s/1"]),
    ("the same, with slots of the encoder that nothing is written to",
     lambda find: cross_decode(find, [[10], [11]], list(range(160, 164)) + list(range(176, 182))),
     ["calls/0/2/cache_seqlens/v/1", "calls/0/0"]),
]


def replay(program, row):
    """The exit status, and the lines of the output."""
    with tempfile.TemporaryDirectory() as scratch:
        with open(os.path.join(scratch, "forward_traces.json"), "w", encoding="utf-8") as stream:
            json.dump({"data": [row]}, stream)
        result = subprocess.run([program, scratch], stdout=subprocess.PIPE, text=True, check=False)
    return result.returncode, result.stdout.splitlines()


def changed(row, place):
    row = json.loads(json.dumps(row))
    where = row
    *way, last = [int(step) if step.isdigit() else step for step in place.split("/")]
    for step in way:
        where = where[step]
    where[last] = where[last] + 1 if isinstance(where[last], int) else "another"
    return row


def main():
    program, directory = sys.argv[1:]
    with open(os.path.join(directory, "forward_traces.json"), encoding="utf-8") as stream:
        records = json.load(stream)["data"]

    def find(backend, tag):
        return copy.deepcopy(next(r for r in records if r["backend"] == backend and r["tag"] == tag))

    number = failures = 0
    for name, make, places in VARIANTS:
        row = make(find)
        for place in [None] + places:
            number += 1
            status, lines = replay(program, row if place is None else changed(row, place))
            good = (status, lines[-1]) == ((0, "1 passed, 0 failed") if place is None else (1, "0 passed, 1 failed"))
            failures += not good
            print(f"{'ok' if good else 'not ok'} {number} - {name}{': ' + place + ' changed' if place else ''}")
            for line in lines if not good else []:
                print("#", line)
    print(f"1..{number}")
    return 1 if failures else 0


sys.exit(main())
