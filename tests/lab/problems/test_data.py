"""Data files are found in the stated order, and what is fetched is checked before it is kept."""

import io
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import polars as pl
import pytest

from potstill.lab.problems import data, mushroom, warfarin

NAME = data.MUSHROOM.name
WARFARIN_COLUMNS = (
    *("Age", "Height (cm)", "Weight (kg)", "Gender", "Race", "CYP2C9 consensus", "VKORC1 -1639 consensus"),
    *("Amiodarone (Cordarone)", "Carbamazepine (Tegretol)", "Phenytoin (Dilantin)", "Rifampin or Rifampicin"),
)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No data anywhere: three empty places, in the order in which they are searched."""
    places = {name: tmp_path / name for name in ("named", "beside/shared/data", "cache/potstill/data")}
    for place in places.values():
        place.mkdir(parents=True)
    monkeypatch.setenv("POTSTILL_DATA", str(places["named"]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "_neighbour", lambda: ("beside", tmp_path / "beside"))
    return list(places.values())


def test_places_are_searched_in_order(nowhere):
    for folder in reversed(nowhere):
        (folder / NAME).write_text("p,x")
        assert data.find(NAME) == folder / NAME


def test_an_empty_file_is_none(nowhere):
    (nowhere[0] / NAME).touch()
    (nowhere[1] / NAME).write_text("p,x")
    assert data.find(NAME) == nowhere[1] / NAME


def test_what_is_missing_is_named_with_the_places_and_the_way_out(nowhere):
    with pytest.raises(data.MissingData) as error:
        data.find(NAME)
    message = str(error.value)
    assert NAME in message
    assert all(str(folder) in message for folder in nowhere)
    assert "potstill lab data" in message
    assert "POTSTILL_DATA" in message
    assert "\n" not in message


def test_a_folder_that_is_not_there_is_named(nowhere, monkeypatch):
    monkeypatch.setenv("POTSTILL_DATA", str(nowhere[0] / "typo"))
    with pytest.raises(data.MissingData, match=r"POTSTILL_DATA names .*typo, which is not a folder"):
        data.find(NAME)


@pytest.mark.parametrize(
    ("source", "problem", "line"),
    [(data.MUSHROOM, mushroom.mushroom, ",x" * 22), (data.WARFARIN, warfarin.warfarin, None)],
    ids=["mushroom", "warfarin"],
)
def test_a_file_that_was_cut_off_is_refused(nowhere, source, problem, line):
    columns = [*WARFARIN_COLUMNS, "Therapeutic Dose of Warfarin"]
    content = (
        f"p{line}\ne{line}\np{line}\n"
        if line
        else ",".join(columns) + "\n" + (",".join(["1"] * len(columns)) + "\n") * 3
    )
    (nowhere[0] / source.name).write_text(content)
    with pytest.raises(
        ValueError, match=rf"has 3 rows, and the real file has {source.rows:,}: delete it, and download"
    ):
        problem.__wrapped__()


def test_located_says_which_place_was_used(nowhere):
    (nowhere[2] / NAME).write_text("p,x")
    found = {one.source.name: one for one in data.located()}
    assert found[NAME].place == "the download cache"
    assert found[NAME].path == nowhere[2] / NAME
    assert found[data.WARFARIN.name].place is None


def test_a_checkout_looks_beside_itself_and_an_installed_package_beside_the_current_folder(tmp_path, monkeypatch):
    package = tmp_path / "checkout/src/potstill/lab/problems/data.py"
    monkeypatch.setattr(data, "__file__", str(package))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert data.places()["beside the current folder"] == tmp_path / "shared/data"
    package.parent.mkdir(parents=True)
    (tmp_path / "checkout/pyproject.toml").touch()
    assert data.places()["beside the checkout"] == tmp_path / "shared/data"


@pytest.fixture
def server(tmp_path):
    """A web server on this machine, and the folder that it serves: the real addresses are not tried in tests."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def mushroom_from(server, content: bytes) -> data.Source:
    folder, address = server
    (folder / "mushroom.zip").write_bytes(content)
    return msgspec.structs.replace(data.MUSHROOM, url=f"{address}/mushroom.zip")


def zipped(text: str, name: str = NAME) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)
    return file.getvalue()


def mushrooms(edible: int, poisonous: int) -> str:
    return ("e" + ",x" * 22 + "\n") * edible + ("p" + ",x" * 22 + "\n") * poisonous


def test_download_unpacks_and_keeps_what_is_right(server, tmp_path):
    text = mushrooms(4208, 3916)
    source = mushroom_from(server, zipped(text))
    assert list(data.download(tmp_path / "kept", [source])) == [tmp_path / "kept" / NAME]
    assert (tmp_path / "kept" / NAME).read_text() == text


def test_download_leaves_what_is_there_alone(tmp_path):
    (tmp_path / NAME).write_text("mine")
    unreachable = msgspec.structs.replace(data.MUSHROOM, url="http://127.0.0.1:1/")
    assert list(data.download(tmp_path, [unreachable])) == [tmp_path / NAME]
    assert (tmp_path / NAME).read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (zipped("p,x\n" * 8124), "8,124 rows of 23 values"),
        (zipped(mushrooms(4208, 3915)), "got 8,123 rows"),
        (zipped(mushrooms(4207, 3917)), "4,207 edible"),
        (zipped("", name="other.data"), "agaricus-lepiota.data"),
        (b"<html>not found</html>", "not a zip file"),
    ],
)
def test_what_is_not_the_data_is_refused(server, tmp_path, content, complaint):
    source = mushroom_from(server, content)
    with pytest.raises(data.DownloadFailed, match=complaint) as error:
        list(data.download(tmp_path / "kept", [source]))
    assert source.url in str(error.value)
    assert not (tmp_path / "kept" / NAME).exists()


def test_an_address_that_does_not_answer_is_named(server, tmp_path):
    source = msgspec.structs.replace(data.MUSHROOM, url=f"{server[1]}/nothing.zip")
    with pytest.raises(data.DownloadFailed, match=r"nothing\.zip could not be downloaded: .*404"):
        list(data.download(tmp_path, [source]))


def patients(rows: int, dosed: int) -> pl.DataFrame:
    doses = ["21.0"] * dosed + ["NA"] * (rows - dosed)
    return pl.DataFrame({"Race (OMB)": ["Asian"] * rows, "Therapeutic Dose of Warfarin": doses})


def test_patients_are_counted_and_the_race_column_is_renamed(monkeypatch):
    monkeypatch.setattr(data, "_sheet", lambda raw: patients(5700, 5528))
    monkeypatch.setattr(data, "_get", lambda source: b"")
    table = pl.read_csv(data.fetch(data.WARFARIN), null_values="NA")
    assert table.columns == ["Race", "Therapeutic Dose of Warfarin"]
    assert len(table.drop_nulls()) == 5528


def test_another_number_of_patients_is_refused(monkeypatch):
    monkeypatch.setattr(data, "_sheet", lambda raw: patients(5700, 5527))
    monkeypatch.setattr(data, "_get", lambda source: b"")
    with pytest.raises(data.DownloadFailed, match="got 5,700 and 5,527"):
        data.fetch(data.WARFARIN)
