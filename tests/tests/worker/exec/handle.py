"""A handler that reads lines: keeps a record of what it did, and does wrong what the payload tells it to, once.

    handle.py FOLDER [SECONDS]      how long each message takes

The record has a line when a message is begun and one when it is done: sequence, attempt, pid, word, and what came.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import time

FOLDER = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0


def note(event, word):
    data = base64.b64decode(event["data_base64"])
    line = {
        "sequence": int(event["sequence"]),
        "key": event["partitionkey"],
        "attempt": event["laneattempt"],
        "pid": os.getpid(),
        "word": word,
        "digest": hashlib.sha256(data).hexdigest(),
        "headers": event["headers"],
    }
    with open(os.path.join(FOLDER, "record"), "a") as record:
        record.write(json.dumps(line) + "\n")


def wrong(event):
    """What the payload asks for, unless it was done before."""
    asked = base64.b64decode(event["data_base64"])[:20].decode(errors="replace")
    mark = os.path.join(FOLDER, f"wrong-{event['sequence']}")
    if os.path.exists(mark):
        return
    if asked in ("hang", "die", "babble", "other", "huge", "bad"):
        open(mark, "w").close()
    if asked == "hang":
        child = subprocess.Popen(["sleep", "600"])
        with open(os.path.join(FOLDER, "left"), "w") as left:
            left.write(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    elif asked == "die":
        os._exit(9)
    elif asked == "babble":
        while True:
            print("babble", flush=True)
    elif asked == "other":
        print(json.dumps({"id": "ORDERS/0", "result": "done"}), flush=True)
    elif asked == "huge":
        print("x" * 2_000_000, flush=True)
    elif asked == "bad":
        print(json.dumps({"id": event["id"], "result": "ok"}), flush=True)


for text in sys.stdin:
    message = json.loads(text)
    note(message, "begun")
    wrong(message)
    if SECONDS:
        time.sleep(SECONDS)
    note(message, "done")
    print(json.dumps({"id": message["id"], "result": "done"}), flush=True)
open(os.path.join(FOLDER, f"ended-{os.getpid()}"), "w").close()
