"""Logs of Ethereum: queries, scans of ``logsBloom``, and proven logs from nodes.

A node can neither leave out nor make up a log: headers are checked by their hashes, receipts by the
root in their header. Certificates, answers and filters of others are checked in the same way.
"""

from ._native import Following, LogQuery, Provider, Update, scan, verify_certificate
from ._proven import ProvenLogs

__all__ = ["Following", "LogQuery", "ProvenLogs", "Provider", "Update", "scan", "verify_certificate"]
