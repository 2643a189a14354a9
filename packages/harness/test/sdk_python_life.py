# The unmodified E2B Python SDK against a node: pause, resume, snapshots, forks, metrics, lists, and the names of its errors.
import asyncio
import datetime
import time
import unittest

from e2b import (
    AsyncSandbox,
    AuthenticationException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotRunningException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)

PATIENCE = 120
MARK = str(time.time())


def until(read):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = read()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE} s")


def said(sandbox, command):
    return sandbox.commands.run(command).stdout.strip()


def pages(paginator):
    """Page by page, each as a list of ids."""
    found = []
    while paginator.has_next:
        found.append([each.sandbox_id for each in paginator.next_items()])
    return found


class Life(unittest.TestCase):
    def setUp(self):
        self.made = []

    def tearDown(self):
        for sandbox in self.made:
            sandbox.kill()

    def create(self, template="base", **options):
        sandbox = Sandbox.create(template, timeout=options.pop("timeout", 600), metadata={"mark": MARK, "test": self.id()}, **options)
        self.made.append(sandbox)
        return sandbox

    def test_a_pause_keeps_memory_and_files_and_pausing_again_is_false(self):
        sandbox = self.create()
        sandbox.files.write("note", "kept")
        handle = sandbox.commands.run("sleep 100000", background=True)
        boot = said(sandbox, "cat /proc/sys/kernel/random/boot_id")
        self.assertTrue(sandbox.pause())
        self.assertFalse(sandbox.pause())
        self.assertFalse(sandbox.is_running())
        self.assertEqual(Sandbox.get_info(sandbox.sandbox_id).state, SandboxState.PAUSED)
        again = Sandbox.connect(sandbox.sandbox_id, timeout=900)
        self.assertEqual(again.files.read("note"), "kept")
        self.assertEqual(said(again, "cat /proc/sys/kernel/random/boot_id"), boot)
        self.assertIn(handle.pid, [process.pid for process in again.commands.list()])
        # The object from before the pause still works.
        self.assertEqual(said(sandbox, "cat note"), "kept")
        self.assertGreater(again.get_info().end_at, datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=700))

    def test_a_pause_of_files_alone_boots_anew(self):
        for option in ({"keep_memory": False}, {"mode": "filesystem"}):
            sandbox = self.create()
            sandbox.files.write("note", "kept")
            sandbox.commands.run("sleep 100000", background=True)
            boot = said(sandbox, "cat /proc/sys/kernel/random/boot_id")
            self.assertTrue(sandbox.pause(**option))
            sandbox.connect()
            self.assertEqual(said(sandbox, "cat note; pgrep -c sleep || true"), "kept0")
            self.assertNotEqual(said(sandbox, "cat /proc/sys/kernel/random/boot_id"), boot)

    def test_what_is_asked_of_a_paused_sandbox_fails_by_the_right_name(self):
        sandbox = self.create()
        self.assertTrue(sandbox.pause(strict=True))
        with self.assertRaises(SandboxNotRunningException):
            sandbox.commands.run("true")
        with self.assertRaises(TimeoutException):
            sandbox.files.read("/etc/hostname")
        for call in (lambda: sandbox.set_timeout(600), sandbox.create_snapshot, sandbox.fork):
            with self.assertRaises(SandboxException) as raised:
                call()
            self.assertEqual(raised.exception.status_code, 409)
            self.assertIn("paused", str(raised.exception))
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.kill())
        for call in (sandbox.pause, sandbox.connect, sandbox.get_info, lambda: sandbox.set_timeout(600), sandbox.create_snapshot, sandbox.fork, sandbox.get_metrics):
            with self.assertRaises(NotFoundException):
                call()
        with self.assertRaises(AuthenticationException):
            Sandbox.pause(sandbox.sandbox_id, api_key="e2b_" + "0" * 40)

    def test_a_timeout_pauses_and_traffic_resumes(self):
        sandbox = self.create(lifecycle={"on_timeout": "pause", "auto_resume": True})
        sandbox.files.write("note", "kept")
        info = sandbox.get_info()
        self.assertEqual((info.lifecycle["on_timeout"], info.lifecycle["auto_resume"]), ("pause", True))
        sandbox.set_timeout(1)
        until(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        self.assertEqual(said(sandbox, "cat note"), "kept")
        self.assertEqual(sandbox.get_info().state, SandboxState.RUNNING)

    def test_a_timeout_that_pauses_files_alone_is_resumed_by_connect_only(self):
        sandbox = self.create(lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
        sandbox.files.write("note", "kept")
        sandbox.set_timeout(1)
        until(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        with self.assertRaises(SandboxNotRunningException):
            sandbox.commands.run("true")
        sandbox.connect()
        self.assertEqual(said(sandbox, "cat note"), "kept")

    def test_snapshots_are_made_listed_started_and_deleted(self):
        source = self.create()
        source.files.write("note", "first")
        snapshots = [source.create_snapshot(name="py-life"), source.create_snapshot(), source.create_snapshot(mode="filesystem")]
        source.files.write("note", "second")
        self.assertEqual(snapshots[0].names, ["py-life:default"])
        listed = []
        paginator = source.list_snapshots(limit=2)
        while paginator.has_next:
            page = paginator.next_items()
            self.assertLessEqual(len(page), 2)
            listed += [each.snapshot_id for each in page]
        self.assertEqual(sorted(listed), sorted(each.snapshot_id for each in snapshots))
        self.assertEqual([each.snapshot_id for each in Sandbox.list_snapshots(name="py-life").next_items()], [snapshots[0].snapshot_id])
        for template in ("py-life", snapshots[2].snapshot_id):
            copy = self.create(template)
            self.assertEqual((copy.files.read("note"), source.files.read("note")), ("first", "second"))
        for each in snapshots:
            self.assertTrue(Sandbox.delete_snapshot(each.snapshot_id))
            self.assertFalse(Sandbox.delete_snapshot(each.snapshot_id))
        with self.assertRaises(SandboxException):
            self.create("py-life")

    def test_forks_go_on_from_their_source_under_names_of_their_own(self):
        source = self.create()
        source.files.write("note", "past")
        forks = source.fork(count=3, timeout=300)
        self.made += [fork for fork in forks if not isinstance(fork, Exception)]
        self.assertEqual([type(fork) for fork in forks], [Sandbox] * 3)
        self.assertEqual(len({source.sandbox_id, *(fork.sandbox_id for fork in forks)}), 4)
        for fork in forks:
            self.assertEqual(said(fork, "cat note; hostname"), f"past{fork.sandbox_id}")
            fork.files.write("note", fork.sandbox_id)
        self.assertEqual(source.files.read("note"), "past")
        self.assertEqual([fork.files.read("note") for fork in forks], [fork.sandbox_id for fork in forks])

    def test_figures_are_given(self):
        sandbox = self.create()
        sandbox.commands.run("head -c 20000000 /dev/zero > some")
        metric = until(lambda: [each for each in sandbox.get_metrics() if each.mem_used > 0])[-1]
        info = sandbox.get_info()
        self.assertEqual((metric.cpu_count, metric.mem_total), (info.cpu_count, info.memory_mb * 2**20))
        self.assertGreater(metric.disk_total, metric.disk_used)
        past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2)
        self.assertEqual(sandbox.get_metrics(start=past, end=past + datetime.timedelta(hours=1)), [])

    def test_lists_are_filtered_by_state_and_paged(self):
        sandboxes = [self.create() for _ in range(3)]
        for sandbox in sandboxes[:2]:
            sandbox.pause()
        ids = [sandbox.sandbox_id for sandbox in sandboxes]
        mine = {"test": self.id(), "mark": MARK}
        self.assertEqual(pages(Sandbox.list(SandboxQuery(metadata=mine), limit=2, order="asc")), [ids[:2], ids[2:]])
        self.assertEqual(pages(Sandbox.list(SandboxQuery(metadata=mine, state=[SandboxState.RUNNING]))), [ids[2:]])
        self.assertEqual(pages(Sandbox.list(SandboxQuery(metadata=mine, state=[SandboxState.PAUSED]), limit=1)), [[ids[1]], [ids[0]]])
        both = SandboxQuery(metadata=mine, state=[SandboxState.PAUSED, SandboxState.RUNNING])
        self.assertEqual(pages(Sandbox.list(both)), [ids[::-1]])
        self.assertEqual(pages(Sandbox.list(SandboxQuery(metadata=mine, started_after=sandboxes[1].get_info().started_at), order="asc")), [ids[1:]])
        self.assertEqual(pages(Sandbox.list(SandboxQuery(metadata={"mark": "nobody's"}))), [[]])

    def test_the_async_sdk_does_all_of_it(self):
        async def work():
            sandbox = await AsyncSandbox.create("base", timeout=600)
            try:
                await sandbox.files.write("note", "kept")
                paused = [await sandbox.pause(), await sandbox.pause()]
                with self.assertRaises(SandboxNotRunningException):
                    await sandbox.commands.run("true")
                await sandbox.connect(timeout=600)
                snapshot = await sandbox.create_snapshot()
                forks = await sandbox.fork(count=2)
                copies = [*forks, await AsyncSandbox.create(snapshot.snapshot_id)]
                notes = await asyncio.gather(*(copy.files.read("note") for copy in copies))
                await asyncio.gather(*(copy.kill() for copy in copies))
                metrics = await sandbox.get_metrics()
                return paused, notes, isinstance(metrics, list), await AsyncSandbox.delete_snapshot(snapshot.snapshot_id)
            finally:
                await sandbox.kill()

        self.assertEqual(asyncio.run(work()), ([True, False], ["kept"] * 3, True, True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
