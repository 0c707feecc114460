"""What every test of a client needs: the server under test, a namespace of one's own, and waiting for a condition.

The environment names the server: KUBECONFIG is the administrator's, KUBECTLS lists the programs to test, with colons between;
CONTROLPLANE is the server's own program, for tests that start and kill one.
"""

import json
import os
import time
import unittest
import uuid

from kubernetes import client, config, dynamic
from kubernetes.client.exceptions import ApiException

# How long anything may take that is awaited here; nothing is expected to take a tenth of it.
PATIENCE_SECONDS = 60


def wait_for(what, condition):
    """Asks `condition` until it answers with something true, and returns that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s")
        time.sleep(0.05)


class ServerTest(unittest.TestCase):
    """A test with a namespace of its own, which is deleted at the end and gone before the next test begins."""

    @classmethod
    def setUpClass(cls):
        config.load_kube_config()
        cls.api = client.ApiClient()
        cls.core = client.CoreV1Api(cls.api)
        cls.apps = client.AppsV1Api(cls.api)
        cls.dynamic = dynamic.DynamicClient(cls.api)

    def setUp(self):
        self.namespace = f"test-{uuid.uuid4().hex[:10]}"
        self.make_namespace()
        self.addCleanup(self._delete_namespace)

    def make_namespace(self):
        """Makes it, and waits for what controllers put into each: what happens in it later is the test's own."""
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        for read, name in (
            (self.core.read_namespaced_service_account, "default"),
            (self.core.read_namespaced_config_map, "kube-root-ca.crt"),
        ):
            wait_for(name, lambda: not self.is_gone(read, name, self.namespace))

    def _delete_namespace(self):
        self.core.delete_namespace(self.namespace)
        wait_for(f"end of {self.namespace}", lambda: self.is_gone(self.core.read_namespace, self.namespace))

    @staticmethod
    def is_gone(read, *arguments):
        """Whether reading says 404."""
        try:
            read(*arguments)
        except ApiException as refused:
            if refused.status == 404:
                return True
            raise
        return False

    def refused(self, code, reason, call, *arguments, **options):
        """Calls, expects to be refused with this code and reason, and returns the Status."""
        with self.assertRaises(ApiException) as caught:
            call(*arguments, **options)
        status = json.loads(caught.exception.body)
        self.assertEqual((caught.exception.status, status.get("reason")), (code, reason), status)
        self.assertEqual((status["kind"], status["apiVersion"], status["status"], status["code"]), ("Status", "v1", "Failure", code))
        return status

    def raw(self, method, path, body=None, headers=None):
        """One request as it stands: the answer's code, headers and parsed body. A refusal raises ApiException."""
        sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        url = self.api.configuration.host + path
        answer = self.api.rest_client.pool_manager.request(
            method, url, body=None if body is None else json.dumps(body), headers=sent)
        if answer.status >= 300:
            raise ApiException(status=answer.status, reason=answer.reason, body=answer.data.decode())
        return answer.status, answer.headers, json.loads(answer.data)


def until_no_conflict(call):
    """Calls again while somebody else writes in between, as clients do: the object is read anew by `call` itself."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except ApiException as refused:
            if refused.status != 409 or time.monotonic() > deadline:
                raise


def kubectls():
    """The programs named by KUBECTLS."""
    return [program for program in os.environ.get("KUBECTLS", "kubectl").split(":") if program]
