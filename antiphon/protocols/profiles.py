"""The systems of Guo's chapters 2 and 4 as profiles: each a name for an order and its options.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 2.1 and 4.2. docs/profiles.md says of
each what the text tells, and what is assumed where the text is too short to build from. A profile is data: it
has no code of its own, and a group may turn any of its options.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from antiphon.core.knobs import require_known

Option: TypeAlias = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One system."""

    name: str
    summary: str
    order: str
    """The order, by the name that it has in the simulator."""
    options: Mapping[str, Option]
    """The options of that order, as `antiphon.join` and `antiphon simulate` take them."""


def _profile(name: str, summary: str, order: str, **options: Option) -> Profile:
    return Profile(name=name, summary=summary, order=order, options=MappingProxyType(options))


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        _profile(
            "amoeba",
            "a sequencer that repeats what members ask for; a member has one message under way",
            "sequencer",
            window=1,
        ),
        _profile(
            "totem",
            "a token goes round; its holder multicasts, and the token numbers and acknowledges",
            "totem",
        ),
    )
}


def find_profile(name: str) -> Profile:
    """A profile by its name; an unknown name raises, with the names that exist."""
    require_known(name, PROFILES, f"There is no profile '{name}'.")
    return PROFILES[name]
