# An ordinary Flask service that charges whenever it is asked to.
import sys
import threading

from flask import Flask, jsonify, request

app = Flask(__name__)
lock = threading.Lock()
charges = []


@app.post("/payments")
def pay():
    with lock:
        charges.append(request.get_json()["amount"])
        return jsonify(receipt=len(charges)), 201


@app.get("/payments")
def count():
    return jsonify(count=len(charges))


app.run(host="127.0.0.1", port=int(sys.argv[1]), threaded=True)
