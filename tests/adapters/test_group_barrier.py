import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.train.group_barrier import GroupBarrier


def barrier(*, size: int = 3, seconds: float = 60.0) -> Any:
    """A barrier whose members are names, scored by a sentence."""
    env: Any = SimpleNamespace(
        finish_group=lambda members: [f"{member} of {'+'.join(members)}" for member in members],
        finish_alone=lambda members: [f"{member} alone" for member in members],
    )
    return GroupBarrier(env, size, seconds=seconds)


async def member(name: str) -> Any:
    if name == "broken":
        raise ValueError("a failed member")
    return name


def test_members_are_scored_together_in_their_own_order_and_nothing_is_kept() -> None:
    async def run() -> Any:
        place = barrier(size=2)
        arrivals = ((n, 1 - half) for half in range(2) for n in range(50))
        found = await asyncio.gather(
            *(place.meet(f"g{n}", at, member(f"{n}/{at}")) for n, at in arrivals)
        )
        assert found[7] == "7/1 of 7/0+7/1" and found[57] == "7/0 of 7/0+7/1"
        return place

    assert asyncio.run(run())._groups == {}


@pytest.mark.parametrize("cancel", [True, False])
def test_a_failed_or_cancelled_member_frees_its_siblings_early_and_late(cancel: bool) -> None:
    async def run() -> list[str]:
        place = barrier()
        early = asyncio.create_task(place.meet("g", 0, member("a")))
        failing = asyncio.create_task(place.meet("g", 1, member("b" if cancel else "broken")))
        await asyncio.sleep(0.01)
        failing.cancel()
        (failed,) = await asyncio.gather(failing, return_exceptions=True)
        assert isinstance(failed, asyncio.CancelledError if cancel else ValueError)
        late = await place.meet("g", 2, member("c"))
        assert place._groups == {}
        return [await early, late]

    assert asyncio.run(run()) == ["a alone", "c alone"]


def test_a_fault_in_scoring_is_raised_and_not_waited_for() -> None:
    async def run() -> list[object]:
        place = barrier(size=2)
        place.env.finish_group = lambda members: 1 // 0
        tasks = [place.meet("g", 0, member("a")), place.meet("g", 1, member("b"))]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(run())
    assert first == "a alone" and isinstance(second, ZeroDivisionError)


def test_a_group_that_never_becomes_whole_is_scored_alone_and_whoever_is_late_too() -> None:
    async def run() -> list[str]:
        place = barrier(seconds=0.01)
        found = [await place.meet("g", at, member(name)) for at, name in enumerate("abc")]
        assert place._groups == {}
        return found

    assert asyncio.run(run()) == ["a alone", "b alone", "c alone"]
