"""What the benchmarks here share: the files of models, servers that run for a while, a plot."""

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


COLOURS = ("#0b6e4f", "#c8553d", "#3d5a80", "#6b46c1", "#b7791f", "#2b6cb0", "#97266d", "#4a5568")


def line_plot(title, x_name, lines, decimals=0):
    """An SVG of lines {name: [(x, y), ..]} with their names above; both axes begin at zero."""
    most_x = max(x for line in lines.values() for x, _ in line) or 1
    most_y = max(y for line in lines.values() for _, y in line) or 1
    width, height, left, top, bottom = 640, 360, 60, 60, 50

    def place(x, y):
        return (left + (width - left - 20) * x / most_x,
                height - bottom - (height - bottom - top) * y / most_y)

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20" font-size="14">{title}</text>',
           f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{x_name}</text>']
    for i in range(5):
        x, y = place(most_x * i / 4, most_y * i / 4)
        svg.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 20}" y2="{y:.1f}" '
                   f'stroke="#ddd"/><text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{most_y * i / 4:.{decimals}f}</text><text x="{x:.1f}" y="{height - 30}" '
                   f'text-anchor="middle">{most_x * i / 4:.{decimals}f}</text>')
    name_at = left
    for (name, line), colour in zip(lines.items(), COLOURS):
        where = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in line)
        svg.append(f'<polyline fill="none" stroke-width="2" stroke="{colour}" points="{where}"/>'
                   f'<text x="{name_at}" y="{top - 14}" fill="{colour}">{name}</text>')
        name_at += 16 + 6.5 * len(name)
    return "\n".join(svg) + "\n</svg>\n"
