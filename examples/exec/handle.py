"""Handles orders that the lane gives it, a line of JSON for each, and answers each with a line."""

import base64
import json
import sys

for line in sys.stdin:
    event = json.loads(line)
    answer = {"id": event["id"], "result": "done"}
    try:
        order = json.loads(base64.b64decode(event["data_base64"]))
    except ValueError as error:
        # Another attempt would not help.
        answer = {"id": event["id"], "result": "permanent", "reason": f"the payload is no JSON: {error}"}
    else:
        # Your work goes here. What it changes elsewhere should compare the fence, because a message can come again.
        print(event["partitionkey"], event["lanefence"], order, file=sys.stderr)
    # Flushed: an answer that stays in a buffer is none. When the lane ends, so does the loop.
    print(json.dumps(answer), flush=True)
