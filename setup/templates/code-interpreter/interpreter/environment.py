"""The environment variables of kernels: those of the sandbox, and those of one piece of code, which end with it."""

import json
import os
import shlex

# envd keeps this file current, because the sandbox gets its variables only after the kernel has started.
SANDBOX_ENVS = "/etc/svc/envs.json"

# Random numbers of a kernel that was restored from the template's checkpoint would be the same in every sandbox.
RESEED = """
def _svc():
    import os, random, sys
    random.seed()
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(32), 32)
_svc()
del _svc
"""


class Environment:
    def __init__(self, language: str):
        self._language = language
        self._applied: dict[str, str] = {}
        self._seen: tuple[int, int] | None = None
        self._sandbox: dict[str, str] = {}
        self._used = False

    def at_start(self) -> dict[str, str]:
        """The variables with which a kernel starts."""
        self._applied = dict(self._read())
        return {**os.environ, **self._applied}

    def forget(self):
        """A new kernel has drawn its own seed."""
        self._used = self._language == "python"

    def around(self, envs: dict[str, str]) -> tuple[str, str]:
        """Returns the code to run before a piece of code with these variables, and the code to run after it; either may be empty."""
        sandbox = self._read()
        gone = [name for name in self._applied if name not in sandbox and name not in envs]
        changed = {name: value for name, value in sandbox.items() if self._applied.get(name) != value}
        self._applied = dict(sandbox)
        before = self._code({**changed, **envs}, gone)
        if self._language == "python" and not self._used:
            before = RESEED + before
        self._used = True
        base = {**os.environ, **sandbox}
        after = self._code({name: base[name] for name in envs if name in base}, [name for name in envs if name not in base])
        return before, after

    def _read(self) -> dict[str, str]:
        try:
            info = os.stat(SANDBOX_ENVS)
            seen = (info.st_mtime_ns, info.st_size)
            if seen != self._seen and info.st_size > 0:
                with open(SANDBOX_ENVS, encoding="utf-8") as file:
                    self._sandbox = json.load(file)
                self._seen = seen
        except (OSError, ValueError):
            pass
        return self._sandbox

    def _code(self, values: dict[str, str], removed: list[str]) -> str:
        if not values and not removed:
            return ""
        match self._language:
            case "python":
                sets = f"__import__('os').environ.update({values!r})" if values else ""
                return "\n".join([sets, *(f"__import__('os').environ.pop({name!r}, None)" for name in removed)])
            case "javascript" | "typescript":
                return "\n".join(
                    [f"Object.assign(process.env, {json.dumps(values)});", *(f"delete process.env[{json.dumps(name)}];" for name in removed)]
                )
            case "bash":
                return "\n".join(
                    [*(f"export {name}={shlex.quote(value)}" for name, value in values.items()), *(f"unset {name}" for name in removed)]
                )
            case _:
                return ""
