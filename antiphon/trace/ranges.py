"""What the statistics of a Parquet file's row groups say of the rows in them, so that few are read."""

from typing import Any, Final, TypeAlias

from antiphon.trace.arrow import pq

Ranges: TypeAlias = dict[str, tuple[Any, Any]]
"""The least and the greatest value of columns; a column that is missing may hold anything."""
COLUMNS: Final[tuple[tuple[str, type], ...]] = (
    ("run", str),
    ("site", str),
    ("step", int),
    ("kind", str),
    ("sender", str),
    ("number", int),
)


def ranges_of(group: pq.RowGroupMetaData) -> Ranges:
    """The least and the greatest value of the columns whose statistics tell; a null count is 1."""
    ranges: Ranges = {}
    columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    for name, kind in COLUMNS:
        found = columns[name].statistics if name in columns else None
        if found is not None and found.has_min_max and isinstance(found.min, kind):
            ranges[name] = (found.min, found.max)
    counted = columns["count"].statistics if "count" in columns else None
    if "count" not in columns or (counted is not None and counted.null_count == group.num_rows):
        ranges["count"] = (1, 1)
    elif counted is not None and counted.has_min_max and isinstance(counted.max, int):
        ranges["count"] = (1, max(counted.max, 1))
    return ranges


def within(ranges: Ranges, name: str, low: Any, high: Any) -> bool:
    """Whether a row may have a value from `low` to `high` in this column."""
    if name not in ranges:
        return True
    least, greatest = ranges[name]
    return bool(least <= high and low <= greatest)
