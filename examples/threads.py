"""A group without asyncio: worker threads share one member and block where they wait."""

import threading

import antiphon

MEMBERS = ("alice", "bob")
WORKERS = 3


def member(name: str) -> None:
    with antiphon.sync.join("jobs", name=name, order="total") as group:
        group.wait_for_members(len(MEMBERS), timeout=10)
        workers = [
            threading.Thread(target=group.send, args=(f"job {index} of {name}".encode(),))
            for index in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        jobs = [group.receive(timeout=10).body.decode() for _ in range(len(MEMBERS) * WORKERS)]
        print(f"{name}: {', '.join(jobs)}")


if __name__ == "__main__":
    members = [threading.Thread(target=member, args=(name,)) for name in MEMBERS]
    for each in members:
        each.start()
    for each in members:
        each.join()
