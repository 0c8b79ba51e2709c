# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many sets of buffers a case gets, and how many calls on them a graph."""

import math

import bridge as libattn
import peers

COLD_BYTES = 600e6  # what the buffers of a graph hold together at least: L2 serves nothing of it
CALLS = 4  # of a graph at least
FEWEST_CALLS = 2  # of a graph of long ones
GRAPH_US = 30e3  # that a graph of more calls than CALLS may take
MOST_SETS = 256
ROOM = 0.7  # of the free memory, that buffers may take
RESULTS = 8  # buffers of results: each peer's graph keeps one for every call


def allocated(lengths, block, page_bytes, dense):
    """Bytes of a batch's cache as it lies in memory: whole pages, whatever a window hides; a page of a dense cache
    is a sequence of the longest one's keys."""
    keys = [pair[1] for pair in lengths]
    pages = len(keys) * max(keys) if dense else sum(-(-count // block) for count in keys)
    return pages * page_bytes


def sets_for(cache_bytes, kept_bytes, free_bytes, cold=COLD_BYTES):
    """How many sets of buffers a case gets: caches that together hold what L2 cannot, or fewer where memory is short.
    `kept_bytes` is all that a set takes, peers' copies included."""
    wanted = min(MOST_SETS, math.ceil(cold / cache_bytes))
    return max(1, min(wanted, int(ROOM * free_bytes / kept_bytes)))


def calls_for(sets, us, budget=GRAPH_US):
    """Calls of a graph whose call takes `us`: every set once and CALLS at least, fewer if they would take too long."""
    fit = int(budget / max(us, 1e-3))
    return min(-(-CALLS // sets) * sets, max(CALLS, fit)) if fit >= 1 else FEWEST_CALLS


def sets_of(bench, problem, lengths, copies=0, cold=COLD_BYTES):
    """The same of a problem on a batch; `copies` is how many times a peer has its cache beside it."""
    if not bench.driver.by_events:  # no device whose caches count
        return 2
    probe = libattn.Case(bench.bridge, problem, [(1, 1)], 1)
    number, dense = probe.number, peers.parse_problem(problem).get("addr") == "dense"
    cache = allocated(lengths, number("block"), number("cache_bytes") / number("pages"), dense)
    results = sum(pair[0] for pair in lengths) * number("heads") * number("head_dim_vo") * number("out_bytes")
    probe.close()
    return sets_for(cache, cache * (1 + copies) + RESULTS * results, bench.driver.free_bytes(), cold)
