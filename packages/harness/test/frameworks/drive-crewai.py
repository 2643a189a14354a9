# CrewAI's tools: a command, Python, a file.
from crewai_tools import E2BExecTool, E2BFileTool, E2BPythonTool

assert "42" in str(E2BExecTool().run(command="echo $((6 * 7))"))
python = E2BPythonTool(persistent=True)
try:
    python.run(code="x = 20")
    assert "42" in str(python.run(code="x * 2 + 2"))
finally:
    python.close()
files = E2BFileTool(persistent=True)
try:
    files.run(action="write", path="/home/user/file.txt", content="from crewai")
    assert "from crewai" in str(files.run(action="read", path="/home/user/file.txt"))
finally:
    files.close()
print("used: E2BExecTool, E2BPythonTool, E2BFileTool")
