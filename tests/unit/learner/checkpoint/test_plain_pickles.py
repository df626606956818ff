"""If these fail, a checkpoint that somebody sent runs code as it is read, by us or by torch after us."""

import pickle
from pathlib import Path

import pytest
from torch.distributed.checkpoint import filesystem as torch_files
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

from learner.checkpoint.plain_pickles import METADATA_FILE, read_metadata
from tests.support.hostile_pickles import MakesFolder

CLASSES = "torch.distributed.checkpoint.metadata"


def text(value: str) -> bytes:
    return pickle.SHORT_BINUNICODE + bytes([len(value)]) + value.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + pickle.STACK_GLOBAL


def index(number: int) -> bytes:
    """A key: of -1 and of -2 the hashes are equal, the keys are not, unless the class is changed."""
    return named(CLASSES, "MetadataIndex") + b"(" + pickle.BININT + number.to_bytes(4, "little", signed=True) + b"tR"


def differs_at_the_second_reading(folder: Path) -> bytes:
    """Return a pickle that names a class of the list when it is read first, and ``posix.mkdir`` afterwards."""
    layout = named("torch.serialization", "_get_layout")

    def text_of_this_reading(first: str, second: str) -> bytes:
        table = b"}(" + index(-1) + text(first) + index(-2) + text(second) + b"u"
        return layout + b"}" + text("cache") + table + b"sb0" + layout + b"(" + index(-1) + b"tR"

    equal_to_all = b"N}" + text("__eq__") + named(CLASSES, "StorageMeta") + b"s\x86b0"
    return b"".join((
        pickle.PROTO + b"\x04",
        *(text_of_this_reading(CLASSES, "posix"), text_of_this_reading("StorageMeta", "mkdir"), pickle.STACK_GLOBAL),
        *(b"(", text(str(folder)), b"tR0"),
        *(named(CLASSES, "MetadataIndex"), equal_to_all),
        *(named(CLASSES, "Metadata"), b")\x81}", text("storage_data"), b"}sb."),
    ))  # fmt: skip


CHANGING = {
    "a class": named(CLASSES, "MetadataIndex") + b"N}" + text("__eq__") + b"Ns\x86b.",
    "a function": named("torch.serialization", "_get_layout") + b"}" + text("cache") + b"}sb.",
    "a member of an enumeration": named(CLASSES, "_MEM_FORMAT_ENCODING")
    + b"K\x00\x85R}"
    + text("_value_")
    + b"K\x01sb.",
}


@pytest.mark.parametrize("changing", CHANGING)
def test_a_pickle_changes_nothing_that_outlives_it(changing: str, tmp_path: Path) -> None:
    (tmp_path / METADATA_FILE).write_bytes(pickle.PROTO + b"\x04" + CHANGING[changing])
    with pytest.raises(pickle.UnpicklingError, match="changes"):
        read_metadata(tmp_path)


def test_torch_reads_no_pickle_past_the_list(tmp_path: Path) -> None:
    trace = tmp_path / "it ran"
    (tmp_path / METADATA_FILE).write_bytes(differs_at_the_second_reading(trace))
    for _ in range(2):
        with pytest.raises(pickle.UnpicklingError):
            torch_files.FileSystemReader(tmp_path).read_metadata()
    assert not trace.exists()
    for name in (METADATA_FILE, f"__0{METADATA_FILE}"):
        (tmp_path / name).write_bytes(pickle.dumps(MakesFolder(trace)))
        with pytest.raises(pickle.UnpicklingError, match="names"):
            torch_files.FileSystemReader(tmp_path).read_metadata()
    with pytest.raises(TypeError):
        torch_files.FileSystemReader(tmp_path).read_metadata(rank=0)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "/a", "a\0b"])
def test_a_piece_that_is_no_file_beside_the_metadata_is_refused(name: str, tmp_path: Path) -> None:
    piece = vars(torch_files)["_StorageInfo"](name, 0, 1)
    metadata = Metadata({}, storage_data={MetadataIndex("a"): piece})
    (tmp_path / METADATA_FILE).write_bytes(pickle.dumps(metadata))
    with pytest.raises(pickle.UnpicklingError, match="not a file beside it"):
        read_metadata(tmp_path)
