"""What the four services share: loops and their end, the gRPC server and its peers, errors on the wire,
watches.

Start reading at `app.py` (a service from main to its loops), then `runtime.py` (how loops end).
"""

import os

# Before anything imports gRPC, whose library writes a line to stderr for each handshake that fails: who is
# refused could fill the disk, with names of its own choice.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
