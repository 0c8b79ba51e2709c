# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How peers time their calls: whole calls on one set of keys and values after the other."""

import time

LEAST_CALLS, MOST_CALLS = 3, 200
LONG_US = 1e6  # a call of so many microseconds needs no second one to be believed


def sets_for(case, set_bytes, cold_bytes):
    """How many sets: in decode so many that together they exceed the cold bytes, in prefill one, as in attn-bench."""
    return max(1, -(-cold_bytes // set_bytes)) if case["queries"] == 1 else 1


class Rotation:
    """Calls the sets in turn, going on where it stopped. `run(i)` makes `calls` calls beginning with set group i."""

    def __init__(self, run, groups, calls=1):
        self.run, self.groups, self.calls, self.next = run, groups, calls, 0

    def once(self):
        """Microseconds of a call."""
        index, self.next = self.next, (self.next + 1) % self.groups
        begin = time.perf_counter()
        self.run(index)
        return (time.perf_counter() - begin) * 1e6 / self.calls

    def sample(self, seconds):
        """Times of calls, the first of which, which wakes threads, is left out unless it was long."""
        first = self.once()
        if first * self.calls >= LONG_US:
            return [first]
        times, end = [], time.perf_counter() + seconds
        while len(times) < LEAST_CALLS or (len(times) < MOST_CALLS and time.perf_counter() < end):
            times.append(self.once())
        return times
