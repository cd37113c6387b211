"""What all parts of one site's protocol share."""

from typing import NamedTuple

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.protocols.metagroups.pdus import MetaGroupsConfiguration


class Context(NamedTuple):
    """The site, its options, and the effects that it has asked for in the current step."""

    site: Site
    configuration: MetaGroupsConfiguration
    effects: list[Effect]
