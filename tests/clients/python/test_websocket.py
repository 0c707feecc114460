"""Watches and logs over WebSockets, as browsers ask for them: an event is a message, a log is messages of bytes."""

import base64
import http.server
import json
import os
import ssl
import threading

import websocket

from harness import PATIENCE_SECONDS, ServerTest


class Kubelet(http.server.BaseHTTPRequestHandler):
    """Answers for a log in two pieces."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"one\n\xff")

    def log_message(self, *_):
        pass


class WebSockets(ServerTest):
    def connect(self, path, *protocols):
        """An open WebSocket on a path of the server's."""
        configuration = self.api.configuration
        tls = {"ca_certs": configuration.ssl_ca_cert, "certfile": configuration.cert_file, "keyfile": configuration.key_file}
        url = configuration.host.replace("https://", "wss://") + path
        socket = websocket.create_connection(url, sslopt=tls, subprotocols=list(protocols), timeout=PATIENCE_SECONDS)
        self.addCleanup(socket.close)
        return socket

    def maps(self, query):
        return f"/api/v1/namespaces/{self.namespace}/configmaps?{query}"

    def test_an_event_of_a_watch_is_a_message(self):
        version = self.core.list_namespaced_config_map(self.namespace).metadata.resource_version
        socket = self.connect(self.maps(f"watch=1&resourceVersion={version}"))
        large = "x" * 300_000
        self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": "large"}, "data": {"large": large}})
        self.core.delete_namespaced_config_map("large", self.namespace)
        told = [json.loads(socket.recv()) for _ in range(2)]
        self.assertEqual([event["type"] for event in told], ["ADDED", "DELETED"])
        self.assertEqual(told[0]["object"]["data"]["large"], large)

    def test_the_end_of_a_watch_closes_it(self):
        version = self.core.list_namespaced_config_map(self.namespace).metadata.resource_version
        socket = self.connect(self.maps(f"watch=1&timeoutSeconds=1&resourceVersion={version}"), "base64.binary.k8s.io")
        self.assertEqual(socket.getsubprotocol(), "base64.binary.k8s.io")
        self.assertEqual(socket.recv_data(), (websocket.ABNF.OPCODE_CLOSE, (1000).to_bytes(2, "big")))

    def test_what_is_refused_is_an_answer_as_always(self):
        with self.assertRaises(websocket.WebSocketBadStatusException) as caught:
            self.connect(self.maps("watch=1&resourceVersion=none"))
        self.assertEqual(caught.exception.status_code, 400)
        self.assertEqual(json.loads(caught.exception.resp_body)["kind"], "Status")

    def kubelet(self):
        """A node of the test's own, whose kubelet is a thread here; gives the kubelet."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kubelet)
        server.asked = []
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pki = os.path.join(os.path.dirname(os.environ["KUBECONFIG"]), "pki")
        tls.load_cert_chain(os.path.join(pki, "apiserver.crt"), os.path.join(pki, "apiserver.key"))
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        node = f"node-{self.namespace}"
        self.core.create_node({"metadata": {"name": node}})
        self.addCleanup(self.core.delete_node, node)
        self.core.patch_node_status(node, {"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": server.server_port}}}})
        self.core.create_namespaced_pod(self.namespace, {"metadata": {"name": "p"}, "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}})
        return server

    def test_a_log_is_messages_of_bytes(self):
        kubelet = self.kubelet()
        path = f"/api/v1/namespaces/{self.namespace}/pods/p/log?tailLines=5"
        for protocol, read in (("binary.k8s.io", bytes), ("base64.binary.k8s.io", base64.b64decode)):
            socket = self.connect(path, protocol)
            self.assertEqual(socket.getsubprotocol(), protocol)
            log = b""
            while True:
                kind, data = socket.recv_data()
                if kind == websocket.ABNF.OPCODE_CLOSE:
                    break
                log += read(data)
            self.assertEqual(log, b"one\n\xff")
        self.assertEqual(len(kubelet.asked), 2)
        self.assertIn("tailLines=5", kubelet.asked[0])
