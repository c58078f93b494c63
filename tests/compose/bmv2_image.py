"""An image with BMv2: the public one where it can be had, else one made of the BMv2 that is installed here."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

from tests.compose.engine import Engine

PUBLIC = "p4lang/behavioral-model"
LOCAL = "mrcfab-bmv2-here"
_LOADED = """
import sys, sysconfig
sys.path.append(sys.argv[1])
import sswitch_CLI
files = {getattr(module, "__file__", None) for module in sys.modules.values()} - {None}
print(*(file for file in files if not file.startswith(sysconfig.get_path("stdlib"))), sep="\\n")
"""


def bmv2_image(engine: Engine) -> str | None:
    """Its name, or None if there is none to be had."""
    if engine.has_image(PUBLIC):
        return PUBLIC
    program, cli = shutil.which("simple_switch_grpc"), shutil.which("simple_switch_CLI")
    if program is None or cli is None or not _fits(engine.archive):
        return None
    files = [Path(program), Path(cli), *_libraries(program), *_modules(Path(cli))]
    engine.import_base(LOCAL, {_place(file): file for file in files}, "ENV LD_LIBRARY_PATH=/usr/local/lib")
    return LOCAL


def _fits(archive: Path | None) -> bool:
    """Whether programs of this machine run on the base: both are the same Debian."""
    return archive is not None and platform.freedesktop_os_release().get("VERSION_CODENAME", "?") in archive.name


def _place(file: Path) -> Path:
    """Debian's /lib is a link to /usr/lib."""
    return Path("/usr") / file.relative_to("/") if file.parts[1] == "lib" else file


def _libraries(program: str) -> list[Path]:
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(r"=> (/\S+)", listed)]


def _modules(cli: Path) -> list[Path]:
    """The Python modules of simple_switch_CLI, which is a script for the system's Python and names their folder."""
    text = cli.read_text(encoding="utf-8")
    python, folder = text.splitlines()[0].removeprefix("#!"), re.search(r'sys\.path\.append\("(.+)"\)', text)
    assert folder is not None
    command = [python, "-c", _LOADED, folder[1]]
    return [Path(path) for path in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]
