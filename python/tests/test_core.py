# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattn on numpy arrays: attention beside float64, plans over paged caches, errors, threads, forks, tables."""
import os
import pickle
import re
import sys
import threading
import weakref

import numpy

import libattn
from libattn import _native
from tap import check, main, raises

random = numpy.random.default_rng(7)


def normal(*shape, dtype=numpy.float32):
    return random.standard_normal(shape, numpy.float32).astype(dtype)


def softmax_attention(q, k, v, visible=None, bias=0.0, scale=None, softcap=None, sinks=None):
    """Attention in float64: [batch, heads, n, dim]; visible and bias broadcast to [batch, heads, n, m]."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(numpy.float64) for x in (q, numpy.repeat(k, group, 1), numpy.repeat(v, group, 1)))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * numpy.tanh(scores / softcap)
    scores = scores + bias
    if visible is not None:
        scores = numpy.where(visible, scores, -numpy.inf)
    top = scores.max(-1, keepdims=True)
    if sinks is not None:
        top = numpy.maximum(top, sinks[:, None, None])
    top = numpy.where(numpy.isfinite(top), top, 0)
    weights = numpy.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + numpy.exp(sinks[:, None, None] - top)
    return weights / numpy.where(total == 0, 1, total) @ v


def distance(got, want):
    return float(numpy.linalg.norm(got.astype(numpy.float64) - want) / max(numpy.linalg.norm(want), 1e-30))


def close(got, want, name, bound=2e-6):
    away = distance(got, want)
    check(got.shape == want.shape and away < bound, name, f"relative distance {away}, bound {bound}")


def attend(q, k, v, visible=None, bias=0.0, scale=None):
    """Attention of one sequence in float64: [tokens, heads, dim]."""
    return softmax_attention(*(x.swapaxes(0, 1)[None] for x in (q, k, v)), visible, bias, scale)[0].swapaxes(0, 1)


def causal(n, m):
    return numpy.arange(m)[None, :] <= numpy.arange(n)[:, None] + m - n


LAYOUTS = {
    "heads outside": lambda x: x,
    "tokens outside": lambda x: numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    "gaps": lambda x: numpy.concatenate((x, x), 2)[:, :, : x.shape[2]],
    "gaps between tokens": lambda x: numpy.concatenate((x, x), 3)[..., : x.shape[3]],
}


def test_shapes():
    for batch, heads, kv_heads, n, m, dim in ((1, 1, 1, 1, 1, 8), (2, 8, 2, 5, 9, 64), (3, 4, 4, 1, 33, 128),
                                              (2, 6, 1, 70, 70, 80), (1, 8, 8, 16, 4, 32), (4, 2, 1, 3, 300, 64)):
        q, k, v = normal(batch, heads, n, dim), normal(batch, kv_heads, m, dim), normal(batch, kv_heads, m, dim)
        for is_causal in (False, True):
            close(libattn.attention(q, k, v, causal=is_causal),
                  softmax_attention(q, k, v, causal(n, m) if is_causal else None),
                  f"{batch} x {heads}/{kv_heads} heads, {n} x {m} of {dim}, causal={is_causal}")


def test_layouts():
    """Of every layout of each argument the same result: bytes where the kernel is the same."""
    plain = normal(3, 4, 6, 64), normal(3, 2, 10, 64), normal(3, 2, 10, 64)
    want = softmax_attention(*plain, causal(6, 10))
    for q_name, q_layout in LAYOUTS.items():
        for k_name, k_layout in LAYOUTS.items():
            for v_name, v_layout in LAYOUTS.items():
                q, k, v = q_layout(plain[0]), k_layout(plain[1]), v_layout(plain[2])
                close(libattn.attention(q, k, v, causal=True), want, f"q {q_name}, k {k_name}, v {v_name}")
                for out_name, out_layout in LAYOUTS.items():
                    around = out_layout(numpy.full((3, 4, 6, 64), 7, numpy.float32))
                    _native.attention(q, k, v, around, causal=True)
                    close(around, want, f"q {q_name}, k {k_name}, v {v_name}, into out {out_name}")


def test_wide_values():
    q, k, v = normal(2, 4, 5, 96), normal(2, 2, 7, 96), normal(2, 2, 7, 64)
    close(libattn.attention(q, k, v), softmax_attention(q, k, v), "head_dim 96 of keys, 64 of values")


def test_masks():
    for batch, heads in ((1, 1), (1, 4), (3, 1), (3, 4)):
        q, k, v = normal(3, 4, 6, 64), normal(3, 2, 21, 64), normal(3, 2, 21, 64)
        seen = random.random((batch, heads, 6, 21)) < 0.5
        seen[..., 0] = True
        bias = normal(batch, heads, 6, 21)
        for q_name in ("heads outside", "tokens outside"):
            arranged = LAYOUTS[q_name](q)
            close(libattn.attention(arranged, k, v, mask=seen), softmax_attention(q, k, v, seen),
                  f"mask of bools [{batch}, {heads}], q {q_name}")
            close(libattn.attention(arranged, k, v, mask=bias), softmax_attention(q, k, v, None, bias),
                  f"mask of f32 [{batch}, {heads}], q {q_name}")
        half = bias.astype(numpy.float16)
        close(libattn.attention(q, k, v, mask=half), softmax_attention(q, k, v, None, half.astype(numpy.float64)),
              f"mask of f16 [{batch}, {heads}]")
    row = random.random((1, 1, 1, 21)) < 0.5
    row[..., 3] = True
    close(libattn.attention(q, k, v, mask=row), softmax_attention(q, k, v, row), "one row of a mask for all")


def test_features():
    q, k, v = normal(2, 4, 9, 64), normal(2, 2, 30, 64), normal(2, 2, 30, 64)
    near = causal(9, 30) & (numpy.arange(30)[None, :] >= numpy.arange(9)[:, None] + 21 - 4)
    close(libattn.attention(q, k, v, causal=True, window=4), softmax_attention(q, k, v, near), "window")
    place = numpy.arange(30)[None, :] - (numpy.arange(9)[:, None] + 21)
    both = (place >= -3) & (place <= 5)
    close(libattn.attention(q, k, v, window=(3, 5)), softmax_attention(q, k, v, both), "window before and after")
    close(libattn.attention(q, k, v, softcap=2.0, scale=0.7), softmax_attention(q, k, v, scale=0.7, softcap=2.0),
          "soft cap and scale")
    sinks = normal(4)
    want = softmax_attention(q, k, v, sinks=sinks.astype(numpy.float64))
    close(libattn.attention(q, k, v, sinks=sinks), want, "sinks")
    slopes = numpy.array([0.5, 0.25, 0.125, 0.0625], numpy.float32)
    out = numpy.empty((2, 4, 9, 64), numpy.float32)
    for kind, bias in (("key", place), ("distance", -abs(place))):
        _native.attention(q, k, v, out, alibi_slopes=slopes, alibi=kind)
        close(out, softmax_attention(q, k, v, None, slopes[:, None, None] * bias), f"ALiBi {kind}")
    for layout in LAYOUTS.values():
        _native.attention(layout(q), k, v, out, kv_lens=numpy.array([30, 11], numpy.int32))
        close(out, softmax_attention(q, k, v, numpy.arange(30) < numpy.array([30, 11])[:, None, None, None]),
              "lengths of keys")
    _native.attention(q, k, v, out, causal=True, align_start=True)
    want = softmax_attention(q, k, v, numpy.arange(30)[None, :] <= numpy.arange(9)[:, None])
    close(out, want, "lined up at the start")
    lse = numpy.empty((2, 4, 9), numpy.float32)
    _native.attention(q, k, v, out, lse=lse)
    scores = numpy.einsum("bhnd,bhmd->bhnm", q.astype(float), numpy.repeat(k, 2, 1).astype(float)) / 8
    close(lse, numpy.log(numpy.exp(scores).sum(-1)), "lse of a batch")
    half = [x.astype(numpy.float16) for x in (q, k, v)]
    close(libattn.attention(*half), softmax_attention(*half), "f16", 1e-3)


def test_again():
    """Plans are found again: other lengths in between do not change what a call gives, bit for bit."""
    calls = [(normal(b, 4, n, 64), normal(b, 2, m, 64), normal(b, 2, m, 64)) for b, n, m in
             ((1, 1, 100), (1, 1, 101), (2, 3, 100), (2, 4, 7), (1, 1, 2000))]
    first = [libattn.attention(*call, causal=True) for call in calls]
    for _ in range(3):
        for i in random.permutation(len(calls)):
            again = libattn.attention(*calls[i], causal=True)
            check(again.tobytes() == first[i].tobytes(), f"call {i} again")


def test_varlen():
    lens_q, lens_kv = [3, 1, 70, 5], [3, 40, 70, 2]
    starts_q, starts_kv = (numpy.cumsum([0, *lens]).astype(numpy.int32) for lens in (lens_q, lens_kv))
    q, k, v = normal(starts_q[-1], 4, 64), normal(starts_kv[-1], 2, 64), normal(starts_kv[-1], 2, 64)
    for lens in (None, numpy.array([2, 40, 69, 1], numpy.int32)):
        out = numpy.empty_like(q)
        _native.varlen_attention(q, k, v, out, starts_q, starts_kv, lens, 70, 70, causal=True)
        for i, n in enumerate(lens_q):
            m = lens_kv[i] if lens is None else int(lens[i])
            rows, keys = slice(starts_q[i], starts_q[i] + n), slice(starts_kv[i], starts_kv[i] + m)
            want = softmax_attention(*(x.swapaxes(0, 1)[None] for x in (q[rows], k[keys], v[keys])), causal(n, m))
            close(out[rows], want[0].swapaxes(0, 1), f"sequence {i} of a packed batch, lengths {lens is not None}")
    raises(libattn.Error, lambda: _native.varlen_attention(q, k[:-1], v[:-1], out, starts_q, starts_kv, None, 70, 70),
           "offsets beyond the keys", "kv_offsets", "115", "114")


def test_paged():
    """A step of a prompt, a chunk and a decode over pages in any order: written, prepared once, run for two layers."""
    heads, kv_heads, dim, block, pages = 8, 2, 64, 16, 40
    problem = f"heads={heads} kv_heads={kv_heads} head_dim={dim} q=f32 max_seqs=4 max_q=64 max_kv=512 max_rows=128"
    backend = libattn.backend(problem, device="cpu")
    plan = backend.plan(problem)
    check(plan.kernels and plan.graph_level >= 1, "kernels of a plan", plan.kernels)
    step = plan.step()
    q_lens, kv_lens = [20, 7, 1], [20, 100, 259]
    order = iter(random.permutation(pages))
    table = numpy.zeros((3, 20), numpy.int32)
    for i, n in enumerate(kv_lens):
        table[i, : -(-n // block)] = [next(order) for _ in range(-(-n // block))]
    offsets = numpy.cumsum([0, *q_lens]).astype(numpy.int32)
    batch = dict(num_tokens=28, max_q=20, max_kv=259, table=table, pages=pages)
    step.prepare(offsets, numpy.array(kv_lens, numpy.int32), **batch)
    for layer in range(2):
        # Keys and values of a page one behind the other in one array, as vLLM has them.
        cache = normal(pages, kv_heads, block, 2 * dim)
        kv = backend.kv(cache[..., :dim].transpose(0, 2, 1, 3), cache[..., dim:].transpose(0, 2, 1, 3))
        check((kv.pages, kv.block) == (pages, block), "shape of a cache")
        keys = [(normal(n, kv_heads, dim), normal(n, kv_heads, dim)) for n in kv_lens]
        for i, (k, v) in enumerate(keys):
            places = numpy.arange(kv_lens[i])
            backend.kv_write(kv, k, v, table[i, places // block].astype(numpy.int64) * block + places % block)
        q, out = normal(28, heads, dim), numpy.full((30, heads, dim), 7, numpy.float32)
        plan.run(step, q, out, scale=dim**-0.5, kv=kv)
        for i, (k, v) in enumerate(keys):
            rows = slice(offsets[i], offsets[i + 1])
            want = softmax_attention(*(x.swapaxes(0, 1)[None] for x in (q[rows], k, v)), causal(q_lens[i], kv_lens[i]))
            close(out[rows], want[0].swapaxes(0, 1), f"layer {layer}, sequence {i}")
        check(bool((out[28:] == 7).all()), "rows behind the step are not touched")
    skipped = cache.copy()
    backend.kv_write(kv, keys[0][0][:2], keys[0][1][:2], numpy.array([-1, -1], numpy.int64))
    check(bool((cache == skipped).all()), "negative slots are skipped")
    table[1, 2] = pages
    raises(libattn.Error, lambda: step.prepare(offsets, numpy.array(kv_lens, numpy.int32), **batch),
           "a page beyond the cache", "table", "40")
    raises(libattn.Error, lambda: plan.run(step, q, out, scale=1.0, kv=kv), "a step that was not prepared", "prepare")


def test_plan_cross():
    """Plans of encoders and of cross-attention: keys of sequences one behind the other, and keys in pages."""
    common = "heads=8 kv_heads=2 head_dim=64 q=f32 max_seqs=4 max_q=64 max_kv=64 max_rows=128"
    frames, tokens = [33, 7, 20], [1, 5, 2]
    starts, offsets = (numpy.cumsum([0, *lens]).astype(numpy.int32) for lens in (frames, tokens))
    q, k, v = (normal(starts[-1], heads, 64) for heads in (8, 2, 2))
    keys = [(k[a:b], v[a:b]) for a, b in zip(starts, starts[1:])]
    lens = numpy.array(frames, numpy.int32)

    def run(problem, q, offsets, max_q, kv=None, kv_lens=None, k=None, v=None, **batch):
        backend = libattn.backend(problem, device="cpu")
        plan, out = backend.plan(problem), numpy.zeros_like(q)
        step = plan.step()
        step.prepare(offsets, kv_lens, num_tokens=len(q), max_q=max_q, max_kv=max(frames), **batch)
        plan.run(step, q, out, scale=0.125, kv=kv and backend.kv(*kv), k=k, v=v)
        return out

    want = [attend(q[a:b], *one) for a, b, one in zip(starts, starts[1:], keys)]
    close(run(f"type=encoder {common}", q, starts, 33, k=k, v=v), numpy.concatenate(want), "a plan of an encoder")
    decoded = q[: offsets[-1]]
    want = numpy.concatenate([attend(decoded[a:b], *one) for a, b, one in zip(offsets, offsets[1:], keys)])
    close(run(f"type=encoder_decoder kv_source=new {common}", decoded, offsets, 5, kv_lens=lens, k=k, v=v,
              kv_offsets=starts), want, "a plan of cross-attention over new keys")
    table = numpy.array([[4, 1, 7], [0, -1, -1], [6, 2, -1]], numpy.int32)
    caches = [numpy.zeros((8, 16, 2, 64), numpy.float32) for _ in range(2)]
    for cache, new in zip(caches, (k, v)):
        for i, n in enumerate(frames):
            for t in range(n):
                cache[table[i, t // 16], t % 16] = new[starts[i] + t]
    close(run(f"type=encoder_decoder {common}", decoded, offsets, 5, caches, lens, table=table, pages=8), want,
          "a plan of cross-attention over pages")


def test_serving():
    """A builder, a state and two layers: two prompts, then decodes, beside attention over all that was written."""
    problem = "heads=8 kv_heads=2 head_dim=64 q=f32 block=16 max_seqs=4 max_q=64 max_kv=128 max_rows=64"
    backend = libattn.backend(problem, device="cpu")
    groups = [(16, 8)]
    builder = backend.builder(groups, max_seqs=4, max_tokens=64)
    state = backend.state([problem], groups)
    layers = [backend.layer(problem, scale=0.125) for _ in range(2)]
    caches = [numpy.zeros((10, 16, 2, 64), numpy.float32) for _ in range(4)]
    kvs = [backend.kv(caches[2 * i], caches[2 * i + 1]) for i in range(2)]
    blocks, lens = [[5, 2], [3, 7]], [20, 3]
    seen = [[[normal(0, 2, 64), normal(0, 2, 64)] for _ in lens] for _ in layers]
    for round_ in range(4):
        builder.reset()
        new = lens if round_ == 0 else [1, 1]
        for i, n in enumerate(new):
            builder.add(0 if round_ == 0 else lens[i] + round_ - 1, n, blocks[i], prompt=round_ == 0,
                        unchanged=2 if round_ else 0)
        metadata = builder.build()
        state.begin_forward(metadata)
        total = [n + round_ for n in lens]
        check(metadata["seq_lens"] == total and metadata["num_decode_tokens"] == (0 if round_ == 0 else 2),
              f"metadata of step {round_}", metadata["seq_lens"])
        offsets = numpy.cumsum([0, *new])
        for number, layer in enumerate(layers):
            q, k, v = normal(offsets[-1], 8, 64), normal(offsets[-1], 2, 64), normal(offsets[-1], 2, 64)
            out = numpy.zeros_like(q)
            layer.forward(state, q, out, kv=kvs[number], k=k, v=v)
            for i in range(2):
                rows = slice(offsets[i], offsets[i + 1])
                keys = seen[number][i] = [numpy.concatenate((old, x[rows])) for old, x in zip(seen[number][i], (k, v))]
                want = softmax_attention(*(x.swapaxes(0, 1)[None] for x in (q[rows], *keys)), causal(new[i], total[i]))
                close(out[rows], want[0].swapaxes(0, 1), f"step {round_}, layer {number}, sequence {i}")
    check(metadata["slot_mapping"] == [2 * 16 + 22 - 16, 3 * 16 + 5], "slots", metadata["slot_mapping"])
    check(len(metadata["block_tables"]) == 2 and metadata["block_tables"][1][:2] == [3, 7], "block tables")
    check("block_tables" in _native.fields(), "names of fields")
    raises(libattn.Error, lambda: metadata["hats"], "a field that is none", "'hats'")
    builder.reset()
    raises(libattn.Error, lambda: metadata["seq_lens"], "metadata of a step that ended", "earlier step")
    raises(libattn.Error, lambda: builder.add(0, 65, [1, 2], prompt=True), "more tokens than there is room for", "64")
    raises(libattn.Error, lambda: builder.add(0, 5, [[1], [2]], prompt=True), "lists for two groups", "2 cache groups")


def test_layer_lse():
    """The log-sum-exp of a layer, to merge its result with that over other keys."""
    problem = "heads=4 kv_heads=2 head_dim=64 q=f32 lse=1 block=16 max_seqs=2 max_q=64 max_kv=64 max_rows=64"
    backend = libattn.backend(problem, device="cpu")
    builder, state = backend.builder([(16, 4)], max_seqs=2, max_tokens=64), backend.state([problem], [(16, 4)])
    layer, kv = backend.layer(problem, scale=0.125), backend.kv(*(numpy.zeros((4, 16, 2, 64), numpy.float32)
                                                                  for _ in range(2)))
    builder.reset()
    builder.add(0, 20, [2, 0], prompt=True)
    state.begin_forward(builder.build())
    (q, k, v), lse = (normal(20, heads, 64) for heads in (4, 2, 2)), numpy.zeros((20, 4), numpy.float32)
    layer.forward(state, q, numpy.zeros_like(q), kv=kv, k=k, v=v, lse=lse)
    scores = numpy.einsum("nhd,mhd->nhm", q.astype(float), numpy.repeat(k, 2, 1).astype(float)) / 8
    want = numpy.log(numpy.where(causal(20, 20)[:, None], numpy.exp(scores), 0).sum(-1))
    close(lse, want, "lse of a layer")
    raises(libattn.Error, lambda: layer.forward(state, q, q, kv=kv, k=k, v=v, lse=lse[1:]), "room for lse",
           "lse has 19", "20")
    raises(libattn.Error, lambda: layer.forward(state, q, q, kv=kv, k=k, v=v), "a layer whose problem has it", "lse")


BLOCKS = [[5, 2], [3, 7], [1, 8], [11, 0]]


def square(mask, n, m, before):
    """A mask [..., n, n] over the last n of m keys; the keys before them have the value `before`."""
    return numpy.concatenate((numpy.full((*mask.shape[:-2], n, m - n), before), mask[..., :n, :n]), -1)


def test_advance():
    """Decodes that advance in place, by one token or by what was accepted of two, into blocks that a row gets later."""
    problem = "heads=4 kv_heads=2 head_dim=64 q=f32 block=16 max_seqs=4 max_q=64 max_kv=64 max_rows=64"
    backend, pages = libattn.backend(problem, device="cpu"), [[5, 2, 9], [3]]
    for counts in (None, [2, 1]):
        builder, state = backend.builder([(16, 4)], max_seqs=4, max_tokens=64), backend.state([problem], [(16, 4)])
        layer = backend.layer(problem, scale=0.125)
        kv = backend.kv(*(numpy.zeros((12, 16, 2, 64), numpy.float32) for _ in range(2)))
        seen = [(normal(0, 2, 64), normal(0, 2, 64)) for _ in range(2)]
        n = 1 if counts is None else 2

        def run(metadata, lens):
            state.begin_forward(metadata)
            offsets = numpy.cumsum([0, *lens])
            q, k, v = (normal(offsets[-1], count, 64) for count in (4, 2, 2))
            out = numpy.zeros_like(q)
            layer.forward(state, q, out, kv=kv, k=k, v=v)
            now = [tuple(numpy.concatenate((old, x[a:b])) for old, x in zip(seen[i], (k, v)))
                   for i, (a, b) in enumerate(zip(offsets, offsets[1:]))]
            for i, (a, b) in enumerate(zip(offsets, offsets[1:])):
                close(out[a:b], attend(q[a:b], *now[i], causal(b - a, len(now[i][0]))), f"sequence {i}, {counts} accepted")
            return now

        builder.reset()
        for i, length in enumerate((28, 6)):
            builder.add(0, length, pages[i][:2], prompt=True)
        seen = run(builder.build(), (28, 6))
        builder.reset()
        for i in range(2):
            builder.add(len(seen[i][0]), n, pages[i][:2], prompt=False)
        metadata = builder.build()
        positions = numpy.zeros(2 * n, numpy.int64)
        for step in range(6):
            now = run(metadata, (n, n))
            grown = counts or [1, 1]
            seen = [tuple(x[:len(seen[i][0]) + grown[i]] for x in now[i]) for i in range(2)]
            if step == 1:  # the first sequence gets to its third block
                builder.set_row(0, 2, pages[0][2:])
            metadata.advance(2, accepted=counts, positions=positions)
            check(positions[0] == len(seen[0][0]) and positions[n] == len(seen[1][0]), "positions of the next tokens", positions)
            check(metadata["seq_lens"] == [len(seen[i][0]) + n for i in range(2)], "lengths of the next step", metadata["seq_lens"])
        raises(libattn.Error, lambda: metadata.advance(2, accepted=[1]), "counts for some", "accepted has 1 counts", "2 sequences")
        raises(libattn.Error, lambda: metadata.advance(3), "more sequences than the step has", "3")


def test_layer_mask():
    """Masks of layers, over all keys of a sequence or over its new tokens: prompts, then decodes beside a prompt."""
    common = "heads=4 kv_heads=2 head_dim=64 q=f32 block=16 max_seqs=4 max_q=64 max_kv=64 max_rows=64"
    for kind, span, heads in (("bits", "full", 1), ("bits", "square", 4), ("f32", "full", 4), ("f32", "square", 1)):
        problem = f"{common} mask={kind} span={span}"
        backend = libattn.backend(problem, device="cpu")
        builder, state = backend.builder([(16, 4)], max_seqs=4, max_tokens=64), backend.state([problem], [(16, 4)])
        layer = backend.layer(problem, scale=0.125)
        kv = backend.kv(*(numpy.zeros((12, 16, 2, 64), numpy.float32) for _ in range(2)))
        seen = [(normal(0, 2, 64), normal(0, 2, 64)) for _ in range(3)]
        for members, lens in (((0, 1), (20, 6)), ((2, 0, 1), (12, 1, 1))):
            builder.reset()
            for i, n in zip(members, lens):
                builder.add(len(seen[i][0]), n, BLOCKS[i], prompt=len(seen[i][0]) == 0)
            state.begin_forward(builder.build())
            offsets = numpy.cumsum([0, *lens])
            q, k, v = (normal(offsets[-1], count, 64) for count in (4, 2, 2))
            for i, a, b in zip(members, offsets, offsets[1:]):
                seen[i] = tuple(numpy.concatenate((old, x[a:b])) for old, x in zip(seen[i], (k, v)))
            longest = max(len(seen[i][0]) for i in members)
            shape = len(lens), heads, max(lens), longest if span == "full" else max(lens)
            mask, out = random.random(shape) < 0.5 if kind == "bits" else normal(*shape), numpy.zeros_like(q)
            if kind == "bits":
                mask[..., 0] = True
            layer.forward(state, q, out, kv=kv, k=k, v=v, mask=mask)
            for place, (i, n) in enumerate(zip(members, lens)):
                rows, m = slice(offsets[place], offsets[place + 1]), len(seen[i][0])
                if span == "full":
                    part, visible = mask[place, :, :n, :m], causal(n, m)
                else:
                    part, visible = square(mask[place], n, m, kind == "bits"), True
                want = attend(q[rows], *seen[i], *((visible & part,) if kind == "bits" else (visible, part)))
                close(out[rows], want, f"mask={kind} span={span}, {heads} heads, sequence {i} of {members}")

        def refused(given, name, *parts):
            raises(libattn.Error, lambda: layer.forward(state, q, out, kv=kv, k=k, v=v, mask=given), name, *parts)

        refused(mask[..., :-1], f"columns of a mask, span={span}", f"mask has 12 rows of {shape[3] - 1}", str(shape[3]))
        refused(mask[:, :, :5], f"rows of a mask, span={span}", "mask has 5 rows", "12")
        refused(mask[:2], "a mask of fewer sequences", "mask has 2 in dimension 0", "3")
        refused(mask[..., 0], "dimensions of a mask", "mask has 3 dimensions", "4")
        refused(mask.astype(numpy.float16), "another type of mask", "mask is f16", f"mask={kind}")
        refused(None, "a mask that is missing", "mask")
    # Without rows for prompts a step has two runs, and its mask cannot be cut.
    builder = backend.builder([(16, 4)], max_seqs=4, max_tokens=64, chunked=False)
    builder.reset()
    builder.add(0, 12, BLOCKS[2], prompt=True)
    builder.add(20, 1, BLOCKS[0], prompt=False)
    state.begin_forward(builder.build())
    refused(mask, "a mask where prompts and decodes run separately", "mask cannot", "chunked = 1")
    plain = backend.layer(common, scale=0.125)
    state = backend.state([common], [(16, 4)])
    state.begin_forward(builder.build())
    raises(libattn.Error, lambda: plain.forward(state, q, out, kv=kv, k=k, v=v, mask=mask),
           "a mask that the problem has not", "mask is given")


def test_layer_mla():
    """Layers over a latent cache: a prompt and a decode, queries and keys in one array or in two."""
    problem = ("mla=1 heads=4 kv_heads=1 head_dim=96/64 q=f32 block=16 max_seqs=2 max_q=32 max_kv=32 "
               "max_rows=64")
    backend = libattn.backend(problem, device="cpu")
    for pieces in (False, True):
        builder, state = backend.builder([(16, 2)], max_seqs=2, max_tokens=64), backend.state([problem], [(16, 2)])
        layer, lens = backend.layer(problem, scale=0.1), [20, 7]
        cache = numpy.zeros((12, 16, 1, 96), numpy.float32)
        kv, seen = backend.kv(cache, head_dim_vo=64), [normal(0, 1, 96) for _ in lens]
        for round_ in range(3):
            builder.reset()
            for i, n in enumerate(lens):
                builder.add(len(seen[i]), n, BLOCKS[i], prompt=round_ == 0)
            state.begin_forward(builder.build())
            offsets = numpy.cumsum([0, *lens])
            q, k, out = normal(offsets[-1], 4, 96), normal(offsets[-1], 1, 96), numpy.zeros((offsets[-1], 4, 64), "f4")
            if pieces:
                given = dict(q=q[..., :64].copy(), q_rope=q[..., 64:], k=k[..., :64], k_rope=k[..., 64:].copy())
            else:
                given = dict(q=q, k=k)
            layer.forward(state, out=out, kv=kv, **given)
            for i, (a, b) in enumerate(zip(offsets, offsets[1:])):
                seen[i] = numpy.concatenate((seen[i], k[a:b]))
                want = attend(q[a:b], seen[i], seen[i][..., :64], causal(b - a, len(seen[i])), scale=0.1)
                close(out[a:b], want, f"MLA, step {round_}, sequence {i}, pieces={pieces}")
            lens = [1, 1]
    check(bool((cache[5, :16, 0] == seen[0][:16, 0]).all()), "a latent cache has both pieces")
    for name, change, parts in (("columns of q", dict(q=q), ("q has 96", "64")),
                                ("columns of q_rope", dict(q_rope=q[..., 65:]), ("q_rope has 31", "32")),
                                ("type of k_rope", dict(k_rope=k[..., 64:].astype("f2")), ("k_rope is f16", "f32")),
                                ("tokens of k_rope", dict(k_rope=k[:1, :, 64:]), ("k_rope has 1", "2")),
                                ("k_rope alone", dict(k=None), ("k_rope is given without k",)),
                                ("values of an MLA cache", dict(v=k[..., :64]), ("v",))):
        raises(libattn.Error, lambda: layer.forward(state, out=out, kv=kv, **{**given, **change}), name, *parts)
    raises(libattn.Error, lambda: backend.kv(cache.astype("i1"), head_dim_vo=64, k_scale=0.1, v_scale=0.1),
           "a scale of values that are columns of the keys", "v_scale is given")
    plain = "heads=4 kv_heads=1 head_dim=64 q=f32 block=16 max_seqs=2 max_q=32 max_kv=32 max_rows=64"
    state, layer = backend.state([plain], [(16, 2)]), backend.layer(plain, scale=0.1)
    state.begin_forward(builder.build())
    q = normal(2, 4, 64)
    for name in ("q_rope", "k_rope"):
        raises(libattn.Error, lambda: layer.forward(state, q, out, **{name: q}), f"{name} of a class without MLA",
               f"{name} is given", "mla=1")


def test_layer_types():
    """New keys of another type than q's, and 8-bit caches with their scales."""
    common = "heads=4 kv_heads=2 head_dim=64 q=f32 block=16 max_seqs=2 max_q=32 max_kv=32 max_rows=64"
    for more, cached, new, scales in (("kv=f16", "f2", "f2", {}), ("kv=int8 scales=tensor", "i1", "f4",
                                                                  dict(k_scale=0.05, v_scale=0.06)),
                                      ("kv=int8 scales=tensor", "i1", "f2", dict(k_scale=0.05, v_scale=0.06))):
        problem = f"{common} {more}"
        backend = libattn.backend(problem, device="cpu")
        builder = backend.builder([(16, 2)], max_seqs=2, max_tokens=64)
        state = backend.state([problem], [(16, 2)], new_dtypes=["f16" if new == "f2" else ""])
        layer = backend.layer(problem, scale=0.125)
        caches = [numpy.zeros((12, 16, 2, 64), cached) for _ in range(2)]
        kv, total = backend.kv(*caches, **scales), 0
        for n in (20, 1):
            builder.reset()
            builder.add(total, n, BLOCKS[0], prompt=n > 1)
            state.begin_forward(builder.build())
            q, k, v = normal(n, 4, 64), normal(n, 2, 64, dtype=new), normal(n, 2, 64, dtype=new)
            out = numpy.zeros_like(q)
            layer.forward(state, q, out, kv=kv, k=k, v=v)
            total += n
            stored = [cache[BLOCKS[0]].reshape(32, 2, 64)[:total] * numpy.float64(scales.get(name, 1))
                      for cache, name in zip(caches, ("k_scale", "v_scale"))]
            away = max(abs(kept[-n:] - x).max() / scales.get(name, 1) for kept, x, name in
                       zip(stored, (k, v), ("k_scale", "v_scale")))
            check(away <= (0.501 if scales else 0), f"{more}, new keys of {new}: {n} tokens are in the cache", away)
            close(out, attend(q, *stored, causal(n, total)), f"{more}, new keys of {new}: {n} tokens", 1e-5)
        other = k.astype("f4" if new == "f2" else "f2")
        raises(libattn.Error, lambda: layer.forward(state, q, out, kv=kv, k=other, v=v), "new keys of another type",
               "k_new", "f16", "f32")
    raises(libattn.Error, lambda: backend.state([problem], [(16, 2)], new_dtypes=["f64"]), "no type of new keys",
           "'f64'", "f32, f16, bf16")
    raises(libattn.Error, lambda: backend.state([problem], [(16, 2)], new_dtypes=["f16"] * 2), "types of two classes",
           "new_dtypes has 2", "1")
    raises(libattn.Error, lambda: backend.state([problem], [(16, 2)], [0, 0]), "groups of two classes",
           "class_groups has 2", "1")


