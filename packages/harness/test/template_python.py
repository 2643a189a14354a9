# Template builds with the unmodified E2B Python SDK, sync and async. Connection settings come from the environment.
import asyncio
import os
import tempfile
import unittest

from e2b import AsyncTemplate, BuildException, Sandbox, Template, wait_for_port


def output(template, command):
    sandbox = Sandbox.create(template, timeout=120)
    try:
        return sandbox.commands.run(command).stdout
    finally:
        sandbox.kill()


class Templates(unittest.TestCase):
    def test_a_template_has_what_every_call_of_the_builder_made(self):
        with tempfile.TemporaryDirectory() as context:
            with open(os.path.join(context, "app.py"), "w") as file:
                file.write("print('app')\n")
            os.mkdir(os.path.join(context, "data"))
            with open(os.path.join(context, "data", "x"), "w") as file:
                file.write("x\n")
            template = (
                Template(file_context_path=context)
                .from_template("base")
                .set_envs({"NAME": "value"})
                .set_workdir("/home/user/app")
                .copy("app.py", ".")
                .copy_items([{"src": "data", "dest": "data/"}])
                .make_dir("made", mode=0o700)
                .make_symlink("app.py", "linked.py")
                .rename("data/x", "data/y")
                .run_cmd("touch gone kept")
                .remove("gone")
                .run_cmd(["git init -q repo", "cd repo", "git -c user.name=t -c user.email=t@t commit -q --allow-empty -m first"])
                .git_clone("file:///home/user/app/repo", "/home/user/app/clone", depth=1)
                .set_start_cmd("python3 -m http.server 8124", wait_for_port(8124))
            )
            lines = []
            info = Template.build(template, "py-one:first", cpu_count=1, memory_mb=512, on_build_logs=lambda entry: lines.append(entry.message))
        self.assertTrue(any("start command" in line for line in lines), lines)
        shown = output("py-one:first", "python3 linked.py; ls; cat data/y; stat -c %a made; echo $NAME; git -C clone log --oneline | wc -l; curl -s -o /dev/null -w '%{http_code}' localhost:8124")
        for word in ["app", "clone", "kept", "700", "value", "200"]:
            self.assertIn(word, shown.split())
        self.assertNotIn("gone", shown.split())
        Template.assign_tags("py-one:first", ["second"])
        self.assertEqual(sorted(tag.tag for tag in Template.get_tags("py-one")), ["first", "second"])
        Template.remove_tags("py-one", "first")
        self.assertTrue(Template.exists("py-one"))
        self.assertFalse(Template.exists("py-none"))
        self.assertTrue(info.build_id)

    def test_a_failing_step_is_told_with_its_words(self):
        with self.assertRaises(BuildException) as raised:
            Template.build(Template().from_template("base").run_cmd("echo sad; exit 4"), "py-failing")
        self.assertIn("exit code 4", str(raised.exception))

    def test_a_build_in_the_background_is_asked_for(self):
        async def run():
            template = AsyncTemplate().from_template("base").run_cmd("echo async > /tmp/async").skip_cache().run_cmd("true")
            info = await AsyncTemplate.build_in_background(template, "py-async")
            while True:
                status = await AsyncTemplate.get_build_status(info, logs_offset=0)
                if status.status.value not in ("building", "waiting"):
                    return status.status.value
                await asyncio.sleep(0.2)

        self.assertEqual(asyncio.run(run()), "ready")
        self.assertEqual(output("py-async", "cat /tmp/async"), "async\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
