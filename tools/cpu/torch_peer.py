# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch's scaled_dot_product_attention as a peer: each way to call it is tried, and the fastest is measured."""

import warnings

import oracle
import timing

TRY_SECONDS = 0.1  # that choosing a way takes for each
SHIFT = 17  # tokens by which each set of keys and values is shifted from the one before


class Peer:
    def __init__(self, settings):
        self.settings = settings
        import torch

        torch.set_num_threads(settings["threads"])
        torch.set_num_interop_threads(1)
        torch.manual_seed(settings["seed"])
        self.torch, self.way, self.ways = torch, None, {}
        self.case = self.query = self.keys = self.values = None

    def about(self):
        capability = getattr(getattr(self.torch.backends, "cpu", None), "get_cpu_capability", lambda: None)()
        return {"version": self.torch.__version__, "capability": capability, "mkldnn":
                bool(self.torch.backends.mkldnn.is_available())}

    def open(self, case):
        self.close()
        if case["kv"] == "int8":
            raise ValueError("scaled_dot_product_attention takes no 8-bit keys")
        if case["stock_mask"]:
            raise ValueError("ggml's own cases are measured beside ggml alone")
        torch, self.case = self.torch, case
        kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[case["kv"]]
        with torch.inference_mode():
            self.query = torch.randn(case["seqs"], case["heads"], case["queries"], case["dim"]).to(kind)
            shape = (case["seqs"], case["kv_heads"], case["keys"], case["dim"])
            self.keys, self.values = torch.randn(shape).to(kind), torch.randn(shape).to(kind)
            return self.choose()

    def choose(self):
        """Times every way whose result is right, and keeps the fastest."""
        best, reasons, way = None, [], None
        for name, repeated, options in self.ways_of(self.case):
            try:
                way = Way(self, name, repeated, options, way)
                error = way.error()
                if not error < self.settings["bound"]:
                    reasons.append(f"{name}: error {error:.2g}")
                    continue
                took = min(way.rotation.sample(TRY_SECONDS))  # what a neighbour disturbs chooses nothing
            except (RuntimeError, TypeError, ValueError) as failure:  # older versions have not all of these
                reasons.append(f"{name}: {str(failure).splitlines()[0][:100]}")
                continue
            self.ways[name] = took
            if best is None or took < best[0]:
                best = (took, way, error)
        if best is None:
            raise ValueError("; ".join(reasons))
        _, self.way, error = best
        return {"error": error, "sets": self.way.sets, "calls": 1, "reads": f"contiguous tensors; {self.way.name}",
                "ways_us": self.ways}

    def ways_of(self, case):
        """(name, how often kv heads are repeated beforehand, options of the call)."""
        torch, group = self.torch, case["heads"] // case["kv_heads"]
        masks = {"": {}}
        if case["queries"] == case["keys"]:
            masks = {"": {"is_causal": True}}
        elif case["queries"] > 1:
            shown = torch.ones(case["queries"], case["keys"], dtype=torch.bool).tril(case["keys"] - case["queries"])
            added = torch.zeros(shown.shape, dtype=self.query.dtype).masked_fill_(~shown, float("-inf"))
            masks = {", mask of bools": {"attn_mask": shown}, ", mask that is added": {"attn_mask": added}}
        for mask, options in masks.items():
            if group == 1:
                yield "as it is" + mask, 1, options
                continue
            yield "enable_gqa" + mask, 1, {**options, "enable_gqa": True}
            if case["queries"] == 1:  # the heads of a group see the same keys, so they can pass for query tokens
                yield "heads of a group as query tokens", 1, {}
            yield "kv heads repeated" + mask, group, options

    def sample(self, seconds):
        return self.way.rotation.sample(seconds)

    def close(self):
        self.way, self.ways = None, {}
        self.case = self.query = self.keys = self.values = None


class Way:
    """Sets of keys and values as one way to call it wants them, which may be those of the way before."""

    def __init__(self, peer, name, repeated, options, before):
        self.peer, self.torch, self.name, self.options, case = peer, peer.torch, name, options, peer.case
        self.repeated = repeated
        self.query = peer.query
        if name.startswith("heads of a group"):
            self.query = peer.query.view(case["seqs"], case["kv_heads"], -1, case["dim"])
        self.kept = before.kept if before is not None and before.repeated == repeated else self.make()
        self.sets = len(self.kept)
        self.rotation = timing.Rotation(self.run, self.sets)

    def make(self):
        """Pairs of keys and values: the peer's, and copies that are shifted by some tokens."""
        sides = (self.peer.keys, self.peer.values)
        if self.repeated > 1:
            sides = [side.repeat_interleave(self.repeated, dim=1) for side in sides]
        size = sum(side.numel() * side.element_size() for side in sides)
        sets = timing.sets_for(self.peer.case, size, self.peer.settings["cold_bytes"])
        return [sides, *([side.roll(SHIFT * index, 2) for side in sides] for index in range(1, sets))]

    def run(self, index):
        keys, values = self.kept[index]
        with self.torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.torch.nn.functional.scaled_dot_product_attention(self.query, keys, values, **self.options)

    def error(self):
        """The error of sampled rows of the first set."""
        case, peer = self.peer.case, self.peer
        out = self.run(0).reshape(case["seqs"], case["heads"], case["queries"], case["dim"])
        rows = []
        for sequence, token, head in oracle.pairs(case, peer.settings["seed"]):
            count, kv_head = oracle.visible(case, token), head * case["kv_heads"] // case["heads"]
            keys, values = (side[sequence, kv_head, :count].double().flatten().tolist()
                            for side in (peer.keys, peer.values))
            query = peer.query[sequence, head, token].double().tolist()
            rows.append((out[sequence, head, token].double().tolist(), oracle.attention(query, keys, values)))
        return oracle.distance(rows)
