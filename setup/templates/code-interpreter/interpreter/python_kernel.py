"""Starts a Python kernel whose code wakes as few threads as possible, because each waking costs much in a sandbox."""

import sys

# The modules of the server are not for the code that runs here.
del sys.path[0]

from ipykernel.iostream import OutStream  # noqa: E402
from ipykernel.kernelapp import IPKernelApp  # noqa: E402


class Output(OutStream):
    """Waits for the thread that sends output only where something was written: code is flushed four times."""

    _is_flushed = True

    def write(self, string):
        written = super().write(string)
        self._is_flushed = False
        return written

    def flush(self):
        if not self._is_flushed:
            self._is_flushed = True
            super().flush()


class PythonKernel(IPKernelApp):
    outstream_class = f"{__name__}.{Output.__name__}"

    def init_control(self, context):
        super().init_control(context)
        # Requests would pass through the thread of subshells, which nothing uses here.
        self.shell_channel_thread = None

    def init_iopub(self, context):
        # The server limits what it keeps of a client's output; a limit here would lose messages, the one that says that code ended among them.
        context.SNDHWM = 0
        super().init_iopub(context)


if __name__ == "__main__":
    PythonKernel.launch_instance()
