# LangChain's sandbox for Deep Agents: commands and files.
from e2b import Sandbox
from langchain_e2b import E2BSandbox

sandbox = E2BSandbox(sandbox=Sandbox.create())
try:
    assert "42" in sandbox.execute("echo $((6 * 7))").output
    sandbox.upload_files([("/home/user/file.txt", b"from langchain")])
    assert sandbox.download_files(["/home/user/file.txt"])[0].content == b"from langchain"
    print("used: E2BSandbox")
finally:
    Sandbox.kill(sandbox.id)
