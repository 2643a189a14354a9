"""An application that speaks HTTP/2 without TLS alone: it answers each call with its own body, as gRPC does."""

import socketserver
import sys

import h2.config
import h2.connection
import h2.events


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        self.request.sendall(connection.data_to_send())
        bodies = {}
        seen = {}
        while data := self.request.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    seen[event.stream_id] = dict(event.headers)
                    bodies[event.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    headers = seen[event.stream_id]
                    answer = [
                        (":status", "200"),
                        ("content-type", "application/grpc"),
                        ("x-seen-proto", headers.get("x-forwarded-proto", "none")),
                        ("x-seen-key", headers.get("x-api-key", "none")),
                    ]
                    connection.send_headers(event.stream_id, answer)
                    connection.send_data(event.stream_id, bodies[event.stream_id])
                    connection.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)
            self.request.sendall(connection.data_to_send())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
