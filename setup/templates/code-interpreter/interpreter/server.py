"""The code interpreter's HTTP server: runs code in Jupyter kernels and streams what it gives, as E2B's code interpreter SDKs expect."""

import asyncio
import json
import os

from tornado import httpserver, iostream, netutil, web

from contexts import Contexts
from refused import Refused

PORT = 49999
MAX_BODY_BYTES = 64 << 20


class Handler(web.RequestHandler):
    def initialize(self, contexts: Contexts):
        self.contexts = contexts

    def fields(self) -> dict:
        try:
            body = json.loads(self.request.body or b"{}")
        except ValueError:
            raise Refused(400, "the body is not valid JSON") from None
        if not isinstance(body, dict):
            raise Refused(400, "expected a JSON object in the body")
        return body

    def write_error(self, status_code, **kwargs):
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else None
        message = str(error) if isinstance(error, Refused) else self._reason
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"code": status_code, "message": message}))

    def log_exception(self, typ, value, tb):
        # A refusal is an answer to the client, not a fault of the server.
        if not isinstance(value, (Refused, iostream.StreamClosedError)):
            super().log_exception(typ, value, tb)


class Health(Handler):
    async def get(self):
        if not self.contexts.is_warm:
            raise Refused(503, "the Python kernel is starting")
        # The node asks this of a restored sandbox, whose kernel is then ready for its first code.
        await self.contexts.check()
        self.finish("ok\n")


class Execute(Handler):
    running = None
    left = False

    def on_connection_close(self):
        self.left = True
        if self.running is not None:
            self.running.cancel()

    async def post(self):
        asked = self.fields()
        code = asked.get("code")
        if not isinstance(code, str):
            raise Refused(400, "code: expected a string")
        envs = asked.get("env_vars") or {}
        if not isinstance(envs, dict) or not all(isinstance(value, str) for value in envs.values()):
            raise Refused(400, "env_vars: expected an object of strings")
        context = self.contexts.of(asked.get("context_id"), asked.get("language"))
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("Cache-Control", "no-store")
        async with context.running(code, envs) as execution:
            self.running = execution
            if self.left:
                execution.cancel()
            async for batch in execution.batches():
                if self.left:
                    continue
                for message in batch:
                    self.write(json.dumps(message, ensure_ascii=False) + "\n")
                # The last batch goes out with the end of the answer.
                if execution.is_over:
                    continue
                try:
                    await self.flush()
                except iostream.StreamClosedError:
                    self.on_connection_close()


class Unknown(Handler):
    def prepare(self):
        raise Refused(404, f"there is nothing at {self.request.path}")


class AllContexts(Handler):
    def get(self):
        self.finish(json.dumps([context.shown() for context in self.contexts.all()]))

    async def post(self):
        asked = self.fields()
        context = await self.contexts.create(asked.get("language"), asked.get("cwd"))
        self.finish(json.dumps(context.shown()))


class OneContext(Handler):
    async def delete(self, context_id):
        await self.contexts.remove(context_id)
        self.set_status(204)


class Restart(Handler):
    async def post(self, context_id):
        await self.contexts.of(context_id, None).restart()
        self.set_status(204)


async def main():
    contexts = Contexts(os.getcwd())
    routes = [
        ("/health", Health),
        ("/execute", Execute),
        ("/contexts", AllContexts),
        ("/contexts/([^/]+)", OneContext),
        ("/contexts/([^/]+)/restart", Restart),
    ]
    application = web.Application(
        [(path, handler, {"contexts": contexts}) for path, handler in routes],
        default_handler_class=Unknown,
        default_handler_args={"contexts": contexts},
        log_function=lambda handler: None,
    )
    server = httpserver.HTTPServer(application, max_body_size=MAX_BODY_BYTES, max_buffer_size=MAX_BODY_BYTES + (1 << 20))
    server.add_sockets(netutil.bind_sockets(int(os.environ.get("SVC_INTERPRETER_PORT", PORT)), os.environ.get("SVC_INTERPRETER_HOST", "0.0.0.0")))
    await contexts.warm()
    await asyncio.Event().wait()


asyncio.run(main())
