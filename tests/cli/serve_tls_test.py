"""kvikk serve over TLS: the same answers, clients that go away, certificates that cannot be."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import unittest

from program import END_TOKENS_BANNED
from serve_test import CHAT, COMPLETE, SECONDS_MAX, ServeTest, chat, request_bytes


def make_certificate(folder, name, password=()):
    """A certificate for localhost that it signed itself, and its key."""
    cert, key = (os.path.join(folder, f"{name}.{kind}") for kind in ("crt", "key"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-keyout", key, "-out", cert,
               "-days", "2", "-subj", "/CN=localhost", "-addext",
               "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, *(password or ("-nodes",))], check=True, capture_output=True)
    return cert, key


@unittest.skipUnless(shutil.which("openssl"), "makes certificates with openssl")
class Tls(ServeTest):
    @classmethod
    def setUpClass(cls):
        cls.cert = cls.context_of_client = None
        super().setUpClass()

    def serve(self, *options, model=None):
        cls = type(self)
        if cls.cert is None:
            cls.cert, cls.cert_key = make_certificate(self.folder, "server")
            cls.context_of_client = ssl.create_default_context(cafile=cls.cert)
        return super().serve("--tls-cert", self.cert, "--tls-key", self.cert_key, *options,
                             model=model)

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=SECONDS_MAX,
                                           context=self.context_of_client)

    def ask(self, connection, body, path=CHAT):
        connection.request("POST", path, json.dumps(body))
        return connection.getresponse()

    def figure(self, name):
        connection = self.connect()
        connection.request("GET", "/metrics")
        for line in connection.getresponse().read().decode().split("\n"):
            if line.startswith(name):
                connection.close()
                return float(line.split(" ")[-1])
        self.fail(name)

    def test_bench_serve_measures_it(self):
        def bench(host, *options):
            return self.kvikk("bench", "serve", "--url", f"https://{host}:{self.port}",
                              "--requests", 4, "--clients", 2, "--prompt", 20, "--shared", 0,
                              "--answer", 4, "--json", *options)
        hosts = ["127.0.0.1"]
        with contextlib.suppress(OSError):  # a machine need not know the name
            socket.getaddrinfo("localhost", self.port)
            hosts.append("localhost")
        for host in hosts:
            result = bench(host, "--ca-file", self.cert)
            self.assertEqual(result.code, 0, result.error)
            self.assertEqual(result.json["results"][0]["failed"], 0)
        self.assert_failed(bench("127.0.0.1"), 1, f"127.0.0.1:{self.port}", "certificate")
        other, _ = make_certificate(self.folder, "other")
        self.assert_failed(bench("127.0.0.1", "--ca-file", other), 1, "certificate")
        self.assert_failed(bench("127.0.0.1", "--ca-file", self.path("no.pem", "no")), 2,
                           "--ca-file", "no.pem")

    def test_answers_on_a_connection_that_is_kept(self):
        connection = self.connect()
        texts = set()
        for _ in range(3):
            response = self.ask(connection, chat())
            self.assertEqual(response.status, 200)
            texts.add(json.loads(response.read())["choices"][0]["message"]["content"])
        self.assertEqual(len(texts), 1)
        response = self.ask(connection, chat(stream=True))
        events = [line[6:] for line in response.read().decode().split("\n")
                  if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual("".join(json.loads(e)["choices"][0]["delta"].get("content", "")
                                 for e in events[:-1]), texts.pop())
        connection.close()

    def tls_socket(self):
        plain = socket.create_connection(("127.0.0.1", self.port), SECONDS_MAX)
        connection = self.context_of_client.wrap_socket(plain, server_hostname="localhost")
        self.addCleanup(connection.close)
        return connection

    def test_pipelined_requests(self):
        connection = self.tls_socket()
        body = {"prompt": "a", "max_tokens": 200, "temperature": 0,
                "logit_bias": END_TOKENS_BANNED}
        last = request_bytes({"prompt": "b", "max_tokens": 1}, COMPLETE,
                             extra="Connection: close\r\n")
        connection.sendall(request_bytes(body, COMPLETE) + last[:40])
        connection.sendall(last[40:])
        data = b""
        while part := connection.recv(65536):  # ends cleanly: what is cut off would raise
            data += part
        self.assertEqual(data.count(b"HTTP/1.1 200 OK"), 2)

    def test_permission_to_send_and_large_bodies(self):
        connection = self.tls_socket()
        head, body = request_bytes({"content": "x" * 300000}, "/tokenize",
                                   extra="Expect: 100-continue\r\n").split(b"\r\n\r\n", 1)
        connection.sendall(head + b"\r\n\r\n")
        self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 100"))
        connection.sendall(body)
        self.assertIn(b"200 OK", connection.recv(1000))

    def test_many_at_once_as_alone(self):
        bodies = [{"prompt": f"Client {i}", "max_tokens": 15, "temperature": 1, "seed": i}
                  for i in range(12)]

        def text(body):
            connection = self.connect()
            answer = json.loads(self.ask(connection, body, COMPLETE).read())
            connection.close()
            return answer["choices"][0]["text"]

        alone = [text(b) for b in bodies]
        together = [None] * len(bodies)
        threads = [threading.Thread(target=lambda i=i: together.__setitem__(i, text(bodies[i])))
                   for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_clients_that_go_away(self):
        body = {"prompt": "a", "max_tokens": 4000, "stream": True, "logit_bias": END_TOKENS_BANNED}
        for polite in (True, False):
            before = self.figure('kvikk:requests_total{model_name="served",status="499"}') \
                if not polite else 0
            connection = self.tls_socket()
            connection.sendall(request_bytes(body, COMPLETE))
            self.assertIn(b"200 OK", connection.recv(1000))
            if polite:
                connection.settimeout(1)
                try:
                    connection.unwrap()  # says that it goes
                except (OSError, ValueError):
                    pass  # the server has no time for courtesies
            connection.close()
            self.wait_until(lambda: self.figure("vllm:num_requests_running"), 0)
            self.wait_until(lambda: self.figure(
                'kvikk:requests_total{model_name="served",status="499"}'), before + 1)

    def test_no_plain_text_and_no_old_protocols(self):
        plain = socket.create_connection(("127.0.0.1", self.port), SECONDS_MAX)
        self.addCleanup(plain.close)
        plain.sendall(request_bytes(b"", "/health", "GET"))
        self.assertNotIn(b"HTTP/1.1", self.read_all(plain))
        silent = socket.create_connection(("127.0.0.1", self.port), SECONDS_MAX)
        self.addCleanup(silent.close)  # holds nobody up
        with self.assertRaises(ssl.SSLError):  # nobody vouches for the certificate
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=SECONDS_MAX,
                                        context=ssl.create_default_context()).request("GET", "/")
        connection = self.connect()
        connection.request("GET", "/health")
        self.assertEqual(connection.getresponse().status, 200)
        self.assertIn(connection.sock.version(), ("TLSv1.2", "TLSv1.3"))
        connection.close()

    def test_files_that_cannot_be(self):
        other_cert, other_key = make_certificate(self.folder, "other")
        _, locked = make_certificate(self.folder, "locked", ("-passout", "pass:secret"))
        noise = self.path("noise.pem", "no certificate")
        for cert, key, word in ((self.cert, other_key, "other.key"),
                                (noise, other_key, "noise.pem"),
                                (other_cert, locked, "locked.key"),
                                (other_cert, noise, "noise.pem")):
            result = self.kvikk("serve", "-m", self.model, "--tls-cert", cert, "--tls-key", key)
            self.assert_failed(result, 2, word)
        result = self.kvikk("serve", "-m", self.model, "--tls-cert", self.cert)
        self.assert_failed(result, 2, "--tls-key")


if __name__ == "__main__":
    unittest.main()
