# Runs in each Python kernel at its start: plots of matplotlib also give their data (e2b/chart), tables of pandas theirs (e2b/data).
def _svc():
    import warnings

    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    # Larger tables give no data: a client would have to read all of it with each look at the first rows.
    max_cells = 200_000

    class Chart(BaseFormatter):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_svc_chart_")
        _return_type = dict

    class Data(Chart):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_svc_data_")

    def chart(figure):
        from e2b_charts import chart_figure_to_dict

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return chart_figure_to_dict(figure)
            except Exception:
                # The image is shown in any case.
                return None

    def data(frame):
        import json

        if frame.size > max_cells:
            return None
        shown = frame.copy()
        shown.columns = [str(name) for name in shown.columns]
        return {name: list(json.loads(column.to_json(orient="values", date_format="iso"))) for name, column in shown.items()}

    formatters = get_ipython().display_formatter.formatters
    charts, tables = Chart(), Data()
    # The types are given by name, so that neither library is imported.
    charts.for_type_by_name("matplotlib.figure", "Figure", chart)
    tables.for_type_by_name("pandas.core.frame", "DataFrame", data)
    tables.for_type_by_name("pandas", "DataFrame", data)
    formatters["e2b/chart"] = charts
    formatters["e2b/data"] = tables


_svc()
del _svc
