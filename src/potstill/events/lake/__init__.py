"""The lake: Delta Lake tables of decisions, rewards and observations."""

from potstill.events.lake.arrivals import arrived_files
from potstill.events.lake.checksums import CorruptFile
from potstill.events.lake.delta import LakeUnavailable, Overtaken
from potstill.events.lake.erase import erase, ids_of_unit
from potstill.events.lake.flush import Flusher, FlushReport, FlushState, last_flush
from potstill.events.lake.frames import decision_frame, reward_frame, split
from potstill.events.lake.lake import Lake
from potstill.events.lake.maintenance import compact, expire, vacuum
from potstill.events.lake.observations import (
    ObservationChunk,
    count_by_action,
    count_observations,
    count_of_actions,
    observation_chunks,
    read_observations,
)
from potstill.events.lake.repair import is_repair, replace_file, rows_before_compaction, rows_in_log
from potstill.events.lake.schema import METRICS, TABLES, SchemaMismatch, Table, table_schema
from potstill.events.lake.scrub import Scrubber
from potstill.events.lake.table import File, VersionGone, check_files_exist
from potstill.events.lake.verify import DamagedFile, TableReport, verify_file, verify_table
from potstill.events.lake.writer import add_files, write_files

__all__ = [
    "METRICS",
    "TABLES",
    "CorruptFile",
    "DamagedFile",
    "File",
    "FlushReport",
    "FlushState",
    "Flusher",
    "Lake",
    "LakeUnavailable",
    "ObservationChunk",
    "Overtaken",
    "SchemaMismatch",
    "Scrubber",
    "Table",
    "TableReport",
    "VersionGone",
    "add_files",
    "arrived_files",
    "check_files_exist",
    "compact",
    "count_by_action",
    "count_observations",
    "count_of_actions",
    "decision_frame",
    "erase",
    "expire",
    "ids_of_unit",
    "is_repair",
    "last_flush",
    "observation_chunks",
    "read_observations",
    "replace_file",
    "reward_frame",
    "rows_before_compaction",
    "rows_in_log",
    "split",
    "table_schema",
    "vacuum",
    "verify_file",
    "verify_table",
    "write_files",
]
