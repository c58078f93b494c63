"""Compile the switch program to `build/`: BMv2 JSON, P4Info, and a manifest that says what they were made from.

Uses the `p4c-bm2-ss` on the PATH, else the container image `p4lang/p4c`. The output is checked in, because p4c is in
no package registry; `tests/test_p4src.py` says when it is no longer that of the sources.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

P4SRC = Path(__file__).resolve().parent
BUILD = P4SRC / "build"
PROGRAM = "mrc_switch"
IMAGE = "p4lang/p4c"
OUTPUTS = (f"{PROGRAM}.json", f"{PROGRAM}.p4info.txtpb")


def sources_hash() -> str:
    """SHA-256 over the names and the contents of all P4 sources."""
    digest = hashlib.sha256()
    for source in sorted(P4SRC.glob("*.p4")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def compiler(output: Path) -> list[str]:
    """The command that starts p4c with `output` as a place it can write to, run in P4SRC. Empty: there is none."""
    if shutil.which("p4c-bm2-ss"):
        return ["p4c-bm2-ss"]
    if shutil.which("docker"):
        mounts = ["-v", f"{P4SRC}:{P4SRC}:ro", "-v", f"{output}:{output}", "-w", str(P4SRC)]
        return ["docker", "run", "--rm", *mounts, IMAGE, "p4c-bm2-ss"]
    return []


def version(command: list[str]) -> str:
    """p4c's version number, for example 1.2.5.16."""
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # p4c 1.2.5 tells it on stderr
    text = subprocess.run([*command, "--version"], text=True, check=True, **merged).stdout
    found = re.search(r"Version (\S+)", text)
    if found is None:
        raise RuntimeError(f"p4c does not tell its version: {text!r}")
    return found.group(1)


def compile_to(output: Path, command: list[str]) -> None:
    """Write OUTPUTS into `output`. The working directory is P4SRC, so that the JSON names no path of this machine."""
    json_file, p4info_file = (output / name for name in OUTPUTS)
    flags = ["--std", "p4-16", "--p4runtime-files", str(p4info_file), "-o", str(json_file)]
    subprocess.run([*command, *flags, f"{PROGRAM}.p4"], cwd=P4SRC, check=True)
    program = json.loads(json_file.read_text())
    program["program"] = f"{PROGRAM}.p4"
    json_file.write_text(json.dumps(program, indent=1) + "\n")


def main() -> None:
    """Compile into BUILD and write the manifest."""
    BUILD.mkdir(exist_ok=True)
    command = compiler(BUILD)
    if not command:
        sys.exit(f"p4src: neither p4c-bm2-ss nor docker (for the image {IMAGE}) is on the PATH")
    try:
        compile_to(BUILD, command)
        manifest = {"sources_sha256": sources_hash(), "p4c": version(command)}
    except subprocess.CalledProcessError as error:
        sys.exit(f"p4src: {' '.join(map(str, error.cmd))} failed with exit code {error.returncode}")
    (BUILD / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"compiled {PROGRAM}.p4 with p4c {manifest['p4c']} into {BUILD}")


if __name__ == "__main__":
    main()
