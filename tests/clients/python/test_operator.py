"""An operator written with kube-rs, run as it is: OPERATOR names its program, which knows nothing of these tests."""

import os
import subprocess
import tempfile
import unittest

from kubernetes import client

from harness import ServerTest, wait_for

DEFINITION = "websites.example.com"


class Operator(ServerTest):
    def setUp(self):
        super().setUp()
        self.custom = client.CustomObjectsApi(self.api)
        self.output = tempfile.NamedTemporaryFile(prefix="operator-", suffix=".log")
        self.process = subprocess.Popen([os.environ["OPERATOR"]], stdout=self.output, stderr=subprocess.STDOUT)
        self.addCleanup(self.end)
        wait_for("its definition", lambda: self.said("defined"))

    def end(self):
        # Not asked to end: kube-rs waits for ever for a list that it was asked to end before.
        self.process.kill()
        self.process.wait()
        self.output.close()
        extensions = client.ApiextensionsV1Api(self.api)
        extensions.delete_custom_resource_definition(DEFINITION)
        wait_for("the definition's end", lambda: self.is_gone(extensions.read_custom_resource_definition, DEFINITION))

    def said(self, line):
        if self.process.poll() is not None:
            raise AssertionError(f"the operator ended: {self.log()}")
        return line in self.log().splitlines()

    def log(self):
        with open(self.output.name, encoding="utf-8") as file:
            return file.read()

    def websites(self):
        return ("example.com", "v1", self.namespace, "websites")

    def deployment(self):
        found = self.apps.list_namespaced_deployment(self.namespace).items
        return found[0] if found else None

    def test_a_website_becomes_a_deployment_and_ends_with_it(self):
        body = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "blog"}, "spec": {"image": "nginx"}}
        made = self.custom.create_namespaced_custom_object(*self.websites(), body)
        self.assertEqual(made["spec"], {"image": "nginx", "replicas": 1})
        deployment = wait_for("its deployment", self.deployment)
        self.assertEqual(deployment.metadata.owner_references[0].uid, made["metadata"]["uid"])
        observed = lambda: self.read().get("status", {}).get("observed_generation")
        wait_for("its status", lambda: observed() == 1)
        self.assertEqual(self.read()["metadata"]["finalizers"], ["example.com/website"])

        self.custom.patch_namespaced_custom_object(*self.websites(), "blog", {"spec": {"replicas": 3}})
        wait_for("three replicas", lambda: self.deployment().spec.replicas == 3)
        wait_for("its status", lambda: observed() == 2)

        # What the operator owns is brought back, its own deletion is its sign to look again.
        self.apps.delete_namespaced_deployment("blog", self.namespace)
        wait_for("another deployment", lambda: getattr(self.deployment(), "metadata", deployment.metadata).uid != deployment.metadata.uid)
        # Later one may: the deployment's news can come after the website's end and before that is told.
        self.assertNotIn("reconciler for object", self.log(), "no turn failed")

        self.custom.delete_namespaced_custom_object(*self.websites(), "blog")
        wait_for("its finalizer", lambda: self.said("cleaned blog"))
        wait_for("the deployment's end", lambda: self.deployment() is None)

    def read(self):
        return self.custom.get_namespaced_custom_object(*self.websites(), "blog")

    def test_what_its_schema_forbids_is_refused(self):
        body = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "big"}, "spec": {"image": "nginx", "replicas": 99}}
        refused = self.refused(422, "Invalid", self.custom.create_namespaced_custom_object, *self.websites(), body)
        self.assertEqual(refused["details"]["causes"][0]["field"], "spec.replicas")


if __name__ == "__main__":
    unittest.main()
