"""Concurrent requests are linearizable, on disk through deaths of the server and in memory: what many clients were told is
explained by one order of what they asked, and a watch that goes on across every restart tells exactly what is stored.

The server here is the test's own (CONTROLPLANE names the program), so that it can be killed. The seed of a run is in the
message of its failure, and LINEARIZABLE_SEED repeats its choices (not its timing).
"""

import json
import os
import random
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import uuid

import urllib3
from kubernetes import config

from harness import wait_for
from linearizability import Request, order

CLIENTS = 6
KEYS = ("a", "b", "c")
# Requests answered between two deaths of the server, and how often that many are.
ROUND = 400
ROUNDS = 8
MAPS = "/api/v1/namespaces/default/configmaps"


class Server:
    """A control plane of the test's own, on a port that stays the same when it is started anew."""

    def __init__(self, test, store):
        self.directory = tempfile.TemporaryDirectory()
        test.addCleanup(self.directory.cleanup)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.store = store
        self.log = open(os.path.join(self.directory.name, "log"), "ab")
        test.addCleanup(self.log.close)
        self.start()
        test.addCleanup(self.kill)

    def start(self):
        data = os.path.join(self.directory.name, "data")
        self.process = subprocess.Popen(
            [os.environ["CONTROLPLANE"], "--data-dir", data, "--store", self.store, "--bind-address", "127.0.0.1",
             "--secure-port", str(self.port), "--cluster-cidr", "100.64.0.0/10"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        kubeconfig = os.path.join(data, "admin.kubeconfig")
        wait_for("the kubeconfig", lambda: os.path.exists(kubeconfig))
        self.kubeconfig = kubeconfig
        wait_for("the server", self.is_ready)

    def is_ready(self):
        try:
            return self.connection().request("GET", "/readyz")[0] == 200
        except urllib3.exceptions.HTTPError:
            return False

    def connection(self):
        return Connection(self.kubeconfig)

    def kill(self):
        """kill -9; returns once the process is gone, after which nothing that was asked of it can take effect."""
        self.process.kill()
        self.process.wait()


class Connection:
    """Requests as they stand, each sent once and never again."""

    def __init__(self, kubeconfig):
        self.api = config.new_client_from_config(kubeconfig)
        self.pool = self.api.rest_client.pool_manager

    def request(self, method, path, body=None, kind="application/json"):
        answer = self.pool.request(
            method, self.api.configuration.host + path, body=None if body is None else json.dumps(body),
            headers={"Accept": "application/json", "Content-Type": kind}, retries=False, timeout=20)
        return answer.status, json.loads(answer.data) if answer.data[:1] == b"{" else {}


def stored(item):
    return item["metadata"]["uid"], int(item["metadata"]["resourceVersion"])


def found(item):
    return *stored(item), item["data"]["value"]


class Client(threading.Thread):
    """Asks one random thing after another, and writes down what it asked, when, and what it was told."""

    def __init__(self, run, seed):
        super().__init__(daemon=True)
        self.run_of = run
        self.random = random.Random(seed)
        self.requests = []
        self.seen = {key: (None, 1) for key in KEYS}
        self.failure = None

    def run(self):
        connection = self.run_of.server.connection()
        try:
            while not self.run_of.ended.is_set():
                self.run_of.alive.wait()
                self.ask(connection, self.choose())
        except BaseException as failure:  # told by the test's own thread
            self.failure = failure

    def ask(self, connection, what):
        began = time.monotonic()
        try:
            code, body = self.send(connection, what)
        except urllib3.exceptions.NewConnectionError:
            return  # never sent
        except urllib3.exceptions.HTTPError:
            self.requests.append((began, time.monotonic(), what, None))
            return
        answer = self.understand(what, code, body)
        if answer is not None:
            self.requests.append((began, time.monotonic(), what, answer))
            self.run_of.answered()

    def choose(self):
        key = self.random.choice(KEYS)
        value = uuid.UUID(int=self.random.getrandbits(128)).hex
        uid, version = self.seen[key]
        return self.random.choice((
            ("get", key), ("list",), ("create", key, value), ("update", key, version, value), ("update", key, version, value),
            ("patch", key, value), ("delete", key, self.random.choice((None, uid)))))

    @staticmethod
    def send(connection, what):
        path = MAPS if what[0] in ("list", "create") else f"{MAPS}/{what[1]}"
        if what[0] == "list":
            return connection.request("GET", path + "?labelSelector=of%3Dtest")
        if what[0] == "get":
            return connection.request("GET", path)
        if what[0] == "delete":
            options = {"preconditions": {"uid": what[2]}} if what[2] else {}
            return connection.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        if what[0] == "patch":
            return connection.request("PATCH", path, {"data": {"value": what[2]}}, "application/merge-patch+json")
        made = {"metadata": {"name": what[1], "labels": {"of": "test"}}, "data": {"value": what[-1]}}
        if what[0] == "create":
            return connection.request("POST", path, made)
        made["metadata"]["resourceVersion"] = str(what[2])
        return connection.request("PUT", path, made)

    def understand(self, what, code, body):
        """The answer in the checker's words; None for a refusal before anything was tried."""
        if code == 429:
            return None
        if what[0] == "list" and code == 200:
            items = {item["metadata"]["name"]: found(item) for item in body["items"]}
            return "listed", int(body["metadata"]["resourceVersion"]), items
        if what[0] != "list" and code == 404:
            self.seen[what[1]] = (None, 1)
            return ("absent",)
        if code == 409:
            return ("exists",) if what[0] == "create" else ("conflict",)
        if what[0] == "delete" and code == 200:
            return "deleted", body["details"]["uid"]
        if what[0] != "list" and code in (200, 201):
            self.seen[what[1]] = stored(body)
            return ("found", *found(body)) if what[0] == "get" else ("stored", *stored(body))
        raise AssertionError(f"{what}: {code} {body}")


class Watcher(threading.Thread):
    """One watch from a revision on; after a death of the server it goes on from the last event it has."""

    def __init__(self, run, version):
        super().__init__(daemon=True)
        self.run_of = run
        self.version = version
        self.state = {}
        self.told = []
        self.failure = None

    def run(self):
        try:
            while not self.run_of.watched.is_set():
                self.run_of.alive.wait()
                try:
                    self.follow(self.run_of.server.connection())
                except urllib3.exceptions.HTTPError:
                    pass
        except BaseException as failure:
            self.failure = failure

    def follow(self, connection):
        path = f"{MAPS}?watch=1&labelSelector=of%3Dtest&timeoutSeconds=5&resourceVersion={self.version}"
        answer = connection.pool.request(
            "GET", connection.api.configuration.host + path, retries=False, preload_content=False,
            timeout=urllib3.Timeout(connect=5, read=20))
        if answer.status != 200:
            raise AssertionError(f"watch from {self.version}: {answer.status} {answer.data}")
        rest = b""
        for piece in answer.stream(amt=None):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self.take(json.loads(line))

    def take(self, event):
        item = event["object"]
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            raise AssertionError(f"watch from {self.version}: {event}")
        name, version = item["metadata"]["name"], int(item["metadata"]["resourceVersion"])
        if version <= self.version:
            raise AssertionError(f"{version} told after {self.version}")
        if (event["type"] == "ADDED") == (name in self.state):
            raise AssertionError(f"{event['type']} of {name}, which is {self.state.get(name)}")
        self.version = version
        self.state.pop(name, None)
        if event["type"] != "DELETED":
            self.state[name] = found(item)
            self.told.append(found(item))


class Run:
    """Clients and a watcher against one server, with deaths of it in between."""

    def __init__(self, test, store, deaths):
        self.seed = int(os.environ.get("LINEARIZABLE_SEED") or random.SystemRandom().getrandbits(32))
        self.server = Server(test, store)
        self.alive, self.ended, self.watched = threading.Event(), threading.Event(), threading.Event()
        self.alive.set()
        self.count = threading.Semaphore(0)
        self.deaths = []
        connection = self.server.connection()
        wait_for("the namespace", lambda: connection.request("GET", "/api/v1/namespaces/default")[0] == 200)
        begin = int(connection.request("GET", MAPS)[1]["metadata"]["resourceVersion"])
        self.clients = [Client(self, f"{self.seed} {number}") for number in range(CLIENTS)]
        self.watcher = Watcher(self, begin)
        self.history = []
        for thread in (*self.clients, self.watcher):
            thread.start()
        for survived in range(ROUNDS):
            self.wait_for_answers()
            if survived < deaths:
                self.die()
        self.finish()

    def answered(self):
        self.count.release()

    def wait_for_answers(self):
        for _ in range(ROUND):
            while not self.count.acquire(timeout=1):
                self.check_threads()

    def check_threads(self):
        for thread in (*self.clients, self.watcher):
            if thread.failure:
                raise AssertionError(f"seed {self.seed}: {thread.failure}") from thread.failure

    def die(self):
        self.alive.clear()
        self.server.kill()
        self.deaths.append(time.monotonic())
        self.server.start()
        self.alive.set()

    def finish(self):
        self.ended.set()
        for one in self.clients:
            one.join()
        # What is stored in the end is asked last of all, and the watch has to come to the same.
        final = Client(self, "the end")
        final.ask(self.server.connection(), ("list",))
        self.stored = final.requests[-1][3][2]
        self.check_threads()
        wait_for(f"the watch to tell what is stored (seed {self.seed})", lambda: self.check_threads() or self.watcher.state == self.stored)
        self.watched.set()
        for one in (*self.clients, final):
            for began, ended, what, answer in one.requests:
                self.history.append(Request(began, self.end_of(began, ended) if answer is None else ended, what, answer))

    def end_of(self, began, failed):
        """When the server died that owed an answer: nothing takes effect after that."""
        before = [death for death in self.deaths if began <= death <= failed]
        return before[-1] if before else next(death for death in self.deaths if death > failed)


class Linearizable(unittest.TestCase):
    def check(self, store, deaths):
        run = Run(self, store, deaths)
        found_order = order(run.history)
        if found_order is None:
            with tempfile.NamedTemporaryFile("w", delete=False, suffix=".history") as kept:
                kept.writelines(f"{request}\n" for request in run.history)
            self.fail(f"seed {run.seed}: {len(run.history)} requests have no order: {kept.name}")
        # The run was one: everything was asked, was told in many ways, and every kind of refusal came.
        kinds = {(request.what[0], request.answer[0]) for request in run.history if request.answer}
        self.assertLessEqual(
            {("get", "found"), ("get", "absent"), ("list", "listed"), ("create", "stored"), ("create", "exists"), ("update", "stored"),
             ("update", "conflict"), ("patch", "stored"), ("patch", "absent"), ("delete", "deleted"), ("delete", "absent")}, kinds)
        # What was acknowledged the watch told, in the order of versions and once.
        told = [version for _, version, _ in run.watcher.told]
        self.assertEqual(told, sorted(set(told)), f"seed {run.seed}")
        values = {value for _, _, value in run.watcher.told}
        acknowledged = {request.what[-1] for request in run.history if request.answer and request.answer[0] == "stored"}
        self.assertEqual(acknowledged - values, set(), f"seed {run.seed}")

    def test_on_disk_through_deaths(self):
        self.check("disk", deaths=ROUNDS - 1)

    def test_in_memory(self):
        self.check("memory", deaths=0)


class TheCheckerItself(unittest.TestCase):
    """Histories that are right, and each kind of wrong."""

    def judge(self, *requests):
        return order([Request(*request) for request in requests]) is not None

    def test_one_after_another(self):
        made = (0, 1, ("create", "a", "x"), ("stored", "u", 5))
        self.assertTrue(self.judge(made, (2, 3, ("get", "a"), ("found", "u", 5, "x"))))
        self.assertFalse(self.judge(made, (2, 3, ("get", "a"), ("absent",))), "a read that is behind")
        self.assertTrue(self.judge(made, (0.5, 3, ("get", "a"), ("absent",))), "they were at work together")
        self.assertFalse(self.judge(made, (2, 3, ("create", "a", "y"), ("stored", "v", 6))), "made twice")
        self.assertFalse(self.judge(made, (2, 3, ("patch", "a", "y"), ("stored", "v", 6))), "another uid")
        self.assertFalse(self.judge(made, (2, 3, ("patch", "a", "y"), ("stored", "u", 5))), "the version stays")
        self.assertFalse(self.judge(made, (2, 3, ("delete", "a", "v"), ("deleted", "u"))), "a precondition passed over")
        self.assertTrue(self.judge(made, (2, 3, ("delete", "a", "v"), ("conflict",))))

    def test_an_update_that_was_lost(self):
        made = (0, 1, ("create", "a", "x"), ("stored", "u", 5))
        first = (2, 4, ("update", "a", 5, "y"), ("stored", "u", 6))
        self.assertTrue(self.judge(made, first, (2, 4, ("update", "a", 5, "z"), ("conflict",))))
        self.assertFalse(self.judge(made, first, (2, 4, ("update", "a", 5, "z"), ("stored", "u", 7))))

    def test_a_list_is_of_one_moment(self):
        history = [(0, 1, ("create", "a", "x"), ("stored", "u", 5)), (2, 3, ("create", "b", "y"), ("stored", "v", 6))]
        whole = {"a": ("u", 5, "x"), "b": ("v", 6, "y")}
        self.assertTrue(self.judge(*history, (0, 9, ("list",), ("listed", 6, whole))))
        self.assertTrue(self.judge(*history, (0, 9, ("list",), ("listed", 5, {"a": ("u", 5, "x")}))))
        self.assertFalse(self.judge(*history, (0, 9, ("list",), ("listed", 6, {"b": ("v", 6, "y")}))), "a torn one")
        self.assertFalse(self.judge(*history, (0, 9, ("list",), ("listed", 5, whole))), "older than what is in it")

    def test_an_acknowledged_write_that_a_death_has_undone(self):
        made = (0, 1, ("create", "a", "x"), ("stored", "u", 5))
        self.assertFalse(self.judge(made, (3, 4, ("get", "a"), ("absent",))))
        # Its answer was never told: both are right, but not one after the other.
        unknown = (0, 2, ("create", "a", "x"), None)
        there, gone = (3, 4, ("get", "a"), ("found", "u", 5, "x")), (3, 4, ("get", "a"), ("absent",))
        self.assertTrue(self.judge(unknown, there))
        self.assertTrue(self.judge(unknown, gone))
        self.assertFalse(self.judge(unknown, gone, (5, 6, ("get", "a"), ("found", "u", 5, "x"))), "it came after its server's death")
        self.assertTrue(self.judge(unknown, (3, 4, ("patch", "a", "y"), ("stored", "u", 7))), "seen by what was written over it")
        self.assertTrue(self.judge(unknown, (3, 4, ("update", "a", 1, "y"), ("conflict",))))


if __name__ == "__main__":
    unittest.main()
