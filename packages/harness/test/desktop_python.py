"""Every call of E2B's desktop SDK for Python, unmodified."""

import io
import time
import unittest

from e2b_desktop import Sandbox
from PIL import Image

BOUND_SECONDS = 60


def until(what, read):
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        try:
            if value := read():
                return value
        except Exception as error:  # A window that is not there yet ends the command with an error.
            last = error
        else:
            last = None
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {BOUND_SECONDS} s; {last!r}")


class Desktop(unittest.TestCase):
    def setUp(self):
        self.desktop = Sandbox.create(timeout=900)
        self.addCleanup(self.desktop.kill)

    def window(self, application):
        return until(f"a window of {application}", lambda: [each for each in self.desktop.get_application_windows(application) if each])[-1]

    def test_screenshot(self):
        picture = Image.open(io.BytesIO(self.desktop.screenshot()))
        self.assertEqual(picture.size, (1024, 768))
        self.assertGreater(len(set(picture.convert("RGB").resize((128, 96)).getdata())), 50)
        self.assertEqual(self.desktop.get_screen_size(), (1024, 768))
        stream = b"".join(self.desktop.screenshot(format="stream"))
        self.assertEqual(Image.open(io.BytesIO(stream)).size, (1024, 768))

    def test_mouse(self):
        desktop = self.desktop
        desktop.move_mouse(300, 400)
        self.assertEqual(desktop.get_cursor_position(), (300, 400))
        for click in (desktop.left_click, desktop.right_click, desktop.middle_click, desktop.double_click):
            click(300, 400)
            desktop.press("esc")
        desktop.scroll("up", 2)
        desktop.scroll("down")
        desktop.mouse_press("left")
        desktop.mouse_release("left")
        desktop.drag((200, 200), (260, 270))
        self.assertEqual(desktop.get_cursor_position(), (260, 270))
        desktop.wait(50)

    def test_application(self):
        desktop = self.desktop
        desktop.files.write("/home/user/note.txt", "")
        desktop.launch("org.xfce.mousepad", "/home/user/note.txt")
        window = self.window("mousepad")
        until("its title", lambda: "note.txt" in desktop.get_window_title(window))
        until("the focus", lambda: desktop.get_current_window_id() == window)
        desktop.write("written by 'Python', $HOME", delay_in_ms=5)
        desktop.press("enter")
        desktop.press(["ctrl", "s"])
        until("the file is saved", lambda: desktop.files.read("/home/user/note.txt") == "written by 'Python', $HOME\n")

    def test_open(self):
        self.desktop.files.write("/home/user/page.html", "<title>my page</title>")
        self.desktop.open("/home/user/page.html")
        window = self.window("chromium")
        until("the page's title", lambda: "my page" in self.desktop.get_window_title(window))

    def test_stream(self):
        stream = self.desktop.stream
        stream.start(require_auth=True)
        key = stream.get_auth_key()
        self.assertRegex(stream.get_url(auth_key=key), rf"^https://6080-{self.desktop.sandbox_id}\..*/vnc\.html\?.*password={key}$")
        with self.assertRaises(RuntimeError):
            stream.start()
        stream.stop()
        self.desktop.launch("org.xfce.mousepad")
        stream.start(window_id=self.window("mousepad"))
        stream.stop()

    def test_resolution(self):
        desktop = Sandbox.create(timeout=900, resolution=(800, 600), dpi=120)
        self.addCleanup(desktop.kill)
        self.assertEqual(desktop.get_screen_size(), (800, 600))


if __name__ == "__main__":
    unittest.main()
