"""One record per operator (of tiers 1 and 2, and whatever else is declared), the input of `compat_suite.self_check`. Needs no PyTorch."""

from compat_suite.records import declared, further, linear_algebra, neural_networks, others, pointwise, recurrent, reductions, shaping
from compat_suite.records.record import Make, Record, split

__all__ = ["RECORDS", "Make", "Record", "split"]

RECORDS: dict[str, Record] = {}
for _family in (pointwise, reductions, shaping, linear_algebra, neural_networks, recurrent, others, further):
    for _record in _family.RECORDS:
        assert _record.name not in RECORDS, f"two records of {_record.name}"
        RECORDS[_record.name] = _record

_names = {part for name in RECORDS for part in (name, name.split(".")[0], name.split(".")[-1], name.replace(".", "_"))}
RECORDS |= {record.name: record for record in declared.records(_names)}
