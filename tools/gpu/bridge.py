# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattn through the bridge's flat functions, and the little of the driver that times it."""

import ctypes
import os
import time
from ctypes import c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint32, c_void_p


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
        "gpu_case_create": (c_void_p, c_void_p, c_char_p, c_void_p, c_uint32, c_uint32, c_uint32),
        "gpu_case_destroy": (None, c_void_p),
        "gpu_case_run": (c_int32, c_void_p, c_uint32, c_void_p),
        "gpu_case_prepare": (c_int32, c_void_p, c_uint32, c_void_p),
        "gpu_case_text": (c_char_p, c_void_p, c_char_p),
        "gpu_case_number": (c_int64, c_void_p, c_char_p, c_uint32),
        "gpu_case_flops": (c_double, c_void_p),
        "gpu_case_key_bytes": (c_double, c_void_p),
        "gpu_case_judge": (c_double, c_void_p),
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
    """A problem on a batch, with its buffers. `lengths` are pairs of query tokens and keys."""

    def __init__(self, bridge, problem, lengths, sets, ordered=False):
        self.bridge, self.sets, self.lengths = bridge, sets, lengths
        flat = [number for pair in lengths for number in pair]
        array = (c_uint32 * len(flat))(*flat)
        self.handle = bridge.library.gpu_case_create(
            bridge.handle, problem.encode(), ctypes.cast(array, c_void_p), len(lengths), sets, int(ordered)
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


class Clock:
    """Microseconds between two marks in a stream, by the driver's events; by the host's clock where there
    are none."""

    def __init__(self, bridge, stream, ordinal):
        self.bridge, self.stream, self.begin = bridge, stream, 0.0
        path = os.environ.get("ATTN_CUDA_LIBRARY") or "libcuda.so.1"
        self.library = ctypes.CDLL(path)
        self.by_events = hasattr(self.library, "cuEventElapsedTime")
        self.events = [c_void_p(), c_void_p()]
        if not self.by_events:
            return
        device, context = c_int(), c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)
        for event in self.events:
            self.call("cuEventCreate", ctypes.byref(event), 0)

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise Failure(f"{name} of the driver failed with {result}")

    def measure(self, launch):
        """Time that what `launch` puts on the stream takes."""
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
