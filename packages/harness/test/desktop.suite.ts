// Every call of E2B's desktop SDK for JavaScript against a real sandbox of the template desktop, judged by what its programs saw.
import assert from "node:assert/strict";
import { get } from "node:http";
import { test } from "node:test";
import { Sandbox } from "@e2b/desktop";
import { WebSocket } from "ws";
import type { TestNode } from "../src/node.ts";
import { connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

const NOVNC_PORT = 6080;

/** The width and height in the header of a PNG. */
function sizeOf(png: Uint8Array): [number, number] {
  const bytes = Buffer.from(png);
  assert.equal(bytes.toString("latin1", 1, 4), "PNG");
  return [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];
}

async function windowOf(desktop: Sandbox, application: string): Promise<string> {
  return until(`a window of ${application}`, async () => {
    const windows = await desktop.getApplicationWindows(application).catch(() => []);
    return windows.find((id) => id !== "");
  });
}

async function titled(desktop: Sandbox, window: string, title: RegExp): Promise<void> {
  await until(`the title ${title}`, async () => {
    const now = await desktop.getWindowTitle(window).catch(() => "");
    return title.test(now) ? true : undefined;
  });
}

export function desktopTests(node: () => TestNode): void {
  async function onDesktop(
    work: (desktop: Sandbox) => Promise<void>,
    options: { resolution?: [number, number]; dpi?: number; display?: string } = {},
  ): Promise<void> {
    const desktop = await Sandbox.create("desktop", { ...connectionTo(node()), timeoutMs: 900_000, ...options });
    try {
      await work(desktop);
    } finally {
      await desktop.kill();
    }
  }

  void test("the first screenshot shows a whole desktop, as bytes, as a blob and as a stream", () =>
    onDesktop(async (desktop) => {
      const picture = await desktop.screenshot();
      assert.deepEqual(sizeOf(picture), [1024, 768]);
      // The panel, the dock and the icons; an empty screen is a tenth of it.
      assert.ok(picture.length > 20_000, `${picture.length} bytes`);
      assert.ok((await desktop.screenshot("blob")).size > 20_000);
      assert.ok((await new Response(await desktop.screenshot("stream")).arrayBuffer()).byteLength > 20_000);
      assert.deepEqual(await desktop.getScreenSize(), { width: 1024, height: 768 });
      assert.deepEqual((await desktop.commands.run("ls /tmp/screenshot-*").catch(({ stdout }) => ({ stdout }))).stdout, "");
    }));

  void test("the mouse moves, clicks with each button, scrolls and drags, also where it already is", () =>
    onDesktop(async (desktop) => {
      const xev = await desktop.commands.run("xev -geometry 400x300+300+250 -event mouse -event button > /tmp/xev.log", { background: true, timeoutMs: 0 });
      await xev.disconnect();
      await until("its window", async () => {
        const { stdout } = await desktop.commands.run("xdotool search --onlyvisible --name 'Event Tester'").catch(() => ({ stdout: "" }));
        return stdout.trim() === "" ? undefined : true;
      });
      await desktop.moveMouse(500, 400);
      assert.deepEqual(await desktop.getCursorPosition(), { x: 500, y: 400 });
      await desktop.leftClick(500, 400);
      await desktop.rightClick(500, 400);
      await desktop.middleClick(510, 410);
      await desktop.doubleClick(510, 410);
      await desktop.scroll("up", 2);
      await desktop.scroll("down", 3);
      await desktop.drag([480, 380], [530, 430]);
      const presses = await until("all events", async () => {
        const log = await desktop.files.read("/tmp/xev.log");
        const buttons = [...log.matchAll(/ButtonPress event[\s\S]*?button (\d)/g)].map(([, button]) => button).join("");
        return buttons.length >= 11 ? buttons : undefined;
      });
      assert.equal(presses, "13211445551");
      assert.deepEqual(await desktop.getCursorPosition(), { x: 530, y: 430 });
      await desktop.mousePress("left");
      await desktop.mouseRelease("left");
      await desktop.wait(100);
    }));

  void test("an application is launched, and what is written and pressed reaches its window", () =>
    onDesktop(async (desktop) => {
      await desktop.files.write("/home/user/note.txt", "");
      await desktop.launch("org.xfce.mousepad", "/home/user/note.txt");
      const window = await windowOf(desktop, "mousepad");
      await titled(desktop, window, /note\.txt.* - Mousepad/);
      await until("it has the focus", async () => ((await desktop.getCurrentWindowId()) === window ? true : undefined));
      const text = "Hello, 'quotes', $HOME and 100%; ".repeat(2).trim();
      await desktop.write(text, { chunkSize: 20, delayInMs: 5 });
      await desktop.press("enter");
      await desktop.press(["ctrl", "s"]);
      await until("the file is saved", async () => ((await desktop.files.read("/home/user/note.txt")).trim() === text ? true : undefined));
    }));

  void test("a page and a file open in Chromium, which needs no flags; after it is killed the desktop goes on, and it opens again", () =>
    onDesktop(async (desktop) => {
      await desktop.files.write("/home/user/page.html", "<title>my page</title><h1>hello</h1>");
      const server = await desktop.commands.run("python3 -m http.server 8000", { background: true, timeoutMs: 0 });
      await server.disconnect();
      await desktop.open("http://localhost:8000/page.html");
      await titled(desktop, await windowOf(desktop, "chromium"), /my page - Chromium/);
      await desktop.commands.run("pkill -KILL -x chromium");
      await until("its window is gone", async () => ((await desktop.getApplicationWindows("chromium").catch(() => [])).length === 0 ? true : undefined));
      await desktop.commands.run("pgrep -x xfwm4 && pgrep -x xfce4-panel");
      assert.ok((await desktop.screenshot()).length > 20_000);
      await desktop.open("/home/user/page.html");
      await titled(desktop, await windowOf(desktop, "chromium"), /Chromium/);
      await desktop.commands.run("pkill -KILL -x chromium");
      await desktop.launch("google-chrome", "http://localhost:8000/page.html");
      await windowOf(desktop, "chromium");
    }));

  void test("the stream shows noVNC's page and speaks VNC through the proxy, with a key if one is required", () =>
    onDesktop(async (desktop) => {
      const Host = `${desktop.getHost(NOVNC_PORT)}`;
      for (const requireAuth of [false, true]) {
        await desktop.stream.start({ requireAuth });
        assert.match(desktop.stream.getUrl({ viewOnly: true }), /^https:\/\/6080-\w+\..*\/vnc\.html\?autoconnect=true&view_only=true&resize=scale$/);
        if (requireAuth) assert.match(desktop.stream.getAuthKey(), /^\w{16}$/);
        assert.match(await page(node(), Host, "/vnc.html?autoconnect=true"), /<title>noVNC<\/title>/);
        assert.equal(await securityType(node(), Host), requireAuth ? "VNC authentication" : "none");
        await assert.rejects(desktop.stream.start(), /already running/);
        await desktop.stream.stop();
      }
    }));

  void test("one window alone is streamed", () =>
    onDesktop(async (desktop) => {
      await desktop.launch("org.xfce.mousepad");
      await desktop.stream.start({ windowId: await windowOf(desktop, "mousepad") });
      assert.equal(await securityType(node(), desktop.getHost(NOVNC_PORT)), "none");
    }));

  void test("another resolution, another density and another display replace the desktop that already runs", async () => {
    await onDesktop(
      async (desktop) => {
        assert.deepEqual(await desktop.getScreenSize(), { width: 1280, height: 800 });
        assert.deepEqual(sizeOf(await desktop.screenshot()), [1280, 800]);
        assert.match((await desktop.commands.run("xdpyinfo")).stdout, /resolution: +120x120/);
        assert.equal((await desktop.commands.run("pgrep -xc Xvfb; pgrep -xc xfwm4")).stdout, "1\n1\n");
      },
      { resolution: [1280, 800], dpi: 120 },
    );
    await onDesktop(
      async (desktop) => {
        assert.deepEqual(sizeOf(await desktop.screenshot()), [1024, 768]);
        assert.equal((await desktop.commands.run("echo $DISPLAY; pgrep -xc Xvfb")).stdout, ":1\n1\n");
      },
      { display: ":1" },
    );
  });

  void test("programs may start X servers of their own beside the desktop", () =>
    onDesktop(async (desktop) => {
      const own = await desktop.commands.run("Xvfb :7 -screen 0 640x480x24", { background: true, timeoutMs: 0 });
      await own.disconnect();
      await until("it runs", async () => ((await desktop.commands.run("xdpyinfo -display :7").catch(() => undefined)) === undefined ? undefined : true));
      assert.deepEqual(await desktop.getScreenSize(), { width: 1024, height: 768 });
    }));

  void test("a paused desktop continues with its windows", () =>
    onDesktop(async (desktop) => {
      await desktop.launch("org.xfce.mousepad");
      const window = await windowOf(desktop, "mousepad");
      await desktop.pause();
      const again = await Sandbox.connect(desktop.sandboxId, connectionTo(node()));
      assert.match((await again.commands.run(`xdotool getwindowname ${window}`)).stdout, /Mousepad/);
    }));
}

function page(node: TestNode, Host: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get(`${node.url}${path}`, { headers: { Host } }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
      response.once("end", () => resolve(text));
    }).once("error", reject);
  });
}

/** Speaks the first messages of VNC, in which the server names the ways to authenticate. */
async function securityType(node: TestNode, Host: string): Promise<"none" | "VNC authentication"> {
  const socket = new WebSocket(`${node.url.replace("http", "ws")}/websockify`, ["binary"], { headers: { Host } });
  let received = Buffer.alloc(0);
  let failed: Error | undefined;
  socket.on("message", (data: Buffer) => (received = Buffer.concat([received, data])));
  socket.on("error", (error) => (failed = error));
  const bytes = (count: number) =>
    until(`${count} bytes of VNC`, () => {
      if (failed !== undefined) throw failed;
      return received.length >= count ? received : undefined;
    });
  try {
    assert.equal((await bytes(12)).toString("latin1", 0, 12), "RFB 003.008\n");
    // websockify accepts binary messages alone.
    socket.send(Buffer.from("RFB 003.008\n"));
    const types = await bytes(14);
    assert.equal(types[12], 1, "one type is offered");
    return types[13] === 1 ? "none" : "VNC authentication";
  } finally {
    socket.close();
  }
}
