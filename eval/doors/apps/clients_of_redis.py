"""Asks by redis-py: one command alone, and a pipeline, in RESP2 and RESP3."""

import sys

import redis

for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), password=sys.argv[2], protocol=protocol)
    command = ("CL.THROTTLE", f"redis-py {protocol}", 2, 3, 3600)
    replies = [client.execute_command(*command)]
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(3):
            pipeline.execute_command(*command)
        replies += pipeline.execute()
    try:
        replies.append(client.get("x"))
    except redis.ResponseError as e:
        replies.append("ERR " + str(e).removeprefix("ERR "))
    print(*replies)
