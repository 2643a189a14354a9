# The sandbox environment for Inspect: commands and files of one sample.
import asyncio
from inspect_sandboxes.e2b._e2b import E2BSandboxEnvironment


async def main():
    await E2BSandboxEnvironment.task_init("task", None)
    environments = await E2BSandboxEnvironment.sample_init("task", None, {})
    try:
        environment = environments["default"]
        assert "42" in (await environment.exec(["bash", "-c", "echo $((6 * 7))"])).stdout
        await environment.write_file("file.txt", "from inspect")
        assert await environment.read_file("file.txt") == "from inspect"
        print("used: E2BSandboxEnvironment")
    finally:
        await E2BSandboxEnvironment.sample_cleanup("task", None, environments, False)


asyncio.run(main())
