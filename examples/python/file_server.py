"""An HTTP server that sends files with their MD5 in a trailer: what it takes to replace a read-hash-send loop.

    python3 file_server.py DIR [PORT]
    curl -s --raw http://127.0.0.1:8000/NAME

Each request is a thread; all of them share one engine, whose MD5 unit takes up to 32 streams at a time. The loop that
`dcs.sendfile` stands for is in the comment.
"""

import http.server
import os
import sys

import dcs


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self):
        path = self.translate_path(self.path)
        try:
            file = open(path, "rb")
        except OSError:
            return self.send_error(404)
        with file:
            size = os.fstat(file.fileno()).st_size
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Trailer", "Content-MD5-Hex")
            self.end_headers()
            self.wfile.flush()
            if size == 0:
                self.wfile.write(b"0\r\n\r\n")
                return
            self.wfile.write(b"%x\r\n" % size)
            #   digest = hashlib.md5()
            #   while piece := file.read(65536):
            #       digest.update(piece)
            #       self.connection.sendall(piece)
            try:
                done = dcs.sendfile(self.connection, file, count=size, through=["md5"], timeout=600)
            except dcs.Error as error:
                self.close_connection = True
                return self.log_error("%s: %s", error, error.advice)
            self.wfile.write(b"\r\n0\r\nContent-MD5-Hex: %s\r\n\r\n" % done.hexdigest("md5").encode())


def serve(folder, port):
    def handler(*arguments):
        return Handler(*arguments, directory=folder)

    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


if __name__ == "__main__":
    with serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000) as server:
        print("http://%s:%d/" % server.server_address, flush=True)
        server.serve_forever()
