# The plugin for Google's Agent Development Kit: its tools, called as the kit calls them.
import asyncio

from e2b_adk import E2BPlugin


async def main():
    plugin = E2BPlugin()
    try:
        tools = {tool.name: tool for tool in plugin.get_tools()}

        async def call(name, **args):
            result = await tools[name].run_async(args=args, tool_context=None)
            return str(result)

        assert "42" in await call("run_command", command="echo $((6 * 7))")
        await call("write_file", path="/home/user/file.txt", content="from adk")
        assert "from adk" in await call("read_file", path="/home/user/file.txt")
        assert "42" in await call("run_code", code="x = 6 * 7\nprint(x)")
        print("used: E2BPlugin with run_command, run_code, write_file, read_file")
    finally:
        await plugin.close()


asyncio.run(main())
