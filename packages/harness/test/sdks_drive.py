# Drives whichever release of the E2B Python SDK is on PYTHONPATH: what its users do, a word for each; prints one line of JSON.
import json
import os
import socket
import sys

DOMAIN = os.environ.get("E2B_DOMAIN", "")
AUTHORITY = os.environ.get("SVC_TEST_CA", "")

if DOMAIN:
    # Names below the domain resolve to this machine and its certificate is trusted, as DNS and a public authority would do elsewhere.
    import certifi

    certifi.where = lambda: AUTHORITY
    resolve = socket.getaddrinfo
    name = DOMAIN.split(":")[0]

    def local(host, *rest, **options):
        asked = host.decode() if isinstance(host, bytes) else host
        return resolve("127.0.0.1" if asked and asked.endswith(name) else host, *rest, **options)

    socket.getaddrinfo = local

from e2b import Sandbox  # noqa: E402


class Absent(Exception):
    """This release has no such call."""


def verb(owner, *names):
    for each in names:
        if hasattr(owner, each):
            return getattr(owner, each)
    raise Absent


def listed():
    found = Sandbox.list()
    if isinstance(found, list):
        return [each.sandbox_id for each in found]
    ids = []
    while found.has_next:
        ids += [each.sandbox_id for each in found.next_items()]
    return ids


def same(sandbox_id, others):
    """Compares ids; releases before 1.5 append the client's id to a sandbox's id."""
    return any(each.split("-")[0] == sandbox_id.split("-")[0] for each in others)


class Drive:
    def create(self):
        make = getattr(Sandbox, "create", None) or Sandbox
        self.sandbox = make("base", timeout=300, metadata={"by": "drive"})

    def commands(self):
        ran = self.sandbox.commands.run("echo $((6*7)); whoami")
        assert ran.stdout == "42\nuser\n", ran.stdout
        handle = self.sandbox.commands.run("sleep 1000", background=True)
        assert any(each.pid == handle.pid for each in self.sandbox.commands.list())
        assert handle.kill()

    def files(self):
        self.sandbox.files.write("note", "kept")
        assert self.sandbox.files.read("note") == "kept"
        assert "note" in [each.name for each in self.sandbox.files.list("/home/user")]
        assert self.sandbox.files.exists("note")

    def list(self):
        assert same(self.sandbox.sandbox_id, listed())

    def is_running(self):
        assert self.sandbox.is_running()

    def connect(self):
        again = Sandbox.connect(self.sandbox.sandbox_id)
        assert again.files.read("note") == "kept"
        assert again.commands.run("cat note").stdout == "kept"

    def pause(self):
        self.paused = False
        verb(self.sandbox, "pause", "beta_pause")()
        self.paused = True

    def resume(self):
        if not self.paused:
            raise Absent
        sandbox_id = self.sandbox.sandbox_id
        try:
            again = Sandbox.resume(sandbox_id, timeout=300)
        except AttributeError:
            again = Sandbox.connect(sandbox_id, timeout=300)
        assert again.commands.run("cat note").stdout == "kept"

    def fork(self):
        forks = verb(self.sandbox, "fork")(count=1)
        fork = forks[0] if isinstance(forks, (list, tuple)) else forks
        fork = getattr(fork, "sandbox", None) or fork
        assert fork.commands.run("cat note").stdout == "kept"
        fork.kill()

    def template(self):
        try:
            from e2b import Template
        except ImportError:
            raise Absent
        name = os.environ["SVC_TEST_NAME"]
        template = Template().from_template("base").run_cmd("echo built > /home/user/built")
        try:
            Template.build(template, name)
        except TypeError:
            Template.build(template, alias=name)
        made = (getattr(Sandbox, "create", None) or Sandbox)(name, timeout=120)
        assert made.commands.run("cat built").stdout == "built\n"
        made.kill()

    def kill(self):
        # Releases before 2.0 return nothing.
        assert self.sandbox.kill() is not False
        assert not self.sandbox.is_running()


def main():
    drive = Drive()
    said = {}
    for step in sys.argv[1:]:
        try:
            getattr(drive, step)()
            said[step] = "yes"
        except Absent:
            said[step] = "absent"
        except BaseException as error:  # noqa: BLE001
            said[step] = f"{type(error).__name__}: {error}"[:400]
            if step == "create":
                break
    print(json.dumps(said))


main()
