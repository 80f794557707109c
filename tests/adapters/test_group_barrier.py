import asyncio
from collections.abc import Sequence

from envbuild.train.group_barrier import MAX_BROKEN, GroupBarrier


def barrier(*, size: int = 3, timeout_s: float = 5.0) -> GroupBarrier[str, str]:
    def together(members: Sequence[str]) -> list[str]:
        return [f"{member} of {'+'.join(members)}" for member in members]

    def alone(members: Sequence[str]) -> list[str]:
        return [f"{member} alone" for member in members]

    return GroupBarrier(size=size, together=together, alone=alone, timeout_s=timeout_s)


def test_members_are_scored_together_in_their_own_order() -> None:
    async def run() -> list[str]:
        place = barrier()
        tasks = [place.join("g", at, name) for at, name in ((2, "c"), (0, "a"), (1, "b"))]
        return await asyncio.gather(*tasks)

    assert asyncio.run(run()) == ["c of a+b+c", "a of a+b+c", "b of a+b+c"]


def test_groups_do_not_mix_and_nothing_is_kept() -> None:
    async def run() -> GroupBarrier[str, str]:
        place = barrier(size=2)
        found = await asyncio.gather(
            *(place.join(f"g{n % 50}", n // 50, f"m{n}") for n in range(100))
        )
        assert found[7] == "m7 of m7+m57" and found[57] == "m57 of m7+m57"
        return place

    assert asyncio.run(run())._groups == {}


def test_a_failed_member_frees_its_siblings_early_and_late() -> None:
    async def run() -> list[str]:
        place = barrier(timeout_s=60)
        early = asyncio.create_task(place.join("g", 0, "a"))
        await asyncio.sleep(0.01)
        place.leave("g")
        late = await place.join("g", 2, "c")
        assert place._groups == {}
        return [await early, late]

    assert asyncio.run(run()) == ["a alone", "c alone"]


def test_a_member_waits_no_longer_than_it_is_told() -> None:
    async def run() -> list[str]:
        place = barrier(timeout_s=0.05)
        first = await place.join("g", 0, "a")
        return [first, await place.join("g", 1, "b")]

    assert asyncio.run(run()) == ["a alone", "b alone"]


def test_a_fault_in_scoring_is_raised_and_not_waited_for() -> None:
    async def run() -> list[object]:
        def broken(_: Sequence[str]) -> list[str]:
            raise ValueError("our bug")

        place: GroupBarrier[str, str] = GroupBarrier(
            size=2, together=broken, alone=lambda m: [f"{x} alone" for x in m], timeout_s=60
        )
        tasks = [place.join("g", 0, "a"), place.join("g", 1, "b")]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(run())
    assert first == "a alone" and isinstance(second, ValueError)


def test_a_cancelled_member_is_not_present_and_no_group_is_kept() -> None:
    async def run() -> tuple[list[str], GroupBarrier[str, str]]:
        place = barrier(size=3, timeout_s=60)
        waiting = [asyncio.create_task(place.join("g", at, "ab"[at])) for at in (0, 1)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        found = [await waiting[1], await place.join("g", 2, "c"), await place.join("g", 0, "a")]
        return found, place

    found, place = asyncio.run(run())
    assert found == ["b alone", "c alone", "a alone"]
    assert place._groups == {}


def test_groups_that_never_become_whole_are_forgotten() -> None:
    async def run() -> GroupBarrier[str, str]:
        place = barrier(timeout_s=0.01)
        await asyncio.gather(*(place.join(f"g{n}", 0, "a") for n in range(2000)))
        return place

    place = asyncio.run(run())
    assert place._groups == {} and len(place._broken) == MAX_BROKEN
