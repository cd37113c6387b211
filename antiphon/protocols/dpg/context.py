"""What the parts of a member share."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.protocols.dpg.channel_queue import ChannelQueue
from antiphon.protocols.dpg.pdus import DpgConfiguration
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.timers import Timers


class Context(NamedTuple):
    """The member's name and configuration, its service, and its ways to act."""

    site: Site
    configuration: DpgConfiguration
    service: Service
    random: Random
    timers: Timers
    emit: Callable[[Effect], None]
    queue: ChannelQueue
