"""OpenAI Agents SDK: an agent that works in its own sandbox. Run: python3 examples/openai_agents.py "what is the 100th prime?"

Needs `pip install openai-agents` and OPENAI_API_KEY; without the key it shows the tools and uses one.
"""

import asyncio
import os
import sys
from pathlib import Path

from agents import Agent, Runner
from agents.mcp import MCPServerStdio

SVC = os.environ.get("SVC") or str(Path(__file__).resolve().parent.parent / "svc")


async def main() -> None:
    params = {"command": SVC, "args": ["mcp"], "env": dict(os.environ)}
    async with MCPServerStdio(name="svc", params=params, client_session_timeout_seconds=120) as sandbox:
        if os.environ.get("OPENAI_API_KEY"):
            agent = Agent(
                name="Programmer",
                instructions="Solve the task by writing and running programs in your sandbox. Check your results before you answer.",
                mcp_servers=[sandbox],
            )
            task = sys.argv[1] if len(sys.argv) > 1 else "Find the 100th prime."
            result = await Runner.run(agent, task, max_turns=20)
            print(result.final_output)
        else:
            tools = await sandbox.list_tools()
            print("tools:", *sorted(tool.name for tool in tools))
            answer = await sandbox.call_tool("run_code", {"code": "print(6 * 7)"})
            print(answer.content[0].text)


asyncio.run(main())
