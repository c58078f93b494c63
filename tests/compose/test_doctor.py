"""`mrcfab doctor` on machines of several kinds: the files of the kernel and the commands on the PATH are the test's."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fabric import doctor
from fabric.cli import app
from fabric.compose import DEFAULT_SUBNET

ROUTES = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
DEFAULT_ROUTE = "eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n"
TO_10 = "vpn0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n"  # 10.0.0.0/8
GIB = 1 << 20  # kB

Commands = Callable[[dict[str, str]], None]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Commands:
    """Puts commands on an otherwise empty PATH: what a shell does when one is called."""

    def put(scripts: dict[str, str]) -> None:
        for name, script in scripts.items():
            file = tmp_path / name
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MRCFAB_SWITCH_IMAGE", raising=False)
    for name, text in (
        ("_ROUTES", ROUTES + DEFAULT_ROUTE),
        ("_BRIDGE_FILTER", "0\n"),
        ("_IPV6_OFF", "0\n"),
        ("_MEMORY", f"MemAvailable:   {8 * GIB} kB\n"),
    ):
        file = tmp_path / name
        file.write_text(text)
        monkeypatch.setattr(doctor, name, file)
    return put


def docker(engine: str = "28.5.2", compose: str = "2.26.1", image: bool = True) -> str:
    return f"""case "$1 $2" in
        "version --format") echo {engine} ;;
        "compose version") echo {compose} ;;
        "image inspect") exit {0 if image else 1} ;;
    esac"""


def findings() -> dict[str, list[str]]:
    """What was found, by verdict."""
    found: dict[str, list[str]] = {"ok": [], "note": [], "bad": []}
    for finding in doctor.examine(DEFAULT_SUBNET):
        found[finding.verdict].append(finding.text)
    return found


def test_a_machine_that_has_everything(commands: Commands) -> None:
    commands({"docker": docker(), "simple_switch_grpc": "echo 1.15.5"})
    found = findings()
    assert found["bad"] == []
    assert found["ok"][:4] == [
        "engine 28.5.2",
        "compose 2.26.1",
        "switch image p4lang/behavioral-model",
        "10.213.0.0/16 is free for the containers' networks",
    ]
    assert "simple_switch_grpc 1.15.5" in found["ok"]


def test_without_docker_and_without_bmv2(commands: Commands) -> None:
    commands({})
    found = findings()
    assert [text.partition(":")[0] for text in found["bad"]] == ["docker is not installed"]
    assert found["note"][0].startswith("simple_switch_grpc (BMv2) is not installed")


def test_an_engine_that_does_not_answer(commands: Commands) -> None:
    commands({"docker": "echo warning >&2; echo Cannot connect. >&2; exit 1"})
    assert findings()["bad"] == [
        "no engine answers: Cannot connect. Start it; who is not root must be in the group docker"
    ]
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


@pytest.mark.parametrize(
    ("script", "verdict", "beginning"),
    [
        (docker(compose="2.20.0"), "note", "compose 2.20.0 is older than what was tested, 2.26"),
        (docker(compose="'not a command'; exit 1"), "bad", "no compose plugin (`docker compose`)"),
        (docker(image=False), "note", "switch image p4lang/behavioral-model is not here"),
    ],
)
def test_parts_that_are_missing(commands: Commands, script: str, verdict: str, beginning: str) -> None:
    commands({"docker": script})
    assert any(text.startswith(beginning) for text in findings()[verdict])


def test_a_route_that_overlaps(commands: Commands) -> None:
    commands({"docker": docker()})
    doctor._ROUTES.write_text(ROUTES + DEFAULT_ROUTE + TO_10)
    assert findings()["bad"] == ["10.213.0.0/16 overlaps 10.0.0.0/8 on vpn0: give mrcfab compose another --subnet"]
    elsewhere = [finding.text for finding in doctor.examine(IPv4Network("172.30.0.0/16"))]
    assert "172.30.0.0/16 is free for the containers' networks" in elsewhere


@pytest.mark.parametrize(("engine", "bad"), [("26.1.5", 1), ("27.0.3", 0)])
def test_a_firewall_that_drops_what_crosses_a_bridge(commands: Commands, engine: str, bad: int) -> None:
    commands({"docker": docker(engine), "ip6tables": "echo '-P FORWARD DROP'"})
    doctor._BRIDGE_FILTER.write_text("1\n")
    assert [text.startswith("the firewall drops IPv6 on bridges") for text in findings()["bad"]] == [True] * bad


def test_no_ipv6_and_little_memory(commands: Commands) -> None:
    commands({"docker": docker()})
    doctor._IPV6_OFF.write_text("1\n")
    doctor._MEMORY.write_text(f"MemAvailable:   {GIB} kB\n")
    found = findings()
    assert [text.partition(",")[0] for text in found["bad"]] == ["the kernel has no IPv6"]
    assert any("1.0 GiB of memory free: the default fabric needs about 2 GiB" in text for text in found["note"])


def test_a_subnet_that_is_none_is_bad_input() -> None:
    assert CliRunner().invoke(app, ["doctor", "--subnet", "x"]).exit_code == 2
