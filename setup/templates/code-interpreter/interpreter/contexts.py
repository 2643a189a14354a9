"""The contexts of the code interpreter: which there are, and in which one code runs."""

import os
import uuid

from jupyter_client.kernelspec import KernelSpecManager

from context import Context
from refused import Refused

MAX_CONTEXTS = 64
ALIASES = {"python3": "python", "py": "python", "js": "javascript", "ts": "typescript", "sh": "bash"}
# These are listed before they are used. Only Python's kernel starts with the server; another one starts with its first code.
LISTED = ("python", "javascript")


class Contexts:
    def __init__(self, cwd: str):
        self.cwd = cwd
        self.is_warm = False
        self._specs = KernelSpecManager()
        self._by_id: dict[str, Context] = {}
        self._default: dict[str, Context] = {}

    async def warm(self):
        """Starts Python's kernel, so that the checkpoint of the template holds it ready."""
        for language in LISTED:
            if self._find_kernel(language) is not None:
                self._default_of(language)
        await self._default_of("python").warm()
        self.is_warm = True

    async def check(self):
        """Runs nothing in Python's kernel, unless it runs something else."""
        await self._default_of("python").check()

    def all(self) -> list[Context]:
        return list(self._by_id.values())

    def of(self, context_id: object, language: object) -> Context:
        if context_id is None:
            return self._default_of(self._language(language))
        if language is not None:
            raise Refused(400, "expected context_id or language, got both")
        return self._known(context_id)

    async def create(self, language: object, cwd: object) -> Context:
        if cwd is not None and not (isinstance(cwd, str) and os.path.isdir(cwd)):
            raise Refused(400, f"cwd: expected an existing directory, got {cwd!r}")
        context = self._add(self._language(language), cwd or self.cwd)
        try:
            await context.warm()
        except BaseException:
            await self.remove(context.id)
            raise
        return context

    async def remove(self, context_id: str):
        context = self._known(context_id)
        del self._by_id[context.id]
        if self._default.get(context.language) is context:
            del self._default[context.language]
        await context.close()

    def _known(self, context_id: object) -> Context:
        context = self._by_id.get(context_id) if isinstance(context_id, str) else None
        if context is None:
            raise Refused(404, f"context {context_id} not found")
        return context

    def _default_of(self, language: str) -> Context:
        if language not in self._default:
            self._default[language] = self._add(language, self.cwd)
        return self._default[language]

    def _add(self, language: str, cwd: str) -> Context:
        kernel = self._find_kernel(language)
        if kernel is None:
            languages = sorted({spec["spec"]["language"].lower() for spec in self._specs.get_all_specs().values()})
            raise Refused(400, f"language: expected one of {', '.join(languages)}, for which there are kernels here, got '{language}'")
        if len(self._by_id) >= MAX_CONTEXTS:
            raise Refused(429, f"there are {MAX_CONTEXTS} contexts, the maximum: remove some")
        context = Context(str(uuid.uuid4()), language, cwd, kernel)
        self._by_id[context.id] = context
        return context

    def _language(self, language: object) -> str:
        if language is None or language == "":
            return "python"
        if not isinstance(language, str):
            raise Refused(400, "language: expected a string")
        return ALIASES.get(language.lower(), language.lower())

    def _find_kernel(self, language: str) -> str | None:
        """Any kernel that is installed counts, so that a template can add languages."""
        specs = self._specs.get_all_specs()
        named = [name for name in specs if name.lower() == language]
        return next(iter(named + [name for name, spec in specs.items() if spec["spec"]["language"].lower() == language]), None)
