# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattn through the bridge's flat functions, and the little of the driver that times it."""

import ctypes
import os
import time
from ctypes import c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p


class Failure(Exception):
    """What could not be done, in a sentence."""


class Bridge:
    """An open backend."""

    FUNCTIONS = {
        "gpu_bench_error": (c_char_p,),
        "gpu_bench_open": (c_void_p, c_char_p, c_char_p, c_char_p),
        "gpu_bench_close": (None, c_void_p),
        "gpu_bench_text": (c_char_p, c_void_p, c_char_p),
        "gpu_bench_stream_create": (c_void_p, c_void_p),
        "gpu_bench_stream_destroy": (None, c_void_p, c_void_p),
        "gpu_bench_synchronize": (c_int32, c_void_p, c_void_p),
        "gpu_bench_graph_begin": (c_void_p, c_void_p, c_void_p),
        "gpu_bench_graph_end": (c_int32, c_void_p),
        "gpu_bench_graph_launch": (c_int32, c_void_p, c_void_p),
        "gpu_bench_graph_destroy": (None, c_void_p),
        "gpu_case_create": (c_void_p, c_void_p, c_char_p, c_void_p, c_uint32, c_uint32, c_uint32, c_uint32),
        "gpu_case_destroy": (None, c_void_p),
        "gpu_case_run": (c_int32, c_void_p, c_uint32, c_void_p),
        "gpu_case_prepare": (c_int32, c_void_p, c_uint32, c_void_p),
        "gpu_case_text": (c_char_p, c_void_p, c_char_p),
        "gpu_case_number": (c_int64, c_void_p, c_char_p, c_uint32),
        "gpu_case_flops": (c_double, c_void_p),
        "gpu_case_key_bytes": (c_double, c_void_p),
        "gpu_case_judge": (c_double, c_void_p),
        "gpu_case_kv_init": (c_int32, c_void_p),
        "gpu_case_kv_run": (c_int32, c_void_p, c_char_p, c_void_p),
        "gpu_case_kv_check": (c_int32, c_void_p, c_char_p),
        "gpu_case_kv_bytes": (c_double, c_void_p, c_char_p),
    }

    def __init__(self, library, plugins, backend, device):
        try:
            self.library = ctypes.CDLL(library)
            for name, (result, *arguments) in self.FUNCTIONS.items():
                function = getattr(self.library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise Failure(f"the bridge cannot be loaded: {error}") from error
        self.handle = self.library.gpu_bench_open(
            plugins.encode() if plugins else None, backend.encode(), f"cuda:{device}".encode()
        )
        if not self.handle:
            raise self.failure(f"{backend} on cuda:{device}")

    def failure(self, what):
        return Failure(f"{what}: {self.library.gpu_bench_error().decode(errors='replace') or 'failed'}")

    def check(self, status, what):
        if status != 0:
            raise self.failure(what)

    def text(self, name):
        return self.library.gpu_bench_text(self.handle, name.encode()).decode()

    def stream(self):
        stream = self.library.gpu_bench_stream_create(self.handle)
        if not stream:
            raise self.failure("a stream")
        return stream

    def synchronize(self, stream):
        self.check(self.library.gpu_bench_synchronize(self.handle, stream), "waiting for the device")

    def close(self):
        self.library.gpu_bench_close(self.handle)
        self.handle = None


class Case:
    """A problem on a batch, with its buffers. `lengths` are pairs of query tokens and keys; all sequences begin with
    the same `prefix` keys."""

    def __init__(self, bridge, problem, lengths, sets, ordered=False, prefix=0):
        self.bridge, self.sets, self.lengths = bridge, sets, lengths
        flat = [number for pair in lengths for number in pair]
        array = (c_uint32 * len(flat))(*flat)
        self.handle = bridge.library.gpu_case_create(
            bridge.handle, problem.encode(), ctypes.cast(array, c_void_p), len(lengths), sets, int(ordered), prefix
        )
        if not self.handle:
            raise bridge.failure(problem)
        self.given = problem

    def close(self):
        self.bridge.library.gpu_case_destroy(self.handle)
        self.handle = None

    def number(self, name, index=0):
        value = self.bridge.library.gpu_case_number(self.handle, name.encode(), index)
        if value == -1:
            raise self.bridge.failure(name)
        return value

    def text(self, name):
        return self.bridge.library.gpu_case_text(self.handle, name.encode()).decode()

    def run(self, index, stream):
        self.bridge.check(self.bridge.library.gpu_case_run(self.handle, index, stream), self.given)

    def judge(self):
        return self.bridge.library.gpu_case_judge(self.handle)

    def kv_init(self):
        self.bridge.check(self.bridge.library.gpu_case_kv_init(self.handle), self.given)

    def kv_run(self, name, stream):
        self.bridge.check(self.bridge.library.gpu_case_kv_run(self.handle, name.encode(), stream), name)

    def kv_check(self, name):
        self.bridge.check(self.bridge.library.gpu_case_kv_check(self.handle, name.encode()), name)

    def kv_bytes(self, name):
        return self.bridge.library.gpu_case_kv_bytes(self.handle, name.encode())

    @property
    def flops(self):
        return self.bridge.library.gpu_case_flops(self.handle)

    @property
    def key_bytes(self):
        return self.bridge.library.gpu_case_key_bytes(self.handle)


class Graph:
    """Calls that were captured on a stream, launched as one."""

    def __init__(self, bridge, stream, capture):
        self.bridge = bridge
        self.handle = bridge.library.gpu_bench_graph_begin(bridge.handle, stream)
        if not self.handle:
            raise bridge.failure("a graph")
        try:
            capture()
            bridge.check(bridge.library.gpu_bench_graph_end(self.handle), "a graph")
        except Failure:
            self.close()
            raise

    def launch(self, stream):
        self.bridge.check(self.bridge.library.gpu_bench_graph_launch(self.handle, stream), "a graph's launch")

    def close(self):
        self.bridge.library.gpu_bench_graph_destroy(self.handle)
        self.handle = None


class Gather(ctypes.Structure):
    """Of the kernel ceiling_gather."""

    _fields_ = [("k", c_int64), ("v", c_int64), ("table", c_int64), ("page_stride", c_int64),
                ("token_stride", c_int64), ("head_stride", c_int64), ("table_width", c_uint32), ("block", c_uint32),
                ("keys", c_uint32), ("splits", c_uint32)]


class Driver:
    """The driver itself: it takes the time, and launches the kernels of the ceilings. Where it has no events
    that tell time, the host's clock does, and there are no ceilings."""

    MULTIPROCESSORS, SHARED_BYTES = 16, 8  # numbers of the driver's attributes
    BULK, STAGE_BYTES, TILE, ROW = 8192, 128 << 10, 64, 256  # as in ceiling.cu
    GATHER_BYTES = 3 * TILE * ROW
    FILL_BYTES = 512 << 20  # of the fill before an operation on caches
    BLOCKS_EACH = 16  # blocks of a gather for every multiprocessor, at least

    def __init__(self, bridge, stream, ordinal, kernels):
        self.bridge, self.stream = bridge, stream
        path = os.environ.get("ATTN_CUDA_LIBRARY") or "libcuda.so.1"
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise Failure(f"the driver cannot be loaded: {error}") from error
        self.by_events = hasattr(self.library, "cuEventElapsedTime")
        self.events = [c_void_p(), c_void_p()]
        self.read, self.gather, self.missing = None, None, "the driver has no events"
        if not self.by_events:
            return
        device, context, units = c_int(), c_void_p(), c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)
        for event in self.events:
            self.call("cuEventCreate", ctypes.byref(event), 0)
        self.call("cuDeviceGetAttribute", ctypes.byref(units), self.MULTIPROCESSORS, device)
        self.units = units.value
        self.filled = c_void_p()
        self.call("cuMemAlloc_v2", ctypes.byref(self.filled), c_size_t(self.FILL_BYTES))
        try:
            self.load(kernels)
        except (Failure, OSError) as error:
            self.missing = str(error)

    def load(self, kernels):
        """The kernels of the ceilings."""
        module = c_void_p()
        self.image = kernels.read_bytes()
        self.call("cuModuleLoadData", ctypes.byref(module), self.image)
        found = {}
        for name, shared in (("ceiling_read", self.STAGE_BYTES), ("ceiling_gather", self.GATHER_BYTES)):
            function = c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self.call("cuFuncSetAttribute", function, self.SHARED_BYTES, shared)
            found[name] = function
        self.read, self.gather = found["ceiling_read"], found["ceiling_gather"]

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise Failure(f"{name} of the driver failed with {result}")

    def free_bytes(self):
        """Of the device's memory."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def launch(self, function, grid, shared, *arguments):
        places = (c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        self.call("cuLaunchKernel", function, *grid, 128, 1, 1, shared, c_void_p(self.stream), places, None)

    def fill(self):
        """Empties L2, and keeps the device busy while the next operation is on its way."""
        if self.by_events:
            self.call("cuMemsetD8Async", self.filled, 0, c_size_t(self.FILL_BYTES), c_void_p(self.stream))

    def read_memory(self, address, size):
        """Reads whole pieces of memory; their bytes."""
        chunks = size // self.BULK
        self.launch(self.read, (self.units, 1, 1), self.STAGE_BYTES, c_int64(address), c_int64(chunks))
        return chunks * self.BULK

    def can_gather(self, case):
        """Whether the gather's kernel knows such a cache: rows of 256 bytes in pages, sequences alike."""
        number = case.number
        return (number("table") != 0 and number("head_dim") * number("k_bytes") == self.ROW
                and number("head_dim_vo") * number("v_bytes") == self.ROW and len(set(case.lengths)) == 1
                and all(number("k_" + name) == number("v_" + name)
                        for name in ("page_stride", "token_stride", "head_stride")))

    def gather_pages(self, case, index):
        number, keys = case.number, case.lengths[0][1]
        heads, seqs = number("kv_heads"), number("seqs")
        splits = max(1, min(-(-keys // (4 * self.TILE)), -(-self.units * self.BLOCKS_EACH // (heads * seqs))))
        arguments = Gather(number("k", index), number("v", index), number("table"), number("k_page_stride"),
                           number("k_token_stride"), number("k_head_stride"), number("table_width"),
                           number("block"), keys, splits)
        self.launch(self.gather, (splits, heads, seqs), self.GATHER_BYTES, arguments)

    def measure(self, launch):
        """Microseconds that what `launch` puts on the stream takes."""
        if not self.by_events:
            self.bridge.synchronize(self.stream)
            begin = time.perf_counter()
            launch()
            self.bridge.synchronize(self.stream)
            return (time.perf_counter() - begin) * 1e6
        milliseconds = c_float()
        self.call("cuEventRecord", self.events[0], c_void_p(self.stream))
        launch()
        self.call("cuEventRecord", self.events[1], c_void_p(self.stream))
        self.call("cuEventSynchronize", self.events[1])
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), *self.events)
        return milliseconds.value * 1e3
