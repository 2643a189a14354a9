# Every call of E2B's code interpreter SDK for Python, sync and async. Connection settings come from the environment.
import asyncio
import os
import unittest

from e2b import NotFoundException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox


class Calls(unittest.TestCase):
    def test_code_runs_with_variables_output_results_and_errors(self):
        with Sandbox.create(timeout=300, envs={"OF_SANDBOX": "value"}) as sandbox:
            lines = []
            first = sandbox.run_code(
                "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 6\nos.environ['OF_SANDBOX']",
                on_stdout=lambda message: lines.append((message.line, message.error)),
                on_stderr=lambda message: lines.append((message.line, message.error)),
                on_result=lambda result: lines.append(result.text),
            )
            self.assertEqual((first.text, first.execution_count, first.error), ("value", 1, None))
            self.assertEqual(lines, [("out\n", False), ("err\n", True), "value"])
            self.assertEqual(first.logs.stdout, ["out\n"])
            failed = sandbox.run_code("x / 0", on_error=lambda error: lines.append(error.name))
            self.assertEqual((failed.error.name, failed.error.value, lines[-1]), ("ZeroDivisionError", "division by zero", "ZeroDivisionError"))
            self.assertIn("x / 0", failed.error.traceback)
            self.assertEqual(sandbox.run_code("os.environ['OF_CODE']", envs={"OF_CODE": "mine"}).text, "mine")
            self.assertEqual(sandbox.run_code("'OF_CODE' in os.environ").text, "False")
            self.assertIn('"text": "12"', sandbox.run_code("x * 2").to_json())

    def test_contexts_are_made_listed_restarted_and_removed(self):
        with Sandbox.create(timeout=300) as sandbox:
            context = sandbox.create_code_context(cwd="/tmp", language="python")
            self.assertEqual((context.language, context.cwd), ("python", "/tmp"))
            self.assertEqual(sandbox.run_code("import os; own = 1; os.getcwd()", context=context).text, "/tmp")
            self.assertIn(context.id, [each.id for each in sandbox.list_code_contexts()])
            self.assertIn("python", [each.language for each in sandbox.list_code_contexts()])
            sandbox.restart_code_context(context)
            self.assertEqual(sandbox.run_code("own", context=context).error.name, "NameError")
            sandbox.remove_code_context(context.id)
            with self.assertRaises(NotFoundException):
                sandbox.run_code("1", context=context)
            bash = sandbox.run_code("echo $HOME", language="bash")
            self.assertEqual("".join(bash.logs.stdout), "/home/user\n")

    def test_code_that_takes_too_long_is_interrupted(self):
        with Sandbox.create(timeout=300) as sandbox:
            sandbox.run_code("kept = 1")
            with self.assertRaises(TimeoutException):
                sandbox.run_code("while True: pass", timeout=2)
            self.assertEqual(sandbox.run_code("kept").text, "1")

    def test_every_call_works_async(self):
        async def run():
            sandbox = await AsyncSandbox.create(timeout=300)
            try:
                lines = []

                async def on_stdout(message):
                    lines.append(message.line)

                runs = await asyncio.gather(*(sandbox.run_code(f"print({number})\n{number}", on_stdout=on_stdout) for number in range(5)))
                self.assertEqual([each.text for each in runs], ["0", "1", "2", "3", "4"])
                self.assertEqual(sorted(lines), ["0\n", "1\n", "2\n", "3\n", "4\n"])
                context = await sandbox.create_code_context()
                self.assertEqual((await sandbox.run_code("1 + 1", context=context)).text, "2")
                self.assertIn(context.id, [each.id for each in await sandbox.list_code_contexts()])
                await sandbox.restart_code_context(context)
                await sandbox.remove_code_context(context)
            finally:
                await sandbox.kill()

        asyncio.run(run())

    @unittest.skipUnless(os.environ.get("SVC_TEST_WHOLE"), "the small template has no libraries")
    def test_a_chart_and_a_table_come_as_data(self):
        with Sandbox.create(timeout=300) as sandbox:
            run = sandbox.run_code(
                """
import matplotlib.pyplot as plt
import pandas as pd
plt.plot([1, 2, 3], [4, 5, 6], label="line")
plt.title("Title"); plt.xlabel("X"); plt.ylabel("Y")
plt.show()
pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.to_datetime(["2026-01-01", "2026-01-02"])})
"""
            )
            self.assertIsNone(run.error)
            figure, table = run.results
            self.assertTrue(figure.png)
            self.assertEqual((figure.chart.type, figure.chart.title, figure.chart.x_label), ("line", "Title", "X"))
            self.assertEqual([list(point) for point in figure.chart.elements[0].points], [[1, 4], [2, 5], [3, 6]])
            self.assertEqual((table.data["a"], table.data["b"]), ([1, 2], ["x", None]))
            self.assertIn("2026-01-01", table.data["c"][0])
            self.assertIn("<table", table.html)

    @unittest.skipUnless(os.environ.get("SVC_TEST_WHOLE"), "the small template has no libraries")
    def test_every_library_of_the_list_can_be_imported(self):
        names = "aiohttp bs4 bokeh e2b_charts gensim imageio joblib librosa lxml matplotlib nltk numpy cv2 openpyxl pandas PIL plotly pytest docx pytz requests skimage sklearn scipy seaborn soundfile spacy sympy textblob urllib3 xarray xlrd"
        with Sandbox.create(timeout=600) as sandbox:
            run = sandbox.run_code(f"import {', '.join(names.split())}", timeout=300)
            self.assertIsNone(run.error, run.error and run.error.traceback)

    @unittest.skipUnless(os.environ.get("SVC_TEST_WHOLE"), "the small template has no Node")
    def test_javascript_and_typescript_keep_their_variables(self):
        with Sandbox.create(timeout=300, envs={"OF_SANDBOX": "value"}) as sandbox:
            for language, typed in (("javascript", ""), ("typescript", ": number")):
                self.assertIsNone(sandbox.run_code(f"let x{typed} = 20; console.log('said')", language=language).error)
                run = sandbox.run_code("x + 1", language=language)
                self.assertEqual(run.text, "21", language)
                self.assertEqual(sandbox.run_code("process.env.OF_SANDBOX", language=language).text, "value", language)
                self.assertEqual(sandbox.run_code("process.env.OF_CODE", language=language, envs={"OF_CODE": "mine"}).text, "mine", language)
                self.assertIsNotNone(sandbox.run_code("throw new Error('wrong')", language=language).error, language)
                with self.assertRaises(TimeoutException):
                    sandbox.run_code("while (true) {}", language=language, timeout=3)
            self.assertEqual(sandbox.run_code("1 + 1").text, "2")


if __name__ == "__main__":
    unittest.main()
