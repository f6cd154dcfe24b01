"""Computes which files a power cut may leave, at every moment of a program that writes them.

The program runs under strace, which tells each write, sync, new name and removed name in order. A
disk may have lost every name that was made since its folder was synced, and the content of every
file since it was synced: it is then empty, half there, or zeros. Or it may have everything.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

TIMEOUT_S = 120
_CALLS = (
    "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
    "mkdir,mkdirat,ftruncate,writev"
)
_LINE = re.compile(r"(?P<at>[\d.]+) (?P<call>\w+)\((?P<args>.*)\) += (?P<result>-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_OPENED = re.compile(r"(\d+)<((?:\\x[0-9a-f]{2})+)>")


class Loss(Enum):
    """The fate of names and content that were not synced."""

    NAMES = "names"
    EMPTY = "empty"
    HALF = "half"
    ZEROS = "zeros"
    NOTHING = "nothing"


@dataclass
class _File:
    content: bytes = b""
    synced: bytes | None = None

    def after(self, loss: Loss) -> bytes:
        if self.synced == self.content or loss is Loss.NOTHING:
            return self.content
        match loss:
            case Loss.HALF:
                return self.content[: len(self.content) // 2]
            case Loss.ZEROS:
                return bytes(len(self.content))
        return self.synced or b""


@dataclass(frozen=True)
class Call:
    """One system call that succeeded."""

    name: str
    texts: Sequence[bytes]
    opened: Sequence[tuple[int, Path]]
    result: int
    flags: str


@dataclass
class Disk:
    """Files below a folder; names are relative to it. The folder itself was synced before."""

    folder: Path
    names: dict[Path, _File | None] = field(default_factory=dict)
    """None is a folder."""
    synced_names: dict[Path, _File | None] = field(default_factory=dict)
    output: bytes = b""

    def apply(self, call: Call) -> bool:
        """Make a call. Returns whether it changed anything here."""
        paths = [each for each in map(self._inside, call.texts) if each is not None]
        opened = [each for _, path in call.opened if (each := self._inside(bytes(path)))]
        match call.name:
            case "write" | "writev" | "pwrite64" if call.opened[0][0] == 1:
                self.output += call.texts[0]
            case "write" if opened:
                self._file(opened[0]).content += call.texts[0]
            case "fsync" | "fdatasync" if opened:
                self._sync(opened[0])
            case "openat" if paths and "O_CREAT" in call.flags:
                if "O_TRUNC" in call.flags or paths[0] not in self.names:
                    self.names[paths[0]] = _File()
            case "mkdir" | "mkdirat" if paths:
                self.names[paths[0]] = None
            case "rename" | "renameat" | "renameat2" if len(paths) == 2:
                self.names[paths[1]] = self.names.pop(paths[0])
            case "link" | "linkat" if len(paths) == 2:
                self.names[paths[1]] = self.names[paths[0]]
            case "unlink" | "unlinkat" if paths:
                self.names.pop(paths[0], None)
            case "writev" | "pwrite64" | "ftruncate" if opened:
                raise AssertionError(f"{call.name} is not known here")
            case _:
                return False
        return True

    def restore(self, folder: Path, loss: Loss) -> None:
        """Make the folder as it is found after a cut now."""
        names = self.synced_names if loss is Loss.NAMES else self.names
        for path, file in sorted(names.items()):
            if any(each != Path() and each not in names for each in path.parents):
                continue
            if file is None:
                (folder / path).mkdir()
            else:
                (folder / path).write_bytes(file.after(loss))

    def _sync(self, path: Path) -> None:
        file = self.names.get(path)
        if file is not None:
            file.synced = file.content
            return
        for each in [*self.synced_names]:
            if each.parent == path and each not in self.names:
                del self.synced_names[each]
        for each, now in self.names.items():
            if each.parent == path:
                self.synced_names[each] = now

    def _file(self, path: Path) -> _File:
        found = self.names[path]
        assert found is not None
        return found

    def _inside(self, path: bytes) -> Path | None:
        found = Path(path.decode(errors="replace"))
        if found.is_absolute() and found.is_relative_to(self.folder):
            return found.relative_to(self.folder)
        return None


def traced(module: str, *arguments: str, folder: Path) -> Sequence[Call]:
    """Run a module of Python under strace, and tell its calls in order."""
    assert shutil.which("strace"), "install strace"
    command = ["strace", "-ff", "-ttt", "-y", "-xx", "-s", "1000000", "-e", f"trace={_CALLS}"]
    command += ["-o", str(folder / "trace"), sys.executable, "-m", module, *arguments]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
    found = [each for file in folder.glob("trace.*") for each in _calls(file)]
    return [call for _, call in sorted(found, key=lambda each: each[0])]


def _calls(file: Path) -> Iterator[tuple[float, Call]]:
    for line in file.read_text().splitlines():
        match = _LINE.match(line)
        if match is None or int(match["result"]) < 0:
            continue
        args = match["args"]
        texts = [_decoded(each) for each in _TEXT.findall(args)]
        opened = [(int(n), Path(_decoded(path).decode())) for n, path in _OPENED.findall(args)]
        yield float(match["at"]), Call(match["call"], texts, opened, int(match["result"]), args)


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
