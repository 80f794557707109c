import asyncio
from collections.abc import Sequence

from envbuild.train.group_barrier import MAX_BROKEN, GroupBarrier


def barrier(*, size: int = 3, timeout_s: float = 60.0) -> GroupBarrier[str, str]:
    def together(members: Sequence[str]) -> list[str]:
        return [f"{member} of {'+'.join(members)}" for member in members]

    def alone(members: Sequence[str]) -> list[str]:
        return [f"{member} alone" for member in members]

    return GroupBarrier(size=size, together=together, alone=alone, timeout_s=timeout_s)


async def member(name: str) -> str:
    if name == "broken":
        raise ValueError("a failed member")
    return name


def test_members_are_scored_together_in_their_own_order() -> None:
    async def run() -> list[str]:
        place = barrier()
        arrivals = ((2, "c"), (0, "a"), (1, "b"))
        return await asyncio.gather(*(place.meet("g", at, member(name)) for at, name in arrivals))

    assert asyncio.run(run()) == ["c of a+b+c", "a of a+b+c", "b of a+b+c"]


def test_groups_do_not_mix_and_nothing_is_kept() -> None:
    async def run() -> GroupBarrier[str, str]:
        place = barrier(size=2)
        found = await asyncio.gather(
            *(place.meet(f"g{n % 50}", n // 50, member(f"m{n}")) for n in range(100))
        )
        assert found[7] == "m7 of m7+m57" and found[57] == "m57 of m7+m57"
        return place

    assert asyncio.run(run())._groups == {}


def test_a_failed_or_cancelled_member_frees_its_siblings_early_and_late() -> None:
    async def run(*, cancel: bool) -> list[str]:
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

    for cancel in (True, False):
        assert asyncio.run(run(cancel=cancel)) == ["a alone", "c alone"]


def test_a_fault_in_scoring_is_raised_and_not_waited_for() -> None:
    async def run() -> list[object]:
        def broken(_: Sequence[str]) -> list[str]:
            raise ValueError("our bug")

        place = barrier(size=2)
        place.together = broken
        tasks = [place.meet("g", 0, member("a")), place.meet("g", 1, member("b"))]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(run())
    assert first == "a alone" and isinstance(second, ValueError)


def test_groups_that_never_become_whole_are_scored_alone_and_forgotten() -> None:
    async def run() -> GroupBarrier[str, str]:
        place = barrier(timeout_s=0.01)
        tasks = (place.meet(f"g{n}", 0, member("a")) for n in range(2000))
        assert set(await asyncio.gather(*tasks)) == {"a alone"}
        assert await place.meet("g1999", 1, member("b")) == "b alone"
        return place

    place = asyncio.run(run())
    assert place._groups == {} and len(place._broken) == MAX_BROKEN
