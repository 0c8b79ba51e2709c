# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention kernels of other packages, FlashAttention-3 and FlashInfer, each measured if it can be had."""

import importlib
import shutil
import signal
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path

COMPILE_SECONDS = 150  # that FlashInfer may compile for one case
WORKSPACE_BYTES = 256 << 20  # of FlashInfer, zero at first
PAGE = 16  # tokens that FlashInfer takes as a page of a cache without pages


class Packages:
    """Packages by their names: installed ones, and those of wheels, which are unpacked and not installed."""

    def __init__(self, wheels=()):
        self.found, self.given_up, self.folder = {}, {}, None
        if wheels:
            self.folder = tempfile.TemporaryDirectory(prefix="gpu-bench-")
            for wheel in wheels:
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(self.folder.name)
            sys.path.insert(0, self.folder.name)

    def get(self, name):
        """The module; raises ValueError with the reason that there is none."""
        if name not in self.found:
            try:
                self.found[name] = importlib.import_module(name)
            except ModuleNotFoundError as error:
                self.found[name] = f"the package {error.name} is not there"
            except Exception as error:  # whatever a package raises while it is loaded
                lines = str(error).strip().splitlines() or [type(error).__name__]
                self.found[name] = f"{name} cannot be loaded: {lines[0][:160]}"
        if isinstance(self.found[name], str):
            raise ValueError(self.found[name])
        return self.found[name]

    @contextmanager
    def compiling(self, name, seconds=COMPILE_SECONDS):
        """Ends what is inside after a while; what took too long once is not tried again."""
        if name in self.given_up:
            raise ValueError(self.given_up[name])

        def stop(*_):
            self.given_up[name] = f"was not compiled within {seconds} s"
            raise ValueError(self.given_up[name])

        before = signal.signal(signal.SIGALRM, stop)
        signal.alarm(seconds)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)


def wheels_of(directory):
    """The wheels of a directory, and of none an empty list."""
    return sorted(Path(directory).glob("*.whl")) if directory else []


def in_order(side, count, keys):
    """[sequence, head, token, dim] of pages that follow each other."""
    pages, block, heads, dim = side.shape
    page, token, head, _ = side.stride()
    if page != block * token or pages * block != count * keys:
        raise ValueError("the pages of this cache cannot be read as one")
    return side.as_strided((count, heads, keys, dim), (keys * token, head, token, 1), side.storage_offset())


class FlashAttention3:
    """Of the package fa3_fwd: on the same memory read in order, or page by page where it was built for that."""

    def __init__(self, view, packages, paged):
        self.call = packages.get("fa3_fwd_interface").flash_attn_with_kvcache
        if view.q_type != view.k_type or view.dim_vo != view.dim:
            raise ValueError("it wants queries, keys and values of one type and size")
        torch, self.view, self.paged = view.torch, view, paged
        count, (queries, keys) = len(view.case.lengths), view.case.lengths[0]
        self.q = view.q.view(count, queries, view.heads, view.dim)
        self.more = {"causal": view.causal, "softmax_scale": view.dim**-0.5}
        if paged:
            self.more["page_table"] = view.table
            self.more["cache_seqlens"] = torch.full((count,), keys, dtype=torch.int32, device="cuda")
        self.keys = (count, keys)

    def run(self, index):
        sides = self.view.sides(index)
        if not self.paged:
            sides = [in_order(side, *self.keys).transpose(1, 2) for side in sides]
        return self.call(self.q, *sides, **self.more)

    def error(self):
        out = self.run(0)
        return self.view.error(0, out.reshape(self.view.rows, self.view.heads, self.view.dim_vo), self.paged)


class FlashInfer:
    """Its wrappers for decode and prefill, on the same pages as libattn; of a cache without pages, PAGE tokens each."""

    NAME = "flashinfer"

    def __init__(self, view, packages, decodes):
        self.view, self.library = view, self.load(view, packages)
        count, (queries, keys) = len(view.case.lengths), view.case.lengths[0]
        self.block = PAGE if view.table is None else view.block
        if view.table is None and keys % PAGE != 0:
            raise ValueError(f"its {keys} keys are no whole pages")
        pages = -(-keys // self.block)
        torch = view.torch
        self.table = (torch.arange(count * pages, dtype=torch.int32, device="cuda").view(count, pages)
                      if view.table is None else view.table[:, :pages].contiguous())
        self.workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        with packages.compiling(self.NAME):
            self.plan(count, queries, keys, pages, decodes)
            self.run(0)
            torch.cuda.synchronize()

    def load(self, view, packages):
        if shutil.which("nvcc") is None:
            raise ValueError("it is compiled by nvcc, which is not there")
        if view.dim_vo != view.dim or view.mla:
            raise ValueError("it is asked for keys and values of one size only")
        if view.q_type not in (view.torch.bfloat16, view.torch.float16) or (
                view.k_type not in (view.q_type, view.torch.float8_e4m3fn)):
            raise ValueError("it is not asked for such types")
        return packages.get("flashinfer")

    def plan(self, count, queries, keys, pages, decodes):
        torch, view = self.view.torch, self.view

        def integers(values):
            return torch.tensor(values, dtype=torch.int32, device="cuda")

        indptr = integers([index * pages for index in range(count + 1)])
        last = integers([(keys - 1) % self.block + 1] * count)
        types = {"q_data_type": view.q_type, "kv_data_type": view.k_type, "sm_scale": view.dim**-0.5}
        sizes = (view.heads, view.kv_heads, view.dim, self.block)
        if decodes:
            self.wrapper = self.library.BatchDecodeWithPagedKVCacheWrapper(
                self.workspace, "NHD", use_tensor_cores=view.heads // view.kv_heads > 1)
            self.wrapper.plan(indptr, self.table.view(-1), last, *sizes, **types)
        else:
            self.wrapper = self.library.BatchPrefillWithPagedKVCacheWrapper(self.workspace, "NHD")
            self.wrapper.plan(integers([index * queries for index in range(count + 1)]), indptr, self.table.view(-1),
                              last, *sizes, causal=view.causal, **types)

    def sides(self, index):
        if self.view.table is not None:
            return tuple(self.view.sides(index))
        return tuple(self.in_pages(side) for side in self.view.sides(index))

    def in_pages(self, side):
        sequences, keys, heads, dim = side.shape
        page, token, head, _ = side.stride()
        if page != keys * token:
            raise ValueError("the pages of this cache cannot be read as one")
        return side.as_strided((sequences * keys // PAGE, PAGE, heads, dim), (PAGE * token, token, head, 1),
                               side.storage_offset())

    def run(self, index):
        return self.wrapper.run(self.view.q, self.sides(index))

    def error(self):
        return self.view.error(0, self.run(0))


class Xqa(FlashInfer):
    """FlashInfer's decode kernel of TensorRT-LLM."""

    NAME = "xqa"

    def __init__(self, view, packages):
        super().__init__(view, packages, True)

    def plan(self, count, queries, keys, pages, decodes):
        torch = self.view.torch
        self.decode = importlib.import_module("flashinfer.decode").xqa_batch_decode_with_kv_cache
        self.lengths = torch.full((count,), keys, dtype=torch.int32, device="cuda")
        self.keys = keys

    def run(self, index):
        return self.decode(self.view.q, self.sides(index), self.workspace, self.table, self.lengths, self.keys,
                           bmm1_scale=self.view.dim**-0.5, bmm2_scale=1.0)
