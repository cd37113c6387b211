"""Processes in several groups at once, and one order across all of them.

    python examples/overlapping_groups.py

A shop has two groups: `orders` and `prices`. The till is in both, and so is the ledger; the web site sends
orders, the office sends prices. An order must be charged at the price that held when it came. Till and ledger
each work that out for themselves, from what they deliver. They agree, because whatever two nodes both
deliver, they deliver in one order, whichever group it went to.
"""

import asyncio

import antiphon

ROUNDS = 8


async def account(node: antiphon.Node, prices: int, orders: int) -> list[tuple[str, int]]:
    """What each order costs, as this node sees it."""
    price, charged = 0, []
    async for message in node:
        if message.group == "prices":
            price, prices = int(message.body), prices - 1
        else:
            charged.append((message.body.decode(), price))
            orders -= 1
        if not prices and not orders:
            break
    return charged


async def main() -> None:
    async with (
        antiphon.node("shop-example", name="till") as till,
        antiphon.node("shop-example", name="ledger") as ledger,
        antiphon.node("shop-example", name="office") as office,
        antiphon.node("shop-example", name="site") as site,
    ):
        await asyncio.gather(*(node.wait_for_nodes(4) for node in (till, ledger, office, site)))
        for node in (till, ledger):
            await node.join("orders")
            await node.join("prices")

        async def change_prices() -> None:
            for turn in range(ROUNDS):
                await office.group("prices").send(b"%d" % (10 + turn))
                await asyncio.sleep(0.002)

        async def order_books() -> None:
            for turn in range(ROUNDS):
                await site.group("orders").send(b"book %d" % turn)
                await asyncio.sleep(0.002)

        readers = [asyncio.create_task(account(node, ROUNDS, ROUNDS)) for node in (till, ledger)]
        await asyncio.gather(change_prices(), order_books())
        at_till, in_ledger = await asyncio.gather(*readers)
    for book, price in at_till:
        print(f"{book}: {price}")
    assert at_till == in_ledger, "till and ledger disagree"
    print("till and ledger agree")


if __name__ == "__main__":
    asyncio.run(main())
