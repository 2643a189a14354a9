# Haystack's tools for E2B: bash and files in one sandbox.
from haystack_integrations.tools.e2b import E2BSandbox, ReadFileTool, RunBashCommandTool, WriteFileTool

sandbox = E2BSandbox()
sandbox.warm_up()
try:
    WriteFileTool(sandbox=sandbox).invoke(path="/home/user/file.txt", content="from haystack\n")
    assert "from haystack" in ReadFileTool(sandbox=sandbox).invoke(path="/home/user/file.txt")
    assert "42" in RunBashCommandTool(sandbox=sandbox).invoke(command="echo $((6 * 7))")
    print("used: RunBashCommandTool, WriteFileTool, ReadFileTool")
finally:
    sandbox.close()
