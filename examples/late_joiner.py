"""Coming late: two members keep a history on disk, and a member that joins later gets all of it, in order.

A ledger is the sum of all that was ever booked, so a newcomer is of no use before it has seen everything. One
of the two that keep the history has gone by then; the other has it all.
"""

import asyncio
import tempfile

import antiphon

BOOKINGS = 1000


async def book(group: antiphon.Group, bookings: range) -> None:
    await group.send_many(b"%d" % amount for amount in bookings)
    await (await group.send(b"0")).stable()


async def balance(group: antiphon.Group, wanted: int) -> int:
    total = 0
    async for message in group:
        total += int(message.body)
        wanted -= 1
        if not wanted:
            break
    return total


async def main(folder: str) -> None:
    async with (
        antiphon.join("ledger", name="teller") as teller,
        antiphon.join("ledger", name="archive", history=folder) as archive,
    ):
        async with antiphon.join("ledger", name="vault", history=folder) as vault:
            await teller.wait_for_members(3)
            await book(teller, range(BOOKINGS))
            print(f"the vault knows a balance of {await balance(vault, BOOKINGS + 1)}, and leaves")
        async with antiphon.join("ledger", name="auditor", catch_up=True) as auditor:
            await book(teller, range(BOOKINGS))
            total = await balance(auditor, 2 * (BOOKINGS + 1))
            assert await auditor.wait_for_history()
            past = auditor.counters["history_messages"]
            print(
                f"the auditor came late and knows a balance of {total}, {past} bookings of it from the past"
            )
            assert total == 2 * sum(range(BOOKINGS))
        assert archive.counters["history_log_messages"] >= BOOKINGS


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as history:
        asyncio.run(main(history))
