"""The stop button of a notebook ends a kernel on the emulator, and the notebook goes on."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

manager = pytest.importorskip("jupyter_client.manager")
PATIENCE = 60  # seconds until a busy machine counts as hung

ENDLESS = """
from mlacademy import gpu
import numpy as np
module = gpu.Module.from_ptx('''.version 9.0
.target sm_90a
.address_size 64
.visible .entry forever(.param .u64 cell) {
    .reg .b64 %d; .reg .b32 %r; .reg .pred %p;
    ld.param.u64 %d, [cell];
LOOP: ld.volatile.global.u32 %r, [%d]; setp.eq.s32 %p, %r, 0; @%p bra LOOP; ret;
}''')
cell = np.zeros(1, np.int32)
device = gpu.Device("emulator")
print("started", flush=True)
device.launch(module["forever"], gpu.LaunchPlan(1, 32), [cell])
"""


@pytest.fixture
def notebook() -> Iterator[tuple[Any, Any]]:
    """A running Python kernel of Jupyter and a client of it."""
    kernels = manager.KernelManager(kernel_name="python3")
    kernels.start_kernel()
    client = kernels.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield kernels, client
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)


def said(client: Any, kind: str, request: str) -> dict[str, Any]:
    """The next message of this kind that answers the request."""
    while True:
        try:
            message = client.get_iopub_msg(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"no {kind} came") from None
        if message["msg_type"] == kind and message["parent_header"].get("msg_id") == request:
            return message["content"]


def test_the_stop_button_ends_a_running_kernel_and_the_notebook_lives(notebook: tuple[Any, Any]) -> None:
    kernels, client = notebook
    request = client.execute(ENDLESS, stop_on_error=False)  # else what follows an error is thrown away
    assert said(client, "stream", request)["text"].startswith("started")
    kernels.interrupt_kernel()
    assert said(client, "error", request)["ename"] == "KeyboardInterrupt"
    again = client.execute("print(cell[0] + 41, device.kind)")
    assert said(client, "stream", again)["text"] == "41 emulator\n"
    assert kernels.is_alive()
