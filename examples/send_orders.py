"""Sends a thousand orders to the topic `orders` on localhost:9092, for orders.py to add up."""

import json
import random

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "localhost:9092"})
for number in range(1000):
    order = {
        "customer": random.choice(["ann", "bob", "eve"]),
        "amount": random.randint(1, 100) / 4,
        "paid": random.random() < 0.9,
    }
    producer.produce("orders", key=f"order-{number}", value=json.dumps(order))
if producer.flush(30):
    raise SystemExit(
        "localhost:9092 did not accept the orders; start a broker there first: millstream kafka --port 9092"
    )
print("sent 1000 orders")
