# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the kernel says of this machine: CPUs, flags, load, memory."""

import os
import platform
from pathlib import Path

LEAST_COLD, MOST_COLD = 128 << 20, 1 << 30  # bytes of a cold set
SETS_AT_ONCE = 5  # cold sets that are held: libattn's, that of its ceilings, and those of the peers


def cpus():
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def read(path):
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def load():
    """The three load averages, or none."""
    fields = read("/proc/loadavg").split()[:3]
    return [float(field) for field in fields] if len(fields) == 3 else None


def flags():
    """Features of the first CPU, as the kernel names them."""
    for line in read("/proc/cpuinfo").splitlines():
        name, _, rest = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return rest.split()
    return []


def last_cache():
    """Bytes of the last-level cache of the first CPU; 0 where it is not known."""
    best = (0, 0)
    for index in range(16):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        level, size = read(folder + "/level").strip(), read(folder + "/size").strip()
        if level.isdigit() and size[:-1].isdigit() and size[-1] in "KM":
            best = max(best, (int(level), int(size[:-1]) << (10 if size[-1] == "K" else 20)))
    return best[1]


def available():
    """Bytes of memory that may be used; 0 where it is not known."""
    for line in read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def cold_bytes():
    """Twice the last-level cache, from 128 MiB to 1 GiB, and no more than memory has room for."""
    wanted = min(max(2 * last_cache(), LEAST_COLD), MOST_COLD)
    room = available() // (2 * SETS_AT_ONCE)
    return max(16 << 20, min(wanted, room) if room else wanted) >> 20 << 20


def describe():
    return {"flags": flags(), "architecture": platform.machine(), "load_before": load()}
