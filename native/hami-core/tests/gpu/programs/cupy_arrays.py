"""
The same as `cuda.c`, with CuPy: `plain` (its pool over cudaMalloc), `pooled` (its pool over cudaMallocAsync), `time`.
"""

import json
import sys
import time

import cupy

PIECE_MIB, QUEUED, START_SECONDS, LENGTH = 64, 16, 5, 1 << 26


def fill(is_pooled: bool) -> None:
    """Allocate until an allocation fails, report how much that was, and keep it until a line arrives."""
    if is_pooled:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    available, total = cupy.cuda.runtime.memGetInfo()
    held, refusal = [], "none"
    try:
        while True:
            held.append(cupy.empty(PIECE_MIB << 20, dtype=cupy.uint8))
            cupy.cuda.Stream.null.synchronize()
    except cupy.cuda.memory.OutOfMemoryError:
        refusal = "out of memory"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        refusal = "out of memory" if "MemoryAllocation" in str(error) else str(error)
    say(total_mib=total >> 20, free_mib=available >> 20, held_mib=len(held) * PIECE_MIB, refusal=refusal)
    sys.stdin.readline()


def run(seconds: float) -> None:
    """Add to an array repeatedly, to warm up and then for the measured time; report how many sums finished."""
    array = cupy.ones(LENGTH, dtype=cupy.float32)
    add_until(array, time.monotonic() + START_SECONDS)
    say(is_begun=True)
    began = time.monotonic()
    done = add_until(array, began + seconds)
    say(done=done, seconds=time.monotonic() - began)


def add_until(array: "cupy.ndarray", end: float) -> int:
    """Return how many sums there were."""
    done = 0
    while time.monotonic() < end:
        for _ in range(QUEUED):
            cupy.add(array, 1, out=array)
        cupy.cuda.Stream.null.synchronize()
        done += QUEUED
    return done


def say(**told: object) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run(float(sys.argv[2])) if sys.argv[1] == "time" else fill(sys.argv[1] == "pooled")