def codes(x, scale):
    """Values of int8 that stand for x with a scale."""
    return numpy.clip(numpy.rint(x / scale), -127, 127).astype(numpy.int8)


def scale_like(granularity, tokens, heads):
    """A scale as calls take it, and as it multiplies [tokens, heads, dim]."""
    if granularity == "unit":
        return None, 1.0
    if granularity == "tensor":
        return 0.04, 0.04
    scale = 0.03 + 0.02 * random.random((tokens, heads) if granularity == "token-head" else heads, numpy.float32)
    return scale, scale.astype(numpy.float64)[..., None]


def test_scales():
    """Scales of 8-bit queries and caches of every granularity, through layers; a prompt, then a decode."""
    common = "heads=4 kv_heads=2 head_dim=64 q=int8 out=f32 block=16 max_seqs=2 max_q=32 max_kv=32 max_rows=64"
    for q_kind, kv_kind in (("tensor", "tensor"), ("head", "head"), ("token-head", "token-head"), ("kv-head", "unit")):
        problem = f"{common} q_scale={q_kind} kv=int8 scales={kv_kind}"
        backend = libattn.backend(problem, device="cpu")
        builder = backend.builder([(16, 2)], max_seqs=2, max_tokens=64)
        state, layer = backend.state([problem], [(16, 2)], new_dtypes=["f32"]), backend.layer(problem, scale=0.125)
        caches, total = [numpy.zeros((12, 16, 2, 64), numpy.int8) for _ in range(2)], 0
        scales = {"unit": ("unit", "unit"), "tensor": (0.05, 0.06),
                  "head": tuple(0.05 + 0.01 * random.random(2, numpy.float32) for _ in range(2)),
                  "token-head": tuple(numpy.zeros((12, 16, 2), numpy.float32) for _ in range(2))}[kv_kind]
        kv = backend.kv(*caches, k_scale=scales[0], v_scale=scales[1])
        for n in (20, 1):
            builder.reset()
            builder.add(total, n, BLOCKS[0], prompt=n > 1)
            state.begin_forward(builder.build())
            q_scale, factor = scale_like(q_kind, n, 2 if q_kind == "kv-head" else 4)
            if q_kind == "kv-head":
                factor = numpy.repeat(factor, 2, 0)
            q, out = codes(normal(n, 4, 64), factor), numpy.zeros((n, 4, 64), numpy.float32)
            k, v = (normal(n, 2, 64) * (10 if kv_kind == "unit" else 1) for _ in range(2))
            layer.forward(state, q, out, kv=kv, k=k, v=v, q_scale=q_scale)
            total, stored = total + n, []
            for cache, scale, new in zip(caches, scales, (k, v)):
                if kv_kind == "token-head":
                    scale = scale[BLOCKS[0]].reshape(32, 2)[:total, :, None]
                scale = 1.0 if kv_kind == "unit" else numpy.float64(scale) if kv_kind != "head" else scale[:, None]
                stored.append(cache[BLOCKS[0]].reshape(32, 2, 64)[:total] * scale)
                away = (abs(stored[-1] - numpy.concatenate((stored[-1][:-n], new))) / scale).max()
                check(away <= 0.501, f"scales={kv_kind}: {n} tokens are in the cache", away)
            close(out, attend(q * factor, *stored, causal(n, total)), f"q_scale={q_kind} scales={kv_kind}, {n}", 1e-5)
        if q_kind == "head":
            for given, name, parts in ((None, "a scale that is missing", ("q_scale",)),
                                       (0.1, "a number for heads", ("q_scale is a number", "q_scale=head")),
                                       (q_scale[:3], "scales of heads", ("q_scale has 3", "4")),
                                       (q_scale.astype("f8"), "type of scales", ("q_scale is float64", "f32")),
                                       (q_scale[None], "scales of tokens", ("q_scale has 2 dimensions", "1"))):
                raises(libattn.Error, lambda: layer.forward(state, q, out, kv=kv, q_scale=given), name, *parts)
            raises(libattn.Error, lambda: layer.forward(state, q, out, kv=kv, q_scale=q_scale, v_scale=0.1),
                   "the scale of a cache", "v_scale is given", "Backend.kv")
            raises(libattn.Error, lambda: layer.forward(state, q, out, kv=kv, q_scale=q_scale, out_scale=0.1),
                   "a scale of f32", "out_scale is given", "out_scale=none")
    for given, name, parts in (("unity", "a word for a scale", ("k_scale is 'unity'", "'unit'")),
                               (numpy.ones(3, numpy.float32), "heads of a cache", ("k_scale has 3", "2")),
                               (numpy.ones((12, 8, 2), numpy.float32), "tokens of a cache", ("k_scale has 8", "16")),
                               (None, "a cache without its scale", ("k_scale is not given",))):
        raises(libattn.Error, lambda: backend.kv(*caches, k_scale=given, v_scale=1.0), name, *parts)


