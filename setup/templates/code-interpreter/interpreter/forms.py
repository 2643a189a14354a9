# Runs in each Python kernel at its start: plots of matplotlib also give their data (e2b/chart), tables of pandas theirs (e2b/data).
def _svc():
    import warnings

    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    # Larger tables give no data: a client would have to read all of it with each look at the first rows.
    max_cells = 200_000

    class ByName(BaseFormatter):
        """Formats objects of classes that are known by name, so that their libraries are not imported before the code does it."""

        _return_type = dict
        classes: dict = {}

        # The registry of the base class cannot keep these: matplotlib's backend clears its own class there when it starts.
        def __call__(self, shown):
            for each in type(shown).__mro__:
                form = self.classes.get((each.__module__, each.__name__))
                if form is None:
                    continue
                try:
                    return form(shown)
                except Exception:
                    # The other forms are shown in any case.
                    return None
            return None

    def chart(figure):
        from e2b_charts import chart_figure_to_dict

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return chart_figure_to_dict(figure)

    def data(frame):
        import json

        if frame.size > max_cells:
            return None
        shown = frame.copy()
        shown.columns = [str(name) for name in shown.columns]
        return {name: list(json.loads(column.to_json(orient="values", date_format="iso"))) for name, column in shown.items()}

    class Chart(ByName):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_svc_chart_")
        classes = {("matplotlib.figure", "Figure"): chart}

    class Data(ByName):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_svc_data_")
        classes = {("pandas.core.frame", "DataFrame"): data, ("pandas", "DataFrame"): data}

    formatters = get_ipython().display_formatter.formatters
    formatters["e2b/chart"] = Chart()
    formatters["e2b/data"] = Data()


_svc()
del _svc
