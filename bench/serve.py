"""How fast `perrun serve` answers: paced plans, parallel clients, and memory over many requests.

usage: python bench/serve.py [--seconds N] [--rate N] [--clients N] [--requests N] [--workers N]

Starts a server of its own on loopback with the shipped prices and asks it with plain asyncio sockets, so that the
client takes little of the two cores that it shares with the server. Latency is counted from the moment at which a
request was due, not from when it could be sent: a server that falls behind cannot hide it.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen3-0.6B")
METHODS = ("qlora", "lora")
P50_MS, P99_MS = 60.0, 250.0  # what issue 9 asks for


def questions(same: bool) -> Iterator[bytes]:
    """Plans over the whole snapshot: all different, or four that are asked again and again."""
    for n in itertools.count():
        k = n % 4 if same else n
        job = {"method": METHODS[k % 2], "examples": 1000 + k, "tokens_per_example": 1500, "epochs": 3}
        yield json.dumps({"model": MODELS[k % len(MODELS)], "job": job}).encode()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> int:
    """One request on an open connection; the status."""
    head = f"POST /v1/plan HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", answer.lower())
    assert length is not None, answer
    await reader.readexactly(int(length[1]))
    return int(answer.split(b" ", 2)[1])


async def paced(port: int, rate: float, seconds: float, same: bool) -> list[float]:
    """Latency [ms] of each of rate x seconds requests, one due every 1/rate s, whatever became of those before.

    A request that is refused counts as infinitely late.
    """
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    found: list[float] = []
    start = time.perf_counter() + 0.1

    async def one(due: float, body: bytes) -> None:
        await asyncio.sleep(due - time.perf_counter())
        connection = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
        good = await ask(*connection, body) == 200
        free.append(connection)
        found.append(1000 * (time.perf_counter() - due) if good else float("inf"))

    asked = zip(range(int(rate * seconds)), questions(same), strict=False)
    await asyncio.gather(*(one(start + n / rate, body) for n, body in asked))
    return found


async def parallel(port: int, clients: int, seconds: float, same: bool, most: int = 10**9) -> tuple[int, int]:
    """Clients that each ask again as soon as they are answered, for a time or a number: answers, errors."""
    end, asked = time.perf_counter() + seconds, questions(same)
    good = errors = 0

    async def client() -> None:
        nonlocal good, errors
        connection = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end and good + errors < most:
            try:
                status = await ask(*connection, next(asked))
            except (OSError, EOFError):
                status = 0
                connection = await asyncio.open_connection("127.0.0.1", port)
            good, errors = good + (status == 200), errors + (status != 200)
        connection[1].close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return good, errors


@contextmanager
def server(workers: int) -> Iterator[tuple[int, int]]:
    """Port and process id of a server with the shipped prices only."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from perrun.surfaces.cli import main; main()", "serve", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PERRUN_DATA_DIR": folder},
        )
        assert process.stderr is not None
        port, ready = 0, 0
        while ready < workers:
            line = process.stderr.readline()
            assert line, "the server did not start"
            found = re.search(r"running on http://127.0.0.1:(\d+)", line)
            port = int(found[1]) if found else port
            ready += "startup complete" in line
        if not port:
            port = int(re.findall(r"running on http://127.0.0.1:(\d+)", process.stderr.readline())[0])
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(60)
            drain.wait(10)


def resident_mib(pid: int) -> float:
    """Memory of a process and its children [MiB], from /proc."""
    found = [re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{one}/status").read_text()) for one in processes(pid)]
    return sum(int(one[1]) for one in found if one) / 1024


def processes(pid: int) -> list[str]:
    return [str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_s(pid: int) -> float:
    """CPU time that a process and its children took so far [s]."""
    fields = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in processes(pid)]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def paced_and_said(port: int, pid: int, rate: float, seconds: float, same: bool) -> tuple[float, float]:
    """p50 and p99 [ms], printed with what else was measured."""
    before = cpu_s(pid)
    found = sorted(asyncio.run(paced(port, rate, seconds, same)))
    p50, p95, p99 = (found[min(int(share * len(found)), len(found) - 1)] for share in (0.5, 0.95, 0.99))
    name = f"{rate:g}/s, {'asked before' if same else 'all different'}"
    cpu = 1000 * (cpu_s(pid) - before) / len(found)
    print(f"{name}: {len(found)} requests, p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms; CPU {cpu:.0f} ms each")
    return p50, p99


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with server(given.workers) as (port, pid):
        asyncio.run(paced(port, 5, 4, False))  # warm
        new = paced_and_said(port, pid, given.rate, given.seconds, False)
        again = paced_and_said(port, pid, given.rate, given.seconds, True)
        count, errors = asyncio.run(parallel(port, given.clients, given.seconds, False))
        rate = count / given.seconds
        print(f"{given.clients} clients for {given.seconds:g} s: {count} answers, {errors} errors, {rate:.1f}/s")
        before = resident_mib(pid)
        count, more = asyncio.run(parallel(port, 8, 3600, True, given.requests))
        after = resident_mib(pid)
        print(f"memory over {count} requests: {before:.0f} -> {after:.0f} MiB, {more} errors")
    good = new[0] < P50_MS and new[1] < P99_MS and not errors and not more and after < 1.1 * before
    print("reached" if good else f"not reached: p50 < {P50_MS:g} ms, p99 < {P99_MS:g} ms, no error, memory within 10 %")
    print(f"asked before: {'reached' if again[0] < P50_MS and again[1] < P99_MS else 'not reached'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
