# Settings of the Python kernels: nothing is written to the home, and plots and tables also come as data.
c = get_config()  # noqa: F821, IPython defines it.
c.InteractiveShell.colors = "nocolor"
c.HistoryManager.enabled = False
c.InteractiveShellApp.exec_files = ["/opt/svc/interpreter/forms.py"]
c.InlineBackend.figure_formats = {"png"}
# Output goes to the server by the socket that says that code has ended, so nothing can overtake it, and this wait of ipykernel is in vain.
c.Kernel._execute_sleep = 0.0
