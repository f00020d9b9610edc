"""
The region file, `*.cache`, which the library in the containers and the monitor on the Node both map.

`layout` says where each build of the library keeps what, `codec` reads and writes the values, `sums` adds up the
processes, `records` reads what this project's library adds.
"""

from hamicommon.wire.region.codec import (
    DeviceMemory,
    DeviceUtilization,
    Region,
    Slot,
    decode_region,
    encode_region,
)
from hamicommon.wire.region.layout import (
    DEVICES,
    HEADER_BYTES,
    LAYOUT_V0,
    LAYOUT_V0_EARLY,
    LAYOUT_V1_1,
    LAYOUT_V1_1_SEQLOCK_FIRST,
    LAYOUT_V1_1_SHIFTED,
    LAYOUT_V1_2,
    LAYOUTS,
    MAGIC,
    SLOTS,
    UUID_BYTES,
    Layout,
    detect_layout,
)
from hamicommon.wire.region.records import (
    DeviceRecords,
    Unreached,
    WaitRecord,
    decode_records,
    decode_unreached,
    decode_waits,
)
from hamicommon.wire.region.sums import (
    DeviceSums,
    ProcessSums,
    RegionState,
    decode_state,
    head_size,
    sum_processes,
    tail_start,
)

__all__ = [
    "DEVICES",
    "HEADER_BYTES",
    "LAYOUTS",
    "LAYOUT_V0",
    "LAYOUT_V0_EARLY",
    "LAYOUT_V1_1",
    "LAYOUT_V1_1_SEQLOCK_FIRST",
    "LAYOUT_V1_1_SHIFTED",
    "LAYOUT_V1_2",
    "MAGIC",
    "SLOTS",
    "UUID_BYTES",
    "DeviceMemory",
    "DeviceRecords",
    "DeviceSums",
    "DeviceUtilization",
    "Layout",
    "ProcessSums",
    "Region",
    "RegionState",
    "Slot",
    "Unreached",
    "WaitRecord",
    "decode_records",
    "decode_region",
    "decode_state",
    "decode_unreached",
    "decode_waits",
    "detect_layout",
    "encode_region",
    "head_size",
    "sum_processes",
    "tail_start",
]
