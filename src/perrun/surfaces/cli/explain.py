"""Where every figure comes from: the lines of memory, time and cost with their laws and sources."""

from typing import Any


def estimate(found: Any) -> None:
    """Prints the lines of one estimate."""
    notes = {note.line: note for note in found.trace}
    memory = found.memory
    print(f"\nMemory of one GPU at its widest moment ({memory.phase}), GiB:")
    for name, gib in sorted(memory.lines.items(), key=lambda item: -item[1]):
        print(f"  {gib:9.3f}  {name:32s} {_law(notes, name)}")
    print(
        f"  {memory.device_gib:9.3f}  device (allocated {memory.allocated_gib:.3f}, reserved {memory.reserved_gib:.3f})"
    )
    print(f"  {found.host_ram_gib:9.1f}  host RAM of one node")
    print("\nTime of one optimizer step, seconds:")
    for name, seconds in sorted(found.time_lines.items(), key=lambda item: -item[1]):
        if seconds:
            print(f"  {seconds:9.4f}  {name:32s} {_law(notes, f'time: {name}')}")
    print(f"  {found.step_s:9.4f}  step")
    print("\nSources:")
    for source in dict.fromkeys(note.source for note in found.trace if note.source):
        print(f"  {source}")


def plan(one: Any) -> None:
    """Prints the lines of one plan: its estimate and its bill."""
    print(f"\nHow the first row comes about ({one.offer.rig} at {one.offer.provider}):")
    print(f"  strategy: {', '.join(f'{k} {v}' for k, v in one.strategy.model_dump().items())}")
    estimate(one.estimate)
    print("\nBill:")
    for line in one.cost_lines:
        print(f"  {line.usd:9.2f}  {line.name:32s} {line.quantity:.4f} {line.unit}")
    print(
        f"  {one.usd:9.2f}  total, at ${one.offer.usd_per_hour:.3f}/h seen {one.offer.observed_at}: {one.offer.source}"
    )
    wait = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in one.startup_s.items())
    print(f"  start-up: {wait}")
    if one.risk:
        print(f"  {one.risk}")


def _law(notes: dict[str, Any], name: str) -> str:
    note = notes.get(name)
    return note.law if note else ""
