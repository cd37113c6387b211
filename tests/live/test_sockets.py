"""The sockets of a member by themselves."""

import socket

import pytest

from antiphon.core.errors import UsageError
from antiphon.live.counters import Counters
from antiphon.live.networks import Endpoint, Multicast, Peers
from antiphon.live.sockets import Sockets, open_network, static_address


def test_without_a_free_file_no_address_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A datagram to ourselves does no harm; a tick that raises would send no greeting."""
    network = Peers((Endpoint("127.0.0.1", 9),), Endpoint("0.0.0.0", 0))
    sockets = Sockets(network, "group", 1, Counters(), sealed=False)
    port = sockets.receiving[0].getsockname()[1]

    def full(*_: object, **__: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", full)
        assert not sockets.is_own(("127.0.0.1", port))
    sockets.close()


def test_an_interface_that_cannot_exist_gets_a_sentence() -> None:
    with pytest.raises(UsageError, match="There is no interface"):
        open_network(Multicast("l\0o"), "group")


def test_a_link_local_peer_is_reached_by_the_interface_that_it_names() -> None:
    index = socket.if_nametoindex("lo")
    found = static_address(Endpoint("fe80::1%lo", 7400), socket.AF_INET6)
    assert found == ("fe80::1%lo", 7400, 0, index)
    assert static_address(Endpoint("::1", 7400), socket.AF_INET6) == ("::1", 7400, 0, 0)
    with pytest.raises(UsageError, match="There is no interface 'nope'"):
        static_address(Endpoint("fe80::1%nope", 7400), socket.AF_INET6)
