"""Code that the four services share: loops and shutdown, the gRPC server and clients, errors on the wire,
watches.

Start reading at `app.py` (a service from main to its loops), then `runtime.py` (how loops end).
"""

import os

# Before any import of gRPC, whose library writes a line to stderr for each failed handshake: refused clients
# could fill the disk with text of their choice.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
