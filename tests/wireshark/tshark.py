"""Running the dissector: captures written with scapy, read back by tshark field by field."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from scapy.utils import RawPcapWriter

DISSECTOR = Path(__file__).parents[2] / "docs" / "wireshark" / "mrc.lua"
MISSING = "tshark is not on the PATH (Debian: apt install tshark)"
WITHOUT_LUA = "this tshark runs no Lua scripts: built without Lua, or run as root (Wireshark 4.4 refuses)"

_LINKTYPE_ETHERNET = 1
_INTERVAL_US = 5
"""Between two frames of a capture."""
_FIELDS = ("-T", "fields", "-E", "separator=|", "-E", "aggregator=;", "-E", "occurrence=a")
_LUA_ERROR, _EXPERT_MESSAGE = "_ws.lua.error", "_ws.expert.message"

Row = dict[str, list[str]]
"""The texts of each field asked for, in the order of their occurrence in one frame."""


def write_capture(path: Path, frames: Iterable[bytes], snap: int | None = None) -> Path:
    """A pcap file of the frames, of each at most the first `snap` bytes."""
    writer = RawPcapWriter(str(path), linktype=_LINKTYPE_ETHERNET)
    writer.write_header(b"")
    for index, frame in enumerate(frames):
        writer.write_packet(frame[:snap], sec=0, usec=index * _INTERVAL_US, wirelen=len(frame))
    writer.close()
    return path


class TShark:
    """tshark with a configuration of its own, in the folder `home`, and the dissector."""

    def __init__(self, home: Path) -> None:
        self._environment = os.environ | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "TZ": "UTC"}

    def run(self, *arguments: str, script: Path = DISSECTOR) -> str:
        """tshark's output. CalledProcessError if it fails; AssertionError if the script does."""
        found = subprocess.run(
            ["tshark", *arguments, "-X", f"lua_script:{script}"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        if "Lua: Error" in found.stderr:
            raise AssertionError(f"the Lua script failed to load:\n{found.stderr}")
        return found.stdout

    def rows(self, capture: Path, fields: Sequence[str], *options: str) -> list[Row]:
        """The fields of each frame of the capture; `options` are tshark's own. AssertionError if the script fails."""
        asked = [*fields, _LUA_ERROR, _EXPERT_MESSAGE]
        elements = [part for field in asked for part in ("-e", field)]
        found = []
        for line in self.run("-n", "-r", str(capture), *options, *_FIELDS, *elements).splitlines():
            row = {field: text.split(";") if text else [] for field, text in zip(asked, line.split("|"), strict=True)}
            if row.pop(_LUA_ERROR):
                raise AssertionError(f"the Lua script failed: {row[_EXPERT_MESSAGE]}")
            found.append({field: row[field] for field in fields})
        return found

    def runs_lua(self, folder: Path) -> bool:
        """Whether scripts are run at all; the probe and an empty capture are left in `folder`."""
        probe = folder / "probe.lua"
        probe.write_text('print("alive")\n')
        return "alive" in self.run("-r", str(write_capture(folder / "empty.pcap", [])), script=probe)


def number(text: str) -> int:
    """A field's value; booleans are 1 and 0, or True and False since Wireshark 4.2."""
    return {"True": 1, "False": 0}[text] if text in ("True", "False") else int(text, 0)
