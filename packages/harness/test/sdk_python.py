# The unmodified E2B Python SDK against a node: the operations of its users. Connection settings come from the environment.
import asyncio
import os
import time
import unittest

import httpx
from e2b import AsyncSandbox, AuthenticationException, CommandExitException, NotFoundException, Sandbox, SandboxQuery, TimeoutException

PATIENCE = 60


def until(read):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = read()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE} s")


class WithOneSandbox(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create("base", timeout=600, metadata={"sign": "a=b&c d/ä"}, envs={"GLOBAL": "g"})

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def test_a_command_gives_output_error_output_and_exit_code(self):
        result = self.sandbox.commands.run("python3 -c 'print(6*7)'; echo err >&2")
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("42\n", "err\n", 0))
        with self.assertRaises(CommandExitException) as raised:
            self.sandbox.commands.run("exit 7")
        self.assertEqual(raised.exception.exit_code, 7)

    def test_a_command_has_a_user_a_directory_and_variables(self):
        self.assertEqual(self.sandbox.commands.run("whoami; pwd; echo $GLOBAL").stdout, "user\n/home/user\ng\n")
        self.assertEqual(self.sandbox.commands.run("whoami; pwd; echo $OWN", user="root", cwd="/etc", envs={"OWN": "o"}).stdout, "root\n/etc\no\n")

    def test_a_background_command_takes_input_is_listed_connected_to_and_killed(self):
        handle = self.sandbox.commands.run("cat", background=True, stdin=True)
        self.assertIn(handle.pid, [process.pid for process in self.sandbox.commands.list()])
        self.sandbox.commands.send_stdin(handle.pid, "one\n")
        for stdout, _, _ in handle:
            self.assertEqual(stdout, "one\n")
            break
        self.assertEqual(self.sandbox.commands.connect(handle.pid).pid, handle.pid)
        self.assertTrue(self.sandbox.commands.kill(handle.pid))
        until(lambda: handle.pid not in [process.pid for process in self.sandbox.commands.list()])
        self.assertFalse(self.sandbox.commands.kill(handle.pid))

    def test_a_command_that_outlasts_its_timeout_is_ended(self):
        with self.assertRaises(TimeoutException):
            self.sandbox.commands.run("sleep 4343", timeout=0.5)
        until(lambda: self.sandbox.commands.run("pgrep -f 'sleep 434[3]' || true").stdout == "")

    def test_files_are_written_read_listed_moved_and_removed(self):
        data = os.urandom(1_000_000)
        self.sandbox.files.write("deep/er/blob", data)
        self.assertEqual(bytes(self.sandbox.files.read("deep/er/blob", format="bytes")), data)
        self.assertEqual(b"".join(self.sandbox.files.read("deep/er/blob", format="stream")), data)
        info = self.sandbox.files.get_info("deep/er/blob")
        self.assertEqual((info.size, info.owner, info.path), (1_000_000, "user", "/home/user/deep/er/blob"))
        self.sandbox.files.rename("deep/er/blob", "deep/blob")
        self.assertEqual(sorted(entry.name for entry in self.sandbox.files.list("deep")), ["blob", "er"])
        self.assertTrue(self.sandbox.files.make_dir("deep/new"))
        self.assertFalse(self.sandbox.files.make_dir("deep/new"))
        self.sandbox.files.remove("deep")
        self.assertFalse(self.sandbox.files.exists("deep"))
        with self.assertRaises(NotFoundException):
            self.sandbox.files.read("no/such/file")

    def test_a_watch_is_polled_for_events(self):
        self.sandbox.files.make_dir("watched")
        watch = self.sandbox.files.watch_dir("watched")
        self.sandbox.files.write("watched/file", "x")
        names = []
        until(lambda: names.extend(event.name for event in watch.get_new_events()) or "file" in names)
        watch.stop()

    def test_signed_urls_give_and_take_a_file(self):
        url = self.sandbox.upload_url("signed.txt", use_signature_expiration=120)
        self.assertEqual(httpx.post(url, files={"file": ("signed.txt", b"signed")}).status_code, 200)
        self.assertEqual(httpx.get(self.sandbox.download_url("signed.txt")).content, b"signed")

    def test_the_sandbox_is_described_listed_and_connected_to(self):
        self.assertTrue(self.sandbox.is_running())
        self.assertEqual(self.sandbox.get_info().metadata["sign"], "a=b&c d/ä")
        page = Sandbox.list(query=SandboxQuery(metadata={"sign": "a=b&c d/ä"})).next_items()
        self.assertEqual([each.sandbox_id for each in page], [self.sandbox.sandbox_id])
        again = Sandbox.connect(self.sandbox.sandbox_id)
        self.assertEqual(again.commands.run("echo again").stdout, "again\n")
        self.sandbox.set_timeout(900)

    def test_a_terminal_answers(self):
        async def terminal():
            sandbox = await AsyncSandbox.connect(self.sandbox.sandbox_id)
            seen = bytearray()
            from e2b import PtySize

            handle = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=lambda data: seen.extend(data))
            await sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
            result = await handle.wait()
            return result.exit_code, bytes(seen)

        code, seen = asyncio.run(terminal())
        self.assertEqual(code, 0)
        self.assertIn(b"24 80", seen)

    def test_the_async_sdk_works_alike(self):
        async def work():
            sandbox = await AsyncSandbox.create("base")
            try:
                result = await sandbox.commands.run("echo async")
                await sandbox.files.write("a", "b")
                events = []
                watch = await sandbox.files.watch_dir(".", on_event=events.append)
                await sandbox.files.write("c", "d")
                for _ in range(PATIENCE * 10):
                    if any(event.name == "c" for event in events):
                        break
                    await asyncio.sleep(0.1)
                await watch.stop()
                return result.stdout, await sandbox.files.read("a"), any(event.name == "c" for event in events)
            finally:
                await sandbox.kill()

        self.assertEqual(asyncio.run(work()), ("async\n", "b", True))


class Ends(unittest.TestCase):
    def test_a_killed_sandbox_is_not_found(self):
        sandbox = Sandbox.create("base")
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.kill())
        self.assertFalse(sandbox.is_running())
        with self.assertRaises(NotFoundException):
            Sandbox.connect(sandbox.sandbox_id)

    def test_a_wrong_api_key_is_an_authentication_error(self):
        with self.assertRaises(AuthenticationException):
            Sandbox.create("base", api_key="e2b_" + "0" * 40)


if __name__ == "__main__":
    unittest.main(verbosity=2)
