"""A tap: sees each row of a run, and passes it on to the recorder behind it, if there is one."""

from collections.abc import Iterable

from antiphon.core.ids import Group, Site
from antiphon.core.recording import Kind, LevelRecorder, Recorder
from antiphon.core.time import Nanoseconds


class Tap:
    """Implements `antiphon.core.recording.Recorder`; subclasses say what they do with a row in `on_row`."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder

    def record(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None = None,
        number: int | None = None,
        count: int = 1,
        group: Group | None = None,
        destinations: Iterable[Site] | None = None,
        size: int | None = None,
    ) -> None:
        self.on_row(site, kind, time_ns, sender, number, count)
        if self._recorder is not None:
            self._recorder.record(site, kind, time_ns, sender, number, count, group, destinations, size)

    def reach(
        self, site: Site, level: str, time_ns: Nanoseconds, sender: Site, number: int, count: int
    ) -> None:
        if isinstance(self._recorder, LevelRecorder):
            self._recorder.reach(site, level, time_ns, sender, number, count)

    def on_row(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None,
        number: int | None,
        count: int,
    ) -> None:
        raise NotImplementedError
