# The sandboxes of OpenAI's Agents SDK, of both kinds that it has for E2B.
import asyncio

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType


async def main():
    for kind in (E2BSandboxType.E2B, E2BSandboxType.CODE_INTERPRETER):
        client = E2BSandboxClient()
        session = await client.create(options=E2BSandboxClientOptions(sandbox_type=kind))
        try:
            async with session:
                result = await session.exec("echo", "42")
                assert b"42" in result.stdout, result
        finally:
            await client.delete(session)
    print("used: E2BSandboxClient with e2b and e2b_code_interpreter")


asyncio.run(main())
