"""The worker process: holds VMs and takes steps, one request after the other. Started by `pool.py`, killed at need.

It holds nothing that cannot be lost, and imports little, because there is one of it for every few hundred sessions.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time

from holdfast.alc.lua.frames import READ_BYTES, Frames, StepReply, StepsRequest, frame
from holdfast.alc.lua.outcomes import raised
from holdfast.alc.lua.pipes import PipeEnds
from holdfast.alc.lua.stopper import Stopper
from holdfast.alc.lua.vm import Vm

_SIGN_OF_LIFE_S = 0.2
"""Seconds of a long replay after which the engine gets a sign of life."""

_LOOK_S = 1.0
"""Seconds between looks at whether the engine's process still lives."""

_ORPHAN = 3


def main() -> None:
    """Serve the pipes that were inherited, until the engine closes them."""
    reading, writing, engine = map(int, sys.argv[1:])
    threading.Thread(target=_die_with, args=(engine,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # there are no cycles to find, only pauses to lose
    with PipeEnds(reading, writing) as pipes:
        worker = VmServer(pipes)
        worker.say_hello()
        worker.serve()


def _die_with(engine: int) -> None:
    """End with the engine, even inside a loop that never returns: a dead engine closes its pipes, but nobody reads."""
    while os.getppid() == engine:
        time.sleep(_LOOK_S)
    os._exit(_ORPHAN)


class VmServer:
    """The VMs of this process."""

    def __init__(self, pipes: PipeEnds) -> None:
        self._pipes = pipes
        self._vms: dict[int, Vm] = {}
        self._stopper = Stopper.found()

    def say_hello(self) -> None:
        """Tell the engine that what takes time from now on is a strategy's doing."""
        self._send(StepReply(0))

    def serve(self) -> None:
        frames = Frames(StepsRequest)
        while data := self._pipes.receive(READ_BYTES):
            for request in frames.feed(data):
                self._take(request)

    def _take(self, request: StepsRequest) -> None:
        for dropped in request.drops:
            self._vms.pop(dropped, None)
        if not request.wakings:
            return
        if request.spec is not None:
            try:
                self._vms[request.vm] = Vm(request.spec, self._stopper)
            except Exception as error:
                self._send(StepReply(request.number, [raised(f"the Lua VM cannot be made: {error}", "vm")]))
                return
        vm = self._vms.get(request.vm)
        if vm is None:
            self._send(StepReply(request.number, is_gone=True))
            return
        steps: list[bytes] = []
        last_sign = time.monotonic()
        for waking in request.wakings:
            steps.append(vm.step(waking, is_replay=request.is_replay))
            if len(request.wakings) > 1 and time.monotonic() - last_sign > _SIGN_OF_LIFE_S:
                last_sign = time.monotonic()
                self._send(StepReply(request.number))
        self._send(StepReply(request.number, steps))

    def _send(self, reply: StepReply) -> None:
        self._pipes.send_all(frame(reply))


if __name__ == "__main__":
    main()
