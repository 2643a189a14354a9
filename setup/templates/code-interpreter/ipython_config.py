# Settings of the Python kernels: nothing is written to the home, and plots and tables also come as data.
c = get_config()  # noqa: F821, IPython defines it.
c.InteractiveShell.colors = "nocolor"
c.HistoryManager.enabled = False
c.InteractiveShellApp.exec_files = ["/opt/svc/interpreter/forms.py"]
c.InlineBackend.figure_formats = {"png"}
# ipykernel waits here so that output is not overtaken by its reply; the server reads both from one socket, where nothing overtakes.
c.Kernel._execute_sleep = 0.0
