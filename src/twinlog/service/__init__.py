"""What the four services share: loops and their end, the gRPC server and its peers, errors on the wire,
watches.

Start reading at `app.py` (a service from main to its loops), then `runtime.py` (how loops end).
"""
