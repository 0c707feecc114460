"""Histories of concurrent requests against a server that is killed in between: who asks what, what they were told, and a watch
beside them. Owns the server, the clients and the watch of a run; judges nothing (`linearizability`)."""

import dataclasses
import json
import os
import random
import socket
import subprocess
import tempfile
import threading
import time
import uuid

import urllib3
from kubernetes import config

from harness import wait_for
from linearizability import Request

CLIENTS = 6
KEYS = ("a", "b", "c")
# Names the server makes up begin so.
MADE_UP = "g-"
# Of names made up there are about as many; more are deleted together.
MADE_UP_MAX = 5
PAGE = 2
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "lions.zoo.example.com"},
    "spec": {"group": "zoo.example.com", "scope": "Namespaced", "names": {"plural": "lions", "kind": "Lion"},
             "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                           "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                               "status": {"type": "object", "properties": {
                                   "message": {"type": "string"}, "over": {"type": "string"}}}}}}}]},
}


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """What objects of a run are. Main parts are in a label, the token of a write in an annotation, status in `status.message`.

    Where a status write leaves annotations alone, `status.over` is the token of what it was written over: it is the last write for
    as long as that one stands there.
    """

    plural: str
    path: str
    body: dict
    has_status: bool


MAPS = Kind("configmaps", "/api/v1/namespaces/default/configmaps", {"apiVersion": "v1", "kind": "ConfigMap"}, False)
# Nobody schedules them, so nobody else writes them.
PODS = Kind("pods", "/api/v1/namespaces/default/pods", {
    "apiVersion": "v1", "kind": "Pod",
    "spec": {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}}, True)
LIONS = Kind("lions", "/apis/zoo.example.com/v1/namespaces/default/lions", {"apiVersion": "zoo.example.com/v1", "kind": "Lion"}, True)


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
            headers={"Accept": "application/json", "Content-Type": kind}, retries=False, timeout=60)
        return answer.status, json.loads(answer.data) if answer.data[:1] == b"{" else {}

    def events(self, path):
        """The events of a watch, until it ends."""
        answer = self.pool.request(
            "GET", self.api.configuration.host + path, retries=False, preload_content=False,
            timeout=urllib3.Timeout(connect=60, read=60))
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status} {answer.data}")
        rest = b""
        for piece in answer.stream(amt=None):
            *lines, rest = (rest + piece).split(b"\n")
            yield from map(json.loads, lines)


def stored(item):
    return item["metadata"]["uid"], int(item["metadata"]["resourceVersion"])


def found(item):
    meta, status = item["metadata"], item.get("status", {})
    token = meta["annotations"]["token"]
    last = status["message"] if status.get("over") == token else token
    return *stored(item), last, meta["labels"]["main"], status.get("message")


def all_found(items):
    return {item["metadata"]["name"]: found(item) for item in items}