def test_scales_new():
    """Scales of 8-bit keys that are read without a cache, and of 8-bit results, through layers and plans."""
    lens = [5, 20, 1]
    offsets = numpy.cumsum([0, *lens]).astype(numpy.int32)
    n = int(offsets[-1])
    for kind, out_kind in (("unit", "none"), ("tensor", "none"), ("head", "tensor"), ("token-head", "head")):
        problem = ("type=encoder_only heads=4 kv_heads=2 head_dim=64 kv=int8 max_seqs=4 max_q=32 max_kv=32 max_rows=64 "
                   f"scales={kind} " + ("q=int8 out=f32 q_scale=unit" if out_kind == "none" else
                                        f"q=f32 out=int8 out_scale={out_kind}"))
        backend = libattn.backend(problem, device="cpu")
        (k_scale, k_factor), (v_scale, v_factor) = (scale_like(kind, n, 2) for _ in range(2))
        out_scale, out_factor = (None, 1.0) if out_kind == "none" else scale_like(out_kind, n, 4)
        q = codes(normal(n, 4, 64), 0.2) if out_kind == "none" else normal(n, 4, 64)
        k, v = codes(normal(n, 2, 64), k_factor), codes(normal(n, 2, 64), v_factor)
        given = dict(k=k, v=v, k_scale=k_scale, v_scale=v_scale, out_scale=out_scale)
        want = numpy.concatenate([attend(q[a:b], (k * k_factor)[a:b], (v * v_factor)[a:b])
                                  for a, b in zip(offsets, offsets[1:])])
        builder, state = backend.builder([(16, 2)], max_seqs=4, max_tokens=64), backend.state([problem], [(16, 2)])
        builder.reset()
        for length in lens:
            builder.add(0, length, None, prompt=True)
        state.begin_forward(builder.build())
        results = [numpy.zeros((n, 4, 64), numpy.float32 if out_kind == "none" else numpy.int8) for _ in range(2)]
        backend.layer(problem, scale=0.125).forward(state, q, results[0], **given)
        plan = backend.plan(problem)
        step = plan.step()
        step.prepare(offsets, num_tokens=n, max_q=20, max_kv=20)
        plan.run(step, q, results[1], scale=0.125, **given)
        for out, name in zip(results, ("layer", "plan")):
            if out_kind == "none":
                close(out, want, f"{name}, new keys of int8, scales={kind}", 1e-5)
            else:
                away = (abs(out * out_factor - want) / out_factor).max()
                check(away <= 0.501, f"{name}, new keys of int8, scales={kind}, out_scale={out_kind}", away)
        if kind == "token-head":
            raises(libattn.Error, lambda: plan.run(step, q, out, scale=0.125, **{**given, "v_scale": v_scale[1:]}),
                   "tokens of v_scale", "v_scale has 25", "26")


