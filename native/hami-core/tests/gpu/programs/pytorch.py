"""
The same as `cuda.c`, with PyTorch: `plain`, `pooled` (its cudaMallocAsync backend), `segments` (virtual memory),
`time`.
"""

import json
import os
import sys
import time

PIECE_MIB, QUEUED, START_SECONDS, SIDE = 64, 16, 5, 4096
BACKENDS = {"pooled": "backend:cudaMallocAsync", "segments": "expandable_segments:True"}


def fill() -> None:
    """Allocate until an allocation fails, report how much that was, and keep it until a line arrives."""
    available, total = torch.cuda.mem_get_info()
    held, refusal = [], "none"
    try:
        while True:
            held.append(torch.empty(PIECE_MIB << 20, dtype=torch.uint8, device="cuda"))
            torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        refusal = "out of memory"
    say(total_mib=total >> 20, free_mib=available >> 20, held_mib=len(held) * PIECE_MIB, refusal=refusal)
    sys.stdin.readline()


def run(seconds: float) -> None:
    """Multiply matrices repeatedly, first to warm up and then for the measured time, and report how many products
    finished."""
    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16) for _ in range(2))
    multiply_until(left, right, time.monotonic() + START_SECONDS)
    say(is_begun=True)
    began = time.monotonic()
    done = multiply_until(left, right, began + seconds)
    say(done=done, seconds=time.monotonic() - began)


def multiply_until(left: "torch.Tensor", right: "torch.Tensor", end: float) -> int:
    """Return how many products there were."""
    done = 0
    while time.monotonic() < end:
        for _ in range(QUEUED):
            torch.matmul(left, right)
        torch.cuda.synchronize()
        done += QUEUED
    return done


def say(**told: object) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = BACKENDS.get(sys.argv[1], "")
    import torch

    run(float(sys.argv[2])) if sys.argv[1] == "time" else fill()