class Client(threading.Thread):
    """Asks one random thing after another of one kind, and writes down what it asked, when, and what it was told."""

    def __init__(self, run, kind, seed):
        super().__init__(daemon=True)
        self.run_of, self.kind = run, kind
        self.random = random.Random(seed)
        self.requests = []
        # (version, prefix, objects) of lists whose moment is told by their version alone.
        self.lists = []
        self.said = set()
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

    def choose(self):
        key = self.random.choice(KEYS)
        token = uuid.UUID(int=self.random.getrandbits(128)).hex
        uid, version = self.seen[key]
        choices = [
            ("get", key), ("list", ""), ("pages", ""), ("exact", ""), ("not older", ""), ("any", ""),
            ("create", key, token), ("update", key, token, version), ("update", key, token, version), ("patch", key, token),
            ("apply", key, token), ("delete", key, self.random.choice((None, uid))), ("generate", MADE_UP, token),
        ]
        if self.kind.has_status:
            choices += [("status", key, token)] * 2
        if self.random.random() < 1 / MADE_UP_MAX:
            # A list by a watch takes a connection of its own: not as often as others.
            choices += [("many", MADE_UP), ("stream", "")]
        return self.random.choice(choices)

    def ask(self, connection, what):
        began = time.monotonic()
        try:
            if what[0] in ("pages", "exact", "not older", "any", "stream"):
                getattr(self, "_" + what[0].replace(" ", "_"))(connection, began)
                return
            code, body = self.send(connection, what)
        except urllib3.exceptions.NewConnectionError:
            return  # never sent
        except urllib3.exceptions.HTTPError:
            if what[0] not in ("pages", "exact", "not older", "any", "stream"):
                self.requests.append((began, time.monotonic(), what, None))
            return
        self.note(began, what, self.understand(what, code, body))

    def note(self, began, what, answer, ended=None):
        """Writes down an answer; None is a refusal before anything was tried."""
        if answer is not None:
            self.requests.append((began, ended or time.monotonic(), what, answer))
            self.said.add((what[0], answer[0]))
            self.run_of.answered()

    def send(self, connection, what):
        verb, key, path = what[0], what[1], self.kind.path
        one = f"{path}/{key}"
        if verb == "list":
            return connection.request("GET", path + "?labelSelector=of%3Dtest")
        if verb == "get":
            return connection.request("GET", one)
        if verb == "many":
            return connection.request("DELETE", path + "?labelSelector=of%3Dtest,made")
        if verb == "delete":
            options = {"preconditions": {"uid": what[2]}} if what[2] else {}
            return connection.request("DELETE", one, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        token = what[2]
        if verb == "status" and self.kind is LIONS:
            change = [{"op": "add", "path": "/status", "value": {"message": token}},
                      {"op": "copy", "from": "/metadata/annotations/token", "path": "/status/over"}]
            return connection.request("PATCH", one + "/status", change, "application/json-patch+json")
        if verb == "status":
            change = {"metadata": {"annotations": {"token": token}}, "status": {"message": token}}
            return connection.request("PATCH", one + "/status", change, "application/merge-patch+json")
        meta = {"labels": {"of": "test", "main": token}, "annotations": {"token": token}}
        if verb == "patch" or (verb == "update" and self.kind is PODS):
            # Of a pod not all that was filled in is known here: a patch that pins the version is an update.
            pinned = {"resourceVersion": str(what[3])} if verb == "update" else {}
            return connection.request("PATCH", one, {"metadata": {**meta, **pinned}}, "application/merge-patch+json")
        if verb == "generate":
            meta["labels"]["made"] = "up"
            return connection.request("POST", path, {**self.kind.body, "metadata": {"generateName": key, **meta}})
        made = {**self.kind.body, "metadata": {"name": key, **meta}}
        if verb == "apply":
            return connection.request("PATCH", one + "?fieldManager=test&force=true", made, "application/apply-patch+yaml")
        if verb == "create":
            return connection.request("POST", path, made)
        made["metadata"]["resourceVersion"] = str(what[3])
        return connection.request("PUT", one, made)

    def understand(self, what, code, body):
        """The answer in the checker's words; None for a refusal before anything was tried."""
        verb, key = what[:2]
        if code == 429:
            return None
        if verb in ("list", "many") and code == 200:
            return "listed", int(body["metadata"]["resourceVersion"]), all_found(body["items"])
        if verb == "generate" and code == 201:
            return "stored as", body["metadata"]["name"], *stored(body)
        if verb not in ("list", "many", "generate"):
            if code == 404:
                self.seen[key] = (None, 1)
                return ("absent",)
            if code == 409:
                return ("exists",) if verb == "create" else ("conflict",)
            if verb == "delete" and code == 200:
                return "deleted", body["details"]["uid"] if body["kind"] == "Status" else body["metadata"]["uid"]
            if code in (200, 201):
                self.seen[key] = stored(body)
                return ("found", *found(body)) if verb == "get" else ("stored", *stored(body))
        raise AssertionError(f"{what}: {code} {body}")

    def listing(self, connection, options=""):
        code, body = connection.request("GET", f"{self.kind.path}?labelSelector=of%3Dtest{options}")
        if code == 429:
            return None
        if code != 200:
            raise AssertionError(f"list {options}: {code} {body}")
        return body

    def _pages(self, connection, began):
        """A list in pages, all of which are of the first one's moment, whoever dies meanwhile."""
        items, token, version, ended = [], "", None, None
        while version is None or token:
            if not self.run_of.alive.is_set():
                self.run_of.alive.wait()
            try:
                page = self.listing(connection, f"&limit={PAGE}" + (f"&continue={token}" if token else ""))
            except urllib3.exceptions.HTTPError:
                if version is None:
                    return
                self.said.add(("pages", "across a death"))
                continue
            if page is None:
                return
            items += page["items"]
            token = page["metadata"].get("continue", "")
            if version is None:
                version, ended = page["metadata"]["resourceVersion"], time.monotonic()
            elif page["metadata"]["resourceVersion"] != version:
                raise AssertionError(f"a page of {page['metadata']} in a list of {version}")
        if len({item["metadata"]["name"] for item in items}) != len(items):
            raise AssertionError(f"one object on two pages of {version}")
        self.said.add(("pages", "many" if len(items) > PAGE else "one"))
        self.note(began, ("list", ""), ("listed", int(version), all_found(items)), ended)

    def _of_moment(self, page, least, most=None):
        if page is None:
            return
        version = int(page["metadata"]["resourceVersion"])
        if version < least or (most is not None and version > most):
            raise AssertionError(f"a list of {version}, where {least} to {most} was asked for")
        self.lists.append((version, "", all_found(page["items"])))

    def some_version(self):
        """A version that somebody was told, not long ago."""
        return max(self.run_of.begin, self.run_of.watchers[self.kind].version - self.random.randrange(30))

    def _exact(self, connection, _):
        version = self.some_version()
        self._of_moment(self.listing(connection, f"&resourceVersion={version}&resourceVersionMatch=Exact"), version, version)

    def _not_older(self, connection, _):
        version = self.some_version()
        self._of_moment(self.listing(connection, f"&resourceVersion={version}&resourceVersionMatch=NotOlderThan"), version)

    def _any(self, connection, _):
        self._of_moment(self.listing(connection, "&resourceVersion=0"), 0)

    def _stream(self, connection, _):
        """A list by a watch that begins with what there is."""
        path = (f"{self.kind.path}?watch=1&labelSelector=of%3Dtest&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
                "&allowWatchBookmarks=true&timeoutSeconds=5")
        items = []
        for event in connection.events(path):
            if event["type"] == "ADDED":
                items.append(event["object"])
                continue
            marked = event["object"]["metadata"].get("annotations", {}).get("k8s.io/initial-events-end")
            if event["type"] == "BOOKMARK" and marked == "true":
                self.lists.append((int(event["object"]["metadata"]["resourceVersion"]), "", all_found(items)))
                return
            raise AssertionError(f"before the end of what there is: {event}")


class Watcher(threading.Thread):
    """One watch from a revision on; after a death of the server it goes on from the last event or bookmark it has."""

    def __init__(self, run, kind, version):
        super().__init__(daemon=True)
        self.run_of, self.kind, self.version = run, kind, version
        self.state = {}
        # (version, key, object or None)
        self.told = []
        self.bookmarks = 0
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
        for event in connection.events(
                f"{self.kind.path}?watch=1&labelSelector=of%3Dtest&timeoutSeconds=3&allowWatchBookmarks=true"
                f"&resourceVersion={self.version}"):
            self.take(event)

    def take(self, event):
        item = event["object"]
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise AssertionError(f"watch from {self.version}: {event}")
        version = int(item["metadata"]["resourceVersion"])
        if event["type"] == "BOOKMARK":
            if version < self.version:
                raise AssertionError(f"a bookmark of {version} after {self.version}")
            self.version = version
            self.bookmarks += 1
            return
        name = item["metadata"]["name"]
        if version <= self.version:
            raise AssertionError(f"{version} told after {self.version}")
        if (event["type"] == "ADDED") == (name in self.state):
            raise AssertionError(f"{event['type']} of {name}, which is {self.state.get(name)}")
        self.state.pop(name, None)
        if event["type"] != "DELETED":
            self.state[name] = found(item)
        self.told.append((version, name, self.state.get(name)))
        self.version = version


class Run:
    """Clients and watchers of some kinds against one server, with deaths of it in between.

    `rounds` times so many requests are answered, `answers` each; it dies after each round but the last `rounds - deaths`."""

    def __init__(self, test, store, kinds, rounds, answers, deaths):
        self.seed = int(os.environ.get("LINEARIZABLE_SEED") or random.SystemRandom().getrandbits(32))
        self.server = Server(test, store)
        self.alive, self.ended, self.watched = threading.Event(), threading.Event(), threading.Event()
        self.alive.set()
        self.count = threading.Semaphore(0)
        self.deaths = []
        connection = self.server.connection()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_for("the namespace", lambda: connection.request("GET", account)[0] == 200)
        if LIONS in kinds:
            code, body = connection.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
            assert code == 201, body
            wait_for("the definition", lambda: connection.request("GET", LIONS.path)[0] == 200)
        self.begin = int(connection.request("GET", kinds[0].path)[1]["metadata"]["resourceVersion"])
        self.clients = [Client(self, kinds[n % len(kinds)], f"{self.seed} {n}") for n in range(CLIENTS)]
        self.watchers = {kind: Watcher(self, kind, self.begin) for kind in kinds}
        for thread in self.threads():
            thread.start()
        for survived in range(rounds):
            self.wait_for_answers(answers)
            if survived < deaths:
                self.die()
        self.stored, self.history = {}, {}
        self.finish()

    def threads(self):
        return (*self.clients, *self.watchers.values())

    def answered(self):
        self.count.release()

    def wait_for_answers(self, answers):
        for _ in range(answers):
            while not self.count.acquire(timeout=1):
                self.check_threads()

    def check_threads(self):
        for thread in self.threads():
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
        # What is stored in the end is asked last of all, and the watches have to come to the same.
        for kind, watcher in self.watchers.items():
            final = Client(self, kind, "the end")
            final.ask(self.server.connection(), ("list", ""))
            self.stored[kind] = final.requests[-1][3][2]
            self.check_threads()
            wait_for(f"the watch to tell what is stored (seed {self.seed})",
                     lambda: self.check_threads() or watcher.state == self.stored[kind])
            asked = [request for one in (*self.clients, final) if one.kind is kind for request in one.requests]
            self.history[kind] = self.judged(asked)
            # They come by the clock, and a run may be over before.
            wait_for("a bookmark", lambda: self.check_threads() or watcher.bookmarks)
        self.watched.set()

    def judged(self, asked):
        """The requests in the checker's words."""
        history, names = [], {}
        for _, _, what, answer in asked:
            listed = answer[2].items() if answer and answer[0] == "listed" else ()
            names.update((entry[2], key) for key, entry in listed)
            if answer and answer[0] == "stored as":
                names[what[2]] = answer[1]
        for began, ended, what, answer in asked:
            if answer is None and what[0] in ("get", "list"):
                continue
            ended = self.end_of(began, ended) if answer is None else ended
            if what[0] == "generate":
                # What nobody was ever told the name of had no effect that anybody could see.
                if what[2] in names:
                    answer = answer and ("stored", *answer[2:])
                    history.append(Request(began, ended, ("create", names[what[2]], what[2]), answer))
                continue
            if what[0] == "many":
                # First a list, then a deletion of each: the whole is not one step.
                if answer is not None:
                    history.append(Request(began, ended, ("list", MADE_UP), answer))
                keys = answer[2] if answer else {key for key in names.values() if key.startswith(MADE_UP)}
                history += [Request(began, ended, ("drop", key), answer and ("gone",)) for key in sorted(keys)]
                continue
            history.append(Request(began, ended, what, answer))
        return history

    def end_of(self, began, failed):
        """When the server died that owed an answer: nothing takes effect after that."""
        before = [death for death in self.deaths if began <= death <= failed]
        return before[-1] if before else next(death for death in self.deaths if death > failed)
