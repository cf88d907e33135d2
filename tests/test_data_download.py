"""Fetching files from a server that keeps, cuts, replaces or refuses them."""

import hashlib
import socket
import threading

import pytest

from data_server import Behaviour, serving
from scaleproof.data.download import DownloadError, Remote, fetch

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


def ask(base, folder, progress=None, md5=MD5):
    return fetch(Remote(base=base, file="set.bin", md5=md5), folder, progress, timeout=5)


def part(folder):
    return folder / "set.bin.part"


def test_file_arrives_whole_with_progress(tmp_path):
    seen = []
    with serving(Behaviour(content=CONTENT)) as base:
        path = ask(base, tmp_path / "new", lambda *pair: seen.append(pair))
    assert path.read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [file.name for file in path.parent.iterdir()] == ["set.bin"]


def test_cut_file_says_how_much_and_is_resumed(tmp_path):
    behaviour = Behaviour(content=CONTENT, cut_after=700_000)
    with serving(behaviour) as base:
        with pytest.raises(DownloadError, match=r"700000 of 1024000 bytes arrived.*running again resumes"):
            ask(base, tmp_path)
        assert part(tmp_path).stat().st_size == 700_000
        assert not (tmp_path / "set.bin").exists()
        behaviour.cut_after = None
        seen = []
        path = ask(base, tmp_path, lambda *pair: seen.append(pair))
    assert path.read_bytes() == CONTENT
    assert behaviour.asked == [None, "bytes=700000-"]
    assert seen[0] == (700_000, len(CONTENT))
    assert not part(tmp_path).exists()


@pytest.mark.parametrize("change", [{"ranges": False}, {"shifted": True}])
def test_server_that_cannot_resume_starts_over(tmp_path, change):
    part(tmp_path).write_bytes(b"old" * 100)
    with serving(Behaviour(content=CONTENT, **change)) as base:
        assert ask(base, tmp_path).read_bytes() == CONTENT


def test_too_long_part_is_answered_416_and_starts_over(tmp_path):
    part(tmp_path).write_bytes(CONTENT + b"more")
    behaviour = Behaviour(content=CONTENT)
    with serving(behaviour) as base:
        assert ask(base, tmp_path).read_bytes() == CONTENT
    assert behaviour.asked == [f"bytes={len(CONTENT) + 4}-", None]


def test_complete_part_is_put_in_place_without_asking(tmp_path):
    part(tmp_path).write_bytes(CONTENT)
    behaviour = Behaviour(content=CONTENT)
    with serving(behaviour) as base:
        assert ask(base, tmp_path).read_bytes() == CONTENT
    assert behaviour.asked == []


def test_unknown_length_is_judged_by_the_hash(tmp_path):
    seen = []
    with serving(Behaviour(content=CONTENT, no_length=True)) as base:
        ask(base, tmp_path, lambda *pair: seen.append(pair))
    assert seen[-1] == (len(CONTENT), None)


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/octet-stream"])
def test_web_page_is_recognised_and_keeps_what_was_there(tmp_path, content_type):
    part(tmp_path).write_bytes(b"kept")
    page = b"\n<!DOCTYPE html><html>Log in</html>"
    with (
        serving(Behaviour(content=page, content_type=content_type, ranges=False)) as base,
        pytest.raises(DownloadError, match=r"web page \(HTML\) instead of the file"),
    ):
        ask(base, tmp_path)
    assert part(tmp_path).read_bytes() == b"kept"


def test_wrong_hash_is_removed(tmp_path):
    with (
        serving(Behaviour(content=CONTENT[:-1] + b"x")) as base,
        pytest.raises(DownloadError, match=rf"\(1024000 bytes\) but wrong: its md5 is .*, not {MD5}"),
    ):
        ask(base, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_file_that_is_there_is_checked_and_not_asked_for(tmp_path):
    (tmp_path / "set.bin").write_bytes(CONTENT)
    assert ask("http://127.0.0.1:9/none", tmp_path).read_bytes() == CONTENT
    (tmp_path / "set.bin").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="is there already but is not the published file"):
        ask("http://127.0.0.1:9/none", tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == b"mine"


def test_refusal_and_absence_of_a_server(tmp_path):
    with (
        serving(Behaviour(content=b"", status=404)) as base,
        pytest.raises(DownloadError, match=r"set\.bin answered 404 Not Found"),
    ):
        ask(base, tmp_path)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(DownloadError, match=rf"cannot be reached .* run again.*{tmp_path}"):
            ask(f"http://127.0.0.1:{reserved.getsockname()[1]}", tmp_path)


def test_server_that_falls_silent_is_given_up_on_and_resumed(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        base = f"http://127.0.0.1:{server.getsockname()[1]}"
        server.settimeout(5)
        remote = Remote(base=base, file="set.bin", md5=MD5)

        def speak_then_stop():
            connection, _ = server.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            done.wait(5)
            connection.close()

        done = threading.Event()
        thread = threading.Thread(target=speak_then_stop)
        thread.start()
        with pytest.raises(DownloadError, match=r"was cut \(timed out\): 0 of 1000 bytes"):
            fetch(remote, tmp_path, timeout=0.2)
        done.set()
        thread.join()


def test_full_disk_is_reported_as_it_is_and_keeps_the_part(tmp_path):
    def full(done, total):
        if done > 300_000:
            raise OSError(28, "No space left on device")

    with serving(Behaviour(content=CONTENT)) as base:
        with pytest.raises(OSError, match="No space left"):
            ask(base, tmp_path, full)
        assert part(tmp_path).stat().st_size > 300_000
        assert ask(base, tmp_path).read_bytes() == CONTENT
