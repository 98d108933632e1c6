# SPDX-License-Identifier: Apache-2.0
"""Reads devices.json, the file by which Jackfield tells a container which devices and sockets it has.

It needs Python 3.7 and its standard library only. Copy it beside your program:

    import jackfield
    for device in jackfield.read():
        print(device.interface, device.socket)

Texts that the file lacks are "", and numbers are 0. Unknown keys are ignored. A file that is too large, malformed,
or of another major version of the Device Information Specification is a ValueError.
"""

import json
import os
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

FILE = "/var/run/jackfield/devices.json"
MAX_SIZE = 4 << 20  # of the file, in bytes
MAX_DEVICES = 4096


@dataclass(frozen=True)
class Device:
    """One device or named socket."""

    name: str  # NAMESPACE/NETWORK, CLAIM/REQUEST, socket:NAME, or ""
    interface: str  # in the pod
    type: str  # pci, vdpa, vhost-user or memif; "" for a named socket
    socket: str  # path; an abstract socket has "@" and its name
    created_by: str  # of the socket: host (connect to it) or application (create it)
    pci_address: str  # of a PCI or vDPA device
    mac: str
    mtu: int
    resource: str  # extended resource
    device_id: str
    eal: Tuple[str, ...]  # arguments of DPDK's EAL
    entry: Dict  # everything that the file has of the device


def read(path: Optional[str] = None) -> List[Device]:
    """Reads a file; None is the container's file."""
    path = path or os.environ.get("JACKFIELD_DEVICES_FILE") or FILE
    with open(path, "rb") as file:
        data = file.read(MAX_SIZE + 1)
    try:
        return parse(data)
    except ValueError as error:
        raise ValueError("read %s: %s" % (path, error)) from None


def parse(data: bytes) -> List[Device]:
    """Parses the content of a file."""
    if len(data) > MAX_SIZE:
        raise ValueError("the file is larger than %d bytes" % MAX_SIZE)
    try:
        entries = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("the file is nested too deeply") from None
    if not isinstance(entries, list):
        raise ValueError("the file is no JSON array")
    if len(entries) > MAX_DEVICES:
        raise ValueError("the file has more than %d devices" % MAX_DEVICES)
    return [_device(number, entry) for number, entry in enumerate(entries)]


def find(devices: List[Device], name: str) -> Optional[Device]:
    """Returns the device with an interface or name, or None. The name of a named socket is socket:NAME."""
    return next((d for d in devices if name and name in (d.interface, d.name)), None)


def eal(devices: List[Device]) -> List[str]:
    """Returns the arguments of DPDK's EAL for all devices. Without a PCI device they include --no-pci."""
    args = [arg for device in devices for arg in device.eal]
    return args if "-a" in args else args + ["--no-pci"]


def _refuse(constant):
    raise ValueError("%s is not valid JSON" % constant)


def _get(entry, key, kind):
    """Returns a value of a map; the empty value of its type if it is missing or null."""
    value = entry.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError("%s: invalid type %s: must be %s" % (key, type(value).__name__, kind.__name__))
    if kind is str:
        _check(key, value)
    return value


def _check(key, text):
    if "\0" in text:
        raise ValueError("%s: %r has a NUL character" % (key, text))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("%s: %r is not a valid text" % (key, text)) from None


def _device(number, entry):
    try:
        if not isinstance(entry, dict):
            raise ValueError("invalid type %s: must be an object" % type(entry).__name__)
        info, extension = _get(entry, "device-info", dict), _get(entry, "jackfield", dict)
        if entry.get("device-info") is not None and not _get(info, "version", str).startswith("1."):
            raise ValueError("device-info: unsupported version %r: must be 1.x" % info.get("version"))
        kind = _get(info, "type", str)
        # Every map is checked, and the one of the type is used.
        maps = {key: _get(info, key, dict) for key in ("pci", "vdpa", "vhost-user", "memif")}
        addresses = {key: _get(maps[key], "pci-address", str) for key in ("pci", "vdpa")}
        sockets = {key: _get(maps[key], "path", str) for key in ("vhost-user", "memif")}
        args = ["" if arg is None else arg for arg in _get(extension, "eal", list)]
        for arg in args:
            if not isinstance(arg, str):
                raise ValueError("eal: invalid type %s: must be str" % type(arg).__name__)
            _check("eal", arg)
        return Device(
            name=_get(entry, "name", str),
            interface=_get(entry, "interface", str),
            type=kind,
            socket=sockets.get(kind, _get(extension, "socket", str)),
            created_by=_get(extension, "socket-created-by", str),
            pci_address=addresses.get(kind, ""),
            mac=_get(entry, "mac", str),
            mtu=_get(entry, "mtu", int),
            resource=_get(extension, "resource", str),
            device_id=_get(extension, "device-id", str),
            eal=tuple(args),
            entry=entry,
        )
    except ValueError as error:
        raise ValueError("device %d: %s" % (number, error)) from None
