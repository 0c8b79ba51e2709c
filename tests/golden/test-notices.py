#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does golden-check notice a recording that is not what libattn does? One value is changed at a time.

Usage: test-notices.py GOLDEN-CHECK DIRECTORY. Prints TAP.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

# What is compared, per file: the way to it, through members and lists (*).
PLACES = {
    "advance_flash_attn.json": ["*/steps/*/slot_mapping/*", "*/steps/*/seq_lens_tensor/*", "*/meta/max_query_len",
                                "*/steps/*/input_positions/*", "*/steps/*/max_decode_seq_len"],
    "advance_flashinfer.json": ["*/steps/*/indptr/*", "*/steps/*/last/*", "*/steps/*/bound/*", "*/steps/*/indices/*"],
    "advance_rocm.json": ["*/steps/*/seq_lens/*", "*/steps/*/num_decode_tokens"],
    "builder_common_rocm.json": ["*/inter/*/q/*", "*/prefill/seq_start_loc/v/*", "*/build_args/pad"],
    "builder_common_xformers.json": ["*/inter/*/csw/*", "*/decode/slot_mapping/v/*", "*/meta/seq_lens/*"],
    "builder_edges.json": ["*/meta/slot_mapping/v/*", "*/exception/error"],
    "builder_flash_attn.json": ["*/decode/query_start_loc/v/*", "*/meta/context_lens_tensor/v/*",
                                "*/prefill/max_query_len", "*/meta/max_prefill_seq_len", "*/input_tokens/v/*"],
    "builder_flashinfer.json": ["*/meta/paged_kv_indices/v/*", "*/meta/paged_kv_last_page_len/v/*",
                                "*/meta/decode_query_len", "*/meta/num_kv_heads",
                                "*/begin_forward_calls/*/1/*/v/0"],
    "cache_ops.json": ["reshape/*/kwritten/*/1", "copy_blocks/*/value/*/*", "fp8/*/decode/*",
                       "fp8/*/encode_satfinite/*/1"],
    "forward_traces.json": ["*/calls/*/0", "*/calls/0/1/4/v/*", "*/calls/0/1/2/s/*", "*/calls/0/1/5",
                            "*/calls/*/2/cu_seqlens_q/v/*", "*/calls/*/2/cu_seqlens_k/v/*",
                            "*/calls/*/2/max_seqlen_q", "*/calls/*/2/max_seqlen_k", "*/calls/*/2/softmax_scale",
                            "*/calls/*/2/window_size/*", "*/calls/*/2/block_table/v/*", "*/calls/*/2/q/s/*",
                            "*/calls/*/2/cache_seqlens/v/*", "*/calls/*/2/alibi_slopes/v/*",
                            "*/calls/*/2/k/s/*", "*/calls/*/2/sm_scale", "*/meta/slot_mapping/v/*",
                            "*/exception/error"],
    "graph_batch_size.json": ["padded/*/1", "capture_list_len"],
    "graph_state.json": ["*/per_batch/*/meta/seq_lens_tensor/v/*", "*/per_batch/*/meta/max_decode_seq_len",
                         "*/per_batch/*/buffers/slot_mapping/s/*", "*/per_batch/*/calls/*/1/*/v/*",
                         "*/per_batch/*/meta/cross_block_tables/v/*", "*/clone_outside_capture/error"],
    "is_block_tables_empty.json": ["*/out"],
    "selector.json": ["rows/*/out", "rows/*/log/*", "nested_force/*"],
    "shapes_and_checks.json": ["kv_cache_shape/*/5/*", "split_kv_cache/*/5/*/*", "paged_attention_version/*/3",
                               "rocm_custom_paged/*/7", "impl_constructor/*/2/num_queries_per_kv",
                               "head_sizes/*/*"],
    "slot_mapping.json": ["*/out/*"],
    "start_idx.json": ["*/4"],
}


def find(node, way, out):
    """Collects (container, key) of every value at the end of a way."""
    step, rest = way[0], way[1:]
    if isinstance(node, list):
        keys = range(len(node)) if step == "*" else [int(step)] if step.isdigit() and int(step) < len(node) else []
    elif isinstance(node, dict):
        keys = list(node) if step == "*" else [step] if step in node else []
    else:
        return
    for key in keys:
        if rest:
            find(node[key], rest, out)
        elif not isinstance(node[key], (dict, list)):
            out.append((node, key))


def other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return "NotImplementedError" if value != "NotImplementedError" else "ValueError"


def main():
    program, directory = sys.argv[1:]
    chance = random.Random(20)
    print(f"1..{sum(len(places) for places in PLACES.values())}")
    number = 0
    bad = False
    with tempfile.TemporaryDirectory() as scratch:
        for file, places in PLACES.items():
            with open(os.path.join(directory, file), encoding="utf-8") as stream:
                text = stream.read()
            for place in places:
                number += 1
                recording = json.loads(text)
                found = []
                find(recording["data"], place.split("/"), found)
                where, key = chance.choice(found)
                before = where[key]
                where[key] = other(before)
                with open(os.path.join(scratch, file), "w", encoding="utf-8") as stream:
                    json.dump(recording, stream)
                result = subprocess.run([program, scratch], stdout=subprocess.PIPE, text=True, check=False)
                failed = result.stdout.rsplit("\n", 2)[1].endswith(" 1 failed")
                good = result.returncode == 1 and failed
                bad = bad or not good
                print(f"{'ok' if good else 'not ok'} {number} - {file} {place}: {before!r} changed")
            os.remove(os.path.join(scratch, file))
    return 1 if bad else 0


sys.exit(main())
