"""One context: a kernel, which runs one piece of code at a time and keeps its variables in between."""

import asyncio
import contextlib
import os

import zmq.asyncio
from jupyter_client.manager import AsyncKernelManager

from direct_wire import DirectWire
from environment import Environment
from execution import Execution
from refused import Refused
from wire import Wire

FOLDER = "/tmp/.svc-interpreter/kernels"
START_SECONDS = 60
# For so long after an error tslab aborts what it is sent, whatever the request says about that.
TSLAB_ABORTS_SECONDS = 0.25
# How long interrupted code may take to end before its kernel is replaced.
INTERRUPT_SECONDS = 10
ALIVE_EVERY_SECONDS = 0.25


class Context:
    def __init__(self, context_id: str, language: str, cwd: str, kernel: str):
        self.id = context_id
        self.language = language
        self.cwd = cwd
        self._kernel = kernel
        self._lock = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._manager: AsyncKernelManager | None = None
        self._wire: DirectWire | Wire | None = None
        self._executions: dict[str, Execution] = {}
        self._environment = Environment(language)
        # Said once with the next code, because a new kernel has lost all variables.
        self._notice: str | None = None
        self._restarting: asyncio.Task | None = None
        self._closed = False

    def shown(self) -> dict:
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def warm(self):
        async with self._lock:
            await self._ready()
            # Code that ran once is faster the next time; silent code is not counted.
            await self._send("", silent=True).ended()

    async def check(self):
        if not self._lock.locked():
            await self.warm()

    @contextlib.asynccontextmanager
    async def running(self, code: str, envs: dict[str, str]):
        async with self._lock:
            await self._ready()
            prelude, restore = self._environment.around(envs)
            if prelude:
                self._wire.execute(prelude, silent=True)
            execution = self._send(code)
            if self._notice is not None:
                execution.add({"type": "stderr", "text": self._notice + "\n"})
                self._notice = None
            watch = asyncio.create_task(self._watch(execution))
            try:
                yield execution
                await execution.ended()
                if execution.has_failed and self.language in ("javascript", "typescript"):
                    await asyncio.sleep(TSLAB_ABORTS_SECONDS)
            finally:
                execution.cancel()
                await watch
                if self._manager is None and not self._closed:
                    # The next code finds a kernel that has started already.
                    self._restarting = asyncio.create_task(self._ready())
                    self._restarting.add_done_callback(lambda task: task.cancelled() or task.exception())
                if restore and self._wire is not None:
                    self._wire.execute(restore, silent=True)

    async def restart(self):
        """Ends what runs, too, so it does not wait for it."""
        for execution in list(self._executions.values()):
            execution.die("KernelRestarted", "the context was restarted while this code ran")
        await self._end_kernel()
        self._notice = None
        await self._ready()

    async def close(self):
        self._closed = True
        for execution in list(self._executions.values()):
            execution.die("ContextRemoved", "the context was removed while this code ran")
        await self._end_kernel()

    def _send(self, code: str, silent: bool = False) -> Execution:
        msg_id = self._wire.execute(code, silent)
        execution = Execution(on_end=lambda: self._executions.pop(msg_id, None))
        self._executions[msg_id] = execution
        return execution

    async def _ready(self):
        async with self._starting:
            if self._closed:
                raise Refused(404, f"context {self.id} was removed")
            if self._manager is not None and not await self._manager.is_alive():
                await self._end_kernel()
                self._notice = "[the kernel had ended: a new one runs, and the variables of earlier code are gone]"
            if self._manager is None:
                await self._start()

    async def _start(self):
        context = zmq.asyncio.Context()
        # Without a limit here, no message of a kernel that prints much is lost; what is kept of them is limited in Execution.
        context.RCVHWM = 0
        manager = AsyncKernelManager(kernel_name=self._kernel, context=context, shutdown_wait_time=1)
        # Its sockets lie beside it.
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        manager.connection_file = os.path.join(FOLDER, f"{self.id}.json")
        if self.language == "python":
            # Connections over TCP would not survive a restore of the sandbox elsewhere; the other kernels start after it.
            manager.transport = "ipc"
        try:
            await manager.start_kernel(cwd=self.cwd, env=self._environment.at_start())
        except OSError as error:
            raise Refused(500, f"the kernel of {self.language} cannot be started: {error}") from error
        try:
            self._wire = await self._open_wire(manager)
        except BaseException as error:
            await manager.shutdown_kernel(now=True)
            if isinstance(error, RuntimeError):
                raise Refused(500, f"the kernel of {self.language} did not start within {START_SECONDS} s: {error}") from error
            raise
        self._manager = manager

    async def _open_wire(self, manager: AsyncKernelManager) -> DirectWire | Wire:
        if manager.transport == "ipc":
            return await DirectWire.open(manager, self._take, START_SECONDS)
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=START_SECONDS)
        except BaseException:
            client.stop_channels()
            raise
        return Wire(client, self._take)

    async def _end_kernel(self):
        manager, wire = self._manager, self._wire
        self._manager = self._wire = None
        if manager is None:
            return
        wire.close()
        await manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)
        self._environment.forget()

    def _take(self, request: str, message: dict):
        execution = self._executions.get(request)
        if execution is not None:
            execution.take(message)

    async def _watch(self, execution: Execution):
        """Returns when the code has ended, be it by an interrupt or with its kernel."""
        interrupted_at = None
        loop = asyncio.get_running_loop()
        while not execution.is_over:
            await execution.changed(ALIVE_EVERY_SECONDS)
            if execution.is_over:
                return
            manager = self._manager
            if manager is None or not await manager.is_alive():
                await self._end_kernel()
                execution.die("KernelDied", "the kernel ended while this code ran: it exited, or the sandbox had no memory left; its variables are gone")
                return
            if not execution.is_cancelled:
                continue
            if interrupted_at is None:
                interrupted_at = loop.time()
                await manager.interrupt_kernel()
            elif loop.time() - interrupted_at > INTERRUPT_SECONDS:
                await self._end_kernel()
                self._notice = "[the code before this one did not end when it was interrupted, so its kernel was replaced: the variables are gone]"
                execution.die("KernelReplaced", "the code did not end when it was interrupted")
