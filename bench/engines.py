"""What the benchmarks here share: the files of models, and servers that run for a while."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_SECONDS_MAX = 300


def model_path(kvikk, name):
    """The file of a catalog name, or the name where it is a file."""
    if os.path.exists(name):
        return name
    models = json.loads(subprocess.run([kvikk, "models", "--json"], check=True,
                                       capture_output=True, text=True).stdout)
    for entry in models:
        if entry["name"] == name and entry.get("path"):
            return entry["path"]
    sys.exit(f"model '{name}' is not here: run 'kvikk pull {name}' first")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server of its own, with a port of its own; stopped at the end of a `with`."""

    def __init__(self, command):
        port = str(free_port())
        self.command = command + ["--host", "127.0.0.1", "--port", port]
        self.url = f"http://127.0.0.1:{port}"

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.time() + START_SECONDS_MAX
        while time.time() < end:
            if self.process.poll() is not None:
                sys.exit(f"ended with {self.process.returncode}: {shlex.join(self.command)}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        self.__exit__()
        sys.exit(f"not ready after {START_SECONDS_MAX} s: {shlex.join(self.command)}")

    def __exit__(self, *unused):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return json.load(answer)
