# The remote executor of smolagents: code whose variables stay, and errors.
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import E2BExecutor

executor = E2BExecutor([], AgentLogger(level=LogLevel.ERROR))
try:
    executor.run_code_raise_errors("x = 20")
    assert "42" in executor.run_code_raise_errors("print(x * 2 + 2)").logs
    try:
        executor.run_code_raise_errors("1 / 0")
        raise SystemExit("no error")
    except Exception as error:
        assert "ZeroDivisionError" in str(error)
    print("used: E2BExecutor")
finally:
    executor.cleanup()
