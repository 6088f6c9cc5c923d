"""Tells systemd that this process serves, and goes on serving (`Type=notify`, `WatchdogSec=`).

In: the words of sd_notify(3). Out: a datagram to where the service manager listens; nothing where
there is none. Does not know what is done about a silence.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(words: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.setblocking(False)
        door.sendto(words.encode(), address)
