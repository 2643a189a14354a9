# Volumes with the unmodified E2B Python SDK, sync and async. Connection settings come from the environment.
import asyncio
import unittest

from e2b import AsyncSandbox, AsyncVolume, Sandbox, Volume
from e2b.exceptions import NotFoundException


class Volumes(unittest.TestCase):
    def test_content_and_a_sandbox(self):
        volume = Volume.create("py-sync")
        self.assertIn("py-sync", [each.name for each in Volume.list()])
        volume.make_dir("/made", mode=0o755)
        written = volume.write_file("/made/text", "hello", uid=1000, gid=1000, mode=0o640)
        self.assertEqual((written.path, written.mode), ("/made/text", 0o640))
        volume.write_file("/deep/er/bytes", b"\x00\xff" * 1000, force=True)
        self.assertEqual(volume.read_file("/made/text"), "hello")
        self.assertEqual(bytes(volume.read_file("/deep/er/bytes", format="bytes")), b"\x00\xff" * 1000)
        self.assertEqual([each.name for each in volume.list("/")], ["deep", "made"])
        self.assertEqual(volume.update_metadata("/made/text", mode=0o600).mode, 0o600)
        self.assertTrue(volume.exists("/made/text"))
        self.assertFalse(volume.exists("/made/none"))
        with Sandbox.create("base", volume_mounts={"/data": volume}) as sandbox:
            self.assertEqual(sandbox.commands.run("cat /data/made/text").stdout, "hello")
        volume.remove("/made")
        with self.assertRaises(NotFoundException):
            volume.read_file("/made/text")
        again = Volume.connect(volume.volume_id)
        self.assertEqual([each.name for each in again.list("/")], ["deep"])
        self.assertTrue(Volume.destroy(volume.volume_id))
        self.assertFalse(Volume.destroy(volume.volume_id))

    def test_the_same_async(self):
        async def run():
            volume = await AsyncVolume.create("py-async")
            await volume.write_file("/text", "async")
            sandbox = await AsyncSandbox.create("base", volume_mounts={"/data": "py-async"})
            self.assertEqual((await sandbox.commands.run("cat /data/text")).stdout, "async")
            await sandbox.kill()
            self.assertTrue(await AsyncVolume.destroy(volume.volume_id))

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
