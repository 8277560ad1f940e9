"""What a simulated world has, and what may befall it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a world has, and what may befall it.

    Attributes:
        hosts: Number of hosts with workers and a flusher.
        decisions: Decisions that clients ask for.
        device_decisions: Decisions that the device takes.
        seconds: Virtual seconds in which faults occur.
        kills: Processes are killed, and start again.
        power_cuts: Hosts lose what is not synced.
        outages: Hosts cannot reach the store for a while, also longer than window and settling time.
        pauses: Processes stand still for a while.
        delays: Calls sometimes take seconds, or a minute.
        lost_answers: The store's answers to writes get lost.
        network: Requests and replies get lost, or are duplicated and arrive late.
        skew: Clocks of hosts differ by up to so many seconds.
        retries: Clients ask again under the same id after all attempts of a call failed.
        keyless: Clients send equal rewards without keys.
        clock_jumps: The clock of a host is two days ahead or behind for a while.
        wrong_boots: A host may boot, and log, while its clock is wrong.
        deletions: The newest entry of the registry is deleted.
        unrecorded: The deleted entry may be one whose writer was killed, or lost its answer, before it recorded it.
        compaction: The lake is compacted.
    """

    hosts: int = 2
    decisions: int = 12
    device_decisions: int = 3
    seconds: int = 300
    kills: bool = True
    power_cuts: bool = True
    outages: bool = True
    pauses: bool = True
    delays: bool = True
    lost_answers: bool = True
    network: bool = True
    skew: float = 2.0
    retries: bool = True
    keyless: bool = True
    clock_jumps: bool = True
    wrong_boots: bool = True
    deletions: bool = True
    unrecorded: bool = True
    compaction: bool = True


#: Nothing befalls this world.
QUIET = replace(Options(), skew=0.0, **{one.name: False for one in fields(Options) if one.default is True})
