# Writes every effect to a file before it answers. What is in the file outlives the process, however it ends.
import os
import socketserver
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        os.write(ledger, (self.headers["idempotency-key"] + "\n").encode())
        time.sleep(0.01)
        body = ("done " + self.headers["idempotency-key"]).encode()
        self.send_response(201)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)  # the usual one asks for the name of this machine, which may take seconds


Server(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