def test_cross():
    """Encoder, decoder and cross-attention: prompts, then decodes beside a new prompt, then decodes alone."""
    common = "heads=8 kv_heads=2 head_dim=64 q=f32 block=16 max_seqs=4 max_q=64 max_kv=128 max_rows=64"
    problems = [f"type={name} {common}" for name in ("encoder", "decoder", "encoder_decoder")]
    backend = libattn.backend(problems, device="cpu")
    builder = backend.builder([(16, 8)], max_seqs=4, max_tokens=64, max_encoder_tokens=64, cross=(16, 4))
    state = backend.state(problems, [(16, 8)], cross=(16, 4))
    encoder, own, cross = (backend.layer(problem, scale=0.125, class_index=i) for i, problem in enumerate(problems))
    kv, cross_kv = (backend.kv(*(numpy.zeros((10, 16, 2, 64), numpy.float32) for _ in range(2))) for _ in range(2))
    frames, blocks, cross_blocks = [33, 7, 20], [[5, 2], [3], [7, 1]], [[8, 1, 6], [0], [9, 4]]
    encoded, seen = [None] * 3, [(normal(0, 2, 64), normal(0, 2, 64)) for _ in frames]
    for members, lens in (((0, 1), (20, 3)), ((2, 0, 1), (18, 1, 1)), ((0, 1, 2), (1, 1, 1))):
        builder.reset()
        prompts = [encoded[i] is None for i in members]
        for i, n, prompt in zip(members, lens, prompts):
            builder.add(len(seen[i][0]), n, blocks[i], prompt=prompt, encoder_len=frames[i], cross=cross_blocks[i])
        metadata = builder.build()
        state.begin_forward(metadata)
        new = [i for i, prompt in zip(members, prompts) if prompt]
        check(metadata["encoder_seq_lens"] == [frames[i] for i in members], "lengths of encoders",
              metadata["encoder_seq_lens"])
        slots = [cross_blocks[i][t // 16] * 16 + t % 16 for i in new for t in range(frames[i])]
        check(metadata["cross_slot_mapping"] == slots, "slots of cross-attention", metadata["cross_slot_mapping"])
        starts = numpy.cumsum([0, *(frames[i] for i in new)])
        keys = {}
        if new:
            q, k, v = (normal(starts[-1], heads, 64) for heads in (8, 2, 2))
            out = numpy.zeros_like(q)
            encoder.forward(state, q, out, k=k, v=v)
            want = [attend(*(x[a:b] for x in (q, k, v))) for a, b in zip(starts, starts[1:])]
            close(out, numpy.concatenate(want), f"encoder of {len(new)} prompts")
            keys = dict(zip("kv", (normal(starts[-1], 2, 64) for _ in range(2))))
            for i, a, b in zip(new, starts, starts[1:]):
                encoded[i] = keys["k"][a:b], keys["v"][a:b]
        offsets = numpy.cumsum([0, *lens])
        q, k, v = (normal(offsets[-1], heads, 64) for heads in (8, 2, 2))
        out, crossed = numpy.zeros_like(q), numpy.zeros_like(q)
        own.forward(state, q, out, kv=kv, k=k, v=v)
        cross.forward(state, q, crossed, kv=cross_kv, **keys)
        for i, a, b in zip(members, offsets, offsets[1:]):
            seen[i] = tuple(numpy.concatenate((old, x[a:b])) for old, x in zip(seen[i], (k, v)))
            close(out[a:b], attend(q[a:b], *seen[i], causal(b - a, len(seen[i][0]))), f"self-attention of sequence {i}")
            close(crossed[a:b], attend(q[a:b], *encoded[i]), f"cross-attention of sequence {i}")
        if len(new) == 1:
            raises(libattn.Error, lambda: cross.forward(state, q, out, kv=cross_kv, k=k[:19], v=v[:19]),
                   "fewer keys than the encoder has tokens", "k has 19", "20")
            raises(libattn.Error, lambda: encoder.forward(state, q[:19], out, k=k, v=v), "queries of an encoder",
                   "q has 19", "20")
    raises(libattn.Error, lambda: encoder.forward(state, q, out, k=k, v=v), "an encoder in a step of decodes",
           "class 0")
    builder.reset()
    raises(libattn.Error, lambda: builder.add(0, 1, [1], prompt=True, encoder_len=65), "tokens of encoders",
           "65 encoder tokens", "64")
    raises(libattn.Error, lambda: builder.add(0, 1, [1], prompt=True, encoder_len=33, cross=[1, 2]),
           "blocks of an encoder's keys", "2 blocks of 16 tokens", "33")
    raises(libattn.Error, lambda: builder.add(0, 1, [1], prompt=True, encoder_len=1, cross=[1], cross_unchanged=2),
           "unchanged blocks of cross-attention", "2 of 1")
    raises(libattn.Error,
           lambda: backend.builder([(16, 8)], max_seqs=4, max_tokens=64, cross=(16,), max_encoder_tokens=9),
           "a cross group of one number", "cross has an entry of 1", "(block, max_blocks)")


def test_encoder_only():
    """An embedding model: sequences without blocks, no cache, in both directions."""
    problem = "type=encoder_only heads=4 kv_heads=2 head_dim=64 q=f32 max_seqs=4 max_q=64 max_kv=64 max_rows=128"
    backend = libattn.backend(problem, device="cpu")
    builder, state = backend.builder([(16, 4)], max_seqs=4, max_tokens=128), backend.state([problem], [(16, 4)])
    layer, lens = backend.layer(problem, scale=0.125), [5, 40, 1]
    builder.reset()
    for n in lens:
        builder.add(0, n, None, prompt=True)
    state.begin_forward(builder.build())
    offsets = numpy.cumsum([0, *lens])
    q, k, v = (normal(offsets[-1], heads, 64) for heads in (4, 2, 2))
    out = numpy.zeros_like(q)
    layer.forward(state, q, out, k=k, v=v)
    want = [attend(*(x[a:b] for x in (q, k, v))) for a, b in zip(offsets, offsets[1:])]
    close(out, numpy.concatenate(want), "three sequences of an encoder alone")
    raises(libattn.Error, lambda: layer.forward(state, q, out, k=k[1:], v=v), "tokens of k", "k has 45", "46")
    builder.reset()
    raises(libattn.Error, lambda: builder.add(0, 1, None, prompt=True, encoder_len=1),
           "an encoder that the builder was made without", "encoder_len is 1")


class Written:
    """What the layers of a model have written of each sequence, and whether their results are right."""

    def __init__(self, layers, seqs, name):
        self.keys = [[(normal(0, 2, 64), normal(0, 2, 64)) for _ in range(seqs)] for _ in range(layers)]
        self.name = name

    def judge(self, layer, members, lens, q, k, v, out, mask=None):
        """One layer of a step of `lens` new tokens of the sequences `members`, in order; a mask [n, n] says which
        of the new tokens are seen."""
        at = 0
        for i, n in zip(members, lens):
            rows = slice(at, at + n)
            keys = self.keys[layer][i] = tuple(numpy.concatenate((x, y[rows]))
                                               for x, y in zip(self.keys[layer][i], (k, v)))
            m = len(keys[0])
            visible, bias = causal(n, m), 0.0
            if mask is not None:
                visible, bias = (square(mask, n, m, True), 0.0) if mask.dtype == bool else (None, square(mask, n, m, 0))
            close(out[rows], attend(q[rows], *keys, visible, bias),
                  f"{self.name}, layer {layer}, sequence {i} of {members}")
            at += n

    def keep(self, members, lens):
        """Forgets all but `lens` tokens of the sequences `members`, as where drafted tokens are not accepted."""
        for layer in self.keys:
            for i, n in zip(members, lens):
                layer[i] = tuple(x[:n] for x in layer[i])


def make_layers(backend, problem, count, tokens):
    """Layers of one class, their caches, and arrays of `tokens` tokens that graphs read and write."""
    return [dict(layer=backend.layer(problem, scale=0.125),
                 kv=backend.kv(*(numpy.zeros((12, 16, 2, 64), numpy.float32) for _ in range(2))),
                 q=normal(tokens, 8, 64), k=normal(tokens, 2, 64), v=normal(tokens, 2, 64),
                 out=numpy.zeros((tokens, 8, 64), numpy.float32)) for _ in range(count)]


def capture(backend, state, layers, batch, mask=None, **size):
    """A graph of planning and all layers, which is all that holds the clone of its size."""
    metadata = state.get_capture_metadata(batch, **size)
    clone = state.clone(batch)

    def step(stream):
        clone.begin_forward(metadata, stream)
        for one in layers:
            one["layer"].forward(clone, one["q"], one["out"], kv=one["kv"], k=one["k"], v=one["v"], mask=mask,
                                 stream=stream)

    step(0)
    with backend.graph() as graph:
        step(graph.stream)
    return graph


def fill(layers):
    for one in layers:
        for name in "qkv":
            one[name][:] = normal(*one[name].shape)


def test_graph():
    """Decodes launched as graphs of a ladder of sizes, behind prompts without a graph."""
    problem = "heads=8 kv_heads=2 head_dim=64 q=f32 graph=single block=16 max_seqs=4 max_q=64 max_kv=32 max_rows=64"
    backend = libattn.backend(problem, device="cpu")
    builder = backend.builder([(16, 2)], max_seqs=4, max_tokens=64)
    state = backend.state([problem], [(16, 2)], max_capture_len=30)
    layers = make_layers(backend, problem, 2, 64)
    state.begin_capture(4)
    graphs = {size: capture(backend, state, layers, size) for size in (4, 2, 1)}
    last = state.get_capture_metadata(2)
    check(last["num_decode_tokens"] == 2 and last["use_cuda_graph"] == 1, "metadata of a capture")
    raises(libattn.Error, lambda: state.clone(1), "a clone of another size", "batch is 1")
    raises(libattn.Error, lambda: state.get_capture_metadata(5), "more than the capture", "batch is 5", "1 to 4")
    raises(libattn.Error, lambda: last["use_cuda_graph"], "capture metadata that ended", "that of a capture")
    raises(libattn.Error, lambda: state.clone(2), "and has no clone any more", "batch is 2", "get_capture_metadata")
    state.end_capture()
    raises(libattn.Error, lambda: state.get_capture_metadata(1), "outside of a capture", "begin_capture")
    written, lens = Written(2, 4, "a ladder of graphs"), [20, 3, 15, 17]
    builder.reset()
    for i, n in enumerate(lens):
        builder.add(0, n, BLOCKS[i], prompt=True)
    state.begin_forward(builder.build())
    for i, one in enumerate(layers):
        one["layer"].forward(state, one["q"], one["out"], kv=one["kv"], k=one["k"], v=one["v"])
        written.judge(i, range(4), lens, *(one[name] for name in ("q", "k", "v", "out")))
    arrays = [weakref.ref(one["out"]) for one in layers]
    for members in ((0, 1, 2), (3,), (0, 1, 2, 3), (1, 2), (0, 3), (2,)):
        size = min(size for size in graphs if size >= len(members))
        builder.reset()
        for i in members:
            builder.add(len(written.keys[0][i][0]), 1, BLOCKS[i], prompt=False)
        state.prepare(builder.build(graph=True, pad=size - len(members), host_only=True))
        fill(layers)
        graphs[size].launch()
        for i, one in enumerate(layers):
            written.judge(i, members, [1] * len(members), *(one[name] for name in ("q", "k", "v", "out")))
    builder.reset()
    for i in range(3):
        builder.add(5, 1, BLOCKS[i], prompt=False)
    raises(libattn.Error, lambda: state.prepare(builder.build()), "a step without a graph", "use_cuda_graph is 0")
    raises(libattn.Error, lambda: state.prepare(builder.build(graph=True)), "a size that was not captured",
           "num_decode_tokens is 3")
    builder.reset()
    builder.add(30, 1, BLOCKS[0], prompt=False)
    raises(libattn.Error, lambda: state.prepare(builder.build(graph=True)), "longer than max_capture_len", "31", "30")
    del layers, one
    check(all(array() is not None for array in arrays), "a graph holds its arrays")
    graphs[1].launch()
    graphs.clear()
    check(all(array() is None for array in arrays), "and lets go of them")
    raises(libattn.Error, lambda: state.prepare(builder.build(graph=True)), "clones that went with their graphs",
           "no graph of that size")


def test_graph_mix():
    """Prompts, chunks and decodes in one graph, in any mix."""
    problem = "heads=8 kv_heads=2 head_dim=64 q=f32 graph=always block=16 max_seqs=4 max_q=64 max_kv=32 max_rows=64"
    backend = libattn.backend(problem, device="cpu")
    builder = backend.builder([(16, 2)], max_seqs=4, max_tokens=64)
    state = backend.state([problem], [(16, 2)], capture_num_tokens=48)
    layers = make_layers(backend, problem, 2, 48)
    state.begin_capture(4)
    graph = capture(backend, state, layers, 4, num_tokens=48)
    state.end_capture()
    written = Written(2, 4, "a graph of any mix")
    for members, lens, decodes in (((0, 1), (20, 3), 0), ((2, 0, 1), (15, 1, 1), 2), ((3, 0, 1, 2), (17, 1, 1, 1), 3),
                                   ((1, 2, 3), (1, 1, 1), 3)):
        builder.reset()
        for place, (i, n) in enumerate(zip(members, lens)):
            builder.add(len(written.keys[0][i][0]), n, BLOCKS[i], prompt=place < len(members) - decodes)
        state.prepare(builder.build(graph=True, host_only=True))
        fill(layers)
        graph.launch()
        for i, one in enumerate(layers):
            written.judge(i, members, lens, *(one[name] for name in ("q", "k", "v", "out")))
    # Layers of such a step take as many tokens as the graph has.
    metadata = builder.build(graph=True)
    state.begin_forward(metadata)
    one = layers[0]
    raises(libattn.Error, lambda: one["layer"].forward(state, one["q"][:3], one["out"], kv=one["kv"]),
           "fewer queries than the graph has", "q has 3", "48")


def test_graph_drafts():
    """Decodes that verify two drafted tokens each, of which some are accepted: in a row, and as a tree by a mask."""
    common = "heads=8 kv_heads=2 head_dim=64 q=f32 graph=uniform block=16 max_seqs=4 max_q=16 max_kv=32 max_rows=64"
    for more in ("", " mask=f32 span=square", " mask=bits span=square"):
        problem, mask = common + more, normal(1, 1, 16, 16) if more else None
        if "bits" in more:
            mask = (mask > 0) | numpy.eye(16, dtype=bool)
        tree = None if mask is None else mask[0, 0]
        backend = libattn.backend(problem, device="cpu")
        builder = backend.builder([(16, 2)], max_seqs=4, max_tokens=64)
        state = backend.state([problem], [(16, 2)], capture_tokens=3)
        layers, written = make_layers(backend, problem, 2, 64), Written(2, 4, f"drafts{more}")
        state.begin_capture(4)
        raises(libattn.Error, lambda: state.get_capture_metadata(4, tokens=4), "more tokens than the state has",
               "tokens is 4", "3")
        graphs = {size: capture(backend, state, layers, size, mask, tokens=3) for size in (4, 2)}
        state.end_capture()
        lens = [15, 2, 9, 13]
        builder.reset()
        for i, n in enumerate(lens):
            builder.add(0, n, BLOCKS[i], prompt=True)
        state.begin_forward(builder.build())
        for i, one in enumerate(layers):
            one["layer"].forward(state, one["q"], one["out"], kv=one["kv"], k=one["k"], v=one["v"], mask=mask)
            written.judge(i, range(4), lens, *(one[name] for name in ("q", "k", "v", "out")), mask=tree)
        for members in ((0, 1, 2, 3), (2, 0), (1,), (3, 0, 1)):
            builder.reset()
            for i in members:
                builder.add(len(written.keys[0][i][0]), 3, BLOCKS[i], prompt=False)
            state.prepare(builder.build(graph=True, host_only=True))
            fill(layers)
            if "f32" in more:  # bools stay as they were captured
                mask[:] = normal(*mask.shape)
            graphs[min(size for size in graphs if size >= len(members))].launch()
            for i, one in enumerate(layers):
                arrays = (one[name] for name in ("q", "k", "v", "out"))
                written.judge(i, members, [3] * len(members), *arrays, mask=tree)
            written.keep(members, [len(written.keys[0][i][0]) - place % 3 for place, i in enumerate(members)])
        builder.reset()
        for i in range(2):
            builder.add(5, 3 - i, BLOCKS[i], prompt=False)
        raises(libattn.Error, lambda: state.prepare(builder.build(graph=True)), "other numbers of drafts", "no graph")


def test_graph_cross():
    """Decodes of cross-attention in a graph, whose keys stay where they are."""
    problem = ("type=encoder_decoder heads=8 kv_heads=2 head_dim=64 q=f32 graph=single block=16 max_seqs=4 max_q=4 "
               "max_kv=64 max_rows=16")
    backend = libattn.backend(problem, device="cpu")
    builder = backend.builder([(16, 2)], max_seqs=4, max_tokens=64, max_encoder_tokens=128, cross=(16, 3))
    state = backend.state([problem], [(16, 2)], cross=(16, 3))
    kv, layer = backend.kv(*(normal(12, 16, 2, 64) for _ in range(2))), backend.layer(problem, scale=0.125)
    k, v = (normal(80, 2, 64) for _ in range(2))
    q, out = normal(4, 8, 64), numpy.zeros((4, 8, 64), numpy.float32)
    frames, blocks = [40, 10, 30], [[4, 0, 9], [7], [2, 11]]
    slots = [blocks[i][t // 16] * 16 + t % 16 for i, n in enumerate(frames) for t in range(n)]
    backend.kv_write(kv, k, v, numpy.array(slots))
    state.begin_capture(4)
    metadata = state.get_capture_metadata(4, encoder_decoder=True)
    clone = state.clone(4)
    with backend.graph() as graph:
        clone.begin_forward(metadata, graph.stream)
        layer.forward(clone, q, out, kv=kv, stream=graph.stream)
    state.end_capture()
    starts = numpy.cumsum([0, *frames])
    for members in ((0, 1, 2), (2, 0), (1,)):
        builder.reset()
        for i in members:
            builder.add(3, 1, BLOCKS[i], prompt=False, encoder_len=frames[i], cross=blocks[i])
        state.prepare(builder.build(graph=True, pad=4 - len(members), host_only=True))
        q[:] = normal(*q.shape)
        graph.launch()
        for row, i in enumerate(members):
            keys = slice(starts[i], starts[i + 1])
            close(out[row : row + 1], attend(q[row : row + 1], k[keys], v[keys]), f"sequence {i} of {members}")


def test_graph_plan():
    """A plan in a graph: prepared, its keys written and run by each launch, from what the arrays hold by then."""
    problem = "heads=8 kv_heads=2 head_dim=64 q=f32 block=16 graph=single max_seqs=2 max_q=1 max_kv=32 max_rows=2"
    backend = libattn.backend(problem, device="cpu")
    plan = backend.plan(problem)
    step, kv = plan.step(), backend.kv(*(numpy.zeros((4, 16, 2, 64), numpy.float32) for _ in range(2)))
    q, k, v, out = (normal(2, heads, 64) for heads in (8, 2, 2, 8))
    table, lens = numpy.array([[3, 0], [1, 2]], numpy.int32), numpy.zeros(2, numpy.int32)
    slots, offsets = numpy.zeros(2, numpy.int64), numpy.arange(3, dtype=numpy.int32)
    with backend.graph() as graph:
        step.prepare(offsets, lens, num_tokens=2, max_q=1, max_kv=32, table=table, pages=4, stream=graph.stream)
        backend.kv_write(kv, k, v, slots, stream=graph.stream)
        plan.run(step, q, out, scale=0.125, kv=kv, stream=graph.stream)
    raises(libattn.Error, lambda: plan.run(step, q, out, scale=0.125, kv=kv), "a step that a graph prepares", "graph")
    written = Written(1, 2, "a plan in a graph")
    for n in range(20):
        lens[:] = n + 1
        slots[:] = table[:, n // 16] * 16 + n % 16
        for array in (q, k, v):
            array[:] = normal(*array.shape)
        graph.launch()
        written.judge(0, (0, 1), (1, 1), q, k, v, out)
    # A step may go on to other arrays while the graph has its own.
    arrays = [weakref.ref(array) for array in (table, lens, offsets)]
    step.prepare(offsets.copy(), lens.copy(), num_tokens=2, max_q=1, max_kv=20, table=table.copy(), pages=4)
    del table, lens, offsets, array
    check(all(array() is not None for array in arrays), "a graph holds the arrays of a step that it prepares")
    want = out.copy()
    plan.run(step, q, out, scale=0.125, kv=kv)
    close(out, want, "the step without the graph")
    out[:] = 0
    graph.launch()
    close(out, want, "and the graph again")


def test_graph_errors():
    backend = libattn.backend("heads=8 kv_heads=2 head_dim=64 q=f32", device="cpu")
    graph, cache = backend.graph(), numpy.zeros((1, 16, 2, 64), numpy.float32)
    kv, k, slots = backend.kv(cache, cache.copy()), normal(2, 2, 64), numpy.array([3, 5])
    raises(libattn.Error, graph.launch, "a graph that holds nothing", "no step")
    try:
        with graph:
            backend.kv_write(kv, k, k, slots, stream=graph.stream)
            raises(libattn.Error, graph.launch, "a launch inside of the capture", "still captured")
            raises(libattn.Error, lambda: backend.graph(graph.stream).__enter__(), "a stream that is captured",
                   "captured already")
            raise KeyError("left")
    except KeyError:
        pass
    raises(libattn.Error, graph.launch, "a graph that an exception left", "no step")
    with graph:
        backend.kv_write(kv, k, k, slots, stream=graph.stream)
    check(not cache.any(), "a capture writes nothing")
    graph.launch()
    check(bool((cache[0, [3, 5]] == k).all()), "a launch does")
    slots[:] = 7, -1
    k[0] = 2
    graph.launch()
    check(bool((cache[0, 7] == 2).all() and (cache[0, 6] == 0).all()), "with what its arrays hold by then")
    raises(libattn.Error, lambda: graph.__enter__(), "a graph that is captured twice", "captured before")


def test_errors():
    q, k, v = normal(1, 4, 3, 64), normal(1, 2, 5, 64), normal(1, 2, 5, 64)
    caught = raises(libattn.Error, lambda: libattn.attention(q, k[..., :32], v), "dim of k", "k has 32", "64")
    check((caught.status, caught.field) == ("ATTN_E_INVALID", "k") and caught.advice, "status, field and advice")
    again = pickle.loads(pickle.dumps(caught))
    check((str(again), again.status, again.field) == (str(caught), caught.status, caught.field), "an error is pickled")
    raises(libattn.Error, lambda: libattn.attention(q, k[:, :1], v), "heads of v", "v has 2", "1")
    raises(libattn.Error, lambda: libattn.attention(normal(1, 3, 3, 64), k, v), "heads of k", "k has 2", "3")
    raises(libattn.Error, lambda: libattn.attention(q, k, v[:, :, :4]), "tokens of v", "v has 4", "5")
    raises(libattn.Error, lambda: libattn.attention(q[0], k, v), "dimensions of q", "q has 3 dimensions", "4")
    raises(libattn.Error, lambda: libattn.attention(q, k.astype(numpy.int32), v), "element type of k", "k is i32")
    raises(libattn.Error, lambda: libattn.attention(q, k[..., ::2], v[..., ::2]), "gaps", "32")
    raises(libattn.Error, lambda: libattn.attention(q, "keys", v), "no array", "k is a str")
    raises(libattn.Error, lambda: libattn.attention(q, k, v, mask=normal(1, 1, 3, 4)), "columns of mask", "has 4", "5")
    raises(libattn.Error, lambda: libattn.attention(q, k, v, sinks=normal(3)), "sinks", "sinks has 3", "4")
    raises(libattn.Error, lambda: libattn.attention(q, k, v, window=(1, 2, 3)), "window", "(1, 2, 3)")
    raises(libattn.Error, lambda: libattn.attention(q, k, v, backend="cuda"), "a backend that is not there", "cuda")
    raises(libattn.Error, lambda: libattn.attention(q.astype(numpy.float64), k, v), "f64", "q is float64")
    raises(libattn.Error, lambda: libattn.attention(q, k, v, scale=0.0), "scale of 0", "softmax_scale is 0")
    out = numpy.empty((1, 4, 3, 64), numpy.float32)
    raises(libattn.Error, lambda: _native.attention(q, k, v, out, lse=normal(1, 4, 2)), "room", "lse has 2", "3")
    nine = numpy.array([9], numpy.int32)
    raises(libattn.Error, lambda: _native.attention(q, k, v, out, kv_lens=nine), "lengths beyond the keys", "9")
    packed, offsets = normal(10, 4, 64), numpy.array([0, 5, 10], numpy.int32)
    arrays = packed, packed, packed, packed, offsets, offsets, None
    raises(libattn.Error, lambda: _native.varlen_attention(*arrays, 5, 2**40), "a bound", "max_kv", "2147483")
    fixed = numpy.zeros((1, 4, 3, 64), numpy.float32)
    fixed.flags.writeable = False
    raises(libattn.Error, lambda: _native.attention(q, k, v, fixed), "read-only out", "out is read-only")
    check(libattn.attention(q[:, :, :0], k, v).shape == (1, 4, 0, 64), "no queries")
    close(libattn.attention(q, k[:, :, :0], v[:, :, :0]), numpy.zeros((1, 4, 3, 64)), "no keys are zeros")
    read_only = q.copy()
    read_only.flags.writeable = False
    close(libattn.attention(read_only, k, v), softmax_attention(q, k, v), "inputs may be read-only")


def test_run_errors():
    """What a run is given has to be what the plan's problem has, and as large as the step says."""
    limits = "max_seqs=4 max_q=16 max_kv=64 max_rows=64"
    problem = f"heads=4 kv_heads=1 head_dim=64 q=f32 {limits}"
    backend = libattn.backend(problem, device="cpu")
    plan, q, out = backend.plan(problem), normal(2, 4, 64), normal(2, 4, 64)
    cache = numpy.zeros((1, 16, 1, 64), numpy.float32)
    kv, step = backend.kv(cache, cache.copy()), plan.step()
    offsets, lens = numpy.array([0, 2], numpy.int32), numpy.array([3], numpy.int32)
    batch = dict(num_tokens=2, max_q=2)
    backend.kv_write(kv, normal(3, 1, 64), normal(3, 1, 64), numpy.arange(3))
    check(bool(cache[0, :3].any(-1).all()) and not cache[0, 3:].any(), "a cache of one page and one head")
    raises(libattn.Error, lambda: backend.kv_write(kv, q[:1, :1], q[:1, :1], numpy.array([16])), "a slot beyond",
           "16 slots")
    step.prepare(offsets, lens, max_kv=3, table=numpy.zeros((1, 1), numpy.int32), **batch)
    for name, given in (("sinks", normal(4)), ("alibi_slopes", normal(4)), ("lse", normal(2, 4)),
                        ("k", normal(2, 1, 64)), ("mask", normal(1, 1, 2, 3))):
        raises(libattn.Error, lambda: plan.run(step, q, out, scale=1.0, kv=kv, **{name: given}),
               f"{name} that the problem has not", f"{name} is given")
    raises(libattn.Error, lambda: plan.run(step, q, out[:1], scale=1.0, kv=kv), "room for results", "out has 1")
    step.prepare(offsets, numpy.array([40], numpy.int32), max_kv=40, table=numpy.full((1, 3), 9, numpy.int32), **batch)
    raises(libattn.Error, lambda: plan.run(step, q, out, scale=1.0, kv=kv), "a page that the cache has not", "page 9")
    masked = backend.plan("heads=4 kv_heads=1 head_dim=64 q=f32 kv_source=new mask=f32 span=full lse=1 addr=dense "
                          + limits)
    step = masked.step()
    step.prepare(offsets, lens, max_kv=3, kv_offsets=numpy.array([0, 3], numpy.int32), **batch)
    keys, lse = dict(k=normal(3, 1, 64), v=normal(3, 1, 64)), numpy.empty((2, 4), numpy.float32)
    masked.run(step, q, out, scale=1.0, mask=numpy.zeros((1, 1, 2, 3), numpy.float32), lse=lse, **keys)
    for name, more, parts in (("columns", dict(mask=normal(1, 1, 2, 2)), ("mask has 2 rows of 2", "3")),
                              ("type", dict(mask=normal(1, 1, 2, 3, dtype=numpy.float16)), ("f16", "mask=f32")),
                              ("room for lse", dict(mask=normal(1, 1, 2, 3), lse=lse[:1]), ("lse has 1", "2")),
                              ("tokens of k", dict(mask=normal(1, 1, 2, 3), k=normal(2, 1, 64)), ("k has 2", "3"))):
        given = {"lse": lse, **keys, **more}
        raises(libattn.Error, lambda: masked.run(step, q, out, scale=1.0, **given), name, *parts)


def test_problems():
    problem = libattn.Problem("num_heads=32 head_size=128", q="bf16", kv_heads=8, lse=True)
    check(str(problem) == "heads=32 head_dim=128 kv_heads=8 q=bf16 lse=1", "canonical", str(problem))
    check((problem["kv_heads"], problem["block"], len(problem)) == ("8", "16", len(list(problem))), "keys and defaults")
    check(problem == libattn.Problem(str(problem)) and hash(problem) == hash(libattn.Problem(str(problem))), "equal")
    raises(libattn.Error, lambda: libattn.Problem("heads=3 kv_heads=2 head_dim=64 q=f32"), "a bad value", "kv_heads")
    raises(KeyError, lambda: problem["hats"], "a key that is none")


def test_decisions():
    decision = libattn.select(["heads=8 head_dim=64 q=f32", "heads=8 head_dim=64 q=f32 window=100"], ask_all=True)
    check(decision.effective in [one["name"] for one in decision.candidates], "a winner among the candidates")
    none = libattn.select("heads=8 head_dim=64 q=f32", backend="nobody")
    check(none.effective is None and "nobody" in none.text, "that none serves is an answer", none.text)
    raises(libattn.Error, lambda: libattn.backend("heads=8 head_dim=64 q=f32", backend="nobody"), "opening raises",
           "nobody")
    table = libattn.explain("heads=8 head_dim=64 q=f32")
    check("chosen" in repr(table) and "<td>chosen</td>" in table._repr_html_(), "explain as text and HTML", table)
    check(any(row["backend"] == "cpu/flash-attn" and row["state"] == "ready" for row in libattn.info()), "info")
    check("<script>" not in libattn.Table(("a",), [("<script>",)])._repr_html_(), "HTML is escaped")
    check(any(one["name"] == "ATTN_BACKEND" for one in libattn.context().variables()), "variables")
    check(re.fullmatch(r"\d+\.\d+\.\d+", libattn.version) is not None, "version", libattn.version)


def test_threads():
    q, k, v = normal(2, 4, 5, 64), normal(2, 2, 400, 64), normal(2, 2, 400, 64)
    want, wrong = libattn.attention(q, k, v).tobytes(), []

    def work():
        wrong.extend(i for i in range(200) if libattn.attention(q, k, v).tobytes() != want)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not wrong, "four threads call with one plan")


def test_fork():
    q, k, v = normal(1, 4, 5, 64), normal(1, 2, 40, 64), normal(1, 2, 40, 64)
    want = libattn.attention(q, k, v).tobytes()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if libattn.attention(q, k, v).tobytes() == want else 1)
        except BaseException as error:
            print("#", error, flush=True)
            os._exit(2)
    check(os.waitpid(child, 0)[1] == 0, "a child of a fork computes the same")
    check(libattn.attention(q, k, v).tobytes() == want, "and the parent goes on")


def test_memory():
    """Arrays are let go of: thousands of small calls keep no memory."""
    import resource
    q, k, v = normal(1, 4, 5, 64), normal(1, 2, 40, 64), normal(1, 2, 40, 64)
    counts = [sys.getrefcount(x) for x in (q, k, v)]
    for _ in range(100):
        libattn.attention(q, k, v)
    check([sys.getrefcount(x) for x in (q, k, v)] == counts, "no references are kept")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for m in range(1, 3000):
        libattn.attention(q, k[:, :, : m % 39 + 1], v[:, :, : m % 39 + 1])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    check(grown < 4096, "thousands of calls of other lengths take no more memory", f"{grown} KiB more")


if __name__ == "__main__":
    main(sys.modules[__name__])
