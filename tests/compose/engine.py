"""A Docker engine with the compose plugin: the one that runs here, or one of the test's own.

An own engine lives in namespaces of its own, so that its bridges, firewall rules and files (in memory, about 2 GB) end
with it. Its base image is made by debootstrap, with the wheels of the packages that
`make setup` installs, because no registry that serves images may be reachable.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

PROJECT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mrcfab"
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
COMPOSE_SUITE = "trixie"
"""Debian 13 has the compose plugin (docker-compose 2.26); Debian 12 has version 1 only."""
BASE_SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
"""The Debian whose Python is that of the wheels, which are made for the one that runs this."""
BASE_IMAGE = "mrcfab-base"
DEFAULT_BASE = "python:3.11-slim-bookworm"
_START = 'ip link set lo up && mount -t tmpfs tmpfs "$0" && exec dockerd "$@"'
_WHEELS = Path("/var/lib/mrcfab/wheels")
START_TIMEOUT = 60.0
STEP_TIMEOUT = 500.0


class NoEngineError(Exception):
    """There is no engine here, and none can be had. str() is one line."""


class Engine:
    """A context manager. Raises NoEngineError on entering."""

    def __init__(self) -> None:
        self.base = DEFAULT_BASE
        """What images are built on."""
        self.archive: Path | None = None
        """The root of a Debian, where the base had to be made of one."""
        self._environment = dict(os.environ)
        self._folder: Path | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Engine:
        try:
            if not self._answers():
                self._start()
            if self.run(["docker", "compose", "version"]).returncode:
                self._add_compose()
            if not self.has_image(self.base):
                self.base = self._make_base()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def docker(
        self, *arguments: str, environment: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A docker command to its end, whatever that is."""
        return self.run(["docker", *arguments], environment, stdin)

    def start(self, *arguments: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """A docker command that goes on, with pipes for its output."""
        return subprocess.Popen(
            ["docker", *arguments],
            env=self._environment | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Any command to its end, with the environment in which docker finds this engine."""
        return subprocess.run(
            command,
            check=False,
            env=self._environment | dict(environment or {}),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT,
            cwd=PROJECT,
        )

    # ---- the daemon ----------------------------------------------------------------------------------

    def _answers(self) -> bool:
        return shutil.which("docker") is not None and not self.run(["docker", "version"]).returncode

    def _start(self) -> None:
        missing = [name for name in ("docker", "dockerd", "ip", "unshare") if shutil.which(name) is None]
        if missing:
            raise NoEngineError(f"no engine runs here, and {', '.join(missing)} is not installed to start one")
        if os.geteuid():
            raise NoEngineError("no engine runs here, and only root can start one")
        self._folder = Path(tempfile.mkdtemp(prefix="mrcfab-engine-"))
        socket = f"unix://{self._folder}/socket"
        files = self._folder / "files"
        files.mkdir()
        options = ["--data-root", f"{files}/data", "--exec-root", f"{files}/exec", "--pidfile", f"{files}/pid"]
        options += ["--host", socket]
        log = self._folder / "log"
        with log.open("wb") as output:
            self._daemon = subprocess.Popen(
                ["unshare", "--net", "--mount", "sh", "-c", _START, str(files), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._environment["DOCKER_HOST"] = socket
        until = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._daemon.poll() is not None or time.monotonic() > until:
                lines = log.read_text().splitlines()
                raise NoEngineError(f"dockerd does not start: {lines[-1] if lines else 'it says nothing'}")
            time.sleep(0.2)

    def _stop(self) -> None:
        if self._daemon is not None:
            self._daemon.terminate()
            try:
                self._daemon.wait(START_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                raise
        if self._folder is not None:
            shutil.rmtree(self._folder)

    # ---- what it needs -------------------------------------------------------------------------------

    def _add_compose(self) -> None:
        """Debian's package, unpacked into the cache, found through a client configuration of its own."""
        configuration = CACHE / "docker"
        plugin = configuration / "cli-plugins" / "docker-compose"
        if not plugin.exists():
            plugin.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory() as folder:
                found = _debian_file("docker-compose", "usr/libexec/docker/cli-plugins/docker-compose", Path(folder))
                shutil.copy(found, plugin.with_suffix(".new"))
            plugin.with_suffix(".new").rename(plugin)
        self._environment["DOCKER_CONFIG"] = str(configuration)
        version = self.run(["docker", "compose", "version"])
        if version.returncode:
            raise NoEngineError(f"no compose plugin: {version.stderr.strip().splitlines()[0]}")

    def has_image(self, image: str) -> bool:
        """Whether an image is here, or could be pulled."""
        if not self.run(["docker", "image", "inspect", image]).returncode:
            return True
        own = self._daemon is not None  # its namespace leads nowhere
        return not own and not self.run(["docker", "pull", "--quiet", image]).returncode

    def _make_base(self) -> str:
        suite = BASE_SUITES.get(sys.version_info[:2])
        if suite is None:
            raise NoEngineError(f"{self.base} can't be pulled, and no Debian has Python {sys.version.split()[0]}")
        if os.geteuid() or shutil.which("debootstrap") is None:
            raise NoEngineError(f"{self.base} can't be pulled, and without root and debootstrap none can be made")
        self.archive = CACHE / f"base-{suite}.tar"
        if not self.archive.exists():
            _debootstrap(suite, self.archive)
        with tempfile.TemporaryDirectory() as folder:
            configuration = Path(folder) / "pip.conf"
            configuration.write_text(f"[global]\nno-index = true\nfind-links = {_WHEELS}\n")
            files = {_WHEELS / wheel.name: wheel for wheel in _make_wheels(Path(folder) / "wheels")}
            self.import_base(BASE_IMAGE, {Path("/etc/pip.conf"): configuration, **files})
        return BASE_IMAGE

    def import_base(self, name: str, files: Mapping[Path, Path], change: str = "") -> None:
        """An image of the Debian base and more files, by their places in it; what the base has stays as it is.

        `change` is a line of a Dockerfile. Raises NoEngineError.
        """
        assert self.archive is not None
        with tempfile.TemporaryDirectory() as folder:
            combined = Path(folder) / "base.tar"
            shutil.copy(self.archive, combined)
            with tarfile.open(combined, "a") as base:
                present = set(base.getnames())
                for place, file in files.items():
                    if f".{place}" not in present:
                        base.addfile(*_member(f".{place}", file))
            changes = ["--change", change] if change else []
            _check(self.run(["docker", "import", *changes, str(combined), name]))


def _debian_file(package: str, path: str, folder: Path) -> Path:
    """A file out of a package of Debian's COMPOSE_SUITE, unpacked into `folder`. This machine's apt stays as it is."""
    if shutil.which("apt-get") is None or not KEYRING.exists():
        raise NoEngineError(f"{package} comes from Debian, and this machine has no apt-get or no {KEYRING}")
    for name in ("parts", "lists/partial", "cache/archives/partial", "unpacked"):
        (folder / name).mkdir(parents=True)
    (folder / "parts" / "debian.sources").write_text(
        f"Types: deb\nURIs: {MIRROR}\nSuites: {COMPOSE_SUITE}\nComponents: main\nSigned-By: {KEYRING}\n"
    )
    apt = ["apt-get", "--quiet", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={folder}/parts"]
    apt += ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    apt += ["-o", "Dir::Etc::preferences=/dev/null", "-o", "Dir::Etc::preferencesparts=/dev/null"]
    apt += ["-o", "APT::Sandbox::User=root"]
    for command in ("update", "download"):
        done = subprocess.run(
            [*apt, command, *([package] if command == "download" else [])],
            check=False, capture_output=True, text=True, timeout=STEP_TIMEOUT, cwd=folder,
        )  # fmt: skip
        if done.returncode:
            raise NoEngineError(
                f"{package} from Debian: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}"
            )
    archive = next(folder.glob(f"{package}_*.deb"))
    subprocess.run(["dpkg-deb", "--extract", archive, folder / "unpacked"], check=True, timeout=STEP_TIMEOUT)
    return folder / "unpacked" / path


def _debootstrap(suite: str, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mrcfab-base-") as folder:
        root = Path(folder) / "root"
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", suite, str(root), MIRROR],
            check=False, capture_output=True, text=True, timeout=STEP_TIMEOUT,
        )  # fmt: skip
        if done.returncode:
            raise NoEngineError(f"debootstrap: {done.stdout.strip().splitlines()[-1]}")
        new = archive.with_suffix(".new")
        skipped = ["--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*"]
        subprocess.run(["tar", "-C", str(root), *skipped, "-cf", str(new), "."], check=True, timeout=STEP_TIMEOUT)
        new.rename(archive)


def _make_wheels(folder: Path) -> list[Path]:
    """The packages of requirements.lock, built here for this Python."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "-r", str(PROJECT / "requirements.lock"), "-w", str(folder)],
        check=False, capture_output=True, text=True, timeout=STEP_TIMEOUT,
    )  # fmt: skip
    if done.returncode:
        raise NoEngineError(f"no wheels for the image: {done.stderr.strip().splitlines()[-1]}")
    return sorted(folder.glob("*.whl"))


def _member(name: str, file: Path) -> tuple[tarfile.TarInfo, BinaryIO]:
    """A regular file for an archive, whatever links lead to it."""
    member = tarfile.TarInfo(name)
    status = file.stat()
    member.size, member.mode = status.st_size, status.st_mode & 0o777
    return member, io.BytesIO(file.read_bytes())


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise NoEngineError(f"{' '.join(done.args[:3])}: {done.stderr.strip().splitlines()[-1]}")
