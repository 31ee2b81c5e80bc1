"""What 100,000 blocked runs cost everybody else: alternating runs on two clusters, one of which has them.

A limit of one is held by a run that sleeps; everything else with its key waits. Machines are shared and noisy, so only
the ratio within a pair means anything; the median of the pairs is the figure. The processor time per job of everybody
but the client is told too: it says the same on a busy machine.

    python benchmarks/blocked_claims.py --pairs 3 --seconds 20
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from hourhand.bench.lifecycle import Lifecycle, measure_lifecycle
from hourhand.bench.report import Progress
from hourhand.bench.target import Target, open_target

BATCH = 1000
LIMIT = {"concurrency_key": "blocked", "concurrency_limit": 1}


async def block(target: Target, runs: int) -> float:
    """Makes so many runs wait for one place; how long it took until all were out of the way."""
    holder = {"name": "holder", "kind": "command", "payload": {"argv": ["sleep", "3600"]}, **LIMIT}
    blocked = {"name": "blocked", "payload": {"handler": "bench.noop"}, **LIMIT}
    begun = time.monotonic()
    async with target.client() as http:
        (await http.post("/api/v1/jobs", content=json.dumps(holder))).raise_for_status()
        await live(http, "running", 1)
        for _ in range(runs // BATCH):
            (await http.post("/api/v1/jobs/batch", content=json.dumps([blocked] * BATCH))).raise_for_status()
        await live(http, "waiting", runs)
    return time.monotonic() - begun


async def live(http: httpx.AsyncClient, state: str, count: int) -> None:
    async with asyncio.timeout(300):
        while (await http.get("/api/v1/cluster")).json()["live"].get(state, 0) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def cost(facts: Mapping[str, Any]) -> float:
    """Microseconds of processor time per job."""
    cores = sum(share for role, share in facts["cpu"].items() if role != "client")
    return cores / float(facts["jobs_per_second"]) * 1e6


async def measure(pairs: int, seconds: float, runs: int) -> float:
    ratios = []
    async with open_target() as free, open_target() as beside:
        print(f"{runs} runs blocked in {await block(beside, runs):.1f} s", flush=True)
        shared = [replace(target, own=False) for target in (free, beside)]
        for pair in range(pairs):
            rates, costs = [], []
            for target in shared if pair % 2 == 0 else shared[::-1]:
                measured = await measure_lifecycle(target, Lifecycle(seconds), Progress.silent())
                result = measured.facts
                assert result["lost"] == result["doubled"] == 0, result
                rates.append(result["jobs_per_second"])
                costs.append(cost(result))
            free_rate, beside_rate = rates if pair % 2 == 0 else rates[::-1]
            free_cost, beside_cost = costs if pair % 2 == 0 else costs[::-1]
            ratios.append(beside_rate / free_rate)
            rates_told = f"without {free_rate:8.0f}/s   beside {beside_rate:8.0f}/s"
            costs_told = f"{free_cost:.1f} and {beside_cost:.1f} µs per job"
            print(f"pair {pair + 1}: {rates_told}   {ratios[-1]:.2f}   {costs_told}", flush=True)
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--at-least", type=float, help="fail when the median ratio is below this")
    args = parser.parse_args()
    median = asyncio.run(measure(args.pairs, args.seconds, args.runs))
    print(f"median ratio {median:.2f}")
    if args.at_least and median < args.at_least:
        raise SystemExit(f"below {args.at_least}")


if __name__ == "__main__":
    main()
