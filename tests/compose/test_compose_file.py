"""`mrcfab compose`: what is in the file, that the committed one is current, and what is refused."""

from __future__ import annotations

import re
from ipaddress import ip_network
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from controller.topology import Topology, preset_text
from fabric.cli import app
from tests.compose.engine import PROJECT

PRESET = "controller/presets/compose.yaml"
COMMITTED = PROJECT / "docker-compose.yml"


def make(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compose", *arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def topo() -> Topology:
    return Topology.preset("compose")


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMMITTED.read_text())
    return loaded


def test_the_committed_file_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    assert make(PRESET) == (0, COMMITTED.read_text())


def test_what_can_be_chosen_has_a_default(content: dict[str, Any]) -> None:
    switch, controller = content["services"]["p0t0-0"], content["services"]["controller"]
    assert switch["image"] == "${MRCFAB_SWITCH_IMAGE:-p4lang/behavioral-model}"
    assert switch["environment"] == {"MRCFAB_QUEUE_RATE": "${MRCFAB_QUEUE_RATE:-1000}"}
    assert content["services"]["nic0"]["environment"]["MRCFAB_PACE"] == "${MRCFAB_PACE:-1000}"
    assert controller["build"]["args"] == {"BASE": "${MRCFAB_BASE:-python:3.11-slim-bookworm}"}
    assert not re.search(r"@\w+@", COMMITTED.read_text())


def test_there_is_a_service_for_each_node_and_a_network_for_each_link(topo: Topology, content: dict[str, Any]) -> None:
    nodes = [switch.name for switch in topo.switches()] + [nic.name for nic in topo.nics()]
    assert list(content["services"]) == ["controller", *nodes]
    links = [f"{link.a.node}.{link.b.node}" for link in topo.links()]
    assert list(content["networks"]) == ["control", *links]
    members = {
        name: {service for service, its in content["services"].items() if name in its["networks"]} for name in links
    }
    assert members == {f"{link.a.node}.{link.b.node}": {link.a.node, link.b.node} for link in topo.links()}


def test_each_port_is_told_the_subnet_of_its_link(topo: Topology, content: dict[str, Any]) -> None:
    for link in topo.links():
        subnet = content["networks"][f"{link.a.node}.{link.b.node}"]["ipam"]["config"][0]["subnet"]
        for node, port in (link.a, link.b):
            service = content["services"][node]
            if node.startswith("nic"):
                assert f"{port}={subnet}" in service["environment"]["MRCFAB_PORTS"].split()
            else:
                assert f"{port}@{subnet}" in service["command"]


def test_each_switch_serves_where_the_topology_says(topo: Topology, content: dict[str, Any]) -> None:
    for switch in topo.switches():
        command = content["services"][switch.name]["command"]
        assert command[:2] == [f"--device-id={switch.control.device_id}", "--grpc=0.0.0.0:9559"]
        assert len(command) == 2 + len(list(topo.ports(switch)))


def test_each_nic_knows_its_name_and_its_row(topo: Topology, content: dict[str, Any]) -> None:
    for nic in topo.nics():
        environment = content["services"][nic.name]["environment"]
        assert environment["MRCFAB_NIC"] == nic.name
        assert environment["MRCFAB_PATHS"] == f"/paths/default/row-{nic.row}.jsonl"


def test_no_two_subnets_overlap_and_links_carry_ipv6_frames_of_any_address(content: dict[str, Any]) -> None:
    networks = content["networks"]
    subnets = [ip_network(one["subnet"]) for network in networks.values() for one in network["ipam"]["config"]]
    assert not any(one.overlaps(other) for one, other in combinations(subnets, 2) if one.version == other.version)
    for name, network in networks.items():
        if name != "control":
            assert network["enable_ipv6"] is True
            assert int(network["driver_opts"]["com.docker.network.driver.mtu"]) >= 4224
            assert [ip_network(one["subnet"]).prefixlen for one in network["ipam"]["config"]] == [29, 64]


def test_no_service_has_more_capability_than_packet_sockets(content: dict[str, Any]) -> None:
    for name, service in content["services"].items():
        assert service["cap_drop"] == ["ALL"]
        assert service.get("cap_add", []) == ([] if name == "controller" else ["NET_RAW"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert not {"privileged", "network_mode", "pid", "ipc", "devices"} & set(service)


def test_the_controller_waits_for_the_switches_and_the_nics_for_it(topo: Topology, content: dict[str, Any]) -> None:
    healthy = {"condition": "service_healthy"}
    services = content["services"]
    assert services["controller"]["depends_on"] == {switch.name: healthy for switch in topo.switches()}
    assert all(services[nic.name]["depends_on"] == {"controller": healthy} for nic in topo.nics())


def test_files_are_named_as_seen_from_where_the_compose_file_stands(tmp_path: Path) -> None:
    topology = tmp_path / "fabric.yaml"
    topology.write_text(preset_text("compose"))
    (tmp_path / "sub").mkdir()
    output = tmp_path / "sub" / "compose.yml"
    assert make(str(topology), "-o", str(output)) == (0, "")
    content = yaml.safe_load(output.read_text())
    assert content["configs"]["topology"]["file"] == "./../fabric.yaml"
    script = (output.parent / content["configs"]["switch"]["file"]).resolve()
    assert script == PROJECT / "docker" / "switch.py"
    context = (output.parent / content["services"]["controller"]["build"]["context"]).resolve()
    assert context == PROJECT


def test_another_subnet_can_be_given_and_a_small_one_is_refused(tmp_path: Path) -> None:
    topology = tmp_path / "fabric.yaml"
    topology.write_text(preset_text("compose"))
    code, output = make(str(topology), "--subnet", "192.0.2.0/24")
    assert code == 0
    subnets = {one["ipam"]["config"][0]["subnet"] for one in yaml.safe_load(output)["networks"].values()}
    assert all(ip_network(subnet).subnet_of(ip_network("192.0.2.0/24")) for subnet in subnets)  # type: ignore[arg-type]
    reason = "192.0.2.0/25 is too small for 16 links and 20 hosts"
    assert make(str(topology), "--subnet", "192.0.2.0/25") == (2, f"{reason}\n")
    assert make(str(topology), "--subnet", "x")[0] == 2


def test_a_switch_must_be_a_host_of_its_own_name(tmp_path: Path) -> None:
    topology = tmp_path / "fabric.yaml"
    topology.write_text(preset_text("compose").replace('"{name}:9559"', "127.0.0.1:9559"))
    code, output = make(str(topology))
    line = 1 + preset_text("compose").splitlines().index(
        '  address: "{name}:9559"  # P4Runtime, each switch at a host of its own name'
    )
    assert (code, output) == (
        2,
        f"{topology}:{line}: control.address: p0t0-0 would be at 127.0.0.1; in containers it is '{{name}}:PORT', "
        "a host of its own name\n",
    )


def test_the_dockerfile_copies_what_the_packages_need() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (PROJECT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    files = {name for line in copied for name in line.split()}
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    assert files == {line[1:] for line in ignored if line.startswith("!")}
    assert all((PROJECT / name).exists() for name in files)
