"""A topology as Kubernetes manifests, for several hosts: a pod for each switch and NIC, a VLAN for each link.

Pods get their ports from Multus (k8s.v1.cni.cncf.io), as interfaces `port1`, `port2` of CNI's bridge plugin: one
bridge on each host carries all links, each as a VLAN, and a trunk between the hosts joins the bridges. A bridge
learns MAC addresses and floods those that it doesn't know, so frames pass with the topology's own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from controller.topology import NicSpec, SwitchSpec, Topology
from fabric.compose import BMV2_IMAGE, MTU, NIC_CONTROL_PORT, PACE, PROJECT, QUEUE_RATE, check_control

NAMESPACE = "mrcfab"
IMAGE = "mrcfab"
BRIDGE = "mrcfab0"
FIRST_VLAN = 2
LAST_VLAN = 4094
"""IEEE 802.1Q; 1 is what bridges give to untagged frames."""
_FILES = "/etc/mrcfab"
_TOPOLOGY = f"{_FILES}/topology.yaml"
_READY = "/tmp/ready"

Object = dict[str, Any]


def manifests(topo: Topology, topology: Path) -> str:
    """The manifests of a topology; `topology` is its file.

    Raises FileError for a topology that containers can't have, ValueError if it has too many links, OSError.
    """
    check_control(topo)
    files = {"topology.yaml": topology, "switch.py": PROJECT / "docker" / "switch.py"}
    objects: list[Object] = [
        _object("v1", "Namespace", NAMESPACE, namespaced=False),
        _object(
            "v1", "ConfigMap", "files", data={name: file.read_text(encoding="utf-8") for name, file in files.items()}
        ),
    ]
    ports: dict[str, dict[int, str]] = defaultdict(dict)
    for vlan, link in enumerate(topo.links(), start=FIRST_VLAN):
        if vlan > LAST_VLAN:
            raise ValueError(f"there are VLANs for {LAST_VLAN - FIRST_VLAN + 1} links, {topo.name} has more")
        name = f"{link.a.node}-{link.b.node}"
        ports[link.a.node][link.a.port] = ports[link.b.node][link.b.port] = name
        objects.append(_network(name, vlan))
    objects.append(_controller())
    for switch in topo.switches():
        objects += _switch(switch, ports[switch.name])
    for nic in topo.nics():
        objects += _nic(nic, ports[nic.name])
    return _HEADER.format(file=topology, bridge=BRIDGE) + yaml.safe_dump_all(objects, sort_keys=False, width=120)


def _network(name: str, vlan: int) -> Object:
    config = {"cniVersion": "0.4.0", "type": "bridge", "bridge": BRIDGE, "vlan": vlan, "mtu": MTU}
    return _object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name, spec={"config": json.dumps(config)})


def _controller() -> Object:
    script = f"until mrcfab routes push; do sleep 2; done; mrcfab routes verify; touch {_READY}; exec sleep infinity"
    container = _container(IMAGE, ["sh", "-ec", script], [], {"MRCFAB_TOPOLOGY": _TOPOLOGY})
    container["readinessProbe"] = _probe(["test", "-e", _READY])
    return _deployment("controller", container, {})


def _switch(switch: SwitchSpec, ports: dict[int, str]) -> Iterator[Object]:
    grpc_port = int(switch.control.address.rpartition(":")[2])
    command = ["python3", f"{_FILES}/switch.py", f"--device-id={switch.control.device_id}"]
    command += [f"--grpc=0.0.0.0:{grpc_port}", *(f"{number}@{_interface(number)}" for number in ports)]
    container = _container(BMV2_IMAGE, command, ["NET_RAW"], {"MRCFAB_QUEUE_RATE": str(QUEUE_RATE)})
    container["readinessProbe"] = _probe(["test", "-e", _READY])
    yield _deployment(switch.name, container, ports)
    yield _service(switch.name, grpc_port)


def _nic(nic: NicSpec, ports: dict[int, str]) -> Iterator[Object]:
    script = "mrcfab routes plan --paths /tmp/paths > /tmp/plan; exec mrcfab nic serve --listen"
    environment = {
        "MRCFAB_TOPOLOGY": _TOPOLOGY,
        "MRCFAB_NIC": nic.name,
        "MRCFAB_PATHS": f"/tmp/paths/{nic.tenant}/row-{nic.row}.jsonl",
        "MRCFAB_PORTS": " ".join(f"{plane}={_interface(plane)}" for plane in ports),
        "MRCFAB_PACE": str(PACE),
    }
    command = ["sh", "-ec", f"{script} 0.0.0.0:{NIC_CONTROL_PORT}"]
    container = _container(IMAGE, command, ["NET_RAW"], environment)
    container["readinessProbe"] = {"tcpSocket": {"port": NIC_CONTROL_PORT}}
    yield _deployment(nic.name, container, ports)
    yield _service(nic.name, NIC_CONTROL_PORT)


def _interface(port: int) -> str:
    return f"port{port}"


def _container(image: str, command: list[str], capabilities: list[str], environment: dict[str, str]) -> Object:
    return {
        "name": "main",
        "image": image,
        "command": command,
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": capabilities},
        },
        "volumeMounts": [
            {"name": "files", "mountPath": _FILES, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _probe(command: list[str]) -> Object:
    return {"exec": {"command": command}, "periodSeconds": 5}


def _deployment(name: str, container: Object, ports: dict[int, str]) -> Object:
    labels = {"app.kubernetes.io/part-of": NAMESPACE, "app.kubernetes.io/name": name}
    networks = [{"name": network, "interface": _interface(port)} for port, network in ports.items()]
    annotations = {"annotations": {"k8s.v1.cni.cncf.io/networks": json.dumps(networks)}} if networks else {}
    pod = {
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "files", "configMap": {"name": "files"}}, {"name": "tmp", "emptyDir": {}}],
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # never two with the same ports
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": dict(labels), **annotations}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", name, spec=spec)


def _service(name: str, port: int) -> Object:
    """The name under which a pod is found, ready or not: the controller makes a switch useful, not the other way."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"app.kubernetes.io/name": name},
        "ports": [{"port": port}],
    }
    return _object("v1", "Service", name, spec=spec)


def _object(version: str, kind: str, name: str, *, namespaced: bool = True, **more: Any) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE} if namespaced else {"name": name}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


_HEADER = """\
# Made by `mrcfab compose --kubernetes {file}`; change that file, not this one.
#
# Each host needs Multus, CNI's bridge plugin, and a bridge {bridge} with vlan_filtering, to which a trunk to the
# other hosts belongs (MTU 9000); on a single host the plugin makes the bridge itself.
"""
