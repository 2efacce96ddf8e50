"""Starts and stops the service."""

import gc
import os
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from puda.api import open_run
from puda.errors import PudaError
from puda.serve.app import create_app
from puda.serve.backroom import Backroom
from puda.serve.guard import LOOPBACK
from puda.serve.served import Served
from puda.serve.store import Store

FEWEST = 16  # characters of a token


def serve(
    paths: Sequence[Path],
    *,
    host: str,
    port: int,
    token: str | None,
    verdicts: str | None,
    tell: Callable[[str], None],
) -> None:
    """Serve runs until interrupted; `tell` hears where."""
    local = is_loopback(host)
    if not local and not token:
        raise PudaError(
            f"--host {host} lets others reach this machine: give --token, for example"
            f" {secrets.token_urlsafe(24)}"
        )
    if token is not None and (len(token) < FEWEST or not token.isascii() or " " in token):
        raise PudaError(f"--token: use at least {FEWEST} ASCII characters without blanks")
    door = listen(host, port)
    opened = {name: open_run(path) for name, path in name_runs(paths).items()}
    for run in opened.values():
        _ = run.calibration  # one that cannot be read is told before another process meets it
    gc.freeze()  # what is loaded stays: a look at all of it would keep everyone waiting for 0.1 s
    backroom = Backroom(opened) if Backroom.suits(opened) else None
    runs = {name: Served(name, run, backroom) for name, run in opened.items()}
    store = Store(verdicts or str(paths[0].absolute().parent / "verdicts.sqlite"))
    name, real_port = door.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    app = create_app(runs, store, hosts=(*LOOPBACK, shown) if local else None, token=token)
    # After each product a thread that searches waits for the interpreter so long, not 5 ms.
    sys.setswitchinterval(5e-4)
    door.listen(128)  # who reads the address below may come at once
    fragment = f"#token={token}" if token else ""
    tell(f"{', '.join(runs)} at http://{shown}:{real_port}/{fragment}")
    tell(f"Verdicts are kept in {store.where}. Ctrl-C stops.")
    config = uvicorn.Config(
        app,
        log_level="critical",  # what is unexpected is told by the app itself
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    try:
        uvicorn.Server(config).run(sockets=[door])
    except KeyboardInterrupt:
        tell("Stopped.")
    store.close()
    os._exit(0)  # a thread may be in the midst of a long reckoning, and nothing is lost with it


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Open the port, so that one that is taken is told before runs are loaded."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol's number: asyncio sends small answers at once only if it is TCP's.
        door = socket.socket(*found[:3])
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(found[4])
        return door
    except (OSError, OverflowError) as error:
        raise PudaError(
            f"cannot serve at {host}, port {port}: {error}; choose another --port (0: any)"
        ) from None


def name_runs(paths: Sequence[Path]) -> dict[str, Path]:
    """Name runs by their folders; of equal names, later ones are numbered."""
    names: dict[str, Path] = {}
    for path in paths:
        name = path.resolve().name
        number = 2
        while name in names:
            name = f"{path.resolve().name}-{number}"
            number += 1
        names[name] = path
    return names
