"""One record per operator of tiers 1 and 2, from which `compat_suite.self_check` makes its checks. Needs no PyTorch."""

from compat_suite.records import linear_algebra, neural_networks, pointwise, reductions, shaping
from compat_suite.records.record import Make, Record, split

__all__ = ["RECORDS", "Make", "Record", "split"]

RECORDS: dict[str, Record] = {}
for _family in (pointwise, reductions, shaping, linear_algebra, neural_networks):
    for _record in _family.RECORDS:
        assert _record.name not in RECORDS, f"two records of {_record.name}"
        RECORDS[_record.name] = _record
