"""`mrcfab compose --kubernetes`: what the manifests hold. No cluster is at hand to run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from controller.topology import Topology, preset_text
from fabric.cli import app
from tests.compose.engine import PROJECT

PRESET = PROJECT / "controller" / "presets" / "compose.yaml"
NETWORKS = "k8s.v1.cni.cncf.io/networks"


@pytest.fixture(scope="module")
def topo() -> Topology:
    return Topology.preset("compose")


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """By kind and name."""
    result = CliRunner().invoke(app, ["compose", "--kubernetes", str(PRESET)])
    assert result.exit_code == 0, result.output
    found: dict[str, dict[str, Any]] = {}
    for one in yaml.safe_load_all(result.output):
        of_kind, name = found.setdefault(one["kind"], {}), one["metadata"]["name"]
        assert name not in of_kind
        of_kind[name] = one
        assert one["metadata"].get("namespace", "mrcfab") == "mrcfab"
    return found


def pod(objects: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    template: dict[str, Any] = objects["Deployment"][name]["spec"]["template"]
    return template


def test_there_is_a_pod_for_each_node_and_a_vlan_for_each_link(
    topo: Topology, objects: dict[str, dict[str, Any]]
) -> None:
    nodes = [*(switch.name for switch in topo.switches()), *(nic.name for nic in topo.nics())]
    assert list(objects["Deployment"]) == ["controller", *nodes]
    assert list(objects["Service"]) == nodes
    configs = [json.loads(one["spec"]["config"]) for one in objects["NetworkAttachmentDefinition"].values()]
    assert [config["vlan"] for config in configs] == list(range(2, 2 + len(list(topo.links()))))
    assert {(config["type"], config["bridge"], config["mtu"]) for config in configs} == {("bridge", "mrcfab0", 9000)}


def test_each_port_is_an_interface_on_the_vlan_of_its_link(topo: Topology, objects: dict[str, dict[str, Any]]) -> None:
    interfaces = {
        name: {
            network["interface"]: network["name"]
            for network in json.loads(pod(objects, name)["metadata"]["annotations"][NETWORKS])
        }
        for name in objects["Service"]
    }
    for link in topo.links():
        name = f"{link.a.node}-{link.b.node}"
        assert name in objects["NetworkAttachmentDefinition"]
        for node, port in (link.a, link.b):
            assert interfaces[node][f"port{port}"] == name
            container = pod(objects, node)["spec"]["containers"][0]
            if node.startswith("nic"):
                environment = {one["name"]: one["value"] for one in container["env"]}
                assert f"{port}=port{port}" in environment["MRCFAB_PORTS"].split()
            else:
                assert f"{port}@port{port}" in container["command"]


def test_a_service_leads_to_each_pod(objects: dict[str, dict[str, Any]]) -> None:
    for name, service in objects["Service"].items():
        selector, labels = service["spec"]["selector"], pod(objects, name)["metadata"]["labels"]
        assert selector.items() <= labels.items()
        assert service["spec"]["ports"] == [{"port": 4790 if name.startswith("nic") else 9559}]


def test_no_pod_has_more_capability_than_packet_sockets(objects: dict[str, dict[str, Any]]) -> None:
    for name in objects["Deployment"]:
        context = pod(objects, name)["spec"]["containers"][0]["securityContext"]
        added = [] if name == "controller" else ["NET_RAW"]
        assert context["capabilities"] == {"drop": ["ALL"], "add": added}
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)


def test_the_files_are_those_of_the_project(objects: dict[str, dict[str, Any]]) -> None:
    data = objects["ConfigMap"]["files"]["data"]
    assert data == {"topology.yaml": PRESET.read_text(), "switch.py": (PROJECT / "docker" / "switch.py").read_text()}


def test_more_links_than_there_are_vlans_are_refused(tmp_path: Path) -> None:
    topology = tmp_path / "big.yaml"
    topology.write_text(
        preset_text("compose").replace("nics_per_row: 2", "nics_per_row: 500").replace("rows: 2", "rows: 5")
    )
    result = CliRunner().invoke(app, ["compose", "--kubernetes", str(topology)])
    assert (result.exit_code, result.output) == (2, "there are VLANs for 4093 links, compose has more\n")
