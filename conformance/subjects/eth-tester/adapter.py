"""eth-tester over JSON-RPC: web3's EthereumTesterProvider, behind a small HTTP server.

The provider turns members and numbers of JSON-RPC into eth-tester's; the server adds only JSON.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from eth_tester.exceptions import BlockNotFound, TransactionFailed, ValidationError
from web3 import EthereumTesterProvider, Web3

from protocol import serve

w3 = Web3(EthereumTesterProvider())
w3.middleware_onion.clear()  # web3's own checks and conveniences: the queries must reach eth-tester as they are
request = w3.provider.request_func(w3, w3.middleware_onion)


def plain(value):
    """Numbers as JSON-RPC quantities, bytes as hex."""
    if isinstance(value, dict):
        return {member: plain(inner) for member, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return hex(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Node(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        try:
            given = request(asked["method"], asked.get("params", []))
            answer.update({"error": given["error"]} if "error" in given else {"result": plain(given["result"])})
        except (ValidationError, BlockNotFound, TransactionFailed) as reason:  # eth-tester's own refusals
            answer["error"] = {"code": -32602, "message": f"{type(reason).__name__}: {reason}"}
        except Exception as failure:  # a crash inside: JSON-RPC's "internal error"
            answer["error"] = {"code": -32603, "message": f"{type(failure).__name__}: {failure}"}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Node)
threading.Thread(target=server.serve_forever, daemon=True).start()
serve({"logs.node": None}, rpc=f"http://127.0.0.1:{server.server_port}")
