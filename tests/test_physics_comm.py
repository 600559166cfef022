"""Volumes and schedules, against simulations of the algorithms themselves."""

import itertools

import numpy as np
import pytest

from perrun.physics import comm


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_ring_all_gather_moves_what_its_steps_move(ranks: int) -> None:
    held = [{rank} for rank in range(ranks)]
    sent = 0
    for step in range(ranks - 1):
        passed = [(rank - step) % ranks for rank in range(ranks)]
        sent += 1  # every rank passes one of `ranks` equal parts to its neighbour
        for rank in range(ranks):
            held[(rank + 1) % ranks].add(passed[rank])
    assert all(len(parts) == ranks for parts in held)
    assert comm.ring(1.0, ranks) == pytest.approx(sent / ranks)


def one_forward_one_backward(stages: int, micro_batches: int) -> int:
    """Ticks that a 1F1B pipeline takes when a forward and a backward take one tick each."""
    done: dict[tuple[str, int, int], int] = {}
    queues = []
    for stage in range(stages):
        warm = min(stages - stage, micro_batches)
        order = [("f", i) for i in range(warm)]
        for i in range(micro_batches):
            order.append(("b", i))
            if warm + i < micro_batches:
                order.append(("f", warm + i))
        queues.append(order)
    tick = 0
    while any(queues):
        finished = []
        for stage, queue in enumerate(queues):
            if not queue:
                continue
            kind, i = queue[0]
            needs = (kind, stage - 1, i) if kind == "f" else (kind, stage + 1, i)
            ready = needs[1] in (-1, stages) or done.get(needs, tick + 1) <= tick
            if ready:
                finished.append((kind, stage, i))
                queue.pop(0)
        tick += 1
        done.update(dict.fromkeys(finished, tick))
    return tick


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 4), (4, 4), (4, 16), (8, 32)])
def test_the_bubble_is_what_a_simulated_schedule_leaves_idle(stages: int, micro_batches: int) -> None:
    busy = 2 * micro_batches
    idle = one_forward_one_backward(stages, micro_batches) - busy
    assert comm.bubble(stages, micro_batches) == pytest.approx(idle / busy)


@pytest.mark.parametrize(("islands", "active"), [(2, 2), (4, 3), (8, 2)])
def test_a_token_reaches_each_remote_island_once(islands: int, active: int) -> None:
    choices = list(itertools.product(range(islands), repeat=active))
    remote = np.mean([len(set(choice) - {0}) for choice in choices])
    assert comm.expert_parallel(1.0, active, islands * 8, islands) == pytest.approx(2 * remote)


def test_inside_one_island_every_copy_of_a_token_travels() -> None:
    assert comm.expert_parallel(10.0, 8, 4, 1) == pytest.approx(2 * 10 * 8 * 3 / 4)


def test_context_parallel_ranks_see_all_other_keys() -> None:
    assert comm.context_parallel(5.0, 4) == 15.0
    assert comm.context_parallel(5.0, 1) == 0.0


def test_a_ring_over_nodes_is_as_fast_as_the_ports_of_its_members() -> None:
    # 8 H200 with 45.6 GB/s ports each: 364.9 of 367 GB/s between nodes (stas00/ml-engineering measured 364.87)
    assert comm.group_rate(367.0, 45.6, 32, 8, 8) == pytest.approx(364.8, abs=0.5)
    assert comm.group_rate(367.0, 45.6, 8, 8, 8) == 367.0
    assert comm.group_rate(367.0, 45.6, 16, 8, 1) == pytest.approx(45.6)
