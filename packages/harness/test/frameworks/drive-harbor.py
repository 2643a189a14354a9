# Harbor's environment: it builds a template from the task's Dockerfile, starts it by its build, and runs commands.
import asyncio
import pathlib
import tempfile

from harbor.environments.e2b import E2BEnvironment
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths


async def main():
    with tempfile.TemporaryDirectory() as folder:
        task = pathlib.Path(folder, "environment")
        task.mkdir()
        (task / "Dockerfile").write_text("FROM e2bdev/base\nRUN echo built > /made\n")
        trial = TrialPaths(pathlib.Path(folder, "trial"))
        trial.mkdir()
        environment = E2BEnvironment(task, "svc-harbor-task", "session-1", trial, EnvironmentConfig())
        await environment.start(force_build=False)
        try:
            result = await environment.exec("cat /made; echo $((6 * 7))")
            assert result.stdout.split() == ["built", "42"], result
            print("used: E2BEnvironment with a Dockerfile")
        finally:
            await environment.stop(delete=True)


asyncio.run(main())
