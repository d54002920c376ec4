"""Record-level kernels: compiled if the extension was built, plain Python otherwise.

Both implementations return the same results and errors (`grammar` has what they share; a property
test compares them), so callers need not know which one runs. `IMPLEMENTATION` names it. The
environment variable `FELICE_PURE=1` selects plain Python. An extension that does not fit this version causes a warning.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from felice.env.variables import is_set
from felice.records.kernels.grammar import (
    BinaryBuffers,
    BinaryColumn,
    ColumnBuffers,
    EncodedRows,
    HeadersBuffers,
    HeadersColumn,
    KeptRecords,
    RowColumns,
    Scan,
)

if TYPE_CHECKING:
    from felice.records.kernels.plain import (
        RecordWrapper,
        encode_record,
        iterate,
        ordinary_batch,
        ordinary_records,
        right_header,
        scan,
        track,
    )
    from felice.records.kernels.plain_columns import ArrowColumns, encode_rows, murmur2, murmur2_column
    from felice.records.kernels.plain_offset_map import OffsetMap
    from felice.records.kernels.plain_record_buffer import Offers, OpenBatches, QueueBounds, RecordBuffer

    IMPLEMENTATION: str
else:
    try:
        if is_set("FELICE_PURE"):
            raise ModuleNotFoundError("FELICE_PURE asks for plain Python")
        from felice.records.kernels._kernels import (
            ArrowColumns,
            Offers,
            OffsetMap,
            OpenBatches,
            QueueBounds,
            RecordBuffer,
            RecordWrapper,
            encode_record,
            encode_rows,
            iterate,
            murmur2,
            murmur2_column,
            ordinary_batch,
            ordinary_records,
            right_header,
            scan,
            track,
        )

        IMPLEMENTATION = "compiled"
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):
            warnings.warn(
                f"the compiled record kernels do not fit this version, so slow plain Python runs instead ({error}); "
                "build them again: pip install --force-reinstall --no-deps felice, or pip install -e . in a clone",
                RuntimeWarning,
                stacklevel=2,
            )
        from felice.records.kernels.plain import (
            RecordWrapper,
            encode_record,
            iterate,
            ordinary_batch,
            ordinary_records,
            right_header,
            scan,
            track,
        )
        from felice.records.kernels.plain_columns import ArrowColumns, encode_rows, murmur2, murmur2_column
        from felice.records.kernels.plain_offset_map import OffsetMap
        from felice.records.kernels.plain_record_buffer import Offers, OpenBatches, QueueBounds, RecordBuffer

        IMPLEMENTATION = "plain"

__all__ = [
    "IMPLEMENTATION",
    "ArrowColumns",
    "BinaryBuffers",
    "BinaryColumn",
    "ColumnBuffers",
    "EncodedRows",
    "HeadersBuffers",
    "HeadersColumn",
    "KeptRecords",
    "Offers",
    "OffsetMap",
    "OpenBatches",
    "QueueBounds",
    "RecordBuffer",
    "RecordWrapper",
    "RowColumns",
    "Scan",
    "encode_record",
    "encode_rows",
    "iterate",
    "murmur2",
    "murmur2_column",
    "ordinary_batch",
    "ordinary_records",
    "right_header",
    "scan",
    "track",
]
