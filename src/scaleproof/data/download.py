"""Fetch a published file: resumed when cut, checked by length and hash, put in place in one step."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[int, int | None], None]
CHUNK = 2**18


class DownloadError(OSError):
    """A file could not be fetched whole; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file on a home page."""

    base: str
    file: str
    md5: str

    @property
    def url(self) -> str:
        """Give the full address."""
        return f"{self.base.rstrip('/')}/{self.file}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An open answer of a server: from which byte it goes on, and how long the whole file is."""

    stream: http.client.HTTPResponse
    start: int
    total: int | None


def fetch(remote: Remote, folder: Path, progress: Progress | None = None, *, timeout: float = 30.0) -> Path:
    """Bring a file into a folder, going on from what an earlier, cut run left in `<file>.part`."""
    target = folder / remote.file
    if target.exists():
        _check_present(target, remote)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{remote.file}.part"
    if not _is_whole(part, remote):
        try:
            answer = _open(remote, part.stat().st_size if part.exists() else 0, timeout)
            with answer.stream:
                _save(answer, part, remote, progress or _silent)
        except DownloadError as error:
            raise DownloadError(f"{error} The data folder for it: {folder.resolve()}") from error
        _check_hash(part, remote)
    os.replace(part, target)
    return target


def file_md5(path: Path) -> str:
    """Give the md5 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _silent(_done: int, _total: int | None) -> None:
    """Report nothing."""


def _check_present(target: Path, remote: Remote) -> None:
    """Accept a file that is there already if it is the published one."""
    seen = file_md5(target)
    if seen != remote.md5:
        raise DownloadError(
            f"{target} is there already but is not the published file: its md5 is {seen}, not {remote.md5}. "
            "Move it away and run again."
        )


def _is_whole(part: Path, remote: Remote) -> bool:
    """Say whether an earlier run fetched everything but could not put it in place."""
    return part.exists() and part.stat().st_size > 0 and file_md5(part) == remote.md5


def _open(remote: Remote, have: int, timeout: float) -> Answer:
    """Ask for the bytes that are missing; start over where the server has none at that place."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "scaleproof"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        stream = urllib.request.urlopen(urllib.request.Request(remote.url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            return _open(remote, 0, timeout)
        raise DownloadError(f"{remote.url} answered {error.code} {error.reason}. Try again later.") from error
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(
            f"{remote.url} cannot be reached ({error}). Check the connection and run again, or put the file "
            "into the data folder by hand."
        ) from error
    return _understand(stream, remote, have, timeout)


def _understand(stream: http.client.HTTPResponse, remote: Remote, have: int, timeout: float) -> Answer:
    """Tell an answer that goes on from one that starts over."""
    if stream.headers.get_content_type() == "text/html":
        stream.close()
        raise _web_page(remote)
    length = stream.headers.get("Content-Length")
    if stream.status != 206:
        return Answer(stream=stream, start=0, total=int(length) if length else None)
    place, _, total = (stream.headers.get("Content-Range") or "").removeprefix("bytes ").partition("/")
    if place.split("-")[0] != str(have):
        stream.close()
        return _open(remote, 0, timeout)
    return Answer(stream=stream, start=have, total=int(total) if total.isdigit() else None)


def _save(answer: Answer, part: Path, remote: Remote, progress: Progress) -> None:
    """Write the answer behind what is there, and require the announced length."""
    done = answer.start
    chunk, cause = _read(answer.stream)
    if done == 0 and _looks_like_html(chunk):
        raise _web_page(remote)
    with part.open("ab" if answer.start else "wb") as file:
        progress(done, answer.total)
        while chunk:
            file.write(chunk)
            done += len(chunk)
            progress(done, answer.total)
            chunk, cause = _read(answer.stream)
    if cause is not None or (answer.total is not None and done < answer.total):
        raise _cut(remote, done, answer.total, cause)


def _read(stream: http.client.HTTPResponse) -> tuple[bytes, Exception | None]:
    """Read a piece; a broken connection gives nothing, and the cause."""
    try:
        return stream.read(CHUNK), None
    except (OSError, http.client.HTTPException) as error:
        return b"", error


def _cut(remote: Remote, done: int, total: int | None, cause: Exception | None) -> DownloadError:
    """Say how much of a file arrived."""
    whole = "an unknown number of" if total is None else f"{total}"
    why = f" ({cause})" if cause is not None else ""
    return DownloadError(
        f"{remote.file} was cut{why}: {done} of {whole} bytes arrived. They are kept; running again resumes."
    )


def _looks_like_html(chunk: bytes) -> bool:
    """Recognise the start of a web page."""
    return chunk[:256].lstrip().lower().startswith((b"<!doctype", b"<html", b"<head"))


def _web_page(remote: Remote) -> DownloadError:
    """Say that a web page came in place of the file."""
    return DownloadError(
        f"{remote.url} answered with a web page (HTML) instead of the file. A proxy or a login page may "
        "stand between; open the address in a browser and put the file into the data folder by hand."
    )


def _check_hash(part: Path, remote: Remote) -> None:
    """Require the published md5, and drop what can never become the file."""
    seen = file_md5(part)
    if seen != remote.md5:
        size = part.stat().st_size
        part.unlink()
        raise DownloadError(
            f"{remote.file} arrived whole ({size} bytes) but wrong: its md5 is {seen}, not {remote.md5}. "
            "It was removed; running again starts over."
        )
