"""The hosts do to datagrams what was asked for, and nothing of them is left afterwards."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.hosts import Hosts, skip_unless_allowed

pytestmark = pytest.mark.live

DATAGRAMS = 2000
MULTICAST = "239.7.7.7"

LISTEN = """
import socket, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
heard.bind(("", 7777))
place = socket.inet_aton("239.7.7.7") + socket.inet_aton("0.0.0.0")
heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, place)
print("listening", flush=True)
numbers = []
while (data := heard.recv(2000)) != b"over":
    numbers.append(int(data))
print(*numbers)
"""

SPEAK = """
import socket, sys, time
speaking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    speaking.sendto(b"%d" % number, (sys.argv[1], 7777))
    if number % 20 == 0:
        time.sleep(0.001)
"""

END = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"over", ("239.7.7.7", 7777))
"""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    skip_unless_allowed()
    with Hosts(3) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def converse(hosts: Hosts, to: str = MULTICAST) -> list[list[int]]:
    """The first host sends, the others listen; what each of these heard."""
    listeners = []
    for host in range(1, hosts.count):
        listener = hosts.start(host, [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE)
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"listening\n"
        listeners.append(listener)
    hosts.run(0, sys.executable, "-c", SPEAK, to, str(DATAGRAMS))
    hosts.switch.rest()
    hosts.weather.heal()
    until(lambda: hosts.switch.held() == 0)
    hosts.run(0, sys.executable, "-c", END)
    return [list(map(int, listener.communicate(timeout=120)[0].split())) for listener in listeners]


def test_without_trouble_everything_arrives_once_and_in_order(hosts: Hosts) -> None:
    assert converse(hosts) == [list(range(DATAGRAMS))] * 2


def test_a_unicast_reaches_only_its_host(hosts: Hosts) -> None:
    assert converse(hosts, hosts.address(2)) == [[], list(range(DATAGRAMS))]


def test_loss_falls_on_each_receiver_by_itself(hosts: Hosts) -> None:
    hosts.weather.trouble(loss=0.2)
    heard = converse(hosts)
    for numbers in heard:
        assert numbers == sorted(set(numbers))
        assert 0.75 * DATAGRAMS < len(numbers) < 0.85 * DATAGRAMS
    assert heard[0] != heard[1]


def test_duplicates_come_twice_and_nothing_is_lost(hosts: Hosts) -> None:
    hosts.weather.trouble(duplication=0.3)
    for numbers in converse(hosts):
        assert set(numbers) == set(range(DATAGRAMS))
        assert 1.25 * DATAGRAMS < len(numbers) < 1.35 * DATAGRAMS


def test_reordering_and_jitter_let_datagrams_overtake_one_another(hosts: Hosts) -> None:
    hosts.weather.trouble(reordering=0.1, delay_ms=1, jitter_ms=5)
    for numbers in converse(hosts):
        assert sorted(numbers) == list(range(DATAGRAMS))
        assert numbers != sorted(numbers)


def test_a_partition_cuts_and_heals(hosts: Hosts) -> None:
    hosts.weather.split([[0, 1], [2]])
    assert converse(hosts) == [list(range(DATAGRAMS)), []]
    assert converse(hosts) == [list(range(DATAGRAMS))] * 2


def test_addresses_of_both_families(hosts: Hosts) -> None:
    told = hosts.run(1, "ip", "-brief", "address", "show", "dev", "eth0")
    assert hosts.address(1) in told
    assert hosts.address6(1) in told


CRASH = """
import os, signal, subprocess, sys
from tests.live.hosts import Hosts
with Hosts(2) as hosts:
    script = "echo ready && exec sleep 600"
    sleeper = hosts.start(0, ["sh", "-c", script], stdout=subprocess.PIPE)
    sleeper.stdout.readline()
    os.kill(sleeper.pid, signal.SIGSTOP)
    print(sleeper.pid, *(holder.pid for holder in hosts._holders), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_after_a_crash() -> None:
    skip_unless_allowed()
    command, root = [sys.executable, "-c", CRASH], Path(__file__).parents[2]
    crashed = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=root, timeout=120)
    assert crashed.returncode == -signal.SIGKILL
    processes = list(map(int, crashed.stdout.split()))
    assert len(processes) == 3
    until(lambda: not any(map(is_alive, processes)))


def is_alive(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
