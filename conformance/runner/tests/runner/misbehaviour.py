"""A subject that adds, and misbehaves in the way that its argument names at a = 13."""

import json
import os
import sys
import time

mode = sys.argv[1]
pending = []


def send(message):
    sys.stdout.write(message if isinstance(message, str) else json.dumps(message))
    sys.stdout.write("\n")
    sys.stdout.flush()


def answer(question, seq=None):
    total = question["input"]["a"] + question["input"]["b"]
    send({"seq": question["seq"] if seq is None else seq, "value": {"sum": total}})


def forever():
    while True:
        time.sleep(1000)


def misbehave(question):
    seq = question["seq"]
    if mode == "crash":
        sys.stderr.write("something is\nbroken\n")
        sys.exit(7)
    elif mode == "signal":
        os.kill(os.getpid(), 11)
    elif mode == "hang":
        forever()
    elif mode == "endless-line":
        while True:
            sys.stdout.write("x" * 65536)
    elif mode == "endless-lines":
        while True:
            sys.stdout.write("x\n")
    elif mode == "unknown-seq":
        answer(question, seq + 1000000)
    elif mode == "repeated-seq":
        answer(question)
        answer(question)
    elif mode == "garbage":
        send("Warning: this is not JSON")
        answer(question)
    elif mode == "no-seq":
        send({"value": {"sum": 14}})
    elif mode == "no-answer":
        send({"seq": seq})
    elif mode == "deep":
        send("[" * 900000)
    elif mode == "not-a-number":
        send('{"seq": %d, "value": {"sum": NaN}}' % seq)
    elif mode == "huge-number":
        send('{"seq": %d, "value": {"sum": 1e999}}' % seq)
    elif mode == "invalid-utf8":
        sys.stdout.buffer.write(b'{"seq": %d, "error": "\xff"}\n' % seq)
        sys.stdout.flush()
    elif mode == "repeated-member":
        send('{"seq": %d, "value": {"sum": 14}, "value": {"sum": 15}}' % seq)
    elif mode == "floods-stderr":
        sys.stderr.write("x" * 10000000)
        sys.stderr.flush()
        answer(question)
    elif mode == "two-answers":
        send({"seq": seq, "value": {"sum": 14}, "invalid": "no"})
    elif mode == "wrong-type":
        send({"seq": seq, "value": 14})
    elif mode == "close-stdout":
        os.close(1)
        forever()
    elif mode == "grandchild":
        child = os.fork()
        if child == 0:
            forever()
        with open(sys.argv[2], "w") as file:
            file.write(str(child))
        os._exit(7)
    elif mode == "crash-once" and not os.path.exists(sys.argv[2]):
        open(sys.argv[2], "w").close()
        sys.exit(7)
    else:
        answer(question)


def introduce():
    starts = 1
    if mode in ("another", "no-restart"):
        with open(sys.argv[2], "a+") as file:
            file.write("x")
            starts = file.tell()
    if mode == "no-restart" and starts > 1:
        sys.exit(3)
    version = 2 if mode == "version" else 1.0 if mode == "floats" else 1
    implementation = {"name": "adder", "version": f"{starts}.0", "language": "python"}
    introduction = {"version": version, "implementation": implementation, "areas": ["test.add"]}
    if mode == "no-version":
        del introduction["version"]
    elif mode == "no-name":
        del implementation["name"]
    elif mode == "no-areas":
        del introduction["areas"]
    elif mode == "long-name":
        implementation["name"] = "x" * 1000000
    elif mode == "two-lines":
        implementation["version"] = "1\n2"
    elif mode == "escape":
        introduction["areas"].append("\x1b[2J")
    elif mode == "many-areas":
        introduction["areas"] = ["a"] * 100000
    elif mode == "no-url":
        introduction["rpc"] = 8545
    elif mode == "more-areas":
        introduction["areas"].append("test.later")
    send("hello" if mode == "greets" else introduction)


for line in sys.stdin:
    message = json.loads(line)
    if message["cmd"] == "start":
        introduce()
    elif message["cmd"] == "stop":
        if mode == "no-stop":
            forever()
        if mode == "talks-after-stop":
            send("bye")
        if mode == "repeats-after-stop":
            answer(last)
        if mode == "endless-after-stop":
            while True:
                send("bye")
        sys.exit(0)
    elif mode == "floats":
        answer(message, float(message["seq"]))
    elif mode == "always-crash" or mode in ("another", "no-restart") and message["input"]["a"] == 13:
        sys.exit(7)
    elif mode == "always-garbage":
        send("Warning: this is not JSON")
        answer(message)
    elif mode in ("reversed", "swapped"):
        pending.append(message)
        if len(pending) == 4:
            for place, question in enumerate(reversed(pending)):
                answer(question, pending[place]["seq"] if mode == "swapped" else None)
            pending = []
    elif message["input"]["a"] == 13:
        misbehave(message)
    else:
        answer(message)
    last = message
