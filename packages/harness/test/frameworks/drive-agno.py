# Agno's toolkit: Python with variables that stay, commands, files.
from agno.tools.e2b import E2BTools

tools = E2BTools()
try:
    tools.run_python_code("x = 20")
    assert "42" in str(tools.run_python_code("print(x * 2 + 2)"))
    assert "42" in str(tools.run_command("echo $((6 * 7))"))
    tools.write_file_content("/home/user/file.txt", "from agno")
    assert "from agno" in tools.read_file_content("/home/user/file.txt")
    print("used: E2BTools")
finally:
    tools.shutdown_sandbox()
